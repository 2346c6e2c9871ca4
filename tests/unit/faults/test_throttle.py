"""The throttle slows as asked, tells the truth, and never leaves its target stopped."""

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lineside.faults.throttle import duty_cycle

from .conftest import Victim, command, throttler, wait_for


class FakeTarget:
    """Remembers when it was stopped; dies after ``lives`` stops."""

    def __init__(self, lives: int = 10**9) -> None:
        self.alive = True
        self._lives = lives

    def stop(self) -> None:
        self._lives -= 1
        self.alive = self._lives > 0

    def resume(self) -> None:
        pass


@pytest.fixture
def late(monkeypatch: pytest.MonkeyPatch) -> Callable[[Iterator[float]], None]:
    """A clock that only sleeps move, each late by the next of the given seconds."""

    def install(lateness: Iterator[float]) -> None:
        now = 0.0

        def sleep(seconds: float) -> None:
            nonlocal now
            now += seconds + next(lateness)

        monkeypatch.setattr(time, "sleep", sleep)
        monkeypatch.setattr(time, "perf_counter", lambda: now)

    return install


def rounds(count: int) -> Callable[[], bool]:
    left = iter(range(count))
    return lambda: next(left, None) is None


def test_the_slowdown_is_reached_where_sleeps_are_on_time(late: Callable[..., None]) -> None:
    late(iter([0.0] * 100))
    assert duty_cycle(FakeTarget(), 3.0, 0.06, rounds(50)) == pytest.approx(3.0)


def test_late_sleeps_are_paid_back(late: Callable[..., None]) -> None:
    late(iter([0.010, 0.002, 0.0, 0.025] * 50))
    assert duty_cycle(FakeTarget(), 3.0, 0.06, rounds(100)) == pytest.approx(3.0, rel=0.02)


def test_a_throttle_that_was_away_does_not_stop_for_seconds(late: Callable[..., None]) -> None:
    late(iter([5.0, *[0.0] * 100]))
    slowdown = duty_cycle(FakeTarget(), 3.0, 0.06, rounds(2))
    assert slowdown is not None and slowdown < 1.1


def test_it_ends_with_its_target(late: Callable[..., None]) -> None:
    late(iter([0.0] * 100))
    assert duty_cycle(FakeTarget(lives=3), 2.0, 0.06, rounds(10**6)) == pytest.approx(2.0)


def test_a_real_process_is_slowed_and_left_running(victim: Victim, tmp_path: Path) -> None:
    truth = tmp_path / "truth.jsonl"
    process = throttler("--pid", victim.pid, "--slowdown", 4, "--rank", 7, "--truth", truth)
    wait_for(truth.exists)
    began, ticks = time.monotonic(), victim.ticks
    time.sleep(1.5)
    slowed = (victim.ticks - ticks) / (time.monotonic() - began)
    process.terminate()
    assert process.wait(10) == 0
    assert victim.runs()
    began, ticks = time.monotonic(), victim.ticks
    time.sleep(0.5)
    assert (victim.ticks - ticks) / (time.monotonic() - began) > 1.8 * slowed

    onset, end = map(json.loads, truth.read_text().splitlines())
    assert onset == end | {"to_ns": -1, "measured": None}
    assert (end["what"], end["pid"], end["rank"]) == ("slow_compute", victim.pid, 7)
    assert end["wanted"] == 4.0 and end["measured"] == pytest.approx(4.0, rel=0.3)
    assert end["from_ns"] < end["to_ns"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_and_the_target_runs_on(victim: Victim, number: signal.Signals) -> None:
    process = throttler("--pid", victim.pid, "--slowdown", 3)
    wait_for(lambda: victim.stopped)
    process.send_signal(number)
    assert process.wait(10) == 0
    assert victim.runs()


def test_even_sigkill_leaves_the_target_running(victim: Victim) -> None:
    process = throttler("--pid", victim.pid, "--slowdown", 20, "--period-ms", 500)
    wait_for(lambda: victim.stopped)
    process.kill()
    process.wait()
    wait_for(lambda: not victim.stopped)
    assert victim.runs()


def test_it_ends_by_itself_after_the_seconds(victim: Victim) -> None:
    process = throttler("--pid", victim.pid, "--seconds", 0.3)
    assert process.wait(30) == 0
    assert victim.runs()


def test_it_ends_when_its_target_does(victim: Victim) -> None:
    process = throttler("--pid", victim.pid)
    wait_for(lambda: victim.stopped)
    victim.process.kill()
    assert process.wait(10) == 0


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["--pid", 2**22 + 1], b"there is no process"),
        (["--pid", 1], b"process 1 is no target"),
        (["--pid", os.getpid(), "--slowdown", 1], b"a slowdown of 1.0 is none"),
    ],
)
def test_what_it_refuses(arguments: list[object], why: bytes) -> None:
    done = subprocess.run(command(*arguments), capture_output=True, timeout=60)
    assert done.returncode == 1 and why in done.stderr

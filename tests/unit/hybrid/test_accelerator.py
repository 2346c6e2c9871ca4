"""The emulated accelerator: steady on a busy host, slow when it is stopped. All clocks are false ones."""

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import cycle

import pytest

from lineside.hybrid.accelerator import Accelerator, ReadyClock


class World:
    """Each sleep takes its time, then so much more for each of the two kinds of trouble."""

    def __init__(self, *, queue_s: Iterator[float] | None = None, stop_s: Iterator[float]) -> None:
        self.wall = self.ready = 0.0
        self._queue_s = queue_s or cycle([0.0])
        self._stop_s = stop_s

    def sleep(self, seconds: float) -> None:
        queued = next(self._queue_s)
        self.wall += seconds + queued + next(self._stop_s)
        self.ready += queued

    def compute(self, seconds: float, stopped: float = 0.0) -> None:
        self.wall += seconds + stopped
        self.ready += seconds

    @contextmanager
    def timed(self, accelerator: Accelerator) -> Iterator[list[float]]:
        took = [self.wall]
        with accelerator.busy(units=2):
            yield took
        took[0] = self.wall - took[0]

    def accelerator(self) -> Accelerator:
        return Accelerator(
            0.010,
            clock=lambda: self.wall,
            ready_clock=lambda: self.ready,
            sleep=self.sleep,
        )


def test_real_compute_is_filled_up_to_the_emulated_time() -> None:
    world = World(stop_s=cycle([0.0]))
    with world.timed(world.accelerator()) as took:
        world.compute(0.004)
    assert took[0] == pytest.approx(0.020)


def test_compute_longer_than_the_emulated_time_adds_nothing() -> None:
    world = World(stop_s=cycle([0.0]))
    with world.timed(world.accelerator()) as took:
        world.compute(0.030)
    assert took[0] == pytest.approx(0.030)


def test_waiting_for_a_cpu_does_not_slow_the_accelerator() -> None:
    world = World(stop_s=cycle([0.0]), queue_s=cycle([0.004, 0.0]))
    with world.timed(world.accelerator()) as took:
        pass
    assert took[0] == pytest.approx(0.020, abs=0.004)


def test_a_stop_is_made_up_for_in_full_but_for_the_grace() -> None:
    world = World(stop_s=cycle([0.040, *[0.0] * 12]))
    with world.timed(world.accelerator()) as took:
        pass
    assert took[0] == pytest.approx(0.020 + 0.040, abs=0.0006)


def test_a_stop_within_the_real_compute_counts_too() -> None:
    world = World(stop_s=cycle([0.0]))
    with world.timed(world.accelerator()) as took:
        world.compute(0.004, stopped=0.040)
    assert took[0] == pytest.approx(0.020 + 0.040 - 0.002)


def test_the_ready_clock_runs_with_work_and_rests_in_sleep() -> None:
    clock = ReadyClock()
    began = clock()
    time.sleep(0.05)
    slept = clock() - began
    began = clock()
    cpu = time.thread_time()
    while time.thread_time() - cpu < 0.05:
        pass
    worked = clock() - began
    assert worked >= 0.05 > 2 * slept


def test_the_ready_clock_rests_while_the_process_is_stopped() -> None:
    told, tell = os.pipe()
    child = os.fork()
    if child == 0:
        clock = ReadyClock()
        began = clock(), time.perf_counter()
        os.kill(os.getpid(), signal.SIGSTOP)
        os.write(tell, f"{clock() - began[0]} {time.perf_counter() - began[1]}".encode())
        os._exit(0)
    os.waitpid(child, os.WUNTRACED)
    time.sleep(0.2)
    os.kill(child, signal.SIGCONT)
    ready, wall = map(float, os.read(told, 100).split())
    os.waitpid(child, 0)
    assert wall >= 0.2 > 2 * ready

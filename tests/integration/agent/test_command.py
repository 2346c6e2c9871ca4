"""``lineside run`` as people use it: signals, exit codes, and no process left behind."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from lineside.bus.kafka import KafkaBus

from .conftest import JOB, PATIENCE_S, RANK, Seen, alive, bus_environment, eventually

Command = subprocess.Popen[bytes]


@pytest.fixture
def seen(bus: KafkaBus) -> Iterator[Seen]:
    found = Seen(bus)
    yield found
    found.close()


@pytest.fixture
def commands() -> Iterator[list[Command]]:
    """Those in it are ended after the test."""
    started: list[Command] = []
    yield started
    for command in started:
        if command.poll() is None:
            command.kill()
        command.communicate()


def lineside_run(bus: KafkaBus, tmp_path: Path, *rank: str) -> Command:
    words = ["run", "--job", JOB, "--machines", "2", "--run-dir", str(tmp_path / "run"), "--json"]
    return subprocess.Popen(
        [sys.executable, "-m", "lineside.cli", *words, "--", *RANK, *rank],
        env=os.environ | bus_environment(bus) | {"LINESIDE_STOP_GRACE_S": "60"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )


def processes(seen: Seen, command: Command) -> list[int]:
    """All pids of a run that trains already."""

    def trains() -> bool:
        running = bool(seen.jobs()) and seen.jobs()[-1].state == "running"
        return running and bool(seen.steps(0) and seen.steps(1))

    eventually(trains, "the run to train", seen.poll)
    return [child.pid for child in psutil.Process(command.pid).children(recursive=True)]


def test_ctrl_c_ends_everything(
    bus: KafkaBus, tmp_path: Path, seen: Seen, commands: list[Command]
) -> None:
    command = lineside_run(bus, tmp_path)
    commands.append(command)
    pids = processes(seen, command)
    assert len(pids) == 4, "two agents, two ranks"
    command.send_signal(signal.SIGINT)
    out, _ = command.communicate(timeout=PATIENCE_S)
    assert command.returncode == 130
    assert alive(pids) == []
    said = [json.loads(line) for line in out.splitlines()]
    assert [line["state"] for line in said] == ["starting", "running", "stopped"]
    assert said[-1]["exit_code"] == 130
    eventually(lambda: seen.jobs()[-1].state == "stopped", "the Job's end", seen.poll)
    gone = {member.machine_id for member in seen.members() if member.state == "gone"}
    assert gone == {"machine-0", "machine-1"}


def test_a_second_ctrl_c_kills_what_does_not_listen(
    bus: KafkaBus, tmp_path: Path, seen: Seen, commands: list[Command]
) -> None:
    command = lineside_run(bus, tmp_path, "--deaf")
    commands.append(command)
    pids = processes(seen, command)
    command.send_signal(signal.SIGINT)
    eventually(
        lambda: [member for member in seen.members() if member.state == "draining"],
        "the agents to stop their ranks",
        seen.poll,
    )
    command.send_signal(signal.SIGINT)
    command.communicate(timeout=PATIENCE_S)
    assert command.returncode == 130
    assert alive(pids) == []


def test_nothing_outlives_a_launcher_that_is_killed(
    bus: KafkaBus, tmp_path: Path, seen: Seen, commands: list[Command]
) -> None:
    command = lineside_run(bus, tmp_path, "--deaf")
    commands.append(command)
    pids = processes(seen, command)
    command.kill()
    eventually(lambda: not alive(pids), "the kernel to end the rest")


def test_without_kafka_it_says_what_to_do(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "lineside.cli", "run", "--bootstrap", "127.0.0.1:1",
         "--run-dir", str(tmp_path / "run"), "--", "true"],
        capture_output=True,
        timeout=PATIENCE_S,
    )  # fmt: skip
    assert done.returncode == 69
    assert b"no answer from Kafka at 127.0.0.1:1" in done.stderr
    assert b"Traceback" not in done.stderr


def test_a_program_that_does_not_exist_is_told_with_its_name(bus: KafkaBus, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "lineside.cli", "run", "--job", JOB,
         "--run-dir", str(tmp_path / "run"), "--", "no-such-program"],
        env=os.environ | bus_environment(bus),
        capture_output=True,
        timeout=PATIENCE_S,
    )  # fmt: skip
    assert done.returncode == 127
    assert b"no-such-program: No such file" in done.stderr

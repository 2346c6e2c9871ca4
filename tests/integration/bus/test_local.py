"""A real local broker: kept data, kills, two starters, and each way in which it cannot start."""

import json
import logging
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.unit.bus.suite import numbers, publish, record, values

from lineside.bus.kafka import KafkaBus
from lineside.bus.local import LocalKafka, Running, find, running_bootstrap, stop
from lineside.bus.local_errors import BrokerExited, FolderInUse, PortTaken
from lineside.contracts import TOPICS, TopicName

JOBS = TopicName.JOBS
Cli = Callable[..., subprocess.Popen[str]]
DEADLINE_S = 180.0  # a JVM starts in 2 s on an idle machine


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def ready_bus(kafka: LocalKafka) -> KafkaBus:
    bus = KafkaBus(kafka.bootstrap, partitions=1)
    bus.admin().ensure_topics([TOPICS[JOBS]])
    return bus


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A data folder whose broker, if a failing test left one, is stopped."""
    yield tmp_path / "kafka"
    if running := find(tmp_path / "kafka"):
        stop(running)


@pytest.fixture
def cli(folder: Path) -> Iterator[Cli]:
    """Runs ``lineside kafka WORD --data folder ...``; what a failing test left running is ended."""
    started: list[subprocess.Popen[str]] = []

    def run(word: str, *options: str) -> subprocess.Popen[str]:
        program = "from lineside.bus.commands import kafka; kafka()"
        command = subprocess.Popen(
            [sys.executable, "-c", program, word, "--data", str(folder), *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(command)
        return command

    yield run
    for command in started:
        with command:
            command.kill()


def test_data_stays_between_starts(folder: Path) -> None:
    with LocalKafka(folder) as kafka:
        publish(ready_bus(kafka), numbers(20))
        assert running_bootstrap(folder) == kafka.bootstrap
        first = kafka.running
    assert not first.alive()
    assert running_bootstrap(folder) is None
    with LocalKafka(folder) as kafka:
        assert len(list(ready_bus(kafka).reader().read(JOBS, 0, 0))) == 20
    assert (folder / "kafka.log").exists()


def test_nothing_is_lost_when_the_broker_is_killed(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with LocalKafka(folder) as kafka:
        bus, port = ready_bus(kafka), int(kafka.bootstrap.split(":")[1])
        publisher, tail = bus.publisher(), bus.tail([JOBS])
        for i in range(200):
            publisher.publish(record(b"%d" % i))
        os.kill(kafka.running.pid, signal.SIGKILL)
        until(lambda: tail.receive(1, 0.05) == [] and "tail: Kafka at" in caplog.text)
        for i in range(200, 400):
            publisher.publish(record(b"%d" % i))
            publisher.poll()
    with LocalKafka(folder, port) as kafka:
        assert publisher.flush(DEADLINE_S) == 0
        assert publisher.failed() == 0
        stored = values(list(bus.reader().read(JOBS, 0, 0)))
        assert stored == [b"%d" % i for i in range(400)], "each once, in order"
        until(lambda: tail.receive(100, 0.05) and "tail: Kafka at" in caplog.text)
        tail.close()
        publisher.close()
    told = [e.getMessage() for e in caplog.records if e.levelno >= logging.WARNING]
    for who in ("tail", "publisher"):
        about = [line.rpartition(" is ")[2] for line in told if line.startswith(f"{who}: Kafka")]
        assert about == ["away; waiting for it", "back"]


def test_the_broker_dies_with_its_starter(folder: Path) -> None:
    program = (
        "import sys, time; from pathlib import Path; from lineside.bus.local import LocalKafka\n"
        "LocalKafka(Path(sys.argv[1])).start(); print('up', flush=True); time.sleep(600)"
    )
    starter = subprocess.Popen(
        [sys.executable, "-c", program, str(folder)], stdout=subprocess.PIPE, text=True
    )
    assert starter.stdout is not None
    with starter.stdout:
        assert starter.stdout.readline() == "up\n"
    running = find(folder)
    assert running is not None
    starter.kill()
    starter.wait()
    until(lambda: not running.alive())
    assert find(folder) is None


def test_two_starters_at_once_make_one_broker_that_stays(folder: Path, cli: Cli) -> None:
    starters = [cli("start", "--json") for _ in range(2)]
    told = [starter.communicate(timeout=DEADLINE_S) for starter in starters]
    assert [starter.returncode for starter in starters] == [0, 0], told
    states = [json.loads(out) for out, _ in told]
    assert states[0]["pid"] == states[1]["pid"]
    assert sorted(state["started"] for state in states) == [False, True]

    status = cli("status", "--json")
    state = json.loads(status.communicate(timeout=DEADLINE_S)[0])
    assert (status.returncode, state["running"], state["answers"]) == (0, True, True)

    running = find(folder)
    assert running is not None
    stopper = cli("stop", "--json")
    assert json.loads(stopper.communicate(timeout=DEADLINE_S)[0]) == {"stopped": True}
    assert not running.alive()
    status = cli("status")
    assert "no Kafka runs" in status.communicate(timeout=DEADLINE_S)[0]
    assert status.returncode == 3


def test_in_the_foreground_it_stops_with_the_command(folder: Path, cli: Cli) -> None:
    command = cli("start", "--foreground")
    assert command.stdout is not None
    assert "Kafka started at" in command.stdout.readline()
    running = find(folder)
    command.send_signal(signal.SIGTERM)
    _, err = command.communicate(timeout=DEADLINE_S)
    assert command.returncode == 0, err
    assert running is not None
    assert not running.alive()


def test_a_folder_in_use_names_its_broker(kafka: LocalKafka) -> None:
    with pytest.raises(FolderInUse, match=f"{kafka.bootstrap} .pid {kafka.running.pid}"):
        LocalKafka(kafka.data_dir).start()
    assert kafka.running.answers()


def test_a_broker_whose_state_file_is_gone_keeps_its_folder(kafka: LocalKafka) -> None:
    state = kafka.data_dir / "kafka.json"
    known = state.read_bytes()
    state.unlink()
    try:
        with pytest.raises(FolderInUse, match="another broker"):
            LocalKafka(kafka.data_dir).start()
    finally:
        state.write_bytes(known)
    assert kafka.running.answers()


def test_a_taken_port_is_said_so(tmp_path: Path) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(PortTaken, match=f"port {port} is taken .* another port"):
            LocalKafka(tmp_path, port).start()


def test_a_broker_that_ends_shows_its_last_words(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "meta.properties").write_text("version=99\n")
    with pytest.raises(BrokerExited, match=r"(?s)ended with code 1.*version"):
        LocalKafka(tmp_path).start()
    assert find(tmp_path) is None


def test_a_reused_pid_is_not_the_broker() -> None:
    me = Running(pid=os.getpid(), started_ticks=1, bootstrap="127.0.0.1:1", data=".")
    assert not me.alive()

"""A worker process as its operators meet it: start without broker or topics, readiness, outages, backlog."""

import json
import signal
import socket
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from lineside.bus.kafka import KafkaBus
from lineside.bus.local import LocalKafka
from lineside.contracts import TOPICS, TopicName, WireMessage, encode

from .harness import JOBS, Feed, Starter, WorkerProcess, saved, steps, wait_for


def _port(worker: WorkerProcess) -> str:
    said = wait_for(
        lambda: "http://" in worker.log.read_text() and worker.log.read_text(), 30, "port"
    )
    return str(said.split("http://127.0.0.1:")[1].split()[0])


def _readyz(port: str) -> dict[str, Any]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz") as answer:
            return dict(json.load(answer))
    except urllib.error.HTTPError as error:
        with error:
            return dict(json.load(error))


def _ready(port: str) -> dict[str, Any] | None:
    answer = _readyz(port)
    return answer if answer["ready"] else None


def test_readiness_tells_what_the_worker_does(bus: KafkaBus, start: Starter) -> None:
    poison = WireMessage(topic=TopicName.STEPS, partition=1, key=b"x", value=b"?", headers=())
    publisher = bus.publisher()
    publisher.publish(poison)
    assert publisher.flush(10) == 0
    publisher.close()
    worker = start(bus, "w", LINESIDE_METRICS_PORT="0")
    port = _port(worker)
    with Feed(bus, 40), saved(bus) as state:
        wait_for(lambda: state.counts().total() > 40, 60, "records applied")
        numbers = wait_for(lambda: _ready(port), 30, f"ready: {_readyz(port)}")
        assert numbers["partitions"] == [0, 1, 2, 3] and numbers["jobs"] == len(JOBS)
        assert numbers["dead_letters"] == 1 and numbers["last_event_age_s"] >= 0
        assert numbers["record_s"] > 0
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
        text = answer.read().decode()
    assert 'lineside_dead_letters_total{topic="steps.v1"} 1.0' in text
    assert worker.end(signal.SIGTERM) == 0


def test_a_worker_waits_for_its_broker_and_outlives_an_outage(
    tmp_path: Path, start: Starter
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    broker = LocalKafka(tmp_path / "kafka", port=port)
    bus = KafkaBus(f"127.0.0.1:{port}", prefix="p.", partitions=2)
    worker = start(bus, "early", LINESIDE_METRICS_PORT="0")
    http = _port(worker)
    wait_for(lambda: worker.said("waits: no answer"), 30, "it says that it waits")
    assert _readyz(http) == {"ready": False, "reasons": ["waiting for Kafka"]}
    broker.start()
    try:
        assert worker.process.wait(30) == 78
        assert "run `lineside topics create`" in worker.log.read_text()
        assert worker.log.read_text().count("waits: no answer") == 1

        bus.admin().ensure_topics(tuple(TOPICS.values()))
        worker = start(bus, "w", LINESIDE_METRICS_PORT="0")
        http = _port(worker)
        with Feed(bus, 40) as feed, saved(bus) as state:
            wait_for(lambda: state.counts().total() > 40, 60, "records applied")
            broker.stop()
            wait_for(lambda: not _readyz(http)["ready"], 30, "not ready while Kafka is away")
            broker = LocalKafka(tmp_path / "kafka", port=port).start()
            wait_for(lambda: _ready(http), 60, f"ready again, see {worker.log}")
        with saved(bus) as state:
            wait_for(lambda: state.counts() == feed.count, 60, "every record applied")
        assert worker.end(signal.SIGTERM) == 0
    finally:
        broker.stop()


def test_a_backlog_is_replayed_and_live_records_follow(bus: KafkaBus, start: Starter) -> None:
    publisher, backlog = bus.publisher(), 3000
    for n in range(backlog):
        publisher.publish(_wire(steps("job-0", n), bus))
    assert publisher.flush(60) == 0
    worker = start(bus, "w")
    with saved(bus) as state:
        wait_for(lambda: state.counts().total() == backlog, 60, f"caught up, see {worker.log}")
        publisher.publish(_wire(steps("job-0", backlog), bus))
        publisher.flush(10)
        wait_for(lambda: state.counts().total() == backlog + 1, 30, "the live record")
    publisher.close()
    assert worker.end(signal.SIGTERM) == 0


def _wire(batch: Any, bus: KafkaBus) -> WireMessage:
    return encode(TopicName.STEPS, batch, bus.partitions)


@pytest.mark.parametrize("room", ["minder", "mycroft"])
def test_the_other_processors_start_and_stop(bus: KafkaBus, start: Starter, room: str) -> None:
    worker = start(bus, room, "-m", f"lineside.{room}")
    wait_for(lambda: worker.said("seated on partitions [0, 1, 2, 3]"), 40, "seated")
    assert worker.end(signal.SIGTERM) == 0, worker.log.read_text()

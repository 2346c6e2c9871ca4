"""What waits while Kafka is away: bounded, oldest first out, counted, in order."""

from pathlib import Path
from typing import Any

import pytest

from lineside.agent.outbox import Outbox
from lineside.agent.sender import Sender
from lineside.agent.spec import AgentSpec
from lineside.agent.spool import Spool
from lineside.bus.memory import MemoryBus
from lineside.contracts import MetricBatch, TopicName, WireMessage, decode, partition_of

JOB = "gpt"


def received(bus: MemoryBus, topic: TopicName = TopicName.STEPS) -> list[bytes]:
    log = bus.logs[topic, partition_of(JOB, bus.partitions)]
    return [message.value or b"" for message in log]


def message(number: int, size: int = 100) -> WireMessage:
    return WireMessage(
        topic=TopicName.STEPS,
        partition=partition_of(JOB, 12),
        key=b"",
        value=str(number).encode().ljust(size),
        headers=(),
    )


def test_nothing_is_lost_within_the_bound(tmp_path: Path) -> None:
    bus = MemoryBus(queue_records=3)
    outbox = Outbox(bus.publisher(), Spool(tmp_path / "spool", 100_000))
    bus.away = True
    for number in range(20):
        outbox.put(message(number), rows=1)
    assert outbox.waiting() == 17, "three are in the client's own queue"
    bus.away = False
    while outbox.waiting():
        outbox.pump()
    assert list((tmp_path / "spool").iterdir()) == []
    assert outbox.finish(1.0) == 0
    assert [int(value) for value in received(bus)] == list(range(20))
    assert outbox.take_dropped(TopicName.STEPS) == 0


def test_beyond_the_bound_the_oldest_go_and_are_counted(tmp_path: Path) -> None:
    bus = MemoryBus(queue_records=1)
    outbox = Outbox(bus.publisher(), Spool(tmp_path, 5 * 138))
    bus.away = True
    for number in range(20):
        outbox.put(message(number), rows=2)
    bus.away = False
    assert outbox.finish(1.0) == 0
    assert [int(value) for value in received(bus)] == [0, 15, 16, 17, 18, 19]
    assert outbox.take_dropped(TopicName.STEPS) == 28
    assert outbox.take_dropped(TopicName.STEPS) == 0
    assert outbox.take_dropped(TopicName.COLLECTIVES) == 0


def test_what_no_broker_takes_does_not_block_the_rest(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    bus = MemoryBus()
    outbox = Outbox(bus.publisher(), Spool(tmp_path, 100_000_000))
    outbox.put(message(0, size=20_000_000), rows=7)
    outbox.put(message(1), rows=1)
    assert [int(value) for value in received(bus)] == [1]
    assert outbox.take_dropped(TopicName.STEPS) == 7
    assert "too large" in caplog.text


def test_a_disk_that_takes_nothing_costs_records_and_they_are_counted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "spool").write_text("no folder")
    bus = MemoryBus(queue_records=1)
    outbox = Outbox(bus.publisher(), Spool(tmp_path / "spool", 10_000))
    bus.away = True
    for number in range(3):
        outbox.put(message(number), rows=2)
    assert outbox.take_dropped(TopicName.STEPS) == 4
    assert caplog.text.count("the spool cannot be used") == 1
    bus.away = False
    outbox.put(message(3), rows=2)
    assert [int(value) for value in received(bus)] == [0, 3]


def test_what_cannot_be_sent_at_the_end_is_told_and_stays_on_disk(tmp_path: Path) -> None:
    bus = MemoryBus(queue_records=1)
    outbox = Outbox(bus.publisher(), Spool(tmp_path, 10_000))
    bus.away = True
    for number in range(3):
        outbox.put(message(number))
    assert outbox.finish(0.0) == 3
    bus.away = False
    assert Outbox(bus.publisher(), Spool(tmp_path, 10_000)).finish(1.0) == 0
    assert [int(value) for value in received(bus)] == [1, 2]


def metrics() -> dict[str, Any]:
    return {"start_ns": 0, "interval_s": 1.0, "series": [], "values": []}


def test_batches_are_numbered_per_topic_and_carry_what_was_lost(
    spec: AgentSpec, tmp_path: Path
) -> None:
    bus = MemoryBus(queue_records=1)
    sender = Sender(spec, Outbox(bus.publisher(), Spool(tmp_path, 0)), bus.partitions)
    bus.away = True
    for _ in range(3):  # one is queued, two are dropped
        sender.batch(TopicName.MACHINE_METRICS, MetricBatch, metrics(), rows=1)
    bus.away = False
    sender.pump()
    sender.batch(TopicName.MACHINE_METRICS, MetricBatch, metrics(), rows=1, lost=5)
    batches = [
        decode(TopicName.MACHINE_METRICS, v) for v in received(bus, TopicName.MACHINE_METRICS)
    ]
    assert [batch.sequence for batch in batches] == [0, 3]
    assert [batch.dropped for batch in batches] == [0, 7]
    assert len({batch.incarnation for batch in batches}) == 1
    assert (batches[0].machine_id, batches[0].generation) == ("machine-0", 2)

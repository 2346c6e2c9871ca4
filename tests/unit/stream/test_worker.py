"""The worker's dealings with a bus, where the order of things matters."""

from typing import Any

import pytest

from lineside.bus import QueueFull
from lineside.bus.memory import MemoryBus, MemoryPublisher
from lineside.contracts import TopicName, WireMessage
from lineside.stream import Processor
from lineside.stream.outbox import Outbox, OutputLost
from lineside.stream.partition import Partition, Verdict
from lineside.stream.worker import CHUNK, Worker

from .toy import INPUTS, PROCESSOR, Toy, metric, steps


def caught_up(worker: Worker) -> Partition:
    partition = worker.open(0)
    for _ in worker.catch_up(partition):
        pass
    return partition


def send(bus: MemoryBus, *wires: WireMessage) -> None:
    publisher = bus.publisher()
    for wire in wires:
        publisher.publish(wire)


def test_inputs_are_replayed_in_the_order_of_time() -> None:
    bus, order = MemoryBus(partitions=1, now_ms=iter(range(10**6)).__next__), []

    class Ordered(Toy):
        def observe(self, record: Any, now_ns: int) -> list[Any]:
            order.append(record.sequence)
            return []

    for n in range(0, 600, 3):
        send(bus, steps("a", n), steps("a", n + 1), metric("a", n + 2))
    caught_up(Worker(Processor(name="ordered", inputs=INPUTS, make=Ordered), bus))
    assert order == list(range(600))


def test_catching_up_takes_breath_and_ends_at_the_end() -> None:
    bus = MemoryBus(partitions=1)
    send(bus, *(steps("a", n) for n in range(2 * CHUNK + 5)))
    worker = Worker(PROCESSOR, bus)
    partition = worker.open(0)
    assert list(worker.catch_up(partition))[:2] == [CHUNK, CHUNK]
    assert partition.positions[TopicName.STEPS] == 2 * CHUNK + 5


def test_findings_are_on_the_log_before_the_state_and_the_cursor_is_last() -> None:
    bus, sent = MemoryBus(partitions=1), list[bytes]()
    append = bus.append

    def noting(message: WireMessage) -> None:
        sent.append(message.key)
        append(message)

    bus.append = noting  # type: ignore[method-assign]
    send(bus, *(steps("a", n) for n in range(3)))
    worker = Worker(PROCESSOR, bus)
    partition = caught_up(worker)
    assert worker.commit([partition.snapshot()], 1.0) == [True]
    assert sent[-3:] == [b"a", b"toy/a", b"toy/cursor/0"]


def test_without_acknowledged_findings_no_state_is_sent() -> None:
    bus = MemoryBus(partitions=1)
    send(bus, *(steps("a", n) for n in range(3)))
    worker = Worker(PROCESSOR, bus)
    partition = worker.open(0)
    bus.away = True
    for message in bus.logs[TopicName.STEPS, 0]:
        worker.offer(partition, message)
    assert worker.commit([partition.snapshot()], 0.0) == [False]
    bus.away = False
    assert worker.outbox.settle(1.0)
    assert len(bus.logs[TopicName.FAULTS, 0]) == 1
    assert bus.logs[TopicName.DETECTOR_STATE, 0] == []


class Large(Toy):
    """A detector whose state does not fit into one record."""

    def snapshot(self) -> bytes:
        return super().snapshot() + bytes(5 * 1024 * 1024)

    def restore(self, state: bytes) -> None:
        super().restore(state[: -5 * 1024 * 1024])


def test_a_state_too_large_for_one_record_goes_in_parts_that_are_removed_when_new_ones_stand() -> (
    None
):
    large = Processor(name="large", inputs=INPUTS, make=Large)
    bus = MemoryBus(partitions=1)
    log = bus.logs[TopicName.DETECTOR_STATE, 0]
    worker = Worker(large, bus)
    partition = worker.open(0)
    for round_ in range(3):
        send(bus, steps("a", round_))
        for _ in worker.catch_up(partition):
            pass
        snapshot = partition.snapshot()
        assert worker.commit([snapshot], 1.0) == [True]
        partition.saved(snapshot)
    keys = [message.key for message in log]
    assert keys[2:4] == [b"large/a", b"large/cursor/0"]  # after its two parts
    standing = {message.key: message.value for message in log}
    parts = [k for k, value in standing.items() if b"/part/" in k and value is not None]
    assert len(parts) == 4  # the newest two, and two that go with the next snapshot
    again = Worker(large, bus).open(0).detector("a")
    assert isinstance(again, Large)
    assert again.seen == {"StepBatch": [0, 1, 2]}


def test_a_snapshot_that_failed_half_way_leaves_the_one_before_whole() -> None:
    large = Processor(name="large", inputs=INPUTS, make=Large)
    bus = MemoryBus(partitions=1)
    send(bus, steps("a", 0))
    worker = Worker(large, bus)
    partition = caught_up(worker)
    first = partition.snapshot()
    assert worker.commit([first], 1.0) == [True]
    partition.saved(first)
    send(bus, steps("a", 1))
    for _ in worker.catch_up(partition):
        pass
    half = partition.snapshot()
    worker.outbox.put(half.parts["a"][0])  # and then it is killed
    restored = Worker(large, bus).open(0)
    detector = restored.detector("a")
    assert isinstance(detector, Large) and detector.seen == {"StepBatch": [0]}
    assert restored.judge(TopicName.STEPS, 1) is Verdict.APPLY


class Narrow(MemoryPublisher):
    """Refuses while ``full``; gives up on ``lost`` records."""

    full = False
    lost = 0

    def publish(self, message: WireMessage) -> None:
        if self.full:
            raise QueueFull("full")
        super().publish(message)

    def failed(self) -> int:
        return self.lost


def test_what_does_not_fit_waits_in_order() -> None:
    bus = MemoryBus(partitions=1)
    publisher = Narrow(bus)
    outbox = Outbox(publisher)
    publisher.full = True
    for n in range(3):
        assert outbox.put(steps("a", n))
    assert not outbox.settle(0.0)
    publisher.full = False
    outbox.put(steps("a", 3))
    assert outbox.settle(1.0)
    assert [m.value for m in bus.logs[TopicName.STEPS, 0]] == [
        steps("a", n).value for n in range(4)
    ]


def test_records_that_were_given_up_are_told_once() -> None:
    publisher = Narrow(MemoryBus(partitions=1))
    outbox = Outbox(publisher)
    publisher.lost = 2
    with pytest.raises(OutputLost, match="2 records"):
        outbox.settle(0.0)
    assert outbox.settle(0.0)

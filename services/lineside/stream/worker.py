"""A worker's dealings with the bus: reading snapshots and the log, applying, sending, saving.

Synchronous and without a consumer group, so that the whole of it runs against any bus. Who owns which
partition and what is delivered is decided elsewhere (``attendant``, ``app``).
"""

import heapq
import logging
import time
from collections.abc import Generator, Sequence
from itertools import chain

from lineside.bus import Bus, Message
from lineside.contracts import TopicName
from lineside.kit import metrics
from lineside.stream import snapshot as snapshots
from lineside.stream.outbox import Outbox
from lineside.stream.partition import Partition, Verdict
from lineside.stream.processor import Processor
from lineside.stream.snapshot import PART_BYTES, Snapshot

log = logging.getLogger("lineside.stream")

CHUNK = 200
"""Records applied in one go while catching up; between chunks a snapshot may be taken."""


class Worker:
    """Applies records to partitions and keeps their state on the bus."""

    def __init__(self, processor: Processor, bus: Bus, part_bytes: int = PART_BYTES) -> None:
        self.outbox = Outbox(bus.publisher())
        self.last_event_ns = -1
        self.last_applied_s = time.monotonic()
        self.applied = 0
        self.busy_s = 0.0
        self.dead_letters = 0
        self._processor = processor
        self._partitions = bus.partitions
        self._part_bytes = part_bytes
        self._bus = bus
        self._reader = bus.reader()

    def open(self, number: int) -> Partition:
        """Partition ``number`` as it was last saved. Raises ``BusError``."""
        records = self._reader.read(TopicName.DETECTOR_STATE, number, 0)
        stored = snapshots.read(self._processor.name, number, records)
        partition = Partition(self._processor, number, self._partitions, self._part_bytes)
        for trouble in partition.restore(stored, self.bounds(number)):
            log.error("partition %d: %s", number, trouble)
        return partition

    def catch_up(self, partition: Partition) -> Generator[int, None, None]:
        """Apply what the log holds beyond the partition's positions, all inputs merged by append time, so
        that no input runs ahead of the clock that the others see. Yields after each chunk how many records
        it applied; ends close to the log's end. Raises ``BusError``."""
        applied = CHUNK
        while applied >= CHUNK:
            applied = 0
            bounds = self.bounds(partition.number)
            for topic, (first, _) in bounds.items():
                self._count_lost(topic, partition.retained(topic, first))
            logs = [
                self._reader.read(topic, partition.number, partition.positions[topic], end)
                for topic, (_, end) in bounds.items()
                if partition.positions[topic] < end
            ]
            for message in heapq.merge(*logs, key=lambda message: message.timestamp_ms):
                if partition.judge(message.topic, message.offset) is not Verdict.SKIP:
                    self._apply(partition, message)
                    metrics.increment("lineside_records_replayed_total", message.topic)
                    applied += 1
                    if applied % CHUNK == 0:
                        yield CHUNK
            for topic, (_, end) in bounds.items():
                partition.passed(topic, end)
            yield applied % CHUNK

    def bounds(self, number: int) -> dict[TopicName, tuple[int, int]]:
        """(first kept offset, next offset to be written), per input. Raises ``BusError``."""
        return {topic: self._reader.bounds(topic, number) for topic in self._processor.inputs}

    def renew_reader(self) -> None:
        """A client that failed may not find back by itself (librdkafka keeps asking with the epoch that a
        partition's leader had before the broker was restarted)."""
        self._reader.close()
        self._reader = self._bus.reader()

    def offer(self, partition: Partition, message: Message) -> Verdict:
        """Apply a delivered record if it is the next one; what it was otherwise."""
        verdict = partition.judge(message.topic, message.offset)
        if verdict is Verdict.APPLY:
            self._apply(partition, message)
        elif verdict is Verdict.SKIP:
            metrics.increment("lineside_records_skipped_total", message.topic)
        return verdict

    def commit(self, taken: Sequence[Snapshot], timeout_s: float) -> list[bool]:
        """Send ``taken``; which of them are saved for good.

        The order makes them true: all findings of the records they cover, then the parts of large states,
        then the jobs' states, then the cursors, each acknowledged before the next is sent. Raises
        ``OutputLost``.
        """
        deadline = time.monotonic() + timeout_s
        saved = [True] * len(taken)
        for stage in (
            [list(chain.from_iterable(snap.parts.values())) for snap in taken],
            [list(snap.states.values()) for snap in taken],
            [[snap.cursor] for snap in taken],
        ):
            if not self._settled(deadline):
                return [False] * len(taken)
            saved = [
                good and all([self.outbox.put(message) for message in messages])
                for good, messages in zip(saved, stage, strict=True)
            ]
        return saved if self._settled(deadline) else [False] * len(taken)

    def last_event_age_s(self) -> float | None:
        """How old the newest applied record is, by the broker's clock against ours; None without any."""
        return None if self.last_event_ns < 0 else (time.time_ns() - self.last_event_ns) / 1e9

    def close(self) -> None:
        self.outbox.close()
        self._reader.close()

    def _settled(self, deadline: float) -> bool:
        return self.outbox.settle(max(0.0, deadline - time.monotonic()))

    def _count_lost(self, topic: TopicName, lost: int) -> None:
        if lost:
            metrics.increment("lineside_records_lost_total", topic, by=lost)
            log.error(
                "%d records of %s are lost: they fell out of retention before they were read",
                lost,
                topic,
            )

    def _apply(self, partition: Partition, message: Message) -> None:
        began = time.perf_counter()
        outcome = partition.apply(message)
        took_s = time.perf_counter() - began
        self.applied, self.busy_s = self.applied + 1, self.busy_s + took_s
        self.last_applied_s = time.monotonic()
        metrics.timing("lineside_record_seconds", took_s, message.topic)
        metrics.increment("lineside_records_applied_total", message.topic)
        self.last_event_ns = max(self.last_event_ns, partition.now_ns)
        if outcome.error:
            metrics.increment("lineside_detector_errors_total")
            log.error(
                "%s failed on %s, partition %d, offset %d; the record is a dead letter now",
                self._processor.name,
                message.topic,
                message.partition,
                message.offset,
                exc_info=outcome.error,
            )
        for out in outcome.messages:
            if out.topic is TopicName.DEAD_LETTERS:
                self.dead_letters += 1
                metrics.increment("lineside_dead_letters_total", message.topic)
            else:
                metrics.increment("lineside_findings_total", out.topic)
            self.outbox.put(out)

"""Reading from Kafka: as a member of a group, as a tail without one, and by offset."""

import functools
import time
from collections.abc import Iterator, Sequence

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from lineside.bus.kafka_clients import (
    EARLIEST,
    LATEST,
    Cluster,
    Voice,
    is_absent,
    is_electing,
    is_end,
    is_gone,
    log,
    received,
    said,
)
from lineside.bus.port import BusError, BusMisuse, BusUnavailable, Message
from lineside.contracts import TopicName

_RETRY_S = 0.1


class KafkaSubscriber:
    """A group's member (``group``), or a tail of fixed partitions (``partitions``)."""

    def __init__(
        self,
        cluster: Cluster,
        topics: Sequence[TopicName],
        *,
        group: str | None = None,
        partitions: Sequence[int] = (),
    ) -> None:
        self._cluster = cluster
        self._group = group
        self._voice = Voice(cluster, f"group {group}" if group else "tail")
        self._next: dict[tuple[str, int], int] = {}
        self._committed: dict[tuple[str, int], int] = {}
        self._told: set[tuple[str | None, int]] = set()
        names = [cluster.full(topic) for topic in topics]
        try:
            self._consumer = Consumer(cluster.consumer(self._voice, group))
            if group:
                self._consumer.subscribe(names, on_revoke=self._revoked, on_lost=self._revoked)
            else:
                start = [TopicPartition(n, p, OFFSET_BEGINNING) for n in names for p in partitions]
                self._consumer.assign(start)
        except KafkaException as error:
            raise cluster.translated(error) from error

    def receive(self, limit: int, timeout_s: float) -> list[Message]:
        # consume() alone would wait for a full batch until the time-out, even when records are there.
        first = self._consumer.poll(timeout_s)
        self._voice.ask(lambda: self._consumer.list_topics(self._cluster.full(TopicName.JOBS), 0.1))
        if first is None:
            return []
        rest = self._consumer.consume(limit - 1, 0.0) if limit > 1 else []
        messages = []
        for raw in (first, *rest):
            if error := raw.error():
                self._report(raw.topic(), error)
            elif (name := self._cluster.name(raw.topic() or "")) is not None:
                message = received(name, raw)
                self._next[self._cluster.full(name), message.partition] = message.offset + 1
                messages.append(message)
        if messages:
            self._voice.back()
            self._told.clear()
        return messages

    def commit(self) -> None:
        if not self._group or self._voice.away:  # away, a commit would block for 10 s
            return
        mine = [(at.topic, at.partition) for at in self._consumer.assignment()]
        due = [at for at in mine if at in self._next and self._next[at] != self._committed.get(at)]
        if not due:
            return
        offsets = [TopicPartition(*at, self._next[at]) for at in due]
        try:
            answers = self._consumer.commit(offsets=offsets, asynchronous=False)
        except KafkaException as error:
            # Nothing is lost: the next commit says it again, or another member reads the records again.
            self._report(None, error.args[0])
            return
        for answer in answers or ():
            if answer.error:
                self._report(answer.topic, answer.error)
            else:
                self._committed[answer.topic, answer.partition] = answer.offset

    def lag(self) -> int:
        assigned = self._consumer.assignment()
        if not assigned:
            return -1
        try:
            self._learn_committed(assigned)
            return sum(self._behind(partition) for partition in assigned)
        except (KafkaException, BusUnavailable):
            return -1

    def close(self) -> None:
        self._consumer.close()

    def _behind(self, at: TopicPartition) -> int:
        bounds = self._consumer.get_watermark_offsets(at, cached=True)
        if bounds is None or bounds[1] < 0:
            raise BusUnavailable("not fetched yet")
        done = self._committed if self._group else self._next
        if (at.topic, at.partition) not in done:
            name = self._cluster.name(at.topic)
            assert name is not None  # noqa: S101 (only contract topics are subscribed to)
            done[at.topic, at.partition] = self._reader.bounds(name, at.partition)[0]
        return max(0, bounds[1] - done[at.topic, at.partition])

    @functools.cached_property
    def _reader(self) -> "KafkaReader":
        return KafkaReader(self._cluster)

    def _learn_committed(self, assigned: list[TopicPartition]) -> None:
        if not self._group:
            return
        unknown = [at for at in assigned if (at.topic, at.partition) not in self._committed]
        for at in (
            self._consumer.committed(unknown, timeout=self._cluster.answer_s) if unknown else ()
        ):
            if at.offset >= 0:
                self._committed[at.topic, at.partition] = at.offset

    def _revoked(self, _consumer: Consumer, partitions: list[TopicPartition]) -> None:
        for at in partitions:
            self._next.pop((at.topic, at.partition), None)
            self._committed.pop((at.topic, at.partition), None)

    def _report(self, topic: str | None, error: KafkaError) -> None:
        """Say each kind of trouble once, until records come again. Only a fatal one stops the service."""
        if error.fatal():
            raise BusError(f"the Kafka consumer cannot go on: {said(error)}; restart the service")
        if (topic, error.code()) in self._told or (is_gone(error) and self._voice.away):
            return
        self._told.add((topic, error.code()))
        hint = "; create it with `lineside topics create`" if is_absent(error) else ""
        log.warning("%s: %s%s", topic or self._group or "tail", said(error), hint)


class KafkaReader:
    """Reads by offset. Each running ``read`` has a consumer of its own, kept for the next one."""

    def __init__(self, cluster: Cluster, patience_s: float = 30.0) -> None:
        self._cluster = cluster
        self._patience_s = patience_s
        self._voice = Voice(cluster, "reader")
        self._admin = AdminClient(cluster.admin())
        self._idle: list[Consumer] = []

    def bounds(self, topic: TopicName, partition: int) -> tuple[int, int]:
        at = TopicPartition(self._cluster.full(topic), partition)
        deadline = time.monotonic() + self._cluster.answer_s
        while True:
            try:
                return self._ask_bounds(at)
            except KafkaException as error:
                self._reject_absent(at, error)
                if not is_electing(error.args[0]) or time.monotonic() > deadline:
                    raise self._cluster.translated(error) from error
            time.sleep(_RETRY_S)

    def read(
        self, topic: TopicName, partition: int, start: int, stop: int | None = None
    ) -> Iterator[Message]:
        first, end = self.bounds(topic, partition)
        begin, end = max(start, first), end if stop is None else min(stop, end)
        return self._records(topic, partition, begin, end)

    def close(self) -> None:
        while self._idle:
            self._idle.pop().close()

    def _ask_bounds(self, at: TopicPartition) -> tuple[int, int]:
        # Not Consumer.get_watermark_offsets: without a broker it waits for ever, whatever its time-out.
        asked = [
            self._admin.list_offsets({at: spec}, request_timeout=self._cluster.answer_s)[at]
            for spec in (EARLIEST, LATEST)
        ]
        first, end = (future.result().offset for future in asked)
        return first, end

    def _reject_absent(self, at: TopicPartition, error: KafkaException) -> None:
        """librdkafka tells a missing topic and one without leader yet by the same error."""
        if not (is_absent(error.args[0]) or is_electing(error.args[0])):
            return
        try:
            known = self._admin.list_topics(at.topic, self._cluster.answer_s).topics[at.topic]
        except KafkaException as silence:
            raise self._cluster.unavailable(silence) from silence
        if known.error or at.partition not in known.partitions:
            raise BusMisuse(
                f"there is no partition {at.partition} of {at.topic}: create the topics with "
                "`lineside topics create`"
            ) from error

    def _take(self) -> Consumer:
        if self._idle:
            return self._idle.pop()
        config = self._cluster.consumer(self._voice, None)
        # A fetch that waits at a partition's end would hold up the next read on the same connection.
        return Consumer(config | {"enable.partition.eof": True, "fetch.wait.max.ms": 10})

    def _records(self, topic: TopicName, partition: int, begin: int, end: int) -> Iterator[Message]:
        if begin >= end:
            return
        consumer = self._take()
        try:
            consumer.assign([TopicPartition(self._cluster.full(topic), partition, begin)])
            heard = time.monotonic()
            while True:
                batch = consumer.consume(500, 0.05)
                if batch:
                    heard = time.monotonic()
                    self._voice.back()
                elif time.monotonic() - heard > self._patience_s:
                    raise BusUnavailable(
                        f"nothing from Kafka at {self._cluster.bootstrap} for {self._patience_s:.0f} s"
                    )
                for raw in batch:
                    if error := raw.error():
                        if is_end(error):
                            return
                        raise self._cluster.translated(KafkaException(error))
                    message = received(topic, raw)
                    if message.offset < end:
                        yield message
                    # Compaction leaves gaps: the end may be passed without being met.
                    if message.offset >= end - 1:
                        return
        finally:
            consumer.unassign()
            self._idle.append(consumer)

"""The bus in one process's memory, for tests and for replaying files: it passes the suite that Kafka passes.

It keeps everything (no retention, no compaction), delivers at once, and moves partitions between a group's
members as Kafka does: a new owner starts from the committed offset. ``away`` plays a broker that cannot be
reached: records queue up as in a real client and are delivered once it is back.
"""

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence

from lineside.bus.port import (
    BusMisuse,
    BusUnavailable,
    Message,
    QueueFull,
    reject_unsendable,
)
from lineside.contracts import TOPICS, Topic, TopicName, WireMessage, partition_of

Place = tuple[TopicName, int]
"""A topic's partition."""


def _wall_clock_ms() -> int:
    return time.time_ns() // 1_000_000


class MemoryBus:
    """A cluster of one process. Usable from several threads.

    ``topics`` are those that exist from the start (all contract topics; ``()`` for an empty cluster),
    ``now_ms`` the broker's clock, ``queue_records`` how many records may wait while ``away``.

    >>> bus = MemoryBus(partitions=2)
    >>> tail = bus.tail([TopicName.JOBS])
    >>> bus.publisher().publish(WireMessage(
    ...     topic=TopicName.JOBS, partition=0, key=b"job", value=b"{}", headers=()))
    >>> [message.value for message in tail.receive(10, 0.0)]
    [b'{}']
    """

    def __init__(
        self,
        partitions: int = 12,
        *,
        topics: Iterable[Topic] = tuple(TOPICS.values()),
        now_ms: Callable[[], int] = _wall_clock_ms,
        queue_records: int = 100_000,
    ) -> None:
        self.partitions = partitions
        self.queue_records = queue_records
        self.now_ms = now_ms
        self.away = False
        self.changed = threading.Condition(threading.RLock())
        self.logs: dict[Place, list[Message]] = {}
        self.groups: dict[str, _Group] = defaultdict(_Group)
        self.create(topics, partitions)

    def publisher(self) -> "MemoryPublisher":
        return MemoryPublisher(self)

    def subscriber(self, topics: Sequence[TopicName], group: str) -> "MemoryMember":
        return MemoryMember(self, topics, self.groups[group])

    def tail(self, topics: Sequence[TopicName], job_id: str | None = None) -> "MemoryTail":
        one = None if job_id is None else partition_of(job_id, self.partitions)
        return MemoryTail(self, topics, range(self.partitions) if one is None else (one,))

    def reader(self) -> "MemoryReader":
        return MemoryReader(self)

    def admin(self) -> "MemoryAdmin":
        return MemoryAdmin(self, self.partitions)

    def create(self, topics: Iterable[Topic], partitions: int) -> None:
        """Make empty topics; what exists stays."""
        with self.changed:
            for topic in topics:
                for partition in range(partitions):
                    self.logs.setdefault((topic.name, partition), [])
            self.changed.notify_all()

    def append(self, message: WireMessage) -> None:
        with self.changed:
            log = self.logs[message.topic, message.partition]
            log.append(
                Message(
                    topic=message.topic,
                    partition=message.partition,
                    offset=len(log),
                    timestamp_ms=self.now_ms(),
                    key=message.key,
                    value=message.value,
                    headers=dict(message.headers),
                )
            )
            self.changed.notify_all()


class MemoryPublisher:
    """Appends at once; while the bus is away, queues."""

    def __init__(self, bus: MemoryBus) -> None:
        self._bus = bus
        self._waiting: list[WireMessage] = []
        self._failed = 0

    def publish(self, message: WireMessage) -> None:
        reject_unsendable(message, self._bus.partitions)
        if len(self._waiting) >= self._bus.queue_records:
            raise QueueFull(f"{len(self._waiting)} records wait to be sent")
        self._waiting.append(message)
        self.poll()

    def poll(self) -> None:
        if self._bus.away:
            return
        waiting, self._waiting = self._waiting, []
        for message in waiting:
            if (message.topic, message.partition) in self._bus.logs:
                self._bus.append(message)
            else:
                self._failed += 1

    def flush(self, timeout_s: float) -> int:
        deadline = time.monotonic() + timeout_s
        self.poll()
        while self._waiting and time.monotonic() < deadline:
            time.sleep(0.001)
            self.poll()
        return len(self._waiting)

    def failed(self) -> int:
        return self._failed

    def close(self) -> None:
        self._waiting.clear()


class MemoryTail:
    """Reads fixed partitions from their start, without a group."""

    def __init__(
        self, bus: MemoryBus, topics: Sequence[TopicName], partitions: Iterable[int]
    ) -> None:
        self._bus = bus
        self.topics = tuple(topics)
        self._next: dict[Place, int] = {(t, p): 0 for t in topics for p in partitions}

    def receive(self, limit: int, timeout_s: float) -> list[Message]:
        deadline = time.monotonic() + timeout_s
        with self._bus.changed:
            while not (messages := self._ready(limit)):
                left = deadline - time.monotonic()
                if left <= 0 or not self._bus.changed.wait(left):
                    return self._ready(limit)
            return messages

    def commit(self) -> None:
        """A tail has nothing to commit to."""

    def lag(self) -> int:
        with self._bus.changed:
            return sum(len(self._bus.logs.get(at, ())) - n for at, n in self._next.items())

    def close(self) -> None:
        self._next.clear()

    def _ready(self, limit: int) -> list[Message]:
        messages: list[Message] = []
        if self._bus.away:
            return messages
        for at, start in self._next.items():
            fresh = self._bus.logs.get(at, [])[start : start + limit - len(messages)]
            self._next[at] = start + len(fresh)
            messages += fresh
        return messages


class _Group:
    """A consumer group's committed offsets and its members, in the order of their joining."""

    def __init__(self) -> None:
        self.committed: dict[Place, int] = {}
        self.members: list[MemoryMember] = []

    def share_out(self, partitions: int) -> None:
        """Partition p of every topic to the same member, evenly. What moves starts from its commit."""
        for index, member in enumerate(self.members):
            mine = range(index, partitions, len(self.members))
            member.assign({(topic, p) for topic in member.topics for p in mine})


class MemoryMember(MemoryTail):
    """One member of a group."""

    def __init__(self, bus: MemoryBus, topics: Sequence[TopicName], group: _Group) -> None:
        super().__init__(bus, topics, ())
        self._group = group
        with bus.changed:
            group.members.append(self)
            group.share_out(bus.partitions)

    def assign(self, places: set[Place]) -> None:
        """From now on these; called by the group."""
        kept = {at: n for at, n in self._next.items() if at in places}
        fresh = {at: self._group.committed.get(at, 0) for at in sorted(places - kept.keys())}
        self._next = kept | fresh

    def commit(self) -> None:
        with self._bus.changed:
            self._group.committed |= self._next

    def lag(self) -> int:
        with self._bus.changed:
            done = self._group.committed
            return sum(len(self._bus.logs.get(at, ())) - done.get(at, 0) for at in self._next)

    def close(self) -> None:
        with self._bus.changed:
            if self in self._group.members:
                self._group.members.remove(self)
                self._group.share_out(self._bus.partitions)
                self._bus.changed.notify_all()
        super().close()


class MemoryReader:
    """Reads by offset."""

    def __init__(self, bus: MemoryBus) -> None:
        self._bus = bus

    def bounds(self, topic: TopicName, partition: int) -> tuple[int, int]:
        if self._bus.away:
            raise BusUnavailable("the bus is away")
        try:
            return 0, len(self._bus.logs[topic, partition])
        except KeyError:
            raise BusMisuse(f"there is no partition {partition} of {topic}") from None

    def read(
        self, topic: TopicName, partition: int, start: int, stop: int | None = None
    ) -> Iterator[Message]:
        _, end = self.bounds(topic, partition)
        end = end if stop is None else min(stop, end)
        return iter(self._bus.logs[topic, partition][max(0, start) : max(0, end)])

    def close(self) -> None:
        """Nothing is held."""


class MemoryAdmin:
    """Creates topics."""

    def __init__(self, bus: MemoryBus, partitions: int) -> None:
        self._bus = bus
        self._partitions = partitions

    def ensure_topics(self, topics: Sequence[Topic]) -> list[str]:
        if self._bus.away:
            raise BusUnavailable("the bus is away")
        for topic in topics:
            if self.partitions(topic.name) not in (0, self._partitions):
                raise BusMisuse(
                    f"topics should have {self._partitions} partitions, but {topic.name} has "
                    f"{self.partitions(topic.name)}: the number is fixed when the topics are created"
                )
        missing = [topic for topic in topics if not self.partitions(topic.name)]
        self._bus.create(missing, self._partitions)
        return [str(topic.name) for topic in missing]

    def partitions(self, topic: TopicName) -> int:
        return sum(name == topic for name, _ in self._bus.logs)

    def close(self) -> None:
        """Nothing is held."""

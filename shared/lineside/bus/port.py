"""The bus as the rest of the house sees it: five small ports and what can go wrong.

    BusError
    ├── BusUnavailable   the broker cannot be reached now: retry, nothing is lost
    ├── QueueFull        the local send queue is full: keep the record and try again (back-pressure)
    └── BusMisuse        a topic that does not exist, a record that is too large: a mistake, stop

Topic names on this side never carry the tenant's prefix; adapters add and remove it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from lineside.contracts import TOPICS, Topic, TopicName, WireMessage


class BusError(Exception):
    """Something about the bus, not about a record's content."""


class BusUnavailable(BusError):
    """The broker cannot be reached; trying again later is right."""


class QueueFull(BusError):
    """Too many records wait to be sent."""


class BusMisuse(BusError):
    """Trying again will not help."""


@dataclass(frozen=True, slots=True)
class Message:
    """A received record. ``timestamp_ms`` is the broker's append time. A None ``value`` is a tombstone."""

    topic: TopicName
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: dict[str, bytes] = field(default_factory=dict)


_FRAMING_BYTES = 2048
"""What a batch and its record add to key, value and headers, generously."""


def reject_unsendable(message: WireMessage, partitions: int) -> None:
    """Raise ``BusMisuse`` for what no broker would take; every bus asks this before it queues."""
    limit = TOPICS[message.topic].max_bytes - _FRAMING_BYTES
    size = len(message.key) + len(message.value or b"")
    size += sum(len(name) + len(value) for name, value in message.headers)
    if size > limit:
        raise BusMisuse(
            f"a record of {size} bytes is too large for {message.topic}, which takes {limit}: "
            "split the batch"
        )
    if not 0 <= message.partition < partitions:
        raise BusMisuse(f"{message.topic} has no partition {message.partition}, only {partitions}")


@runtime_checkable
class Publisher(Protocol):
    """Sends records; idempotent, in order per partition."""

    def publish(self, message: WireMessage) -> None:
        """Queue ``message``. Raises ``QueueFull`` at once instead of blocking, ``BusMisuse`` if too large."""
        ...

    def poll(self) -> None:
        """Let deliveries complete; call it regularly, also when idle. Never blocks."""
        ...

    def flush(self, timeout_s: float) -> int:
        """Wait for deliveries, at most ``timeout_s``; returns how many records are still not delivered."""
        ...

    def failed(self) -> int:
        """How many queued records were given up on since the start."""
        ...

    def close(self) -> None: ...


@runtime_checkable
class Subscriber(Protocol):
    """One member of a consumer group; offsets are committed by ``commit`` only."""

    def receive(self, limit: int, timeout_s: float) -> list[Message]:
        """Up to ``limit`` records, at least once; empty after ``timeout_s``. Raises ``BusUnavailable``
        only when it cannot even be started: a broker that goes away is waited for."""
        ...

    def commit(self) -> None:
        """Everything received so far is done with."""
        ...

    def lag(self) -> int:
        """Records not yet committed over the assigned partitions; -1 while unknown. A tail, which commits
        nothing, counts those not yet received: 0 means that it has caught up."""
        ...

    def close(self) -> None: ...


@runtime_checkable
class LogReader(Protocol):
    """Reads partitions by offset, outside any group: recordings, refills, the newest value of a key."""

    def bounds(self, topic: TopicName, partition: int) -> tuple[int, int]:
        """(first kept offset, next offset to be written)."""
        ...

    def read(
        self, topic: TopicName, partition: int, start: int, stop: int | None = None
    ) -> Iterator[Message]:
        """Records in [start, stop), ``stop`` None: up to the end as it was at the call. Starts at the
        first kept offset where ``start`` is below it."""
        ...

    def close(self) -> None: ...


@runtime_checkable
class Admin(Protocol):
    """Topics as they should be."""

    def ensure_topics(self, topics: Sequence[Topic]) -> list[str]:
        """Create what is missing, with its settings; returns the created names. Raises ``BusMisuse`` where
        a topic stands with another number of partitions, ``BusUnavailable`` without a broker."""
        ...

    def partitions(self, topic: TopicName) -> int:
        """How many partitions the topic has; 0 if it does not exist."""
        ...

    def close(self) -> None: ...


@runtime_checkable
class Bus(Protocol):
    """Opens the ports; ``kafka.KafkaBus`` and ``memory.MemoryBus`` are the two kinds.

    ``partitions`` is the number that all topics share.
    """

    partitions: int

    def publisher(self) -> Publisher: ...

    def subscriber(self, topics: Sequence[TopicName], group: str) -> Subscriber:
        """A group member over all partitions of ``topics``, from the earliest record on."""
        ...

    def tail(self, topics: Sequence[TopicName], job_id: str | None = None) -> Subscriber:
        """A reader without group from the earliest record on: of one job's partition, or of all."""
        ...

    def reader(self) -> LogReader: ...

    def admin(self) -> Admin: ...

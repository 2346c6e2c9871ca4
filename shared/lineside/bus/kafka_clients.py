"""What all Kafka clients of the room share: their settings, the tenant's topic names, and one calm voice.

librdkafka repeats itself while a broker is away, several lines a second and client. Here a client says once
that the broker is away and once that it is back; librdkafka's own lines pass where they tell of something
else (an offset that fell out of retention, a group that threw us out).
"""

# ruff: noqa: SLF001 (confluent-kafka names its public error codes with a leading underscore)

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin._listoffsets import OffsetSpec

from lineside.bus.port import BusError, BusMisuse, BusUnavailable, Message
from lineside.contracts import TopicName

log = logging.getLogger("lineside.bus")

MAX_MESSAGE_BYTES = 4 * 1024 * 1024
"""As in the topics' own settings; Kafka's default of 1 MB is too little for a machine of eight devices."""

EARLIEST = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
LATEST = OffsetSpec.latest()  # type: ignore[no-untyped-call]

_PRODUCER = {
    "linger.ms": 20,
    "batch.size": 1_000_000,
    "compression.type": "lz4",
    "enable.idempotence": True,
    "message.max.bytes": MAX_MESSAGE_BYTES,
    # A client whose broker is away must not eat the trainer's memory.
    "queue.buffering.max.kbytes": 128 * 1024,
}
_CONSUMER = {
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "auto.offset.reset": "earliest",  # also where an offset fell out of retention; librdkafka warns
    "isolation.level": "read_committed",
    "message.max.bytes": MAX_MESSAGE_BYTES,
    "max.partition.fetch.bytes": MAX_MESSAGE_BYTES,
    # A topic that is created later is found within seconds.
    "topic.metadata.refresh.interval.ms": 10_000,
    # Local prefetch; the default of 64 MB a partition queue is too much for an agent.
    "queued.max.messages.kbytes": 32 * 1024,
    # How long the broker collects before it answers an idle fetch; it is also the pause after an empty one.
    "fetch.wait.max.ms": 500,
}
_GROUP = {
    "partition.assignment.strategy": "cooperative-sticky",
    "session.timeout.ms": 10_000,
    "heartbeat.interval.ms": 2_000,
}
_GONE = (
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._TRANSPORT,
    KafkaError._RESOLVE,
    KafkaError._TIMED_OUT,
    KafkaError._MSG_TIMED_OUT,
    KafkaError._WAIT_COORD,
    KafkaError.BROKER_NOT_AVAILABLE,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.NOT_COORDINATOR,
)
_ELECTING = (  # for a moment after a topic was made, or its leader died
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError._NOENT,
)
_ABSENT = (
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError._UNKNOWN_TOPIC,
    KafkaError._UNKNOWN_PARTITION,
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Cluster:
    """Where the brokers are and what this tenant's topics are called. ``settings`` go to librdkafka as they
    are, after ours (TLS, SASL)."""

    bootstrap: str
    prefix: str
    answer_s: float = 5.0  # for a question that normally takes a few milliseconds
    settings: Mapping[str, str | int] = field(default_factory=dict)

    def full(self, name: TopicName) -> str:
        return f"{self.prefix}{name}"

    def name(self, full: str) -> TopicName | None:
        """The contract topic behind a cluster's topic; None for topics of others."""
        try:
            return (
                TopicName(full.removeprefix(self.prefix)) if full.startswith(self.prefix) else None
            )
        except ValueError:
            return None

    def client(self) -> dict[str, Any]:
        return {
            "bootstrap.servers": self.bootstrap,
            "reconnect.backoff.ms": 50,
            "reconnect.backoff.max.ms": 1_000,
            "broker.address.family": "any",
            **self.settings,
        }

    def admin(self) -> dict[str, Any]:
        # Its errors are raised, so it need not log them. New topics settle within milliseconds.
        hasty = {"retry.backoff.ms": 20, "retry.backoff.max.ms": 100}
        return {**self.client(), **hasty, "log_level": 0}

    def producer(self, voice: "Voice", queue_records: int) -> dict[str, Any]:
        own = {"queue.buffering.max.messages": queue_records, "error_cb": voice.error}
        return {**_PRODUCER, **self.client(), **own, "logger": _librdkafka}

    def consumer(self, voice: "Voice", group: str | None) -> dict[str, Any]:
        # Without group management librdkafka still wants a name.
        own = {**_GROUP, "group.id": group} if group else {"group.id": "unused"}
        own |= {"error_cb": voice.error, "logger": _librdkafka}
        return {**_CONSUMER, **self.client(), **own}

    def unavailable(self, error: KafkaException) -> BusUnavailable:
        return BusUnavailable(
            f"no answer from Kafka at {self.bootstrap} ({said(error)}): start one with "
            "`lineside kafka start`, or give the brokers' address with --bootstrap HOST:PORT"
        )

    def translated(self, error: KafkaException) -> BusError:
        """librdkafka's error as one of the room's."""
        cause = error.args[0]
        if is_gone(cause) or is_electing(cause):
            return self.unavailable(error)
        return BusMisuse(said(error))


def said(error: KafkaException | KafkaError) -> str:
    cause = error.args[0] if isinstance(error, KafkaException) else error
    return f"{cause.str()} [{cause.name()}]"


def is_absent(error: KafkaError) -> bool:
    return error.code() in _ABSENT


def is_gone(error: KafkaError) -> bool:
    return error.code() in _GONE


def is_electing(error: KafkaError) -> bool:
    """A partition has no leader just now, or none that we know of."""
    return error.code() in _ELECTING


def is_end(error: KafkaError) -> bool:
    """The partition's end: no error, librdkafka only tells it like one."""
    return error.code() == KafkaError._PARTITION_EOF


def is_given_up(error: KafkaError) -> bool:
    """The record was dropped because its publisher was closed."""
    return error.code() in (KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT)


class Voice:
    """Says once that the brokers are away and once that they are back."""

    def __init__(self, cluster: Cluster, who: str) -> None:
        self._cluster = cluster
        self._who = who
        self.away = False
        self._asked = 0.0

    def error(self, error: KafkaError) -> None:
        """librdkafka's ``error_cb``."""
        if error.code() == KafkaError._ALL_BROKERS_DOWN:
            if not self.away:
                log.warning(
                    "%s: Kafka at %s is away; waiting for it", self._who, self._cluster.bootstrap
                )
            self.away = True
        elif not is_gone(error):
            log.warning("%s: %s", self._who, said(error))

    def back(self) -> None:
        """Something came from the brokers."""
        if self.away:
            self.away = False
            log.warning("%s: Kafka at %s is back", self._who, self._cluster.bootstrap)

    def ask(self, answer: Callable[[], object], every_s: float = 1.0) -> None:
        """While away: try ``answer``, at most each ``every_s``; that it returns means back."""
        if self.away and time.monotonic() - self._asked >= every_s:
            self._asked = time.monotonic()
            try:
                answer()
            except KafkaException:
                return
            self.back()


def received(name: TopicName, raw: Any) -> Message:
    """librdkafka's message as the port's."""
    return Message(
        topic=name,
        partition=raw.partition(),
        offset=raw.offset(),
        timestamp_ms=raw.timestamp()[1],
        key=raw.key(),
        value=raw.value(),
        headers={key: value or b"" for key, value in raw.headers() or ()},
    )


class _NotAboutConnections(logging.Filter):
    """Connection failures come from ``Voice``, so librdkafka's own lines about them are dropped."""

    def filter(self, record: logging.LogRecord) -> bool:
        return not record.getMessage().startswith(("FAIL", "ERROR", "GETPID", "COORD"))


_librdkafka = logging.getLogger("lineside.bus.librdkafka")
_librdkafka.addFilter(_NotAboutConnections())

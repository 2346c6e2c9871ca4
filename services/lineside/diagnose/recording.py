"""Recordings: topics as JSON lines, one message a line, as people keep evidence (docs/recordings.md).

A line is ``{"topic", "key", "partition", "offset", "timestamp_ms", "value"}``. ``value`` holds the contract's
field names; columns are plain lists (null for NaN), metric values a list of rows. A record that could not be
decoded keeps its bytes in ``raw`` (base64) and its reason in ``error``: nothing that was on the wire is lost.
"""

import base64
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from lineside.bus import Message
from lineside.contracts import (
    ContractError,
    Decoded,
    TopicName,
    UndecodableRecord,
    decode,
    from_plain,
    to_plain,
)


class Line(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One recorded message. A ``value`` of None without ``raw`` is a tombstone."""

    topic: str
    key: str | None
    partition: int
    offset: int
    timestamp_ms: int
    value: dict[str, Any] | None
    raw: str | None = None
    error: str | None = None


class Recorded(msgspec.Struct, frozen=True, kw_only=True):
    """One message of a recording, decoded. A ``record`` of None is a tombstone."""

    topic: TopicName
    partition: int
    offset: int
    timestamp_ms: int
    record: Decoded

    @property
    def log_order(self) -> tuple[int, str, int, int]:
        """Append time first; within a partition of a topic that is the order of offsets."""
        return (self.timestamp_ms, self.topic, self.partition, self.offset)


class BadLine(msgspec.Struct, frozen=True):
    """A line that cannot be used, and why."""

    number: int
    reason: str


def line_of(message: Message) -> bytes:
    """``message`` as one line, newline included."""
    value, raw, error = None, None, None
    if message.value is not None:
        try:
            value = to_plain(decode(message.topic, message.value, message.headers))
        except ContractError as reason:
            raw, error = base64.b64encode(message.value).decode(), str(reason)
    line = Line(
        topic=message.topic,
        key=None if message.key is None else message.key.decode(errors="replace"),
        partition=message.partition,
        offset=message.offset,
        timestamp_ms=message.timestamp_ms,
        value=value,
        raw=raw,
        error=error,
    )
    return msgspec.json.encode(line) + b"\n"


def read_lines(lines: Iterable[bytes], topics: Iterable[TopicName]) -> Iterator[Recorded | BadLine]:
    """The messages of ``topics`` in a recording; lines that cannot be used come as ``BadLine``."""
    wanted = set(topics)
    decoder = msgspec.json.Decoder(Line)
    for number, text in enumerate(lines, 1):
        if not text.strip():
            continue
        try:
            line = decoder.decode(text)
            topic = _topic(line.topic)
            if topic not in wanted:
                continue
            if line.error is not None:
                raise UndecodableRecord(f"recorded as undecodable: {line.error}")
            record = None if line.value is None else from_plain(topic, line.value)
        except (msgspec.MsgspecError, ContractError, ValueError) as error:
            yield BadLine(number, str(error))
            continue
        yield Recorded(
            topic=topic,
            partition=line.partition,
            offset=line.offset,
            timestamp_ms=line.timestamp_ms,
            record=record,
        )


def _topic(name: str) -> TopicName:
    """By its name, with or without a tenant's prefix. Raises ValueError.

    >>> _topic("lineside.steps.v1")
    <TopicName.STEPS: 'steps.v1'>
    """
    for topic in TopicName:
        if name == topic or name.endswith(f".{topic}"):
            return topic
    raise ValueError(f"no topic {name!r}; there are {', '.join(TopicName)}")

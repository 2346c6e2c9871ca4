"""``dead-letters.v1``: records that could not be used, with the reason, byte for byte as received.

Only the largest are cut short.
"""

from lineside.contracts.codec import WireMessage
from lineside.contracts.topics import TOPICS, TopicName

_KEPT = TOPICS[TopicName.DEAD_LETTERS].max_bytes - 64 * 1024
"""Bytes: a poison record of the largest size must still fit with its reason."""


def dead_letter(
    *,
    service: str,
    reason: str,
    topic: str,
    partition: int,
    offset: int,
    key: bytes | None,
    value: bytes | None,
) -> WireMessage:
    """The dead letter for one received record; it keeps its source's partition.

    ``topic`` is the source's name without prefix. Of a record that would not fit the beginning is kept.
    """
    reason = reason[:4000]
    if value is not None and len(value) > _KEPT:
        reason += f" (only the first {_KEPT} of {len(value)} bytes are kept)"
    return WireMessage(
        topic=TopicName.DEAD_LETTERS,
        partition=partition,
        key=key or b"",
        value=(value or b"")[:_KEPT],
        headers=(
            ("service", service.encode()),
            ("reason", reason.encode(errors="replace")),
            ("source-topic", topic.encode()),
            ("source-partition", str(partition).encode()),
            ("source-offset", str(offset).encode()),
        ),
    )

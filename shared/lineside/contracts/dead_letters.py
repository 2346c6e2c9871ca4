"""``dead-letters.v1``: records that could not be used, with the reason, byte for byte as received."""

from lineside.contracts.codec import WireMessage
from lineside.contracts.topics import TopicName


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

    ``topic`` is the source's name without prefix.
    """
    return WireMessage(
        topic=TopicName.DEAD_LETTERS,
        partition=partition,
        key=key or b"",
        value=value or b"",
        headers=(
            ("service", service.encode()),
            ("reason", reason.encode()[:4096]),
            ("source-topic", topic.encode()),
            ("source-partition", str(partition).encode()),
            ("source-offset", str(offset).encode()),
        ),
    )

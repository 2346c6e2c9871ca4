"""One job's collective progress: which batches came, from whom, and how many are missing."""

import msgspec

from lineside.contracts import CollectiveBatch, Decoded
from lineside.stream.detector import Finding


class Sender(msgspec.Struct, array_like=True):
    """One machine's agent. ``sequence`` is its newest batch's, gapless within an ``incarnation``; ``missing``
    batches left no trace, ``dropped`` records were given up by the sender, which said so."""

    incarnation: str
    sequence: int
    batches: int = 0
    missing: int = 0
    dropped: int = 0


class MycroftDetector:
    """Counts what arrives, per machine; finds nothing by itself."""

    def __init__(self) -> None:
        self.senders: dict[str, Sender] = {}

    def observe(self, record: Decoded, now_ns: int) -> list[Finding]:
        if isinstance(record, CollectiveBatch):
            self._count(record)
        return []

    def snapshot(self) -> bytes:
        return msgspec.msgpack.encode(self.senders)

    def restore(self, state: bytes) -> None:
        self.senders = msgspec.msgpack.decode(state, type=dict[str, Sender])

    def _count(self, batch: CollectiveBatch) -> None:
        sender = self.senders.get(batch.machine_id)
        if sender is None or sender.incarnation != batch.incarnation:
            sender = Sender(batch.incarnation, batch.sequence - 1)
            self.senders[batch.machine_id] = sender
        sender.missing += max(0, batch.sequence - sender.sequence - 1)
        sender.sequence = max(sender.sequence, batch.sequence)
        sender.batches += 1
        sender.dropped += batch.dropped

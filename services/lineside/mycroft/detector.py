"""One job's collective progress: which batches came, from whom, and how many are missing."""

from lineside.contracts import CollectiveBatch, Decoded
from lineside.stream.detector import Finding
from lineside.stream.senders import Senders


class MycroftDetector:
    """Counts what arrives, per machine; finds nothing by itself."""

    def __init__(self) -> None:
        self.senders = Senders()

    def observe(self, record: Decoded, now_ns: int) -> list[Finding]:
        if isinstance(record, CollectiveBatch):
            self.senders.count(record)
        return []

    def snapshot(self) -> bytes:
        return self.senders.snapshot()

    def restore(self, state: bytes) -> None:
        self.senders.restore(state)

"""One job's machine metrics: which batches came, from whom, and how many are missing."""

from lineside.contracts import Decoded, MetricBatch
from lineside.stream.detector import Finding
from lineside.stream.senders import Senders


class MinderDetector:
    """Counts what arrives, per machine; finds nothing by itself."""

    def __init__(self) -> None:
        self.senders = Senders()

    def observe(self, record: Decoded, now_ns: int) -> list[Finding]:
        if isinstance(record, MetricBatch):
            self.senders.count(record)
        return []

    def snapshot(self) -> bytes:
        return self.senders.snapshot()

    def restore(self, state: bytes) -> None:
        self.senders.restore(state)

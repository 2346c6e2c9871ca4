"""A worker process for the exactly-once test: counts and sums what its jobs' records say.

Its state is all that the test compares; a fault for every tenth record of a job and topic makes the
outputs comparable too.
"""

import msgspec

from lineside.contracts import (
    Decoded,
    Fault,
    FaultKind,
    FaultPhase,
    MetricBatch,
    StepBatch,
    TopicName,
    columns,
    fault_id,
)
from lineside.stream import Finding, Processor, StreamSettings
from lineside.stream.app import run

EVERY = 10


class Tally(msgspec.Struct):
    """Per topic: how many records, the sum of what they carry, and the last one's sequence."""

    count: dict[str, int] = {}
    total: dict[str, int] = {}
    last: dict[str, int] = {}
    disorder: int = 0


def carried(record: Decoded) -> int:
    """The number that the test put into ``record``."""
    if isinstance(record, StepBatch):
        return int(columns(record)["tokens"].sum())
    return int(record.matrix().sum())


def expected_fault(job_id: str, topic: str, count: int) -> str:
    return fault_id("run", 0, "counting", topic, job_id, count)


class Counting:
    """The detector."""

    def __init__(self, job_id: str) -> None:
        self._job_id = job_id
        self.tally = Tally()

    def observe(self, record: Decoded, now_ns: int) -> list[Finding]:
        if not isinstance(record, StepBatch | MetricBatch):
            return []
        tally, topic = self.tally, type(record).__name__
        tally.disorder += record.sequence != tally.last.get(topic, -1) + 1
        tally.last[topic] = record.sequence
        tally.count[topic] = tally.count.get(topic, 0) + 1
        tally.total[topic] = tally.total.get(topic, 0) + carried(record)
        return [self._fault(topic)] if tally.count[topic] % EVERY == 0 else []

    def snapshot(self) -> bytes:
        return msgspec.msgpack.encode(self.tally)

    def restore(self, state: bytes) -> None:
        self.tally = msgspec.msgpack.decode(state, type=Tally)

    def _fault(self, topic: str) -> Fault:
        count = self.tally.count[topic]
        return Fault(
            fault_id=expected_fault(self._job_id, topic, count),
            fault_sequence=0,
            job_id=self._job_id,
            run_id="run",
            generation=0,
            detector="counting",
            kind=FaultKind.CANNOT_TELL,
            phase=FaultPhase.ONSET,
            onset_ns=count,
            detected_ns=count,
        )


PROCESSOR = Processor(
    name="counting",
    inputs=(TopicName.JOBS, TopicName.STEPS, TopicName.MACHINE_METRICS),
    make=Counting,
)

if __name__ == "__main__":
    run(PROCESSOR, StreamSettings())

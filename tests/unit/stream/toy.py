"""A detector that remembers every record it saw, and builders of what it sees."""

from typing import Any

import msgspec

from lineside.bus import Message
from lineside.contracts import (
    Decoded,
    Fault,
    FaultKind,
    FaultPhase,
    HealthState,
    Job,
    JobHealth,
    JobState,
    MetricBatch,
    Series,
    StepBatch,
    TopicName,
    WireMessage,
    encode,
    fault_id,
    pack,
)
from lineside.contracts.columns import column_specs
from lineside.stream import Finding, Processor

PARTITIONS = 1
INPUTS = (TopicName.JOBS, TopicName.STEPS, TopicName.MACHINE_METRICS)


class Broken(Exception):
    """What the toy raises on a batch from machine "broken"."""


class Toy:
    """Keeps the sequences it saw, per topic; a fault for every third record of a topic."""

    def __init__(self, job_id: str) -> None:
        self.job_id = job_id
        self.seen: dict[str, list[int]] = {}
        self.now_ns = -1

    def observe(self, record: Decoded, now_ns: int) -> list[Finding]:
        assert now_ns >= self.now_ns, "time went backwards"
        self.now_ns = now_ns
        sequence = record.generation if isinstance(record, Job) else record.sequence
        if getattr(record, "machine_id", "") == "broken":
            raise Broken(f"cannot take {sequence}")
        seen = self.seen.setdefault(type(record).__name__, [])
        seen.append(sequence)
        if isinstance(record, Job):
            return [self._health(sequence)]
        return [self._fault(type(record).__name__, len(seen))] if len(seen) % 3 == 0 else []

    def snapshot(self) -> bytes:
        return msgspec.msgpack.encode((self.seen, self.now_ns))

    def restore(self, state: bytes) -> None:
        self.seen, self.now_ns = msgspec.msgpack.decode(
            state, type=tuple[dict[str, list[int]], int]
        )

    def _fault(self, kind: str, count: int) -> Fault:
        return Fault(
            fault_id=fault_id("r", 0, "toy", kind, self.job_id, count),
            fault_sequence=0,
            job_id=self.job_id,
            run_id="r",
            generation=0,
            detector="toy",
            kind=FaultKind.CANNOT_TELL,
            phase=FaultPhase.ONSET,
            onset_ns=count,
            detected_ns=count,
        )

    def _health(self, generation: int) -> JobHealth:
        return JobHealth(
            job_id=self.job_id,
            run_id="r",
            generation=generation,
            at_ns=0,
            step=0,
            step_s=None,
            baseline_s=None,
            slowdown=None,
            throughput=None,
            last_progress_ns=0,
            ranks_reporting=0,
            ranks_expected=0,
            revision=0,
            state=HealthState.LEARNING,
        )


PROCESSOR = Processor(name="toy", inputs=INPUTS, make=Toy)


def job(job_id: str, generation: int = 0, state: JobState = JobState.RUNNING) -> WireMessage:
    record = Job(job_id=job_id, run_id="r", generation=generation, state=state)
    return encode(TopicName.JOBS, record, PARTITIONS)


def buried(job_id: str) -> WireMessage:
    return WireMessage(
        topic=TopicName.JOBS, partition=0, key=job_id.encode(), value=None, headers=()
    )


def head(job_id: str, sequence: int, machine: str = "m") -> dict[str, Any]:
    return dict(
        job_id=job_id,
        run_id="r",
        generation=0,
        machine_id=machine,
        incarnation="i",
        sequence=sequence,
        dropped=0,
        sent_ns=0,
        clock_offset_ns=-1,
        clock_error_ns=-1,
    )


def steps(job_id: str, sequence: int, machine: str = "m", **columns: Any) -> WireMessage:
    values: dict[str, Any] = {name: [0] for name in column_specs(StepBatch)}
    values |= head(job_id, sequence, machine) | columns
    return encode(TopicName.STEPS, pack(StepBatch, values), PARTITIONS)


def metric(job_id: str, sequence: int, machine: str = "m") -> WireMessage:
    values = head(job_id, sequence, machine)
    values |= dict(start_ns=0, interval_s=1.0, series=[Series("a")], values=[float("nan")])
    return encode(TopicName.MACHINE_METRICS, pack(MetricBatch, values), PARTITIONS)


def received(wire: WireMessage, offset: int, timestamp_ms: int = 0) -> Message:
    return Message(
        topic=wire.topic,
        partition=wire.partition,
        offset=offset,
        timestamp_ms=timestamp_ms,
        key=wire.key,
        value=wire.value,
        headers=dict(wire.headers),
    )

"""One partition of all inputs: which records count, for which job, and what is worth saving.

This is the pure heart of exactly-once application (docs/adr/0001-state-outside-faust.md): no Kafka, no
clock. It rests on one thing only, that a detector's state is a function of the records it has
read. A job's state travels with the next offset, per input, that it has not applied; the partition's
cursor says below which offsets every record is in some job's state. Whatever is delivered twice is passed
over, whatever was not delivered is noticed, and any old snapshot is right: replaying from its own offsets
gives what a newer one holds.
"""

import traceback
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from lineside.bus import Message
from lineside.contracts import (
    ENDED,
    TOPICS,
    ContractError,
    Fault,
    Job,
    TopicName,
    WireMessage,
    dead_letter,
    decode,
    encode,
    fault_event,
    job_of,
    partition_of,
)
from lineside.stream.detector import Finding, JobDetector
from lineside.stream.processor import Processor
from lineside.stream.snapshot import (
    PART_BYTES,
    RESERVED,
    Snapshot,
    Stored,
    cursor_message,
    in_parts,
    job_message,
    removals,
    tombstone,
)

Bounds = Mapping[TopicName, tuple[int, int]]

_NS_PER_MS = 1_000_000
_HOUR_NS = 3600 * 1_000_000_000
ENDED_KEPT_NS = _HOUR_NS
"""A job that ended is forgotten when it has been silent for so long."""
SILENT_KEPT_NS = 24 * _HOUR_NS
"""So is one whose end nobody wrote down; telemetry of that age has left the log anyway."""


class Verdict(Enum):
    """What to do with a delivered record."""

    SKIP = "below the position: it was applied before"
    APPLY = "the next one"
    BEHIND = "records before it were not delivered: read them from the log first"


@dataclass(slots=True)
class Outcome:
    """What came of one record: messages to send, and the exception where the detector failed."""

    messages: list[WireMessage] = field(default_factory=list)
    error: Exception | None = None


@dataclass(slots=True)
class _Tracked:
    detector: JobDetector
    offsets: dict[TopicName, int] = field(default_factory=dict)
    now_ns: int = -1
    ended: bool = False
    changed: bool = True
    parts: set[bytes] = field(default_factory=set)
    """Keys of all parts of its states that may stand on the topic."""
    needless: set[bytes] = field(default_factory=set)
    """Those of them that no record speaks of any more."""

    def expired(self, now_ns: int) -> bool:
        return now_ns - self.now_ns > (ENDED_KEPT_NS if self.ended else SILENT_KEPT_NS)


class Partition:
    """The detectors of all jobs on one partition. ``positions[t]`` is the next offset of input ``t``."""

    def __init__(
        self, processor: Processor, partition: int, partitions: int, part_bytes: int = PART_BYTES
    ) -> None:
        self.number = partition
        self.positions: dict[TopicName, int] = {}
        self.now_ns = -1
        self.changed = False
        self._processor = processor
        self._partitions = partitions
        self._part_bytes = part_bytes
        self._jobs: dict[str, _Tracked] = {}
        self._dropped: dict[str, set[bytes]] = {}  # jobs to forget, with their parts

    @property
    def jobs(self) -> int:
        return len(self._jobs)

    def detector(self, job_id: str) -> JobDetector | None:
        """The detector of ``job_id``, None where it has none."""
        tracked = self._jobs.get(job_id)
        return tracked.detector if tracked else None

    def restore(self, stored: Stored, bounds: Bounds) -> list[str]:
        """Start from what a worker saved, as far as the log, ``bounds[t]`` = (first kept offset, next
        offset to be written), still agrees with it. Returns what went wrong on the way, in words."""
        troubles = list(stored.troubles)
        self.now_ns = stored.cursor.now_ns
        for job_id, state in stored.jobs.items():
            detector = self._processor.make(job_id)
            try:
                detector.restore(state.state)
            except Exception as error:
                troubles.append(
                    f"the state of job {job_id!r} cannot be restored, it starts anew: {error!r}"
                )
                detector = self._processor.make(job_id)
            offsets = {TopicName(topic): offset for topic, offset in state.offsets.items()}
            ended = job_id in stored.ended
            parts = set(stored.parts.get(job_id, ()))
            self._jobs[job_id] = _Tracked(detector, offsets, state.now_ns, ended, False, parts)
        for topic in self._processor.inputs:
            (first, end), start = bounds[topic], stored.start(topic)
            self.positions[topic] = first if start is None else min(start, end)
            if start is not None and start > end:
                troubles.append(
                    f"the log of {topic} ends at {end} but {start} records of it were read: it was cut "
                    "or made anew; going on from its end"
                )
            for tracked in self._jobs.values():
                tracked.offsets[topic] = min(tracked.offsets.get(topic, 0), end)
        return troubles

    def judge(self, topic: TopicName, offset: int) -> Verdict:
        """Whether the record at ``offset`` is the one to apply now."""
        position = self.positions[topic]
        if offset == position:
            return Verdict.APPLY
        return Verdict.SKIP if offset < position else Verdict.BEHIND

    def retained(self, topic: TopicName, first: int) -> int:
        """The log of ``topic`` starts at ``first`` now; how many records are lost because they fell out of
        retention before they were read. What compaction removed is not lost: a newer record says it."""
        gone = max(0, first - self.positions[topic])
        self.positions[topic] += gone
        return gone if TOPICS[topic].retention_ms is not None else 0

    def passed(self, topic: TopicName, end: int) -> None:
        """The log was read up to ``end``; where it is compacted the last offsets may hold nothing."""
        self.positions[topic] = max(self.positions[topic], end)

    def apply(self, message: Message) -> Outcome:
        """Take in ``message``, whose offset is not below the position; what lies between is gone from the
        log (compacted) or was applied before."""
        topic = message.topic
        self.positions[topic] = message.offset + 1
        self.now_ns = max(self.now_ns, message.timestamp_ms * _NS_PER_MS)
        self.changed = True
        if message.value is None and TOPICS[topic].retention_ms is None:
            self._bury(message)
            return Outcome()
        try:
            record = decode(topic, message.value, message.headers)
            job_id = job_of(record)
            tracked = self._track(job_id)
        except ContractError as error:
            return Outcome([self._dead_letter(message, str(error))])
        if message.offset < tracked.offsets.get(topic, 0):
            return Outcome()
        tracked.offsets[topic] = message.offset + 1
        tracked.now_ns = max(tracked.now_ns, self.now_ns)
        tracked.changed = True
        if isinstance(record, Job):
            tracked.ended = record.state in ENDED
        try:
            findings = tracked.detector.observe(record, tracked.now_ns)
            return Outcome([self._message(finding) for finding in findings])
        except Exception as error:
            return Outcome(
                [self._dead_letter(message, _reason(self._processor.name, error))], error
            )

    def snapshot(self) -> Snapshot:
        """What changed since the last snapshot, ready to be sent, and the cursor that may follow it.

        Raises whatever a detector's ``snapshot`` raises; then nothing counts as saved.
        """
        name, number = self._processor.name, self.number
        expired = {j for j, t in self._jobs.items() if t.expired(self.now_ns)}
        changed = {j: t for j, t in self._jobs.items() if t.changed and j not in expired}
        states: dict[str, WireMessage] = {}
        parts: dict[str, list[WireMessage]] = {}
        for job_id, t in changed.items():
            made, state = in_parts(name, number, job_id, t.detector.snapshot(), self._part_bytes)
            states[job_id] = job_message(name, number, job_id, t.offsets, t.now_ns, state)
            keys = {message.key for message in made}
            parts[job_id] = made + removals(number, t.needless - keys)
            t.parts |= keys
        for job_id in expired:
            self._dropped[job_id] = self._jobs.pop(job_id).parts
        for tracked in changed.values():
            tracked.changed = False
        for job_id, keys in self._dropped.items():
            if job_id not in self._jobs:
                states[job_id] = tombstone(name, number, job_id)
                parts[job_id] = removals(number, keys)
        self.changed, self._dropped = False, {}
        cursor = cursor_message(
            name,
            number,
            self.positions,
            self.now_ns,
            jobs={job_id: tracked.offsets for job_id, tracked in self._jobs.items()},
            ended=[job_id for job_id, tracked in self._jobs.items() if tracked.ended],
        )
        return Snapshot(number, states, cursor, parts)

    def saved(self, snapshot: Snapshot) -> None:
        """``snapshot`` is acknowledged: parts that only older ones spoke of can go."""
        for job_id in snapshot.states:
            if tracked := self._jobs.get(job_id):
                current = snapshot.part_keys(job_id)
                tracked.needless, tracked.parts = tracked.parts - current, current

    def not_saved(self, snapshot: Snapshot) -> None:
        """``snapshot`` did not reach the log: the next one holds its jobs again."""
        self.changed = True
        for job_id in snapshot.states:
            if tracked := self._jobs.get(job_id):
                tracked.changed = True
            else:
                self._dropped[job_id] = {part.key for part in snapshot.parts.get(job_id, ())}

    def _track(self, job_id: str) -> _Tracked:
        tracked = self._jobs.get(job_id)
        if tracked is None or tracked.expired(self.now_ns):
            home = partition_of(job_id, self._partitions)
            if home != self.number:
                raise ContractError(
                    f"job {job_id!r} belongs on partition {home}, not {self.number}: "
                    f"partition by murmur2 of the job_id (librdkafka: partitioner=murmur2_random)"
                )
            if job_id.startswith(RESERVED):
                raise ContractError(f"a job_id must not start with {' or '.join(RESERVED)}")
            offsets = tracked.offsets if tracked else {}
            tracked = self._jobs[job_id] = _Tracked(self._processor.make(job_id), offsets)
        return tracked

    def _bury(self, message: Message) -> None:
        """A tombstone on ``jobs.v1``: the job is forgotten, unless it came again since."""
        if message.topic is not TopicName.JOBS or message.key is None:
            return
        job_id = message.key.decode(errors="replace")
        tracked = self._jobs.get(job_id)
        if tracked and message.offset >= tracked.offsets.get(message.topic, 0):
            self._dropped[job_id] = self._jobs.pop(job_id).parts

    def _message(self, finding: Finding) -> WireMessage:
        if isinstance(finding, Fault):
            return encode(TopicName.FAULTS, fault_event(finding), self._partitions)
        return encode(TopicName.HEALTH, finding, self._partitions)

    def _dead_letter(self, message: Message, reason: str) -> WireMessage:
        return dead_letter(
            service=self._processor.name,
            reason=reason,
            topic=message.topic,
            partition=message.partition,
            offset=message.offset,
            key=message.key,
            value=message.value,
        )


def _reason(name: str, error: Exception) -> str:
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return f"{name} failed: {type(error).__name__}: {error} ({frame.name}, line {frame.lineno})"

"""One generation of one run: its rows wait for its Job, then are watched; its faults end with it.

The Job and the rows come on different topics in any order. Rows wait until a Job tells the mesh (the
launcher's first words do not know it yet: it comes with the trainers' declarations) or that the run is over,
or for ``hold_s``; that Job's topology stays for the generation, so every interleaving sees the same ranks,
peers and faults.
"""

from collections import Counter
from typing import Any

import msgspec

from lineside.contracts import (
    ENDED,
    Fault,
    FaultKind,
    Job,
    JobHealth,
    StepBatch,
    fault_id,
)
from lineside.falcon import findings
from lineside.falcon.config import FalconConfig
from lineside.falcon.topology import Topology, of_job, of_ranks
from lineside.falcon.tracking import Change
from lineside.falcon.watch import Finding, Watch

Key = tuple[str, int]
_faults = msgspec.json.Decoder(Fault)
_jobs = msgspec.json.Decoder(Job)
_batches = msgspec.msgpack.Decoder(StepBatch)


class Generation:
    """``key``: (run_id, generation). What is found comes back from ``tell``, ``take`` and ``pass_time``."""

    def __init__(self, job_id: str, key: Key, config: FalconConfig) -> None:
        self.job_id, self.key, self.config = job_id, key, config
        self.counts: Counter[str] = Counter()
        self.ended: str | None = None
        self._job: Job | None = None
        self._watch: Watch | None = None
        self._held: list[StepBatch] = []
        self._held_bytes = 0
        self._held_since_ns = -1
        self._progress_ns = -1
        # By series: the fault as first announced, phases told so far, and whether its relief was one of them
        self._open: dict[int, tuple[Fault, int, bool]] = {}

    def tell(self, job: Job, now_ns: int) -> list[Fault]:
        """The Job of this generation."""
        if not self._told():
            self._job = job
        return self._release(now_ns) if self._told() else []

    def _told(self) -> bool:
        """Whether no later Job can say more about how the ranks are arranged."""
        return self._job is not None and (bool(self._job.mesh.axes) or self._job.state in ENDED)

    def take(self, batch: StepBatch, now_ns: int) -> list[Fault]:
        """One machine's rows."""
        if self._progress_ns < 0:
            self._progress_ns = now_ns
        if self._watch is not None:
            return self._observe(batch, now_ns)
        # Ranks that still start up send empty batches, for minutes where imports are slow.
        if batch.rank:
            self._hold(batch, now_ns)
        if self._told():
            return self._release(now_ns)
        return []

    def pass_time(self, now_ns: int) -> list[Fault]:
        """Rows have waited long enough for a Job."""
        overdue = self._held_since_ns + int(self.config.hold_s * 1e9) <= now_ns
        if self._held and overdue:
            self.counts["without_job"] += 1
            return self._release(now_ns)
        return []

    def end(self, reason: str, now_ns: int) -> list[Fault]:
        """The generation is over; late rows are still judged, but every fault is closed at once."""
        self.ended = self.ended or reason
        return self._close(now_ns)

    def health(self, now_ns: int) -> JobHealth | None:
        """How the job is doing; None until its first step is decided: a long start-up is no stall."""
        watch = self._watch
        if watch is None or watch.last_step < 0:
            return None
        standing = watch.health.standing()
        state = watch.health.judge(standing, (now_ns - self._progress_ns) / 1e9)
        return JobHealth(
            job_id=self.job_id,
            run_id=self.key[0],
            generation=self.key[1],
            at_ns=now_ns,
            step=watch.last_step,
            step_s=standing.step_s,
            baseline_s=standing.baseline_s,
            slowdown=standing.slowdown,
            throughput=standing.throughput,
            last_progress_ns=self._progress_ns,
            ranks_reporting=watch.assembler.reporting,
            ranks_expected=watch.topology.size,
            revision=watch.health.revision,
            state=state,
        )

    @property
    def counters(self) -> Counter[str]:
        """What was dropped, and why."""
        return self.counts + (self._watch.assembler.counts if self._watch else Counter())

    def _hold(self, batch: StepBatch, now_ns: int) -> None:
        if not self._held:
            self._held_since_ns = now_ns
        self._held.append(batch)
        self._held_bytes += (
            len(batch.rank) * 20
        )  # a row is twenty times as long as its rank column's 4 bytes
        while self._held_bytes > self.config.hold_bytes and len(self._held) > 1:
            self._held_bytes -= len(self._held.pop(0).rank) * 20
            self.counts["held_dropped"] += 1

    def _release(self, now_ns: int) -> list[Fault]:
        if self._watch is None:
            self._watch = self._begin(of_job(self._job) if self._job else None)
        held, self._held, self._held_bytes = self._held, [], 0
        return [fault for batch in held for fault in self._observe(batch, now_ns)]

    def _begin(self, topology: Topology | None) -> Watch:
        return Watch(
            topology or of_ranks([]),
            assembly=self.config.assembly,
            tracking=self.config.tracking,
            health=self.config.health,
        )

    def _observe(self, batch: StepBatch, now_ns: int) -> list[Fault]:
        assert self._watch is not None  # noqa: S101
        fresh, found = self._watch.add(batch)
        if fresh:
            self._progress_ns = now_ns
        told = [fault for finding in found for fault in self._announce(finding, now_ns)]
        return told + (self._close(now_ns) if self.ended else [])

    def _announce(self, finding: Finding, now_ns: int) -> list[Fault]:
        assert self._watch is not None  # noqa: S101
        watch, series = self._watch, finding.slow.series
        if finding.change is Change.ONSET:
            rank = int(watch.topology.ranks[series])
            run_id, generation = self.key
            fault = findings.onset(
                finding,
                findings.place_of(rank, watch.assembler.machines[series], self._job),
                watch.topology,
                {
                    "job_id": self.job_id,
                    "run_id": run_id,
                    "generation": generation,
                    "detected_ns": now_ns,
                },
                fault_id(
                    run_id,
                    generation,
                    findings.DETECTOR,
                    FaultKind.SLOW_COMPUTE,
                    str(rank),
                    finding.slow.onset_ns,
                ),
            )
            self._open[series] = fault, 1, False
            return [fault]
        first, told, closed = self._open[series]
        self._open[series] = first, told + 1, closed
        if finding.change is Change.RELIEF:
            del self._open[series]
        if closed:
            return []
        return [findings.later(first, finding, watch.topology, told, now_ns)]

    def _close(self, now_ns: int) -> list[Fault]:
        closing = [
            (s, first, told) for s, (first, told, closed) in self._open.items() if not closed
        ]
        self._open |= {series: (first, told + 1, True) for series, first, told in closing}
        return [
            findings.ended(first, told, now_ns, self.ended or "")
            for _, first, told in sorted(closing, key=lambda item: item[0])
        ]

    def state(self) -> dict[str, Any]:
        return {
            "key": self.key,
            "counts": dict(self.counts),
            "ended": self.ended,
            "job": msgspec.json.encode(self._job) if self._job else None,
            "watch": self._watch.state() if self._watch else None,
            "meshed": self._watch is not None and self._watch.topology.meshed,
            "held": [msgspec.msgpack.encode(batch) for batch in self._held],
            "held_bytes": self._held_bytes,
            "held_since_ns": self._held_since_ns,
            "progress_ns": self._progress_ns,
            "open": [
                (series, msgspec.json.encode(first), told, closed)
                for series, (first, told, closed) in self._open.items()
            ],
        }

    def load(self, state: dict[str, Any]) -> None:
        self.counts, self.ended = Counter(state["counts"]), state["ended"]
        self._job = _jobs.decode(state["job"]) if state["job"] else None
        if state["watch"]:
            known = self._job if state["meshed"] else None
            self._watch = self._begin(of_job(known) if known else None)
            self._watch.load(state["watch"])
        self._held = [_batches.decode(batch) for batch in state["held"]]
        self._held_bytes, self._held_since_ns = state["held_bytes"], state["held_since_ns"]
        self._progress_ns = state["progress_ns"]
        self._open = {
            series: (_faults.decode(first), told, closed)
            for series, first, told, closed in state["open"]
        }

"""A synthetic job that writes step rows as agents would: the room's one builder."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest

from lineside.contracts import (
    Device,
    Fault,
    Job,
    JobHealth,
    JobState,
    Machine,
    Mesh,
    Phase,
    StepBatch,
    pack,
)
from lineside.falcon.config import FalconConfig
from lineside.falcon.detector import FalconDetector

START_NS = 1_700_000_000_000_000_000
UNKNOWN = (
    "comm_s",
    "exposed_comm_s",
    "wait_s",
    "data_s",
    "checkpoint_s",
    "other_s",
    "loss",
    "grad_norm",
)

Slowness = Callable[[int, int], float]
"""(rank, step) -> how many times slower that rank computes in that step."""


@dataclass(frozen=True)
class SyntheticJob:
    """Synchronous data x pipeline (x tensor) training: every rank's step lasts as long as the slowest
    replica's, own compute differs. Noise is Student-t(3), as on shared hosts, scaled to ``noise`` = CV.
    """

    dp: int = 4
    pp: int = 2
    tp: int = 1
    micro_batches: int = 20
    unit_s: float = 0.02
    rest_s: float = 0.02
    noise: float = 0.05
    shared_noise: float = 0.0
    seed: int = 0
    steps: int = 200
    first_step: int = 0
    ranks_per_machine: int = 2
    steps_per_batch: int = 3
    run_id: str = "run-1"
    generation: int = 0
    tokens: int = 512
    slow: Slowness = field(default=lambda rank, step: 1.0)
    plan: Callable[[int], list[int]] | None = None

    @property
    def world(self) -> int:
        return self.dp * self.pp * self.tp

    def job(self, state: JobState = JobState.RUNNING) -> Job:
        mesh = Mesh(["dp", "pp", "tp"], [self.dp, self.pp, self.tp])
        return Job(
            job_id="job",
            run_id=self.run_id,
            generation=self.generation,
            state=state,
            mesh=Mesh() if state is JobState.STARTING else mesh,
            micro_batches=self.micro_batches,
            machines=[
                Machine(
                    f"machine-{m}",
                    f"host-{m}",
                    devices=[Device(r, i, f"gpu{i}") for i, r in enumerate(ranks)],
                )
                for m, ranks in enumerate(self.machines())
            ],
        )

    def machines(self) -> list[list[int]]:
        size = self.ranks_per_machine
        return [list(range(r, min(r + size, self.world))) for r in range(0, self.world, size)]

    def shares(self, step: int) -> list[int]:
        if self.plan is not None:
            return self.plan(step)
        share, extra = divmod(self.micro_batches, self.dp)
        return [share + (d < extra) for d in range(self.dp)]

    def table(self) -> dict[str, np.ndarray]:
        """All rows by column, (steps, ranks)."""
        rng = np.random.default_rng(self.seed)
        shape = (self.steps, self.world)
        noise = 1 + self.noise * rng.standard_t(3, shape) / np.sqrt(3)
        noise *= 1 + self.shared_noise * rng.standard_t(3, (self.steps, 1)) / np.sqrt(3)
        numbers = np.arange(self.first_step, self.first_step + self.steps)
        slow = np.array([[self.slow(rank, int(s)) for rank in range(self.world)] for s in numbers])
        unit = self.unit_s * np.clip(noise, 0.4, None) * slow
        replica = np.arange(self.world) // (self.pp * self.tp)
        micro = np.array([self.shares(int(s)) for s in numbers])
        stage = unit.reshape(self.steps, self.dp, self.pp, self.tp).max(3)
        busy = stage.sum(2) + (micro - 1) * stage.max(2)
        step_s = busy.max(1) + self.rest_s
        start = START_NS + np.concatenate([[0], np.cumsum(step_s)[:-1]]) * 1e9
        return {
            "step": np.broadcast_to(numbers[:, None], shape),
            "start_ns": np.broadcast_to(start[:, None], shape).astype(np.int64),
            "step_s": np.broadcast_to(step_s[:, None], shape),
            "compute_s": unit * micro[:, replica],
            "micro_batches": micro[:, replica],
            "tokens": micro[:, replica] * self.tokens,
            "phase": np.full(shape, Phase.TRAIN),
            "revision": np.zeros(shape, int),
        }

    def batches(self, table: dict[str, np.ndarray] | None = None) -> list[StepBatch]:
        """One batch per machine and ``steps_per_batch`` steps, in the order of sending."""
        table = self.table() if table is None else table
        made = []
        for sequence, first in enumerate(range(0, self.steps, self.steps_per_batch)):
            for machine, ranks in enumerate(self.machines()):
                rows = {k: v[first : first + self.steps_per_batch, ranks] for k, v in table.items()}
                rows["rank"] = np.broadcast_to(ranks, rows["step"].shape)
                sent = int(rows["start_ns"][-1, 0] + np.nan_to_num(rows["step_s"][-1, 0]) * 1e9)
                made.append(
                    make_batch(
                        {k: v.ravel() for k, v in rows.items()},
                        run_id=self.run_id,
                        generation=self.generation,
                        machine_id=f"machine-{machine}",
                        sequence=sequence,
                        sent_ns=sent,
                    )
                )
        return made

    def but(self, **changes: Any) -> "SyntheticJob":
        return replace(self, **changes)


def make_batch(rows: dict[str, Any], **sender: Any) -> StepBatch:
    """A batch from the columns that matter; the rest is unknown."""
    n = len(rows["rank"])
    filled = {name: np.full(n, np.nan) for name in UNKNOWN} | {
        "revision": np.zeros(n),
        "phase": np.zeros(n),
        "timing": np.zeros(n),
        "tokens": np.full(n, -1),
        "start_ns": np.full(n, START_NS),
    }
    who = {
        "job_id": "job",
        "run_id": "run-1",
        "generation": 0,
        "machine_id": "machine-0",
        "incarnation": "i",
        "sequence": 0,
        "dropped": 0,
        "sent_ns": START_NS,
        "clock_offset_ns": -1,
        "clock_error_ns": -1,
    }
    return pack(StepBatch, who | filled | rows | sender)


@dataclass
class Run:
    """What a detector said about a stream of records."""

    faults: list[Fault]
    health: list[JobHealth]
    detector: FalconDetector

    def of(self, phase: str) -> list[Fault]:
        return [fault for fault in self.faults if fault.phase == phase]


def records_of(job: SyntheticJob) -> Iterator[Any]:
    yield job.job(JobState.STARTING)
    yield job.job()
    yield from job.batches()


def now_of(record: Any, now_ns: int) -> int:
    return max(now_ns, record.sent_ns + 5_000_000) if isinstance(record, StepBatch) else now_ns


def watch(records: Any, detector: FalconDetector | None = None, now_ns: int = START_NS) -> Run:
    """Feed ``records`` with the append times that a broker would give them."""
    detector = detector or FalconDetector(FalconConfig(), "job")
    run = Run([], [], detector)
    for record in records:
        now_ns = now_of(record, now_ns)
        for found in detector.observe(record, now_ns):
            (run.faults if isinstance(found, Fault) else run.health).append(found)
    return run


@pytest.fixture(name="batch_of")
def _batch_of() -> Callable[..., StepBatch]:
    return make_batch


@pytest.fixture(name="watch")
def _watch() -> Callable[..., Run]:
    return watch


@pytest.fixture
def synthetic() -> SyntheticJob:
    """4 replicas x 2 stages on four machines, 200 steps, 5 % noise, nothing wrong."""
    return SyntheticJob()

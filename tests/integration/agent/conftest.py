"""Runs on a real Kafka, with real processes, and what they publish."""

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import psutil
import pytest

from lineside.agent.job import RunSpec
from lineside.agent.launcher import Launcher, RunEnd, launch
from lineside.bus.kafka import KafkaBus
from lineside.contracts import (
    CollectiveBatch,
    Decoded,
    Job,
    Member,
    MetricBatch,
    PlanStatus,
    Reply,
    StepBatch,
    TopicName,
    columns,
    decode,
)

RANK = [sys.executable, str(Path(__file__).with_name("rank.py"))]
JOB = "test-job"
PATIENCE_S = 60.0


def bus_environment(bus: KafkaBus) -> dict[str, str]:
    """How another process reaches ``bus``."""
    return {
        "LINESIDE_BOOTSTRAP": bus.bootstrap,
        "LINESIDE_TOPIC_PREFIX": bus._cluster.prefix,
        "LINESIDE_PARTITIONS": str(bus.partitions),
        "LINESIDE_FAILURE_GRACE_S": "1.5",
        "LINESIDE_SILENT_AFTER_S": "1",
    }


def eventually(
    condition: Callable[[], Any], what: str, keep_going: Callable[[], Any] = lambda: None
) -> Any:
    """Wait for something true, and return it."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        keep_going()
        if found := condition():
            return found
        time.sleep(0.05)
    raise AssertionError(f"waited {PATIENCE_S:.0f} s for {what}")


def alive(pids: list[int]) -> list[int]:
    """Those that still run; a zombie does not."""

    def runs(pid: int) -> bool:
        try:
            return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return False

    return [pid for pid in pids if runs(pid)]


class Seen:
    """Everything that a job has published so far, decoded, by type."""

    _TOPICS = (
        TopicName.JOBS,
        TopicName.MEMBERS,
        TopicName.STEPS,
        TopicName.COLLECTIVES,
        TopicName.MACHINE_METRICS,
        TopicName.PLAN_STATUS,
        TopicName.REPLIES,
        TopicName.MACHINE_EVENTS,
    )

    def __init__(self, bus: KafkaBus) -> None:
        self._tail = bus.tail(self._TOPICS, JOB)
        self.records: list[Decoded] = []

    def poll(self) -> None:
        for message in self._tail.receive(1000, 0.0):
            self.records.append(decode(message.topic, message.value, message.headers))

    def close(self) -> None:
        self._tail.close()

    def of(self, kind: type[Any]) -> list[Any]:
        return [record for record in self.records if isinstance(record, kind)]

    def jobs(self) -> list[Job]:
        return self.of(Job)

    def members(self) -> list[Member]:
        return self.of(Member)

    def metrics(self) -> list[MetricBatch]:
        return self.of(MetricBatch)

    def statuses(self) -> list[PlanStatus]:
        return self.of(PlanStatus)

    def replies(self, request_id: str) -> dict[tuple[str, int], Reply]:
        """Answers to one request by machine and rank."""
        found = [reply for reply in self.of(Reply) if reply.request_id == request_id]
        return {(reply.machine_id, reply.rank): reply for reply in found}

    def pids(self) -> dict[int, int]:
        """Each rank's process."""
        return {
            rank: pid
            for member in self.members()
            for rank, pid in zip(member.ranks, member.pids, strict=False)
        }

    def steps(self, rank: int) -> list[int]:
        """The steps of one rank in the order in which they arrived."""
        found: list[int] = []
        for batch in self.of(StepBatch):
            column = columns(batch)
            found += column["step"][column["rank"] == rank].tolist()
        return found

    def revisions(self, rank: int) -> list[int]:
        found: list[int] = []
        for batch in self.of(StepBatch):
            column = columns(batch)
            found += column["revision"][column["rank"] == rank].tolist()
        return found

    def states(self, rank: int) -> list[Any]:
        """What was said of one rank, oldest first."""
        rows = [row for batch in self.of(CollectiveBatch) for row in batch.rank_states]
        return [row for row in rows if row.rank == rank]

    def sequences(self, kind: type[Any], machine_id: str) -> list[int]:
        return [b.sequence for b in self.of(kind) if b.machine_id == machine_id]


class Run:
    """A launched run and what it publishes."""

    def __init__(self, launcher: Launcher, seen: Seen) -> None:
        self.launcher = launcher
        self.seen = seen

    def poll(self) -> None:
        self.launcher.poll()
        self.seen.poll()

    def until(self, condition: Callable[[], Any], what: str) -> Any:
        return eventually(condition, what, self.poll)

    def end(self) -> RunEnd:
        """Wait for the end of the run, and for its last word to be seen."""
        end: RunEnd = self.until(lambda: self.launcher.end, "the run to end")
        self.until(lambda: self.seen.jobs()[-1].state == end.state, "the Job to tell its end")
        machines = self.launcher.spec.machine_ids()
        self.until(
            lambda: (
                {m.machine_id for m in self.seen.members() if m.state == "gone"} >= set(machines)
            ),
            "all members to be gone",
        )
        return end


@pytest.fixture
def start(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[..., Run]]:
    """Starts a run on the shared Kafka, or ``on`` another; what is left of it is ended after the test."""
    runs: list[Run] = []

    def make(
        command: list[str],
        *,
        machines: int = 1,
        ranks: int = 1,
        on: KafkaBus | None = None,
        environment: Mapping[str, str] = MappingProxyType({}),
    ) -> Run:
        where = on or request.getfixturevalue("bus")
        spec = RunSpec(
            job_id=JOB,
            command=command,
            run_dir=str(tmp_path / "run"),
            machines=machines,
            ranks_per_machine=ranks,
            environment=bus_environment(where) | environment,
        )
        run = Run(launch(spec, where), Seen(where))
        runs.append(run)
        return run

    yield make
    for run in runs:
        run.launcher.kill()
        run.seen.close()

"""A run with a straggler, told record by record to the real service on the in-memory bus."""

import uuid
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from lineside.bus.memory import MemoryBus
from lineside.contracts import (
    Capabilities,
    CloudEvent,
    Device,
    Fault,
    FaultKind,
    FaultPhase,
    HealthState,
    IncidentView,
    Job,
    JobHealth,
    JobState,
    Machine,
    Mesh,
    Plan,
    PlanState,
    PlanStatus,
    Suspect,
    SuspectKind,
    TopicName,
    decode,
    encode,
    fault_event,
)
from lineside.remediation.metrics import Metrics
from lineside.remediation.processor import Processor
from lineside.remediation.settings import RemediationSettings
from lineside.remediation.store import Store

JOB, RUN = "gpt", "5c1d2a5e-1111-4222-8333-444455556666"
START_NS = 1_700_000_000 * 10**9
S = 10**9
HEALTHY_S, SLOW_S = 0.5, 1.25
"""Four replicas of 5 micro-batches at 0.1 s; one of them at 0.25 s."""
BEST = [2, 6, 6, 6]
BEST_S = 0.6


def job(**changes) -> Job:
    base = Job(
        job_id=JOB,
        run_id=RUN,
        name="a gpt",
        state=JobState.RUNNING,
        started_ns=START_NS - 600 * S,
        mesh=Mesh(["dp"], [4]),
        machines=[
            Machine(f"machine-{rank}", f"host-{rank}", devices=[Device(rank, 0, "gpu0")])
            for rank in range(4)
        ],
        micro_batches=20,
        capabilities=Capabilities(rebalance=True),
    )
    return msgspec.structs.replace(base, **changes)


def fault(rank: int = 0, *, phase=FaultPhase.ONSET, sequence: int = 0, **changes) -> Fault:
    onset_ns = changes.get("onset_ns", START_NS)
    unit = [0.25 if replica == rank else 0.1 for replica in range(4)]
    base = Fault(
        fault_id=str(uuid.uuid5(uuid.UUID(RUN), f"{rank} {onset_ns}")),
        fault_sequence=sequence,
        job_id=JOB,
        run_id=RUN,
        generation=0,
        detector="falcon",
        kind=FaultKind.SLOW_COMPUTE,
        phase=phase,
        onset_ns=onset_ns,
        detected_ns=onset_ns + 4 * S,
        suspects=[Suspect(kind=SuspectKind.RANK, id=str(rank))],
        confidence=0.9,
        slowdown=2.5,
        summary=f"rank {rank} computes 2.5 times slower than its peers",
        evidence={"replica_unit_s": unit, "replica_fixed_s": [0.0] * 4},
    )
    return msgspec.structs.replace(base, **changes)


@dataclass
class Scene:
    """The service over one database; ``restart`` makes it anew, as after a kill."""

    database: Path
    mode: str = "auto"
    changes: dict = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.now_ns = START_NS
        self.bus = MemoryBus(partitions=2, now_ms=lambda: self.now_ns // 1_000_000)
        self.publisher = self.bus.publisher()
        self.settings = RemediationSettings(
            database_url=f"sqlite:///{self.database}",
            partitions=2,
            mode=self.mode,
            **{"undo_hold_s": 20.0, "verify_steps": 10, "plan_valid_s": 30.0} | self.changes,
        )
        self.step_at = 1000
        self.step_s = HEALTHY_S
        self.revision = 0
        self.generation = 0
        self._start()

    def _start(self) -> None:
        self.store = Store(self.settings.database_url)
        if self.store.revision() is None:
            self.store.upgrade()
        self.metrics = Metrics(self.store)
        self.processor = Processor(
            self.bus, self.store, self.settings, self.metrics, clock=lambda: self.now_ns
        )

    def restart(self) -> None:
        """Drop the service objects without goodbye, and start over on the same database."""
        self.processor.close()
        self.store.close()
        self._start()

    def close(self) -> None:
        self.processor.close()
        self.store.close()

    def tell(self, topic: TopicName, *records) -> None:
        for record in records:
            self.publisher.publish(encode(topic, record, 2))

    def work(self) -> None:
        self.processor.step(0.0)

    def train(self, seconds: int, work: bool = True) -> None:
        """``seconds`` of training, a health record each; the service keeps up."""
        for _ in range(seconds):
            self.now_ns += S
            self.step_at += 2
            self.tell(
                TopicName.HEALTH,
                JobHealth(
                    job_id=JOB,
                    run_id=RUN,
                    generation=self.generation,
                    at_ns=self.now_ns,
                    step=self.step_at,
                    step_s=self.step_s,
                    baseline_s=HEALTHY_S,
                    slowdown=self.step_s / HEALTHY_S,
                    throughput=1000.0,
                    last_progress_ns=self.now_ns,
                    ranks_reporting=4,
                    ranks_expected=4,
                    revision=self.revision,
                    state=HealthState.HEALTHY if self.step_s < 0.55 else HealthState.SLOW,
                ),
            )
            if work:
                self.work()

    def begin(self, **changes) -> None:
        """Ten healthy seconds of the job."""
        self.now_ns -= 10 * S
        self.tell(TopicName.JOBS, job(**changes))
        self.train(10)

    def strike(self, rank: int = 0) -> Fault:
        """The straggler appears, and is found 4 s later."""
        found = fault(rank, onset_ns=self.now_ns)
        self.step_s = SLOW_S
        self.train(4)
        self.tell(TopicName.FAULTS, fault_event(found))
        return found

    def relieve(self, found: Fault, step_s: float = HEALTHY_S) -> None:
        self.step_s = step_s
        self.train(2)
        self.tell(
            TopicName.FAULTS,
            fault_event(
                msgspec.structs.replace(
                    found,
                    phase=FaultPhase.RELIEF,
                    fault_sequence=found.fault_sequence + 1,
                    detected_ns=self.now_ns,
                )
            ),
        )

    def answer(
        self, revision: int, state=PlanState.APPLIED, ranks=range(4), detail: str = ""
    ) -> None:
        """The ranks say what they did with a plan."""
        for rank in ranks:
            self.tell(
                TopicName.PLAN_STATUS,
                PlanStatus(
                    job_id=JOB,
                    run_id=RUN,
                    revision=revision,
                    machine_id=f"machine-{rank}",
                    rank=rank,
                    state=state,
                    step=self.step_at,
                    at_ns=self.now_ns,
                    took_s=0.1,
                    detail=detail,
                ),
            )

    def apply(self, revision: int, step_s: float) -> None:
        """All ranks switch to ``revision``; steps take ``step_s`` from now on."""
        self.answer(revision)
        self.revision, self.step_s = revision, step_s
        self.work()

    def published(self, topic: TopicName) -> list:
        return [
            decode(topic, message.value, message.headers)
            for (name, _), log in sorted(self.bus.logs.items())
            if name == topic
            for message in log
        ]

    def plans(self) -> list[Plan]:
        """Every plan that was published, each revision once."""
        found = {plan.revision: plan for plan in self.published(TopicName.PLANS)}
        return [found[revision] for revision in sorted(found)]

    def alerts(self) -> list[CloudEvent[IncidentView]]:
        """Every alert, repeats left out."""
        found = {alert.id: alert for alert in self.published(TopicName.ALERTS)}
        return list(found.values())

    def told(self) -> list[str]:
        """The kinds of alert in order: opened, mitigating, ..."""
        return [alert.type.split(".")[-2] for alert in self.alerts()]

"""The service as a process, against real Kafka: killed again and again, it loses and repeats nothing."""

import os
import signal
import socket
import sys
import time
from contextlib import contextmanager, suppress

import httpx
import msgspec
import pytest

from lineside.contracts import (
    Capabilities,
    Fault,
    FaultKind,
    FaultPhase,
    HealthState,
    Job,
    JobHealth,
    JobState,
    Mesh,
    PlanState,
    PlanStatus,
    Suspect,
    SuspectKind,
    TopicName,
    decode,
    encode,
    fault_event,
    fault_id,
)
from lineside.kit.processes import spawn, stop

JOB, RUN = "gpt", "0d6f8a52-4b1e-4f7a-9b0e-1f2e3d4c5b6a"
DEADLINE_S = 150.0


class Trainer:
    """A run of four replicas that tells its health ten times a second and follows every plan."""

    def __init__(self, bus) -> None:
        self.bus = bus
        self.publisher = bus.publisher()
        self.plans = bus.tail([TopicName.PLANS], JOB)
        self.seen = []
        self.slow = False
        self.step = 0
        self.counts, self.revision = [5] * 4, 0
        self.tell(
            TopicName.JOBS,
            Job(
                job_id=JOB,
                run_id=RUN,
                state=JobState.RUNNING,
                mesh=Mesh(["dp"], [4]),
                micro_batches=20,
                capabilities=Capabilities(rebalance=True),
            ),
        )

    def tell(self, topic, record) -> None:
        self.publisher.publish(encode(topic, record, self.bus.partitions))

    def train(self) -> None:
        """One step, a tenth of a second."""
        self.step += 1
        unit = [0.25 if self.slow else 0.1, 0.1, 0.1, 0.1]
        step_s = max(u * n for u, n in zip(unit, self.counts, strict=True))
        now_ns = time.time_ns()
        self.tell(
            TopicName.HEALTH,
            JobHealth(
                job_id=JOB,
                run_id=RUN,
                generation=0,
                at_ns=now_ns,
                step=self.step,
                step_s=step_s,
                baseline_s=0.5,
                slowdown=step_s / 0.5,
                throughput=None,
                last_progress_ns=now_ns,
                ranks_reporting=4,
                ranks_expected=4,
                revision=self.revision,
                state=HealthState.SLOW if step_s > 0.55 else HealthState.HEALTHY,
            ),
        )
        for message in self.plans.receive(10, 0.1):
            plan = decode(message.topic, message.value, message.headers)
            self.seen.append(plan)
            if plan.revision > self.revision:
                self.counts, self.revision = plan.micro_batch_plan, plan.revision
                for rank in range(4):
                    self.tell(TopicName.PLAN_STATUS, self.applied(rank))
        self.publisher.poll()

    def applied(self, rank: int) -> PlanStatus:
        return PlanStatus(
            job_id=JOB,
            run_id=RUN,
            revision=self.revision,
            machine_id=f"machine-{rank}",
            rank=rank,
            state=PlanState.APPLIED,
            step=self.step,
            at_ns=time.time_ns(),
            took_s=0.0,
        )

    def close(self) -> None:
        self.publisher.flush(5.0)
        self.publisher.close()
        self.plans.close()


class Service:
    """``python -m lineside.remediation`` over one database."""

    def __init__(self, bus, folder) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.log = folder / "remediation.log"
        self.environment = os.environ | {
            "LINESIDE_BOOTSTRAP": bus.bootstrap,
            "LINESIDE_TOPIC_PREFIX": bus.prefix,
            "LINESIDE_PARTITIONS": str(bus.partitions),
            "LINESIDE_DATABASE_URL": f"sqlite:///{folder / 'history.db'}",
            "LINESIDE_API_PORT": str(self.port),
            "LINESIDE_MODE": "auto",
            "LINESIDE_VERIFY_STEPS": "10",
            "LINESIDE_UNDO_HOLD_S": "2",
        }
        self.process = None

    def start(self) -> None:
        command = [sys.executable, "-m", "lineside.remediation"]
        self.process = spawn(command, env=self.environment, log=self.log)

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        self.start()

    def get(self, path: str):
        with suppress(httpx.TransportError):
            return httpx.get(f"http://127.0.0.1:{self.port}{path}", timeout=5)
        return None

    def incidents(self) -> list[dict]:
        answer = self.get("/v1/incidents")
        return answer.json()["items"] if answer is not None and answer.is_success else []

    def ready(self) -> bool:
        answer = self.get("/readyz")
        return answer is not None and answer.is_success


@pytest.fixture
def service(bus, tmp_path):
    service = Service(bus, tmp_path)
    service.start()
    yield service
    stop([service.process])


@contextmanager
def training(bus, service):
    trainer = Trainer(bus)

    def until(condition):
        deadline = time.monotonic() + DEADLINE_S
        while not condition():
            assert time.monotonic() < deadline, service.log.read_text()[-3000:]
            trainer.train()

    yield trainer, until
    trainer.close()


def slow_fault(onset_ns: int) -> Fault:
    return Fault(
        fault_id=fault_id(RUN, 0, "falcon", "slow_compute", "rank 0", onset_ns),
        fault_sequence=0,
        job_id=JOB,
        run_id=RUN,
        generation=0,
        detector="falcon",
        kind=FaultKind.SLOW_COMPUTE,
        phase=FaultPhase.ONSET,
        onset_ns=onset_ns,
        detected_ns=time.time_ns(),
        suspects=[Suspect(kind=SuspectKind.RANK, id="0", machine_id="machine-0")],
        confidence=0.9,
        slowdown=2.5,
        summary="rank 0 computes 2.5 times slower than its peers",
        evidence={"replica_unit_s": [0.25, 0.1, 0.1, 0.1], "replica_fixed_s": [0.0] * 4},
    )


def test_killed_at_three_moments_it_heals_the_run_once(bus, service):
    def state(wanted):
        return lambda: [i["state"] for i in service.incidents()] == [wanted]

    with training(bus, service) as (trainer, until):
        until(service.ready)
        for _ in range(10):
            trainer.train()
        found = slow_fault(time.time_ns())
        trainer.slow = True
        for _ in range(5):
            trainer.train()
        trainer.tell(TopicName.FAULTS, fault_event(found))
        until(service.incidents)
        service.kill()
        until(lambda: trainer.seen)
        service.kill()
        until(state("mitigated"))
        trainer.slow = False
        relief = msgspec.structs.replace(
            found, phase=FaultPhase.RELIEF, fault_sequence=1, detected_ns=time.time_ns()
        )
        trainer.tell(TopicName.FAULTS, fault_event(relief))
        service.kill()
        until(state("resolved"))

        plans = {plan.revision: plan.micro_batch_plan for plan in trainer.seen}
        assert plans == {1: [2, 6, 6, 6], 2: [5, 5, 5, 5]}
        assert all(plan.micro_batch_plan == plans[plan.revision] for plan in trainer.seen)
        [incident] = service.incidents()
        timeline = service.get(f"/v1/incidents/{incident['incident_id']}").json()["timeline"]
        moves = [s["to_state"] for s in timeline if s["to_state"] != s["from_state"]]
        assert moves == ["open", "mitigating", "verifying", "mitigated", "resolved"]
        assert incident["effect"]["slowdown_removed"] > 0.8

        alerts = bus.tail([TopicName.ALERTS], JOB)
        kinds = {}
        while messages := alerts.receive(100, 2.0):
            for message in messages:
                event = decode(message.topic, message.value, message.headers)
                kinds[event.id] = event.type.split(".")[-2]
        alerts.close()
        told = [kind for kind in kinds.values() if kind != "updated"]
        assert told == ["opened", "mitigating", "mitigated", "resolved"]


def test_sigterm_ends_it_cleanly(service):
    deadline = time.monotonic() + DEADLINE_S
    while not service.ready():
        assert time.monotonic() < deadline, service.log.read_text()[-3000:]
        time.sleep(0.1)
    service.process.terminate()
    assert service.process.wait(30) == 0
    assert "Traceback" not in service.log.read_text()


def test_another_address_than_loopback_is_refused(service):
    stop([service.process])
    service.environment["LINESIDE_API_HOST"] = "0.0.0.0"
    service.start()
    assert service.process.wait(60) == 78
    last = service.log.read_text().splitlines()[-1]
    assert "LINESIDE_API_HOST=0.0.0.0: the API has no access control yet" in last

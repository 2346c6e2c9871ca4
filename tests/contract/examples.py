"""One record of every topic, with fixed values: what the golden bytes are made of.

Add an example when a type gains a field; never change one, so that the old bytes stay readable.
"""

from typing import Any

import numpy as np

from lineside.contracts import (
    AlertType,
    Capabilities,
    Checkpoint,
    CloudEvent,
    CollectiveBatch,
    Declaration,
    DetectorState,
    Device,
    EventSeverity,
    EventSource,
    Fault,
    FaultKind,
    FaultPhase,
    FlowRow,
    Group,
    HealthState,
    IncidentView,
    Job,
    JobHealth,
    JobState,
    Machine,
    MachineEvent,
    Member,
    MemberState,
    Mesh,
    MetricBatch,
    MicroBatchLimits,
    Plan,
    PlanKind,
    PlanState,
    PlanStatus,
    RankStateRow,
    Reply,
    Request,
    RequestKind,
    RestartOwner,
    SavedCheckpoint,
    Series,
    StepBatch,
    Suspect,
    SuspectKind,
    TopicName,
    fault_event,
    fault_id,
    group_id,
    pack,
)

RUN = "0c0d6f2e-6f0e-4a4e-8d0d-0a54b1f0a001"
NAN = float("nan")
SENDER: dict[str, Any] = {
    "job_id": "gpt",
    "run_id": RUN,
    "generation": 1,
    "machine_id": "machine-0",
    "incarnation": "a1b2",
    "sequence": 7,
    "dropped": 0,
    "sent_ns": 1_700_000_000_000_000_000,
    "clock_offset_ns": -1,
    "clock_error_ns": -1,
}

STEPS = pack(
    StepBatch,
    SENDER
    | {
        "rank": [0, 1],
        "step": [41, 41],
        "start_ns": [1_700_000_000_000_000_000, 1_700_000_000_000_000_100],
        "step_s": [0.25, 0.25],
        "compute_s": [0.15, 0.125],
        "comm_s": [0.05, 0.0625],
        "exposed_comm_s": [NAN, NAN],
        "wait_s": [NAN, 0.03125],
        "data_s": [0.0, 0.0],
        "checkpoint_s": [0.0, 0.0],
        "other_s": [0.05, 0.0625],
        "micro_batches": [5, 5],
        "tokens": [640, -1],
        "loss": [2.5, NAN],
        "grad_norm": [1.5, NAN],
        "revision": [0, 0],
        "phase": [0, 0],
        "timing": [0, 0],
    },
)
METRICS = pack(
    MetricBatch,
    SENDER
    | {
        "start_ns": 1_700_000_000_000_000_000,
        "interval_s": 1.0,
        "series": [Series("cpu_utilization_ratio"), Series("gpu_power_watts", "machine-0/0")],
        "values": np.array([[0.5, 300.0], [0.25, NAN]]),
    },
)
COLLECTIVES = pack(
    CollectiveBatch,
    SENDER
    | {
        "rank": [0],
        "group_id": [group_id("dp", [0, 2])],
        "enqueued_seq": [12],
        "started_seq": [12],
        "completed_seq": [11],
        "oldest_open_seq": [12],
        "oldest_open_op": ["all_reduce"],
        "oldest_open_bytes": [4096],
        "oldest_open_since_ns": [1_700_000_000_000_000_000],
        "open_count": [1],
        "completed_ops": [3],
        "completed_bytes": [12288],
        "op_time_s": [0.5],
        "op_time_max_s": [0.25],
        "last_started_ns": [1_700_000_000_000_000_000],
        "last_completed_ns": [1_699_999_999_000_000_000],
        "graph_captured": [0],
        "timing": ["host"],
        "flows": [
            FlowRow(
                0, group_id("dp", [0, 2]), 12, "all_reduce", 4096, 0, "send", 2, 12, "net", "started",
                1, 2, -1, 4, 2, 2, -1, -1, 0.5, 41, "ring",
            )
        ],
        "rank_states": [RankStateRow(0, 4242, "running", -1, -1, "", 41, "train", 1, 2)],
    },
)  # fmt: skip
JOB = Job(
    job_id="gpt",
    run_id=RUN,
    name="a small GPT",
    generation=1,
    attempt_id="0",
    restart_owner=RestartOwner.LINESIDE,
    elastic=False,
    state=JobState.RUNNING,
    started_ns=1_700_000_000_000_000_000,
    mesh=Mesh(["dp", "pp"], [2, 2]),
    virtual_stages=1,
    groups=[Group("embedding:00", "embedding", ["pp"], [0, 3])],
    machines=[
        Machine(
            "machine-0", "host-a", "cpu", None, "switch-1", False, [Device(0, 0, "machine-0/0")]
        )
    ],
    micro_batches=10,
    micro_batch_limits=MicroBatchLimits(1, -1, 1),
    rebalance_units=[[0, 1]],
    capabilities=Capabilities(rebalance=True),
    checkpoint=Checkpoint(100, 1.5, None),
    labels={"team": "blue"},
)
MEMBER = Member(
    job_id="gpt",
    run_id=RUN,
    generation=1,
    machine_id="machine-0",
    at_ns=1_700_000_000_000_000_000,
    state=MemberState.RUNNING,
    ranks=[0, 1],
    pids=[4242, 4243],
    agent_version="0.1.0",
    boot_id="b",
    checks={"gemm": "ok"},
    declared=Declaration(mesh=Mesh(["dp", "pp"], [2, 2]), micro_batches=10),
    checkpoints=[SavedCheckpoint(40, 1, 1_700_000_000_000_000_000, 1.5, True)],
)
PLAN = Plan(
    job_id="gpt",
    run_id=RUN,
    revision=1,
    base_generation=1,
    base_revision=0,
    generation=1,
    issued_ns=1_700_000_000_000_000_000,
    valid_until_ns=1_700_000_060_000_000_000,
    kind=PlanKind.REBALANCE,
    reason="rank 3 computes 3.0x slower than its peers",
    incident_id="i",
    micro_batch_plan=[7, 3],
    ring_orders={group_id("dp", [0, 2]): [2, 0]},
    mesh=Mesh(["dp", "pp"], [2, 2]),
    placement={"0": "machine-0"},
    excluded_machines=["machine-9"],
    resume_step=-1,
    environment={"NCCL_IB_HCA": "mlx5_0"},
)
PLAN_STATUS = PlanStatus(
    job_id="gpt",
    run_id=RUN,
    revision=1,
    machine_id="machine-0",
    rank=3,
    state=PlanState.APPLIED,
    step=57,
    at_ns=1_700_000_000_000_000_000,
    took_s=0.5,
    detail="",
)
HEALTH = JobHealth(
    job_id="gpt",
    run_id=RUN,
    generation=1,
    at_ns=1_700_000_000_000_000_000,
    step=41,
    step_s=0.5,
    baseline_s=0.25,
    slowdown=2.0,
    throughput=None,
    last_progress_ns=1_700_000_000_000_000_000,
    ranks_reporting=4,
    ranks_expected=4,
    revision=0,
    state=HealthState.SLOW,
)
FAULT = Fault(
    fault_id=fault_id(RUN, 1, "falcon", "slow_compute", "rank:3", 1_700_000_000_000_000_000),
    fault_sequence=0,
    job_id="gpt",
    run_id=RUN,
    generation=1,
    detector="falcon",
    kind=FaultKind.SLOW_COMPUTE,
    phase=FaultPhase.ONSET,
    onset_ns=1_700_000_000_000_000_000,
    detected_ns=1_700_000_001_000_000_000,
    suspects=[
        Suspect(
            kind=SuspectKind.RANK, id="3", machine_id="machine-1", device="machine-1/1", score=3.0
        )
    ],
    victims=[Suspect(kind=SuspectKind.RANK, id="0")],
    confidence=0.99,
    slowdown=2.0,
    summary="rank 3 on machine-1 computes 3.0x slower than its peers",
    evidence={"replica_unit_s": [0.03, 0.09], "links": None},
    wanted_evidence=[],
)
MACHINE_EVENT = MachineEvent(
    job_id="gpt",
    run_id=RUN,
    generation=1,
    machine_id="machine-0",
    device="0000:9b:00",
    at_ns=1_700_000_000_000_000_000,
    source=EventSource.KMSG,
    code="119",
    severity=EventSeverity.CRITICAL,
    count=2,
    text="NVRM: Xid (PCI:0000:9b:00): 119, pid=4242, name=python, Timeout after 6s of waiting",
)
REQUEST = Request(
    request_id="4f0c1c5e-1111-4222-8333-444455556666",
    fault_id=FAULT.fault_id,
    job_id="gpt",
    run_id=RUN,
    generation=1,
    kind=RequestKind.DUMP_STACKS,
    ranks=[0, 3],
    parameters={"seconds": 0.5},
    max_pause_s=1.5,
    expires_ns=1_700_000_060_000_000_000,
)
REPLY = Reply(
    request_id="4f0c1c5e-1111-4222-8333-444455556666",
    fault_id=FAULT.fault_id,
    job_id="gpt",
    run_id=RUN,
    generation=1,
    kind="dump_stacks",
    machine_id="machine-0",
    rank=3,
    at_ns=1_700_000_001_000_000_000,
    ok=True,
    result={"stacks": [{"threads": ["MainThread"], "frames": ["train.py:12 step"]}]},
    detail="",
)
ALERT = CloudEvent(
    id="1",
    source="/remediation",
    type=AlertType.OPENED,
    subject="gpt",
    time="2026-01-01T00:00:00.000000Z",
    data=IncidentView(
        incident_id="i",
        job_id="gpt",
        run_id=RUN,
        kind="slow_compute",
        severity="warning",
        state="open",
        summary="rank 3 on machine-1 computes 3.0x slower than its peers",
        opened_ns=1_700_000_001_000_000_000,
        detected_ns=1_700_000_001_000_000_000,
        onset_ns=1_700_000_000_000_000_000,
        effect={"slowdown_before": 2.0},
    ),
)

EXAMPLES: dict[str, tuple[TopicName, Any]] = {
    "job": (TopicName.JOBS, JOB),
    "member": (TopicName.MEMBERS, MEMBER),
    "steps": (TopicName.STEPS, STEPS),
    "metrics": (TopicName.MACHINE_METRICS, METRICS),
    "collectives": (TopicName.COLLECTIVES, COLLECTIVES),
    "health": (TopicName.HEALTH, HEALTH),
    "fault": (TopicName.FAULTS, fault_event(FAULT)),
    "plan": (TopicName.PLANS, PLAN),
    "plan-status": (TopicName.PLAN_STATUS, PLAN_STATUS),
    "machine-event": (TopicName.MACHINE_EVENTS, MACHINE_EVENT),
    "request": (TopicName.REQUESTS, REQUEST),
    "reply": (TopicName.REPLIES, REPLY),
    "alert": (TopicName.ALERTS, ALERT),
    "detector-state": (
        TopicName.DETECTOR_STATE,
        DetectorState({"steps.v1": 12, "jobs.v1": 1}, b"\x01\x02", 1_700_000_000_000_000_000),
    ),
}

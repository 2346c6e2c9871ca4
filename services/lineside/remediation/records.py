"""Rows as the policy's and the wire's types."""

from typing import Any

import msgspec

from lineside.contracts import Fault, FaultKind, Job, JobHealth, PlanKind
from lineside.remediation.incident import Incident, PlanRecord, Progress, State
from lineside.remediation.store import FaultRow, HealthRow, IncidentRow, JobRow, PlanRow


def plain(record: msgspec.Struct) -> dict[str, Any]:
    """A wire record as JSON for a column."""
    return dict(msgspec.to_builtins(record))


def job_of(row: JobRow) -> Job:
    return msgspec.convert(row.body, Job)


def health_of(row: HealthRow) -> JobHealth:
    return msgspec.convert(row.body, JobHealth)


def fault_of(row: FaultRow) -> Fault:
    return msgspec.convert(row.body, Fault)


def incident_of(row: IncidentRow) -> Incident:
    return Incident(
        incident_id=row.incident_id,
        kind=FaultKind(row.kind),
        state=State(row.state),
        since_ns=row.since_ns,
        onset_ns=row.onset_ns,
        relieved_ns=row.relieved_ns,
        note=row.note,
        failures=row.failures,
        impact_s=row.impact_s,
        healthy_step_s=row.healthy_step_s,
        faulty_step_s=row.faulty_step_s,
        healed_step_s=row.effect.get("healed_step_s"),
    )


def plan_of(row: PlanRow) -> PlanRecord:
    """A plan that was issued: it has a revision."""
    return PlanRecord(
        revision=row.revision or 0,
        kind=PlanKind(row.kind),
        progress=Progress(row.progress),
        actor=row.actor,
        generation=row.generation,
        issued_ns=row.created_ns,
        valid_until_ns=row.valid_until_ns or 0,
        counts=list(row.micro_batch_plan),
        incident_id=row.incident_id,
        step_s=row.predicted_step_s,
        applied_step=-1 if row.applied_step is None else row.applied_step,
        detail=row.detail,
    )

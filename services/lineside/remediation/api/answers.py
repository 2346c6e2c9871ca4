"""Rows as the API's answers."""

import msgspec
from sqlalchemy import func, select
from sqlalchemy.orm import Session

from lineside.contracts import Fault, Job, JobHealth, RequestKind
from lineside.remediation.api import schemas
from lineside.remediation.incident import State
from lineside.remediation.issue import in_force
from lineside.remediation.records import fault_of, health_of, job_of
from lineside.remediation.requests import state_of, waiting_for
from lineside.remediation.stacks import side_by_side
from lineside.remediation.store import (
    FaultRow,
    HealthRow,
    IncidentRow,
    JobRow,
    PlanRow,
    ReplyRow,
    RequestRow,
)
from lineside.remediation.views import parts_of


def health(sample: JobHealth) -> schemas.Health:
    values = {name: getattr(sample, name) for name in sample.__struct_fields__}
    return schemas.Health(at=sample.at_ns, **_known(values, schemas.Health))


def newest_health(session: Session, run_id: str, limit: int = 1) -> list[schemas.Health]:
    """Up to ``limit`` newest samples, oldest first."""
    rows = session.scalars(
        select(HealthRow)
        .where(HealthRow.run_id == run_id)
        .order_by(HealthRow.at_ns.desc())
        .limit(limit)
    ).all()
    return [health(health_of(row)) for row in reversed(rows)]


def job(session: Session, row: JobRow) -> schemas.Job:
    said = job_of(row)
    force = in_force(session, row.run_id, row.generation)
    unresolved = session.scalar(
        select(func.count()).where(
            IncidentRow.run_id == row.run_id, IncidentRow.state != State.RESOLVED
        )
    )
    flags = msgspec.to_builtins(said.capabilities)
    return schemas.Job(
        job_id=row.job_id,
        run_id=row.run_id,
        name=row.name,
        state=row.state,
        generation=row.generation,
        started_at=row.started_ns,
        world_size=said.world_size,
        mesh=dict(zip(said.mesh.axes, said.mesh.sizes, strict=True)),
        micro_batches=said.micro_batches if said.micro_batches >= 0 else None,
        micro_batch_plan=_plan_now(said, force),
        revision=force.revision if force and force.revision else 0,
        capabilities=[name for name, declared in flags.items() if declared],
        machines=[machine.machine_id for machine in said.machines],
        open_incidents=unresolved or 0,
        health=next(iter(newest_health(session, row.run_id)), None),
    )


def _plan_now(said: Job, force: PlanRow | None) -> list[int]:
    if force:
        return force.micro_batch_plan
    return said.even_plan() if said.micro_batches >= 0 else []


def plan(row: PlanRow) -> schemas.Plan:
    return schemas.Plan(
        plan_id=row.plan_id,
        job_id=row.job_id,
        run_id=row.run_id,
        revision=row.revision,
        incident_id=row.incident_id,
        generation=row.generation,
        kind=row.kind,
        state=row.progress,
        actor=row.actor,
        reason=row.reason,
        detail=row.detail,
        micro_batch_plan=row.micro_batch_plan,
        predicted_step_s=row.predicted_step_s,
        created_at=row.created_ns,
        valid_until=row.valid_until_ns,
        settled_at=row.settled_ns,
        applied_step=row.applied_step,
    )


def summary(row: IncidentRow) -> schemas.IncidentSummary:
    return schemas.IncidentSummary(**_summary(row))


def incident(session: Session, row: IncidentRow) -> schemas.Incident:
    parts = parts_of(session, row.incident_id)
    return schemas.Incident(
        **_summary(row),
        timeline=[
            schemas.Transition(
                at=step.at_ns,
                from_state=step.from_state,
                to_state=step.to_state,
                actor=step.actor,
                reason=step.reason,
            )
            for step in parts.transitions
        ],
        faults=[fault(fault_of(found)) for found in parts.faults],
        plans=[plan(found) for found in parts.plans],
        evidence=_evidence(session, row),
    )


def _evidence(session: Session, row: IncidentRow) -> list[schemas.Evidence]:
    answered = (
        select(func.count())
        .where(ReplyRow.request_id == RequestRow.request_id, ReplyRow.ok)
        .scalar_subquery()
    )
    found = session.execute(
        select(RequestRow, answered)
        .join(FaultRow, FaultRow.fault_id == RequestRow.fault_id)
        .where(FaultRow.incident_id == row.incident_id)
        .order_by(RequestRow.created_ns, RequestRow.request_id)
    )
    return [
        schemas.Evidence(
            request_id=asked.request_id,
            fault_id=asked.fault_id or "",
            kind=asked.kind,
            asked_at=asked.created_ns,
            refusal=asked.refusal,
            answered=count,
        )
        for asked, count in found
    ]


def request(session: Session, row: RequestRow, now_ns: int) -> schemas.EvidenceRequest:
    replies = session.scalars(
        select(ReplyRow)
        .where(ReplyRow.request_id == row.request_id)
        .order_by(ReplyRow.rank, ReplyRow.machine_id)
    ).all()
    job_row = session.get(JobRow, row.run_id)
    waiting = waiting_for(row, replies, job_of(job_row) if job_row else None)
    found = [(reply.rank, reply.result) for reply in replies if reply.ok]
    same = {
        name: getattr(row, name)
        for name in schemas.EvidenceRequest.model_fields
        if hasattr(row, name)
    }
    return schemas.EvidenceRequest(
        **same,
        state=state_of(row, waiting, now_ns),
        created_at=row.created_ns,
        expires_at=row.expires_ns,
        waiting_for=[] if row.refusal else waiting,
        replies=[
            schemas.EvidenceReply(
                machine_id=reply.machine_id,
                rank=reply.rank if reply.rank >= 0 else None,
                at=reply.at_ns,
                ok=reply.ok,
                detail=reply.detail,
                result=reply.result,
            )
            for reply in replies
        ],
        stacks=[
            schemas.StackGroup(**group)
            for group in (side_by_side(found) if row.kind == RequestKind.DUMP_STACKS else [])
        ],
    )


def fault(found: Fault) -> schemas.FaultPhase:
    values = dict(msgspec.to_builtins(found))
    return schemas.FaultPhase(
        onset_at=found.onset_ns,
        detected_at=found.detected_ns,
        **_known(values, schemas.FaultPhase),
    )


def _summary(row: IncidentRow) -> dict[str, object]:
    times = {
        "onset_at": row.onset_ns,
        "detected_at": row.detected_ns,
        "opened_at": row.opened_ns,
        "mitigated_at": row.mitigated_ns,
        "resolved_at": row.resolved_ns,
    }
    same = {
        name: getattr(row, name)
        for name in schemas.IncidentSummary.model_fields
        if name not in times
    }
    return times | same


def _known(values: dict[str, object], schema: type[schemas.Answer]) -> dict[str, object]:
    return {name: value for name, value in values.items() if name in schema.model_fields}

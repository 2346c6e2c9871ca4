"""Issuing a plan: the one place where a revision is allocated and a plan becomes real."""

import uuid
from collections.abc import Sequence

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from lineside.contracts import Job, Plan, PlanKind, TopicName
from lineside.remediation import outbox
from lineside.remediation.incident import Progress
from lineside.remediation.records import plain
from lineside.remediation.store import JobRow, PlanRow


def in_force(session: Session, run_id: str, generation: int) -> PlanRow | None:
    """The newest applied plan of a run's generation; None: what the Job says."""
    return session.scalar(
        select(PlanRow)
        .where(
            PlanRow.run_id == run_id,
            PlanRow.generation == generation,
            PlanRow.progress == Progress.APPLIED,
        )
        .order_by(PlanRow.revision.desc())
        .limit(1)
    )


def issue(
    session: Session,
    job: Job,
    *,
    kind: PlanKind,
    counts: Sequence[int],
    reason: str,
    actor: str,
    now_ns: int,
    valid_ns: int,
    partitions: int,
    incident_id: str | None = None,
    predicted_step_s: float | None = None,
) -> PlanRow:
    """Allocate the run's next revision, and write plan and outbox in the caller's transaction."""
    job_row = session.scalar(select(JobRow).where(JobRow.run_id == job.run_id).with_for_update())
    newest = session.scalar(select(func.max(PlanRow.revision)).where(PlanRow.run_id == job.run_id))
    revision = max(newest or 0, job_row.newest_revision if job_row else 0) + 1
    base = in_force(session, job.run_id, job.generation)
    plan = Plan(
        job_id=job.job_id,
        run_id=job.run_id,
        revision=revision,
        base_generation=job.generation,
        base_revision=base.revision if base and base.revision else 0,
        generation=job.generation,
        issued_ns=now_ns,
        valid_until_ns=now_ns + valid_ns,
        kind=kind,
        reason=reason,
        incident_id=incident_id,
        micro_batch_plan=list(counts),
    )
    row = PlanRow(
        plan_id=str(uuid.uuid5(_NAMESPACE, f"{job.run_id}/{revision}")),
        job_id=job.job_id,
        run_id=job.run_id,
        revision=revision,
        incident_id=incident_id,
        generation=job.generation,
        kind=kind,
        progress=Progress.ISSUED,
        actor=actor,
        reason=reason,
        detail="",
        micro_batch_plan=list(counts),
        predicted_step_s=predicted_step_s,
        created_ns=now_ns,
        valid_until_ns=plan.valid_until_ns,
        body=plain(plan),
    )
    session.add(row)
    session.flush()
    outbox.put(session, TopicName.PLANS, plan, partitions, now_ns)
    return row


_NAMESPACE = uuid.UUID("d0c4a3a8-6a3b-5f0e-9d6e-0d0f2f5b7c11")

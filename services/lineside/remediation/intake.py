"""Received records into rows. Every handler is idempotent: a record that comes again changes nothing.

``HANDLERS`` is the map of what the service listens to. ``received_ns`` is the broker's append time.
"""

from collections.abc import Callable
from typing import Any

import msgspec
from sqlalchemy.orm import Session

from lineside.contracts import (
    CloudEvent,
    Fault,
    FaultPhase,
    Job,
    JobHealth,
    PlanStatus,
    Reply,
    TopicName,
)
from lineside.remediation.correlation import located
from lineside.remediation.records import fault_of, job_of, plain
from lineside.remediation.store import (
    FaultEventRow,
    FaultRow,
    HealthRow,
    JobRow,
    PlanStatusRow,
    ReplyRow,
)


def on_job(session: Session, job: Job, received_ns: int) -> None:
    row = session.get(JobRow, job.run_id)
    if row is None:
        row = JobRow(
            run_id=job.run_id,
            first_seen_ns=received_ns,
            updated_ns=received_ns,
            newest_revision=0,
        )
        session.add(row)
    elif received_ns < row.updated_ns:
        return  # read again after a restart; what is known is newer
    row.job_id, row.name, row.generation = job.job_id, job.name, job.generation
    row.state, row.started_ns = job.state, job.started_ns if job.started_ns >= 0 else None
    row.updated_ns, row.body = received_ns, plain(job)


def on_health(session: Session, health: JobHealth, received_ns: int) -> None:
    if session.get(HealthRow, (health.run_id, health.at_ns)) is None:
        session.add(
            HealthRow(
                run_id=health.run_id,
                at_ns=health.at_ns,
                generation=health.generation,
                step=health.step,
                step_s=health.step_s,
                slowdown=health.slowdown,
                state=health.state,
                received_ns=received_ns,
                body=plain(health),
            )
        )
    _note_revision(session, health.run_id, health.revision)


def on_plan_status(session: Session, status: PlanStatus, received_ns: int) -> None:
    key = (status.run_id, status.revision, status.machine_id, status.rank, status.state)
    if session.get(PlanStatusRow, key) is None:
        session.add(
            PlanStatusRow(
                run_id=status.run_id,
                revision=status.revision,
                machine_id=status.machine_id,
                rank=status.rank,
                state=status.state,
                at_ns=status.at_ns,
                body=plain(status),
            )
        )
    _note_revision(session, status.run_id, status.revision)


def on_reply(session: Session, reply: Reply, received_ns: int) -> None:
    if session.get(ReplyRow, (reply.request_id, reply.machine_id, reply.rank)) is None:
        session.add(
            ReplyRow(
                request_id=reply.request_id,
                machine_id=reply.machine_id,
                rank=reply.rank,
                at_ns=reply.at_ns,
                ok=reply.ok,
                detail=reply.detail,
                result=reply.result,
                received_ns=received_ns,
            )
        )


def _note_revision(session: Session, run_id: str, revision: int) -> None:
    """Revisions that are in use out there are never allocated, even by a new database."""
    row = session.get(JobRow, run_id)
    if row is not None and revision > row.newest_revision:
        row.newest_revision = revision


def on_fault(session: Session, event: CloudEvent[Fault], received_ns: int) -> None:
    """Phases may come twice or in any order: ``fault_sequence`` says which is the newest."""
    fault = event.data
    if session.get(FaultEventRow, (fault.fault_id, fault.fault_sequence)) is not None:
        return
    job = session.get(JobRow, fault.run_id)
    known = located(fault, job_of(job) if job else None)
    row = session.get(FaultRow, fault.fault_id)
    if row is None:
        row = FaultRow(
            fault_id=fault.fault_id,
            job_id=fault.job_id,
            run_id=fault.run_id,
            received_ns=received_ns,
            sequence=-1,
            onset_ns=fault.onset_ns,
            detected_ns=fault.detected_ns,
            body=plain(known),
        )
        session.add(row)
    row.onset_ns = min(row.onset_ns, fault.onset_ns)
    row.detected_ns = min(row.detected_ns, fault.detected_ns)
    if fault.fault_sequence < row.sequence:
        row.body = plain(_completed(fault_of(row), known))
    else:
        row.sequence, row.phase, row.updated_ns = fault.fault_sequence, fault.phase, received_ns
        row.generation, row.detector, row.kind = fault.generation, fault.detector, fault.kind
        row.relieved_ns = fault.detected_ns if fault.phase is FaultPhase.RELIEF else None
        row.confidence, row.body = fault.confidence, plain(_completed(known, fault_of(row)))
    session.flush()  # the phase refers to the fault
    session.add(
        FaultEventRow(
            fault_id=fault.fault_id,
            sequence=fault.fault_sequence,
            phase=fault.phase,
            received_ns=received_ns,
            body=plain(fault),
        )
    )


def _completed(newer: Fault, older: Fault) -> Fault:
    """``newer`` with what only ``older`` says: suspects and evidence that a bare relief leaves out, and the
    machines of ranks, which a later generation places elsewhere."""
    places = {(s.kind, s.id, s.peer): s for s in older.suspects}
    suspects = [
        s if s.machine_id else places.get((s.kind, s.id, s.peer), s) for s in newer.suspects
    ]
    return msgspec.structs.replace(
        newer,
        suspects=suspects or older.suspects,
        evidence=newer.evidence or older.evidence,
        summary=newer.summary or older.summary,
    )


Handler = Callable[[Session, Any, int], None]

HANDLERS: dict[TopicName, Handler] = {
    TopicName.JOBS: on_job,
    TopicName.HEALTH: on_health,
    TopicName.FAULTS: on_fault,
    TopicName.PLAN_STATUS: on_plan_status,
    TopicName.REPLIES: on_reply,
}

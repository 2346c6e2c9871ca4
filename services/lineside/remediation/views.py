"""An incident as people are told of it: the data of alerts, and what the API answers are made from."""

import uuid
from collections.abc import Sequence
from typing import NamedTuple

from sqlalchemy import select
from sqlalchemy.orm import Session

from lineside.contracts import Alert, AlertType, CloudEvent, IncidentView
from lineside.contracts.faults import event_time
from lineside.remediation.incident import State
from lineside.remediation.records import fault_of
from lineside.remediation.store import FaultRow, IncidentRow, PlanRow, TransitionRow

ALERTS = {
    State.MITIGATING: AlertType.MITIGATING,
    State.MITIGATED: AlertType.MITIGATED,
    State.RESOLVED: AlertType.RESOLVED,
    State.ESCALATED: AlertType.ESCALATED,
}
"""What is told when a state is entered. Remarks and returns are ``updated``; verifying is not told."""


class Parts(NamedTuple):
    """What belongs to an incident, oldest first."""

    faults: Sequence[FaultRow]
    plans: Sequence[PlanRow]
    transitions: Sequence[TransitionRow]


def parts_of(session: Session, incident_id: str) -> Parts:
    return Parts(
        session.scalars(
            select(FaultRow)
            .where(FaultRow.incident_id == incident_id)
            .order_by(FaultRow.onset_ns, FaultRow.fault_id)
        ).all(),
        session.scalars(
            select(PlanRow)
            .where(PlanRow.incident_id == incident_id)
            .order_by(PlanRow.created_ns, PlanRow.revision)
        ).all(),
        session.scalars(
            select(TransitionRow)
            .where(TransitionRow.incident_id == incident_id)
            .order_by(TransitionRow.sequence)
        ).all(),
    )


def incident_view(session: Session, row: IncidentRow) -> IncidentView:
    """The whole incident: faults in their newest phase, plans, and every transition."""
    parts = parts_of(session, row.incident_id)
    return IncidentView(
        incident_id=row.incident_id,
        job_id=row.job_id,
        run_id=row.run_id,
        kind=row.kind,
        severity=row.severity,
        state=row.state,
        summary=row.summary,
        opened_ns=row.opened_ns,
        detected_ns=row.detected_ns,
        onset_ns=row.onset_ns,
        mitigated_ns=_or_unknown(row.mitigated_ns),
        resolved_ns=_or_unknown(row.resolved_ns),
        suspects=row.suspects,
        effect=row.effect,
        faults=[fault_of(fault) for fault in parts.faults],
        plans=[plan_view(plan) for plan in parts.plans],
        transitions=[
            {
                "at_ns": step.at_ns,
                "from_state": step.from_state,
                "to_state": step.to_state,
                "actor": step.actor,
                "reason": step.reason,
            }
            for step in parts.transitions
        ],
    )


def plan_view(row: PlanRow) -> dict[str, object]:
    return {
        "revision": _or_unknown(row.revision),
        "kind": row.kind,
        "progress": row.progress,
        "actor": row.actor,
        "reason": row.reason,
        "detail": row.detail,
        "micro_batch_plan": row.micro_batch_plan,
        "predicted_step_s": row.predicted_step_s,
        "created_ns": row.created_ns,
        "settled_ns": _or_unknown(row.settled_ns),
    }


def _or_unknown(value: int | None) -> int:
    return -1 if value is None else value


def alert(session: Session, row: IncidentRow, kind: AlertType, sequence: int, now_ns: int) -> Alert:
    """The alert for the incident's transition number ``sequence``, with an id that tells repeats."""
    return CloudEvent(
        id=str(uuid.uuid5(uuid.UUID(row.incident_id), str(sequence))),
        source="/remediation",
        type=kind,
        subject=row.job_id,
        time=event_time(now_ns),
        data=incident_view(session, row),
    )

"""Writing the history: every move of an incident is a row, and what people are told is written with it."""

import logging
from dataclasses import dataclass

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from lineside.contracts import AlertType, FaultKind, TopicName
from lineside.remediation import outbox
from lineside.remediation.incident import State
from lineside.remediation.settings import RemediationSettings
from lineside.remediation.store import IncidentRow, TransitionRow
from lineside.remediation.views import ALERTS, alert

log = logging.getLogger("lineside.remediation")

CRITICAL = frozenset({FaultKind.CRASH, FaultKind.HANG, FaultKind.FAULTY_MACHINE})
WARNING = frozenset({FaultKind.SLOW_COMPUTE, FaultKind.SLOW_LINK, FaultKind.SLOW_COLLECTIVE})


def severity_of(kind: FaultKind) -> str:
    """The run stands still, is slow, or wants a look."""
    if kind in CRITICAL:
        return "critical"
    return "warning" if kind in WARNING else "info"


@dataclass(frozen=True, slots=True)
class Turn:
    """One transaction: its session, its time, and the rules."""

    session: Session
    now_ns: int
    settings: RemediationSettings


def record(turn: Turn, row: IncidentRow, to: State, *, actor: str, reason: str) -> None:
    """Move ``row`` to ``to`` (or remark something, where that is its state) and tell people."""
    session, before = turn.session, row.state
    sequence = session.scalar(
        select(func.count()).where(TransitionRow.incident_id == row.incident_id)
    )
    first = not sequence
    session.add(
        TransitionRow(
            incident_id=row.incident_id,
            sequence=sequence or 0,
            at_ns=turn.now_ns,
            from_state=None if first else before,
            to_state=to,
            actor=actor,
            reason=reason,
        )
    )
    moved = to != before
    if moved:
        row.state, row.since_ns = to, turn.now_ns
        if to is State.MITIGATED:
            row.mitigated_ns = turn.now_ns
        row.resolved_ns = turn.now_ns if to is State.RESOLVED else None
    session.flush()
    log.info("incident %s of %s: %s, %s", row.incident_id, row.job_id, to, reason)
    if moved and to is State.VERIFYING:
        return
    kind = ALERTS.get(to, AlertType.UPDATED) if moved else AlertType.UPDATED
    kind = AlertType.OPENED if first else kind
    told = alert(session, row, kind, sequence or 0, turn.now_ns)
    outbox.put(session, TopicName.ALERTS, told, turn.settings.partitions, turn.now_ns)

"""Faults find their incidents: they wait a moment for others, then open one, join one, or reopen one."""

from collections.abc import Sequence

import msgspec
from sqlalchemy import select

from lineside.contracts import ENDED, Fault, FaultPhase
from lineside.remediation import correlation
from lineside.remediation.history import Turn, record, severity_of
from lineside.remediation.incident import State
from lineside.remediation.records import fault_of, job_of
from lineside.remediation.store import FaultEventRow, FaultRow, IncidentRow, JobRow


def place_faults(turn: Turn) -> None:
    """Give every fault that has waited long enough its incident, in the order (onset, id)."""
    waiting = turn.session.scalars(
        select(FaultRow)
        .where(
            FaultRow.incident_id.is_(None),
            FaultRow.received_ns <= turn.now_ns - turn.settings.fault_wait_ns,
        )
        .order_by(FaultRow.onset_ns, FaultRow.fault_id)
    ).all()
    for row in waiting:
        _place(turn, row)
    _reopen_returned(turn)


def _place(turn: Turn, row: FaultRow) -> None:
    fault = _located(turn, row)
    home = correlation.home_of(fault, _standing(turn, row.run_id), turn.settings.flap_window_ns)
    if home is None:
        _open(turn, row, fault)
        return
    incident = turn.session.get_one(IncidentRow, home)
    row.incident_id = home
    turn.session.flush()
    refresh(turn, incident)
    if incident.state == State.RESOLVED and row.relieved_ns is None:
        _reopen(turn, incident, fault)
    else:
        record(
            turn,
            incident,
            State(incident.state),
            actor=fault.detector,
            reason=f"joined: {fault.summary or fault.kind}",
        )


def _located(turn: Turn, row: FaultRow) -> Fault:
    """The fault, its suspects with machine and device; kept so, since later generations know other ranks."""
    job = turn.session.get(JobRow, row.run_id)
    fault = correlation.located(fault_of(row), job_of(job) if job else None)
    row.body = row.body | {"suspects": msgspec.to_builtins(fault.suspects)}
    return fault


def _standing(turn: Turn, run_id: str) -> list[correlation.Standing]:
    found = []
    for incident in turn.session.scalars(select(IncidentRow).where(IncidentRow.run_id == run_id)):
        over = incident.relieved_ns is not None or incident.state == State.RESOLVED
        ends = [t for t in (incident.relieved_ns, incident.resolved_ns) if t is not None]
        found.append(
            correlation.Standing(
                incident_id=incident.incident_id,
                faults=[fault_of(row) for row in _rows(turn, incident)],
                until_ns=max(ends) if over and ends else None,
            )
        )
    return found


def _open(turn: Turn, row: FaultRow, fault: Fault) -> None:
    incident = IncidentRow(
        incident_id=correlation.incident_id(fault.fault_id),
        job_id=fault.job_id,
        run_id=fault.run_id,
        kind=fault.kind,
        severity=severity_of(fault.kind),
        state=State.OPEN,
        summary=fault.summary,
        confidence=correlation.confidence_of([fault]),
        suspects=msgspec.to_builtins(fault.suspects),
        onset_ns=fault.onset_ns,
        detected_ns=fault.detected_ns,
        opened_ns=turn.now_ns,
        since_ns=turn.now_ns,
        failures=0,
        impact_s=0.0,
        impact_from_ns=fault.onset_ns,
        impact_step=-1,
        effect={},
    )
    turn.session.add(incident)
    turn.session.flush()
    row.incident_id = incident.incident_id
    turn.session.flush()
    refresh(turn, incident)
    reason = fault.summary or f"{fault.kind} found by {fault.detector}"
    record(turn, incident, State.OPEN, actor=fault.detector, reason=reason)


def _reopen(turn: Turn, incident: IncidentRow, fault: Fault) -> None:
    """The same trouble again: it starts from the first rung, with the time that is running now."""
    quiet_s = (fault.onset_ns - (incident.relieved_ns or incident.resolved_ns or 0)) / 1e9
    incident.reopened_ns, incident.onset_ns = turn.now_ns, fault.onset_ns
    incident.relieved_ns = incident.mitigated_ns = incident.note = None
    incident.healthy_step_s = incident.faulty_step_s = None
    incident.failures, incident.impact_s, incident.impact_step = 0, 0.0, -1
    incident.impact_from_ns = fault.onset_ns
    reason = f"the fault is back after {max(0.0, quiet_s):.0f} s: {fault.summary or fault.kind}"
    record(turn, incident, State.OPEN, actor=fault.detector, reason=reason)


def _reopen_returned(turn: Turn) -> None:
    """Faults that their detector took up again, under the same id, after their incident was resolved."""
    returned = turn.session.execute(
        select(IncidentRow, FaultRow)
        .join(FaultRow, FaultRow.incident_id == IncidentRow.incident_id)
        .join(JobRow, JobRow.run_id == IncidentRow.run_id)
        .where(
            IncidentRow.state == State.RESOLVED,
            FaultRow.relieved_ns.is_(None),
            FaultRow.updated_ns > IncidentRow.resolved_ns,
            FaultRow.generation == JobRow.generation,
            JobRow.state.not_in(ENDED),
        )
    ).all()
    for incident, row in returned:
        if incident.state == State.RESOLVED:
            _reopen(turn, incident, fault_of(row))


def refresh(turn: Turn, incident: IncidentRow) -> Sequence[Fault]:
    """Bring what the incident says of its faults up to date; returns them, the newest last.

    It is relieved when all its faults of the newest generation are: ranks of an older one no longer exist.
    """
    rows = _rows(turn, incident)
    faults = [fault_of(row) for row in rows]
    kind = correlation.kind_of(faults)
    incident.kind, incident.severity = kind, severity_of(kind)
    named = next((row for row in rows if row.kind == kind), None)
    if named is not None:
        incident.summary = _wrong(turn, named) or incident.summary
    incident.confidence = correlation.confidence_of(faults)
    incident.detected_ns = min(row.detected_ns for row in rows)
    incident.suspects = _suspects(faults)
    newest = max(row.generation for row in rows)
    reliefs = [row.relieved_ns for row in rows if row.generation == newest]
    over = [ns for ns in reliefs if ns is not None]
    incident.relieved_ns = max(over) if len(over) == len(reliefs) else None
    return faults


def _rows(turn: Turn, incident: IncidentRow) -> Sequence[FaultRow]:
    return turn.session.scalars(
        select(FaultRow)
        .where(FaultRow.incident_id == incident.incident_id)
        .order_by(FaultRow.updated_ns, FaultRow.onset_ns, FaultRow.fault_id)
    ).all()


def _wrong(turn: Turn, row: FaultRow) -> str:
    """What the newest phase that tells of the trouble says; a relief tells only that it is over."""
    if row.phase != FaultPhase.RELIEF:
        return fault_of(row).summary
    body = turn.session.scalar(
        select(FaultEventRow.body)
        .where(FaultEventRow.fault_id == row.fault_id, FaultEventRow.phase != FaultPhase.RELIEF)
        .order_by(FaultEventRow.sequence.desc())
        .limit(1)
    )
    return msgspec.convert(body, Fault).summary if body else ""


def _suspects(faults: Sequence[Fault]) -> list[object]:
    """All suspects, each once, the newest fault's words for it."""
    found = {}
    for fault in faults:
        for suspect in fault.suspects:
            found[suspect.kind, suspect.id, suspect.peer, fault.generation] = suspect
    return [msgspec.to_builtins(suspect) for suspect in found.values()]

"""One turn: settle plans, place faults, and let every open incident move as far as it can.

All in the caller's transaction, and nothing is remembered outside SQL; so a turn that dies is as if it had
not begun, and a turn that is repeated finds its work done.
"""

import logging
import uuid

import msgspec
from sqlalchemy import and_, or_, select
from sqlalchemy.exc import DBAPIError

from lineside.contracts import PlanStatus
from lineside.remediation import verification
from lineside.remediation.arrivals import place_faults, refresh
from lineside.remediation.evidence import ask_for_wanted
from lineside.remediation.history import Turn, record
from lineside.remediation.incident import POLICY, Progress, State, outcome
from lineside.remediation.issue import issue
from lineside.remediation.ladder import Tally
from lineside.remediation.plans.rebalance import Draft
from lineside.remediation.policy import Decision, PolicyConfig, decide
from lineside.remediation.records import job_of, plan_of
from lineside.remediation.situation import Run
from lineside.remediation.store import HealthRow, IncidentRow, JobRow, PlanRow, PlanStatusRow

log = logging.getLogger("lineside.remediation")

LATE_NS = 3600 * 10**9
"""A plan that expired is still believed to be applied when all ranks say so within this time."""

_MOST_MOVES = 8
"""Moves of one incident in one turn; more would be a loop in the policy."""


def advance(turn: Turn, config: PolicyConfig) -> None:
    _settle_plans(turn)
    ask_for_wanted(turn)
    place_faults(turn)
    rows = turn.session.scalars(
        select(IncidentRow)
        .where(IncidentRow.state != State.RESOLVED)
        .order_by(IncidentRow.onset_ns, IncidentRow.incident_id)
    ).all()
    runs = {run_id: Run(turn.session, run_id) for run_id in {row.run_id for row in rows}}
    for row in rows:
        _move_safely(turn, runs[row.run_id], row, config)


def _settle_plans(turn: Turn) -> None:
    plans = turn.session.execute(
        select(PlanRow, JobRow)
        .join(JobRow, JobRow.run_id == PlanRow.run_id)
        .where(
            or_(
                PlanRow.progress == Progress.ISSUED,
                and_(
                    PlanRow.progress == Progress.EXPIRED,
                    PlanRow.settled_ns > turn.now_ns - LATE_NS,
                ),
            )
        )
    ).all()
    for row, job in plans:
        bodies = turn.session.scalars(
            select(PlanStatusRow.body)
            .where(PlanStatusRow.run_id == row.run_id, PlanStatusRow.revision == row.revision)
            .order_by(PlanStatusRow.at_ns)
        )
        statuses = [msgspec.convert(body, PlanStatus) for body in bodies]
        found = outcome(
            plan_of(row),
            statuses,
            world_size=job_of(job).world_size,
            generation=job.generation,
            now_ns=turn.now_ns,
        )
        if found is None or (row.progress == Progress.EXPIRED and found[0] is not Progress.APPLIED):
            continue
        row.progress, row.detail = found
        row.settled_ns = turn.now_ns
        if found[0] is Progress.APPLIED:
            row.applied_step = max((s.step for s in statuses), default=-1)
            if row.applied_step < 0:
                row.applied_step = _newest_step(turn, row.run_id)
        log.info("plan %s of %s: %s, %s", row.revision, row.job_id, *found)
    turn.session.flush()


def _newest_step(turn: Turn, run_id: str) -> int | None:
    return turn.session.scalar(
        select(HealthRow.step)
        .where(HealthRow.run_id == run_id)
        .order_by(HealthRow.at_ns.desc())
        .limit(1)
    )


def _move_safely(turn: Turn, run: Run, row: IncidentRow, config: PolicyConfig) -> None:
    """An incident that cannot be moved (a fault of the program, or evidence that nobody thought of) stays as
    it is, and the other runs' incidents do not wait for it."""
    incident_id = row.incident_id
    try:
        with turn.session.begin_nested():
            _move(turn, run, row, config)
    except DBAPIError:
        raise  # the database, not the incident
    except Exception:
        log.exception("incident %s cannot be moved on", incident_id)


def _move(turn: Turn, run: Run, row: IncidentRow, config: PolicyConfig) -> None:
    for _ in range(_MOST_MOVES):
        faults = list(refresh(turn, row))
        _tally(run, row)
        turn.session.flush()
        decision = decide(run.situation(row, faults, turn.now_ns), config)
        if decision is None:
            return
        _enact(turn, run, row, decision)
        if row.state == State.RESOLVED:
            return


def _tally(run: Run, row: IncidentRow) -> None:
    """Add what the newest steps have cost."""
    if row.healthy_step_s is None:
        row.healthy_step_s = verification.healthy_step_s(run.samples, row.onset_ns)
    before = Tally(impact_s=row.impact_s, step=row.impact_step)
    after = before.add(run.samples, row.healthy_step_s, row.impact_from_ns)
    row.impact_s, row.impact_step = after.impact_s, after.step


def _enact(turn: Turn, run: Run, row: IncidentRow, decision: Decision) -> None:
    """Write the decision down: plan, numbers, transition, alert."""
    row.note = decision.note
    if decision.failures is not None:
        row.failures = decision.failures
    if decision.effect is not None:
        row.effect = dict(decision.effect)
    if decision.faulty_step_s is not None:
        row.faulty_step_s = decision.faulty_step_s
    if decision.restart_impact:
        row.impact_s, row.impact_from_ns = 0.0, turn.now_ns
    reason = decision.reason
    if decision.plan is not None and run.job is not None:
        if decision.proposed:
            _propose(turn, run, row, decision.plan)
        else:
            plan = issue(
                turn.session,
                run.job,
                kind=decision.plan.kind,
                counts=decision.plan.counts,
                reason=decision.plan.reason,
                actor=POLICY,
                now_ns=turn.now_ns,
                valid_ns=turn.settings.plan_valid_ns,
                partitions=turn.settings.partitions,
                incident_id=row.incident_id,
                predicted_step_s=decision.plan.step_s,
            )
            reason = f"revision {plan.revision}: {reason}"
    record(turn, row, decision.to, actor=POLICY, reason=reason)


def _propose(turn: Turn, run: Run, row: IncidentRow, draft: Draft) -> None:
    """A plan that is only shown; it gets a revision once somebody wants it."""
    turn.session.add(
        PlanRow(
            plan_id=str(uuid.uuid5(uuid.UUID(row.incident_id), f"proposed {turn.now_ns}")),
            job_id=row.job_id,
            run_id=row.run_id,
            incident_id=row.incident_id,
            generation=run.job.generation if run.job else 0,
            kind=draft.kind,
            progress=Progress.PROPOSED,
            actor=POLICY,
            reason=draft.reason,
            detail="",
            micro_batch_plan=draft.counts,
            predicted_step_s=draft.step_s,
            created_ns=turn.now_ns,
        )
    )

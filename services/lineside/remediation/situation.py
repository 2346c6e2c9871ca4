"""Everything that the policy may look at, read from SQL."""

from collections.abc import Sequence

import msgspec
from sqlalchemy import select
from sqlalchemy.orm import Session

from lineside.contracts import ENDED, Fault, Job, JobHealth, PlanKind
from lineside.remediation.incident import PlanRecord, Progress, State
from lineside.remediation.policy import Situation
from lineside.remediation.records import incident_of, job_of, plan_of
from lineside.remediation.store import HealthRow, IncidentRow, JobRow, PlanRow

SAMPLES = 256
"""How far back the policy looks: minutes of a job that reports each second."""


class Run:
    """One run as it stands now. Job and samples are read once, the rest whenever a situation is asked for,
    since decisions change it."""

    def __init__(self, session: Session, run_id: str) -> None:
        self._session = session
        self._run_id = run_id
        row = session.get(JobRow, run_id)
        self.job: Job | None = job_of(row) if row else None
        self.ended = _ended(session, row) if row else None
        self.samples, self.heard_ns = self._health()

    def _health(self) -> tuple[list[JobHealth], int]:
        query = select(HealthRow.body, HealthRow.received_ns).where(
            HealthRow.run_id == self._run_id
        )
        if self.job is not None:
            query = query.where(HealthRow.generation == self.job.generation)
        rows = self._session.execute(query.order_by(HealthRow.at_ns.desc()).limit(SAMPLES)).all()
        heard_ns = max((row.received_ns for row in rows), default=-1)
        return [msgspec.convert(row.body, JobHealth) for row in reversed(rows)], heard_ns

    def situation(self, row: IncidentRow, faults: list[Fault], now_ns: int) -> Situation:
        generation = self.job.generation if self.job else -1
        plans = self._session.scalars(
            select(PlanRow).where(PlanRow.run_id == self._run_id).order_by(PlanRow.revision)
        ).all()
        others = self._session.scalars(
            select(IncidentRow).where(
                IncidentRow.run_id == self._run_id,
                IncidentRow.incident_id != row.incident_id,
                IncidentRow.state != State.RESOLVED,
            )
        ).all()
        issued = [plan_of(plan) for plan in plans if plan.revision is not None]
        applied = [
            plan
            for plan in issued
            if plan.progress is Progress.APPLIED and plan.generation == generation
        ]
        remedies = {plan.incident_id for plan in applied if plan.kind is PlanKind.REBALANCE}
        remedy = _newest(issued, row.incident_id, PlanKind.REBALANCE)
        undo = _newest(issued, row.incident_id, PlanKind.BASELINE)
        return Situation(
            now_ns=now_ns,
            incident=incident_of(row),
            job=self.job,
            faults=faults,
            ended=self.ended,
            samples=self.samples,
            heard_ns=self.heard_ns,
            remedy=remedy,
            undo=undo if undo and remedy and undo.revision > remedy.revision else None,
            in_force=applied[-1] if applied else None,
            busy=any(plan.progress is Progress.ISSUED for plan in issued)
            or any(other.state == State.VERIFYING for other in others),
            proposed=any(
                plan.progress == Progress.PROPOSED
                and plan.incident_id == row.incident_id
                and plan.created_ns >= (row.reopened_ns or row.opened_ns)
                for plan in plans
            ),
            shared=any(
                other.relieved_ns is None and other.incident_id in remedies for other in others
            ),
        )


def _newest(issued: Sequence[PlanRecord], incident_id: str, kind: PlanKind) -> PlanRecord | None:
    mine = [plan for plan in issued if plan.incident_id == incident_id and plan.kind is kind]
    return mine[-1] if mine else None


def _ended(session: Session, row: JobRow) -> str | None:
    """Why the run is over, None while it lasts."""
    if row.state in ENDED:
        return f"the run ended ({row.state})"
    newer = session.scalar(
        select(JobRow.run_id)
        .where(JobRow.job_id == row.job_id, JobRow.first_seen_ns > row.first_seen_ns)
        .limit(1)
    )
    return f"a newer run of the job began ({newer})" if newer else None

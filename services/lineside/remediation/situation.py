"""Everything that the policy may look at, read from SQL."""

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from lineside.contracts import Fault, Job, JobHealth, PlanKind
from lineside.contracts.jobs import ENDED
from lineside.remediation.incident import PlanRecord, Progress, State
from lineside.remediation.issue import in_force
from lineside.remediation.policy import Situation
from lineside.remediation.records import health_of, incident_of, job_of, plan_of
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
        query = select(HealthRow).where(HealthRow.run_id == self._run_id)
        if self.job is not None:
            query = query.where(HealthRow.generation == self.job.generation)
        rows = self._session.scalars(query.order_by(HealthRow.at_ns.desc()).limit(SAMPLES)).all()
        heard_ns = max((row.received_ns for row in rows), default=-1)
        return [health_of(row) for row in reversed(rows)], heard_ns

    def situation(self, row: IncidentRow, faults: list[Fault], now_ns: int) -> Situation:
        remedy = self._newest(row, PlanKind.REBALANCE)
        undo = self._newest(row, PlanKind.BASELINE)
        force = in_force(self._session, self._run_id, self.job.generation) if self.job else None
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
            in_force=plan_of(force) if force else None,
            busy=self._plan_issued() or self._others(row, State.VERIFYING) > 0,
            proposed=self._proposed(row),
            shared=self._shared(row),
        )

    def _newest(self, row: IncidentRow, kind: PlanKind) -> PlanRecord | None:
        found = self._session.scalar(
            select(PlanRow)
            .where(
                PlanRow.incident_id == row.incident_id,
                PlanRow.kind == kind,
                PlanRow.revision.is_not(None),
            )
            .order_by(PlanRow.revision.desc())
            .limit(1)
        )
        return plan_of(found) if found else None

    def _plan_issued(self) -> bool:
        return (
            self._session.scalar(
                select(PlanRow.plan_id)
                .where(PlanRow.run_id == self._run_id, PlanRow.progress == Progress.ISSUED)
                .limit(1)
            )
            is not None
        )

    def _others(self, row: IncidentRow, state: State) -> int:
        return (
            self._session.scalar(
                select(func.count()).where(
                    IncidentRow.run_id == self._run_id,
                    IncidentRow.incident_id != row.incident_id,
                    IncidentRow.state == state,
                )
            )
            or 0
        )

    def _proposed(self, row: IncidentRow) -> bool:
        return (
            self._session.scalar(
                select(PlanRow.plan_id)
                .where(
                    PlanRow.incident_id == row.incident_id,
                    PlanRow.progress == Progress.PROPOSED,
                    PlanRow.created_ns >= (row.reopened_ns or row.opened_ns),
                )
                .limit(1)
            )
            is not None
        )

    def _shared(self, row: IncidentRow) -> bool:
        """Does another trouble that lasts have a remedy, which the plan in force then has taken in?"""
        return (
            self._session.scalar(
                select(IncidentRow.incident_id)
                .join(PlanRow, PlanRow.incident_id == IncidentRow.incident_id)
                .where(
                    IncidentRow.run_id == self._run_id,
                    IncidentRow.incident_id != row.incident_id,
                    IncidentRow.state != State.RESOLVED,
                    IncidentRow.relieved_ns.is_(None),
                    PlanRow.kind == PlanKind.REBALANCE,
                    PlanRow.progress == Progress.APPLIED,
                    PlanRow.generation == (self.job.generation if self.job else -1),
                )
                .limit(1)
            )
            is not None
        )


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

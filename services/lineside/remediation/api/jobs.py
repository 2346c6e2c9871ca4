"""``/v1/jobs``: runs that are watched, and how they do."""

from typing import Annotated

from fastapi import APIRouter, Query
from sqlalchemy import func, select

from lineside.remediation.api import answers, schemas
from lineside.remediation.api.problems import responses
from lineside.remediation.api.reach import Reading, newest_run
from lineside.remediation.store import JobRow

router = APIRouter(prefix="/jobs", tags=["jobs"])


@router.get("", summary="All jobs, each by its newest run")
def list_jobs(session: Reading) -> schemas.Page[schemas.Job]:
    newest = (
        select(JobRow.job_id, func.max(JobRow.first_seen_ns).label("seen"))
        .group_by(JobRow.job_id)
        .subquery()
    )
    rows = session.scalars(
        select(JobRow)
        .join(
            newest,
            (JobRow.job_id == newest.c.job_id) & (JobRow.first_seen_ns == newest.c.seen),
        )
        .order_by(JobRow.first_seen_ns.desc())
    )
    return schemas.Page[schemas.Job](items=[answers.job(session, row) for row in rows])


@router.get("/{job_id}", summary="One job, by its newest run", responses=responses(404))
def get_job(job_id: str, session: Reading) -> schemas.Job:
    return answers.job(session, newest_run(session, job_id))


@router.get("/{job_id}/health", summary="How a job did lately", responses=responses(404))
def get_health(
    job_id: str,
    session: Reading,
    limit: Annotated[int, Query(ge=1, le=3600, description="newest samples")] = 300,
) -> schemas.JobHealth:
    row = newest_run(session, job_id)
    samples = answers.newest_health(session, row.run_id, limit)
    return schemas.JobHealth(
        job_id=row.job_id,
        run_id=row.run_id,
        newest=samples[-1] if samples else None,
        samples=samples,
    )

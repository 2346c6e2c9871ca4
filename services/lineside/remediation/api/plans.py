"""``/v1/plans``: what should be running; and a person's own plan for a job."""

from typing import Annotated

from fastapi import APIRouter, Query, Request
from sqlalchemy import select

from lineside.contracts import ENDED, PlanKind
from lineside.remediation.api import answers, schemas
from lineside.remediation.api.problems import Problem, responses
from lineside.remediation.api.reach import Reading, newest_run, service_of
from lineside.remediation.incident import Progress
from lineside.remediation.issue import issue
from lineside.remediation.plans.limits import broken_limit
from lineside.remediation.records import job_of
from lineside.remediation.store import PlanRow

router = APIRouter(tags=["plans"])


@router.get("/plans", summary="Plans, newest first", responses=responses(422))
def list_plans(
    session: Reading,
    job: Annotated[str | None, Query(description="of this job id")] = None,
    state: Annotated[list[Progress] | None, Query(description="in any of these states")] = None,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
) -> schemas.Page[schemas.Plan]:
    query = select(PlanRow)
    if job is not None:
        query = query.where(PlanRow.job_id == job)
    if state:
        query = query.where(PlanRow.progress.in_(state))
    rows = session.scalars(
        query.order_by(PlanRow.created_ns.desc(), PlanRow.plan_id.desc()).limit(limit)
    )
    return schemas.Page[schemas.Plan](items=[answers.plan(row) for row in rows])


@router.post(
    "/jobs/{job_id}/plans",
    status_code=202,
    summary="Give a job a plan by hand",
    description="The plan is checked against the job, gets the run's next revision, and is published. All "
    "ranks switch to it at one step boundary; `GET /v1/plans` shows when they have. Answers 409 while "
    "another plan is on its way, and where the job is over or its trainer cannot rebalance.",
    responses=responses(404, 409, 422),
)
def post_plan(job_id: str, wanted: schemas.PlanRequest, request: Request) -> schemas.Plan:
    service = service_of(request)
    with service.store.writing() as session:
        row = newest_run(session, job_id)
        job = job_of(row)
        if row.state in ENDED:
            raise Problem(409, f"the run of {job_id!r} is over ({row.state})")
        if not job.capabilities.rebalance:
            raise Problem(409, f"the trainer of {job_id!r} does not declare that it can rebalance")
        if reason := broken_limit(job, wanted.micro_batch_plan):
            raise Problem(422, reason)
        on_its_way = session.scalar(
            select(PlanRow.revision)
            .where(PlanRow.run_id == job.run_id, PlanRow.progress == Progress.ISSUED)
            .limit(1)
        )
        if on_its_way is not None:
            raise Problem(409, f"revision {on_its_way} is on its way; wait until it is settled")
        even = wanted.micro_batch_plan == job.even_plan()
        plan = issue(
            session,
            job,
            kind=PlanKind.BASELINE if even else PlanKind.REBALANCE,
            counts=wanted.micro_batch_plan,
            reason=wanted.reason or "set by hand",
            actor=wanted.actor,
            now_ns=service.clock(),
            valid_ns=round(wanted.valid_s * 1e9),
            partitions=service.settings.partitions,
        )
        return answers.plan(plan)

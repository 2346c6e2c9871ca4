"""``/v1/jobs/{id}/requests``: evidence that is asked of a run's agents, and their answers."""

from typing import Annotated

from fastapi import APIRouter, Query, Request
from sqlalchemy import select

from lineside.contracts.jobs import ENDED
from lineside.remediation.api import answers, schemas
from lineside.remediation.api.problems import Problem, responses
from lineside.remediation.api.reach import Reading, newest_run, service_of
from lineside.remediation.records import job_of
from lineside.remediation.requests import ask, refusal_of
from lineside.remediation.store import RequestRow

router = APIRouter(prefix="/jobs/{job_id}/requests", tags=["requests"])


@router.get(
    "",
    summary="What was asked of a job's newest run, newest first, with the answers",
    responses=responses(404),
)
def list_requests(
    job_id: str,
    session: Reading,
    request: Request,
    request_id: Annotated[str | None, Query(description="only this one")] = None,
    limit: Annotated[int, Query(ge=1, le=100)] = 20,
) -> schemas.Page[schemas.EvidenceRequest]:
    run = newest_run(session, job_id)
    query = select(RequestRow).where(RequestRow.run_id == run.run_id)
    if request_id is not None:
        query = query.where(RequestRow.request_id == request_id)
    rows = session.scalars(
        query.order_by(RequestRow.created_ns.desc(), RequestRow.request_id).limit(limit)
    ).all()
    now_ns = service_of(request).clock()
    return schemas.Page[schemas.EvidenceRequest](
        items=[answers.request(session, row, now_ns) for row in rows]
    )


@router.post(
    "",
    status_code=202,
    summary="Ask a job's agents for evidence",
    description="Stacks, a validation, a dump: the agents of the asked ranks answer within seconds, and "
    "`GET` shows the answers. Kinds that may disturb the run are done because a person asks, whatever the "
    "mode. Answers 409 where the job is over or its trainer cannot do it, 429 where enough was asked lately.",
    responses=responses(404, 409, 422, 429),
)
def post_request(
    job_id: str, wanted: schemas.WantedEvidence, request: Request
) -> schemas.EvidenceRequest:
    service = service_of(request)
    now_ns = service.clock()
    with service.store.writing() as session:
        row = newest_run(session, job_id)
        job = job_of(row)
        if row.state in ENDED:
            raise Problem(409, f"the run of {job_id!r} is over ({row.state})")
        known = {device.rank for machine in job.machines for device in machine.devices}
        if strangers := sorted(set(wanted.ranks) - known):
            raise Problem(422, f"the job has no rank {strangers[0]}; it has {len(known)} ranks")
        if refused := refusal_of(session, job, wanted.kind, now_ns):
            raise Problem(429 if refused.later else 409, refused.reason)
        asked = ask(
            session,
            job,
            kind=wanted.kind,
            ranks=wanted.ranks,
            actor=wanted.actor,
            reason=wanted.reason or "asked by hand",
            now_ns=now_ns,
            partitions=service.settings.partitions,
            valid_s=wanted.valid_s,
            parameters=wanted.parameters,
            max_pause_s=wanted.max_pause_s,
        )
        return answers.request(session, asked, now_ns)

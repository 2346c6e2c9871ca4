"""``/v1/incidents``: what went wrong, newest first, and each one's whole history."""

from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Query
from sqlalchemy import select, tuple_

from lineside.contracts import FaultKind
from lineside.remediation.api import answers, schemas
from lineside.remediation.api.pages import cursor_after, parse_cursor
from lineside.remediation.api.problems import Problem, responses
from lineside.remediation.api.reach import Reading
from lineside.remediation.incident import State
from lineside.remediation.store import IncidentRow

router = APIRouter(prefix="/incidents", tags=["incidents"])


@router.get("", summary="Incidents, newest first", responses=responses(400, 422))
def list_incidents(
    session: Reading,
    job: Annotated[str | None, Query(description="of this job id")] = None,
    state: Annotated[list[State] | None, Query(description="in any of these states")] = None,
    kind: Annotated[list[FaultKind] | None, Query(description="of any of these kinds")] = None,
    since: Annotated[
        datetime | None, Query(description="opened at or after, RFC 3339 with an offset")
    ] = None,
    cursor: Annotated[str | None, Query(description="`next_cursor` of the page before")] = None,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
) -> schemas.Page[schemas.IncidentSummary]:
    query = select(IncidentRow)
    if job is not None:
        query = query.where(IncidentRow.job_id == job)
    if state:
        query = query.where(IncidentRow.state.in_(state))
    if kind:
        query = query.where(IncidentRow.kind.in_(kind))
    if since is not None:
        query = query.where(IncidentRow.opened_ns >= _ns(since))
    place = tuple_(IncidentRow.opened_ns, IncidentRow.incident_id)
    if cursor is not None:
        query = query.where(place < tuple_(*parse_cursor(cursor)))
    rows = session.scalars(
        query.order_by(IncidentRow.opened_ns.desc(), IncidentRow.incident_id.desc()).limit(
            limit + 1
        )
    ).all()
    page = rows[:limit]
    more = len(rows) > limit
    return schemas.Page[schemas.IncidentSummary](
        items=[answers.summary(row) for row in page],
        next_cursor=cursor_after(page[-1].opened_ns, page[-1].incident_id) if more else None,
    )


@router.get(
    "/{incident_id}",
    summary="One incident: timeline, evidence, plans, effect",
    responses=responses(404),
)
def get_incident(incident_id: str, session: Reading) -> schemas.Incident:
    row = session.get(IncidentRow, incident_id)
    if row is None:
        raise Problem(404, f"there is no incident {incident_id!r}")
    return answers.incident(session, row)


def _ns(time: datetime) -> int:
    if time.tzinfo is None:
        raise Problem(400, "since: the time needs an offset, for example 2030-01-01T00:00:00Z")
    return round(time.timestamp() * 1e6) * 1000

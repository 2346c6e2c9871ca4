"""``/v1/incidents``: what went wrong, newest first, and each one's whole history."""

from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Path, Query
from pydantic import AwareDatetime
from sqlalchemy import select, tuple_
from sqlalchemy.orm import Session

from lineside.contracts import FaultKind
from lineside.remediation.api import answers, schemas
from lineside.remediation.api.pages import cursor_after, parse_cursor
from lineside.remediation.api.problems import Problem, responses
from lineside.remediation.api.reach import Reading
from lineside.remediation.incident import State
from lineside.remediation.store import IncidentRow

_ENOUGH = 6
"""Characters of an id that may stand for all of it."""

router = APIRouter(prefix="/incidents", tags=["incidents"])


@router.get("", summary="Incidents, newest first", responses=responses(400, 422))
def list_incidents(
    session: Reading,
    job: Annotated[str | None, Query(description="of this job id")] = None,
    state: Annotated[list[State] | None, Query(description="in any of these states")] = None,
    kind: Annotated[list[FaultKind] | None, Query(description="of any of these kinds")] = None,
    since: Annotated[
        AwareDatetime | None, Query(description="opened at or after, RFC 3339 with an offset")
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
    responses=responses(404, 409),
)
def get_incident(
    incident_id: Annotated[
        str, Path(description=f"the id, or its first {_ENOUGH} characters or more")
    ],
    session: Reading,
) -> schemas.Incident:
    return answers.incident(session, _named(session, incident_id))


def _named(session: Session, name: str) -> IncidentRow:
    """By its id, or by the beginning of it where no other begins so. Raises ``Problem``."""
    row = session.get(IncidentRow, name)
    if row is not None:
        return row
    if len(name) < _ENOUGH:
        raise Problem(
            404,
            f"there is no incident {name!r}; give its id, or at least {_ENOUGH} characters of it",
        )
    rows = session.scalars(
        select(IncidentRow)
        .where(IncidentRow.incident_id.startswith(name, autoescape=True))
        .order_by(IncidentRow.opened_ns.desc())
        .limit(3)
    ).all()
    if not rows:
        raise Problem(404, f"there is no incident {name!r}")
    if len(rows) > 1:
        found = ", ".join(row.incident_id for row in rows)
        raise Problem(409, f"{name!r} begins more than one incident's id: {found}")
    return rows[0]


def _ns(time: datetime) -> int:
    return round(time.timestamp() * 1e6) * 1000

"""How a route reaches the database and finds what a path names."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

from fastapi import Depends, Request
from sqlalchemy import select
from sqlalchemy.orm import Session

from lineside.remediation.api.problems import Problem
from lineside.remediation.store import JobRow

if TYPE_CHECKING:
    from lineside.remediation.api.app import Service


def service_of(request: Request) -> "Service":
    found: Service = request.app.state.service
    return found


def reading(request: Request) -> Iterator[Session]:
    with service_of(request).store.reading() as session:
        yield session


Reading = Annotated[Session, Depends(reading)]
"""A session that reads one consistent view."""


def newest_run(session: Session, job_id: str) -> JobRow:
    """The job's newest run. Raises ``Problem`` (404)."""
    row = session.scalar(
        select(JobRow).where(JobRow.job_id == job_id).order_by(JobRow.first_seen_ns.desc()).limit(1)
    )
    if row is None:
        raise Problem(404, f"there is no job {job_id!r}")
    return row

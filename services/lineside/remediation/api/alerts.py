"""``/v1/alerts/stream``: changes of incidents as Server-Sent Events, resumable.

The id of an event is the alert's number in the outbox. It only grows, so a reader that says the last id it
saw (browsers do so by themselves) misses nothing, over restarts of either side.
"""

from collections.abc import AsyncIterator, Sequence
from typing import Annotated

import anyio
import msgspec
from fastapi import APIRouter, Header, Query, Request
from fastapi.concurrency import run_in_threadpool
from sqlalchemy import func, select
from sse_starlette import EventSourceResponse, ServerSentEvent

from lineside.contracts import TopicName
from lineside.remediation.api.problems import Problem, responses
from lineside.remediation.api.reach import service_of
from lineside.remediation.store import OutboxRow, Store

router = APIRouter(prefix="/alerts", tags=["alerts"])

_HEARTBEAT_S = 10
_BATCH = 100


@router.get(
    "/stream",
    summary="Alerts as they happen (Server-Sent Events)",
    description="Each event's `data` is the CloudEvent that also goes to the alerts topic, `event` its type, "
    "`id` its number. Without `Last-Event-ID` the stream begins with the next alert, with `0` with the "
    "oldest that is kept. Comments keep the connection alive.",
    response_class=EventSourceResponse,
    responses=responses(400),
)
async def stream(
    request: Request,
    last_event_id: Annotated[str | None, Header(description="the last id that was seen")] = None,
    after: Annotated[
        int | None, Query(ge=0, description="the same, for clients that cannot set the header")
    ] = None,
) -> EventSourceResponse:
    if last_event_id is not None and not last_event_id.isdecimal():
        raise Problem(400, f"Last-Event-ID: {last_event_id!r} is no id of ours")
    service = service_of(request)
    newest = await run_in_threadpool(_newest, service.store)
    seen = int(last_event_id) if last_event_id is not None else after
    # An id above the newest comes from another database; there is nothing to resume.
    start = newest if seen is None else min(seen, newest)

    async def events() -> AsyncIterator[ServerSentEvent]:
        last = start
        while not service.stopping.is_set():
            for number, kind, data in await run_in_threadpool(_after, service.store, last):
                last = number
                yield ServerSentEvent(data=data, event=kind, id=str(number), sep="\n")
            await anyio.sleep(service.poll_s)

    return EventSourceResponse(events(), ping=_HEARTBEAT_S, sep="\n")


def _newest(store: Store) -> int:
    with store.reading() as session:
        found = session.scalar(
            select(func.max(OutboxRow.outbox_id)).where(OutboxRow.topic == TopicName.ALERTS)
        )
        return found or 0


class _Kind(msgspec.Struct):
    type: str


def _after(store: Store, last: int) -> Sequence[tuple[int, str, str]]:
    """(number, type, CloudEvent as JSON) of the alerts after ``last``, oldest first."""
    with store.reading() as session:
        rows = session.execute(
            select(OutboxRow.outbox_id, OutboxRow.value)
            .where(OutboxRow.topic == TopicName.ALERTS, OutboxRow.outbox_id > last)
            .order_by(OutboxRow.outbox_id)
            .limit(_BATCH)
        ).all()
    return [
        (number, msgspec.json.decode(value, type=_Kind).type, value.decode())
        for number, value in rows
    ]

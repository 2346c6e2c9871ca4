"""Asking a run for evidence: the one place where a request is written, within its limits.

A request stands in SQL before it is sent (the outbox sends it), also one that is refused, with the reason.
"""

import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from lineside.contracts import NOT_DISRUPTIVE, Job, Request, RequestKind, TopicName
from lineside.remediation import outbox
from lineside.remediation.store import ReplyRow, RequestRow

_S = 10**9
GENTLE_PER_MINUTE = 6
"""Of a job, for kinds that do not disturb it: a stack dump stops a rank for some 10 ms."""
DISRUPTIVE_PER_HOUR = 4
REPLY_GRACE_NS = 10 * _S
"""Answers may still be on their way when a request expires."""

DEFAULT_VALID_S = 60.0
_NEEDS = {RequestKind.CHECKPOINT_NOW: "checkpoint_now"}
"""What the trainer must have declared for a kind."""


def ask(
    session: Session,
    job: Job,
    *,
    kind: str,
    ranks: Sequence[int],
    actor: str,
    reason: str,
    now_ns: int,
    partitions: int,
    valid_s: float = DEFAULT_VALID_S,
    parameters: Mapping[str, Any] | None = None,
    max_pause_s: float | None = None,
    fault_id: str | None = None,
    request_id: str | None = None,
    refusal: str | None = None,
) -> RequestRow:
    """Write a request and its record to be sent, in the caller's transaction; with a ``refusal`` the row
    alone."""
    row = RequestRow(
        request_id=request_id or str(uuid.uuid4()),
        job_id=job.job_id,
        run_id=job.run_id,
        generation=job.generation,
        fault_id=fault_id,
        kind=kind,
        ranks=sorted(set(ranks)),
        parameters=dict(parameters or {}),
        max_pause_s=max_pause_s,
        actor=actor,
        reason=reason,
        refusal=refusal,
        created_ns=now_ns,
        expires_ns=now_ns + round(valid_s * _S),
    )
    session.add(row)
    session.flush()
    if refusal is None:
        outbox.put(session, TopicName.REQUESTS, _record(row), partitions, now_ns)
    return row


class Refusal(NamedTuple):
    """``later``: the same may be asked some time later."""

    reason: str
    later: bool = False


def refusal_of(session: Session, job: Job, kind: str, now_ns: int) -> Refusal | None:
    """Why this run may not be asked for ``kind`` now, whoever asks; None: it may."""
    if kind not in set(RequestKind):
        return Refusal(f"{kind!r} is no kind of request")
    needs = _NEEDS.get(RequestKind(kind))
    if needs and not getattr(job.capabilities, needs):
        return Refusal(f"the trainer does not declare {needs}")
    gentle = kind in NOT_DISRUPTIVE
    most, window_s = (GENTLE_PER_MINUTE, 60) if gentle else (DISRUPTIVE_PER_HOUR, 3600)
    alike = RequestRow.kind.in_(NOT_DISRUPTIVE) if gentle else ~RequestRow.kind.in_(NOT_DISRUPTIVE)
    lately = select(func.count()).where(
        RequestRow.run_id == job.run_id,
        RequestRow.refusal.is_(None),
        RequestRow.created_ns > now_ns - window_s * _S,
        alike,
    )
    if (session.scalar(lately) or 0) >= most:
        sort = "not disruptive" if gentle else "disruptive"
        return Refusal(f"{most} {sort} requests in {window_s} s are enough", later=True)
    return None


def waiting_for(row: RequestRow, replies: Iterable[ReplyRow], job: Job | None) -> list[int]:
    """Ranks that have not answered. An agent's own word stands for all ranks of its machine."""
    by_machine = {
        machine.machine_id: [device.rank for device in machine.devices]
        for machine in (job.machines if job else [])
    }
    asked = set(row.ranks) or {rank for ranks in by_machine.values() for rank in ranks}
    for reply in replies:
        asked -= {reply.rank} if reply.rank >= 0 else set(by_machine.get(reply.machine_id, ()))
    return sorted(asked)


def state_of(row: RequestRow, waiting: Sequence[int], now_ns: int) -> str:
    """refused, answered, expired, or sent."""
    if row.refusal is not None:
        return "refused"
    if not waiting:
        return "answered"
    return "expired" if now_ns > row.expires_ns + REPLY_GRACE_NS else "sent"


def _record(row: RequestRow) -> Request:
    return Request(
        request_id=row.request_id,
        fault_id=row.fault_id,
        job_id=row.job_id,
        run_id=row.run_id,
        generation=row.generation,
        kind=row.kind,
        ranks=row.ranks,
        parameters=row.parameters,
        max_pause_s=row.max_pause_s,
        expires_ns=row.expires_ns,
    )

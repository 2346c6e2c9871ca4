"""``plan-status.v1``: what an agent or a rank did with a revision."""

from enum import StrEnum

import msgspec


class PlanState(StrEnum):
    ACCEPTED = "accepted"
    APPLIED = "applied"
    REJECTED = "rejected"
    STALE = "stale"
    FAILED = "failed"


class PlanStatus(msgspec.Struct, frozen=True, kw_only=True):
    """``rank`` is -1 where the agent speaks for itself."""

    job_id: str
    run_id: str
    revision: int
    machine_id: str
    rank: int
    state: PlanState
    step: int
    at_ns: int
    took_s: float | None = None
    detail: str = ""

"""``health.v1``: how a job is doing, at most once a second."""

from enum import StrEnum

import msgspec


class HealthState(StrEnum):
    LEARNING = "learning"
    HEALTHY = "healthy"
    SLOW = "slow"
    STALLED = "stalled"


class JobHealth(msgspec.Struct, frozen=True, kw_only=True):
    """``step_s`` is the recent median; ``slowdown`` is ``step_s / baseline_s``; ``throughput`` tokens/s."""

    job_id: str
    run_id: str
    generation: int
    at_ns: int
    step: int
    step_s: float | None
    baseline_s: float | None
    slowdown: float | None
    throughput: float | None
    last_progress_ns: int
    ranks_reporting: int
    ranks_expected: int
    revision: int
    state: HealthState

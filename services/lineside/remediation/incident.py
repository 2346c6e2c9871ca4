"""What an incident and a plan are to the policy: their states and the numbers that decisions rest on."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from lineside.contracts import FaultKind, PlanKind, PlanState, PlanStatus


class State(StrEnum):
    """open → mitigating → verifying → mitigated → resolved, or escalated to a person.

    ``escalated`` is not the end: when the fault is over the remedy is undone and the incident resolved.
    """

    OPEN = "open"
    MITIGATING = "mitigating"
    VERIFYING = "verifying"
    MITIGATED = "mitigated"
    ESCALATED = "escalated"
    RESOLVED = "resolved"


class Progress(StrEnum):
    """How far a plan has come."""

    PROPOSED = "proposed"
    """Recorded only: what would have been done. It has no revision."""
    ISSUED = "issued"
    APPLIED = "applied"
    REJECTED = "rejected"
    STALE = "stale"
    FAILED = "failed"
    EXPIRED = "expired"


POLICY = "policy"
"""The actor of automatic transitions and plans."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Incident:
    """``since_ns``: when ``state`` was entered. ``relieved_ns``: when the last of its faults ended, None
    while one lasts. ``note``: code of the last remark, so that each is made once. ``failures``: plans in a
    row that came to nothing."""

    incident_id: str
    kind: FaultKind
    state: State
    since_ns: int
    onset_ns: int
    relieved_ns: int | None = None
    note: str | None = None
    failures: int = 0
    impact_s: float = 0.0
    healthy_step_s: float | None = None
    faulty_step_s: float | None = None
    healed_step_s: float | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class PlanRecord:
    """A plan with its fate. ``step_s``: the predicted step time. ``applied_step`` is -1 until applied."""

    revision: int
    kind: PlanKind
    progress: Progress
    actor: str
    generation: int
    issued_ns: int
    valid_until_ns: int
    counts: list[int]
    incident_id: str | None = None
    step_s: float | None = None
    applied_step: int = -1
    detail: str = ""


def outcome(
    plan: PlanRecord,
    statuses: Iterable[PlanStatus],
    *,
    world_size: int,
    generation: int,
    now_ns: int,
) -> tuple[Progress, str] | None:
    """What became of an issued plan, with the reason; None: not settled.

    Applied once every rank of the generation said so (never where the Job does not say how many there are);
    over by the first agent or rank that refuses, by a new generation, or by its time (with some seconds for
    statuses on their way).
    """
    said = list(statuses)
    applied = {status.rank for status in said if status.state is PlanState.APPLIED}
    if world_size > 0 and applied >= set(range(world_size)):
        return Progress.APPLIED, f"all {world_size} ranks"
    for status in said:
        if status.state in _REFUSALS:
            who = f"rank {status.rank}" if status.rank >= 0 else f"agent of {status.machine_id}"
            return _REFUSALS[status.state], f"{who}: {status.detail or status.state}"
    if generation != plan.generation:
        return Progress.STALE, f"generation {generation} began"
    if now_ns > plan.valid_until_ns + STATUS_GRACE_NS:
        if world_size < 1:
            return Progress.EXPIRED, "the job does not say which ranks it has"
        missing = world_size - len(applied & set(range(world_size)))
        return Progress.EXPIRED, f"{missing} of {world_size} ranks did not say that they applied it"
    return None


STATUS_GRACE_NS = 5 * 10**9
_REFUSALS = {
    PlanState.REJECTED: Progress.REJECTED,
    PlanState.STALE: Progress.STALE,
    PlanState.FAILED: Progress.FAILED,
}

"""What a root cause looks like when it is told: the kind, who is to blame, who only waits, and how sure."""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class Kind(StrEnum):
    """Fault kinds of the contract that this core decides between, and ``healthy``."""

    HANG = "hang"
    APPLICATION_ERROR = "application_error"
    CANNOT_TELL = "cannot_tell"
    HEALTHY = "healthy"


class Cause(StrEnum):
    """How a culprit holds up the others."""

    STUCK = "stuck"
    """Its peers have finished an operation that it has not, though nobody could without its part; or it is
    in one that needs nobody else."""
    BEHIND = "behind"
    """Its oldest open operation is older than its peers', and it waits for nobody."""
    ABSENT = "absent"
    """It has not called the operation that its peers wait in, and waits for nobody."""
    DEAD = "dead"
    """Nothing came from it, and its peers wait for it."""
    COLLECTIVE_MISMATCH = "collective_mismatch"
    """Ranks call different operations at the same place of a group's sequence."""
    SIZE_MISMATCH = "size_mismatch"
    """Ranks call the same operation with different sizes."""
    ORDER_DEADLOCK = "order_deadlock"
    """Ranks call the operations of two or more groups in different order, and wait for each other."""


CONFIDENCE = {
    Cause.STUCK: 0.95,
    Cause.COLLECTIVE_MISMATCH: 0.95,
    Cause.SIZE_MISMATCH: 0.95,
    Cause.ORDER_DEADLOCK: 0.9,
    Cause.ABSENT: 0.9,
    Cause.BEHIND: 0.85,
    Cause.DEAD: 0.8,
}
"""Ordered by how direct the proof is; calibrating them needs more labelled hangs than are public."""

DOUBT = 0.15
"""Taken off where ranks are missing, and again where some wait is left unexplained."""


@dataclass(frozen=True, slots=True)
class Blame:
    """One culprit and the operation by which it holds up others."""

    rank: int
    cause: Cause
    group: str
    operation: str
    seq: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """``cause`` is null where nothing is at fault or nothing can be told."""

    kind: Kind
    summary: str
    cause: Cause | None = None
    culprits: tuple[int, ...] = ()
    victims: tuple[int, ...] = ()
    groups: tuple[str, ...] = ()
    operation: str | None = None
    confidence: float = 0.0
    missing_ranks: tuple[int, ...] = ()
    reasons: tuple[str, ...] = ()
    """A few lines for people, most important first."""
    blames: tuple[Blame, ...] = ()
    details: dict[str, Any] = field(default_factory=dict)


def span(ranks: tuple[int, ...] | list[int], most: int = 12) -> str:
    """Ranks for people: ``rank 3``, ``ranks 1, 2 and 9``."""
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    if len(ranks) > most:
        return f"{len(ranks)} ranks ({', '.join(map(str, ranks[:most]))}, ...)"
    return f"ranks {', '.join(map(str, ranks[:-1]))} and {ranks[-1]}" if ranks else "no rank"

"""What a root cause is found from: how far each rank has come in each of its groups, at one moment.

One *slot* is one membership (a rank in a group), whether or not that rank has reported. Live progress
rows and Flight Recorder dumps both become these columns, so that one core judges both. A point-to-point
pair is a group of two whose sequence counts the transfers of that ordered pair (contracts:
``p2p:<from>:<to>``): send k of a to b is recv k of b from a, and counts of different pairs never meet.

Enqueued sequences have no column: hosts enqueue ahead, so they say nothing about what a rank waits in.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]

UNKNOWN = -1

SYNCHRONISING = frozenset({"all_reduce", "reduce_scatter", "all_gather", "all_to_all", "barrier"})
"""Operations that nobody finishes before everybody has entered them."""

EQUAL_SIZES = frozenset(
    {"all_reduce", "reduce", "reduce_scatter", "all_gather", "broadcast", "transfer"}
)
"""Operations whose size must be the same on all ranks (uneven all-to-alls are lawful)."""  # fmt: skip


@dataclass(frozen=True, slots=True)
class Calls:
    """Operations that ranks are known to have called, finished or not: what mismatches are found in. Columns
    of equal length; ``rank`` and ``group`` are indices as in ``Snapshot``."""

    rank: Ints
    group: Ints
    seq: Ints
    op: Ints
    size: Ints
    """Bytes; -1 unknown or not comparable."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """All ranks of a job at one moment. -1 is unknown in every column and never matches a rule."""

    ranks: Ints
    """[N] the global ranks of the job, ascending."""
    reported: Flags
    """[N] whether anything came from that rank. Nothing although its peers wait is evidence too."""
    groups: Sequence[str]
    """[G] the names that people know."""
    operations: Sequence[str]
    """Names that ``op`` columns point into."""

    rank: Ints
    """[M] index into ``ranks``."""
    group: Ints
    """[M] index into ``groups``."""
    open_seq: Ints
    """[M] the oldest operation that is called and not complete; -1: none."""
    completed_seq: Ints
    """[M] the newest operation before which all are complete; -1: unknown."""
    op: Ints
    """[M] operation of ``open_seq``, or where nothing is open of ``completed_seq``."""
    order: Ints
    """[M] place of that operation in its rank's program; equal places have no order."""
    started: Ints
    """[M] whether the device has begun ``open_seq``: 1 yes, 0 no, -1 unknown."""
    doubtful: Flags
    """[M] whether ``completed_seq`` may have ended in failure (gloo retires failed operations too)."""

    calls: Calls
    complete: bool = True
    """False if records were lost or could not be attributed: then silence proves nothing."""


def table(columns: Sequence[Sequence[int]], width: int) -> list[Ints]:
    """Rows of ``width`` integers as columns."""
    return list(np.array(columns, dtype=np.int64).reshape(-1, width).T)


def no_calls() -> Calls:
    return Calls(*(np.empty(0, np.int64) for _ in range(5)))

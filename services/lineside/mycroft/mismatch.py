"""Ranks that call different things at the same place of a group's sequence: a bug in the program, not in
a machine.

Only the operation that a group waits in is compared (or the last one, where a source retires failures
like successes), so that what went well before accuses nobody.
"""

from dataclasses import dataclass

import numpy as np

from lineside.mycroft.evidence import EQUAL_SIZES, Flags, Ints, Snapshot
from lineside.mycroft.verdict import Cause
from lineside.mycroft.waits import NEVER, Fronts


@dataclass(frozen=True, slots=True)
class Mismatch:
    """``values`` says what was called, ``ranks`` who called it, in the same order."""

    cause: Cause
    group: int
    seq: int
    operation: str
    values: tuple[str, ...]
    ranks: tuple[tuple[int, ...], ...]
    """Indices of ranks."""

    @property
    def culprits(self) -> tuple[int, ...]:
        """The callers of all but the value that more than half share; all of them where none is."""
        counts = [len(ranks) for ranks in self.ranks]
        right = int(np.argmax(counts)) if 2 * max(counts) > sum(counts) else None
        return tuple(sorted(r for i, ranks in enumerate(self.ranks) if i != right for r in ranks))


def find_mismatches(s: Snapshot, f: Fronts) -> list[Mismatch]:
    """Mismatches at the front of each group, in order of groups."""
    calls = s.calls
    here = (calls.seq == _compared_seq(s, f)[calls.group]) & (calls.op >= 0)
    rank, group, seq = calls.rank[here], calls.group[here], calls.seq[here]
    op, size = calls.op[here], calls.size[here]
    sized = np.array([name in EQUAL_SIZES for name in s.operations] + [False])[op] & (size >= 0)

    def told(own: Flags, g: int, cause: Cause, value: Ints) -> Mismatch:
        distinct = sorted(set(value[own].tolist()))
        name = s.operations[op[own][0]]
        if cause is Cause.COLLECTIVE_MISMATCH:
            names = tuple(s.operations[v] for v in distinct)
            name = " / ".join(names)
        else:
            names = tuple(f"{name} of {v} bytes" for v in distinct)
        ranks = tuple(tuple(sorted(set(rank[own & (value == v)].tolist()))) for v in distinct)
        return Mismatch(cause, g, int(seq[own][0]), name, names, ranks)

    by_name = _disagreeing(group, op, len(s.groups))
    by_size = _disagreeing(group[sized], size[sized], len(s.groups))
    found = [told(group == g, g, Cause.COLLECTIVE_MISMATCH, op) for g in by_name]
    found += [
        told((group == g) & sized, g, Cause.SIZE_MISMATCH, size)
        for g in by_size
        if g not in by_name
    ]
    return sorted(found, key=lambda m: m.group)


def _compared_seq(s: Snapshot, f: Fronts) -> Ints:
    """[G] the oldest operation that the group waits in, else the newest whose end is doubtful."""
    oldest = np.full(len(s.groups), NEVER, np.int64)
    np.minimum.at(oldest, s.group[f.waiting], f.seq[f.waiting])
    last = np.full(len(s.groups), -1, np.int64)
    np.maximum.at(last, s.group[s.doubtful], s.completed_seq[s.doubtful])
    return np.where(oldest < NEVER, oldest, last)


def _disagreeing(group: Ints, value: Ints, groups: int) -> list[int]:
    """Groups that hold more than one value."""
    least, most = np.full(groups, NEVER, np.int64), np.full(groups, -1, np.int64)
    np.minimum.at(least, group, value)
    np.maximum.at(most, group, value)
    return [int(g) for g in np.flatnonzero(least < most)]

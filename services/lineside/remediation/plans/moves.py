"""Among the plans that finish in time, the one that moves the fewest micro-batches.

A unit's moves are convex in its count, so increments are taken by what they save, the largest first; the
proof stands in ``micro_batches``.
"""

from dataclasses import dataclass

import numpy as np

from lineside.remediation.plans.problem import Ints, Problem


def fewest_moves(problem: Problem, caps: Ints) -> Ints:
    """Counts (U,) between ``low`` and ``caps`` that add up and keep most of the present plan."""
    sizes = problem.sizes
    need = problem.total - int((problem.low * problem.size).sum())
    if len(sizes) == 1:
        extra = {sizes[0]: need // sizes[0]}
    else:
        saved = {size: _Savings.of(problem, caps, size).totals() for size in sizes}
        extra = _split(need, sizes, saved)
    counts = problem.low.copy()
    for size in sizes:
        counts += _Savings.of(problem, caps, size).take(extra[size])
    return counts


@dataclass(frozen=True, slots=True)
class _Savings:
    """What each further count saves in moves, for the units of one size.

    From ``low`` to ``full`` every increment saves a whole ``size * multiple``; from ``full`` to ``part`` it
    saves something, less and less; from there to ``caps`` nothing. All (U,), equal to ``low`` elsewhere.
    """

    problem: Problem
    size: int
    full: Ints
    part: Ints
    caps: Ints

    @classmethod
    def of(cls, problem: Problem, caps: Ints, size: int) -> "_Savings":
        least = np.minimum.reduceat(problem.now, problem.starts) // problem.multiple
        most = -(-np.maximum.reduceat(problem.now, problem.starts) // problem.multiple)
        mine = np.where(problem.size == size, caps, problem.low)
        return cls(problem, size, least.clip(problem.low, mine), most.clip(problem.low, mine), mine)

    def partial(self) -> tuple[Ints, Ints]:
        """(saving, unit) of every increment between ``full`` and ``part``, largest saving first."""
        steps = self.part - self.full
        units = np.repeat(np.arange(len(steps)), steps)
        if not len(units):
            return np.empty(0, np.int64), units
        first = np.repeat(np.cumsum(steps) - steps, steps)
        count = self.full[units] + np.arange(len(units)) - first
        now, multiple = self.problem.now, self.problem.multiple
        members = np.split(now, self.problem.starts[1:])
        saving = np.array(
            [
                np.clip(members[unit] - at * multiple, 0, multiple).sum()
                for unit, at in zip(units, count, strict=True)
            ]
        )
        ranked = np.argsort(-saving, kind="stable")
        return saving[ranked], units[ranked]

    def totals(self) -> Ints:
        """(n + 1,): moves saved by 0, 1, ... increments, taken in the best order."""
        whole = int((self.full - self.problem.low).sum())
        free = int((self.caps - self.part).sum())
        saving, _ = self.partial()
        steps = np.concatenate(
            (np.full(whole, self.size * self.problem.multiple), saving, np.zeros(free, np.int64))
        )
        return np.concatenate(([0], np.cumsum(steps)))

    def take(self, increments: int) -> Ints:
        """(U,): the best ``increments`` increments above ``low``, per unit."""
        low = self.problem.low
        gap = increments - int((self.full - low).sum())
        finish = np.argsort(self.problem.times(self.full), kind="stable")
        if gap <= 0:  # even whole savings do not fit: leave them where the work ends last
            return self.full - low - _fill(finish[::-1], self.full - low, -gap)
        counts = self.full.copy()
        _, units = self.partial()
        counts += np.bincount(units[:gap], minlength=len(counts))
        gap -= min(gap, len(units))
        return counts - low + _fill(finish, self.caps - counts, gap)


def _fill(order: Ints, room: Ints, amount: int) -> Ints:
    """``amount`` poured into ``room``, following ``order``."""
    ordered = room[order]
    poured = np.zeros_like(room)
    poured[order] = np.clip(amount - (np.cumsum(ordered) - ordered), 0, ordered)
    return poured


def _split(need: int, sizes: list[int], saved: dict[int, Ints]) -> dict[int, int]:
    """How many increments each size gets, so that size * increments add up to ``need`` and most is saved.

    Max-plus dynamic programming over the sizes; -1 marks sums that cannot be reached.
    """
    best = np.full(need + 1, -1, dtype=np.int64)
    best[0] = 0
    chosen: list[Ints] = []
    for size in sizes:
        following = np.full(need + 1, -1, dtype=np.int64)
        choice = np.zeros(need + 1, dtype=np.int64)
        for count, gain in enumerate(saved[size][: need // size + 1]):
            offset = count * size
            value = np.where(best[: need + 1 - offset] >= 0, best[: need + 1 - offset] + gain, -1)
            better = value > following[offset:]
            following[offset:][better] = value[better]
            choice[offset:][better] = count
        best = following
        chosen.append(choice)
    extra, left = {}, need
    for size, choice in zip(reversed(sizes), reversed(chosen), strict=True):
        extra[size] = int(choice[left])
        left -= size * extra[size]
    return extra

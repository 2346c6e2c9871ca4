"""How many micro-batches each data-parallel replica takes, so that the slowest one finishes soonest.

Replica d needs ``fixed[d] + unit[d] * m`` seconds for m micro-batches; the counts add up to the job's global
number, stay within the trainer's limits, are multiples of its pipeline multiple, and are equal within a
rebalance unit (replicas that share an expert or shard group). Among all plans with the smallest possible
finishing time the one that moves the fewest micro-batches away from the present plan is returned.

**Exactness.** Write q for a unit's count in multiples and f(q) for the slowest member's time, which never
falls in q. A plan that finishes by T exists iff f(lo) <= T for every unit and the counts lo..cap(T) can add
up to the total, cap(T) being the largest q with f(q) <= T. Caps grow with T, so the best T is the smallest
of the values f(q) for which that holds: bisect to a short interval, then search the few values inside it.
(With one size of unit the sum is reachable iff the caps suffice, and the best T is the k-th smallest value,
which is also what the greedy heap gives.) Every q between lo and cap is then optimal in time, and a unit's
moves, the sum over its members of (now - count)+, are convex in q, so taking the increments of largest
saving first is exact for units of one size; over different sizes the totals per size are chosen by dynamic
programming on these convex costs. Source: design notes on micro-batch redistribution; resource allocation
with separable convex costs, Ibaraki & Katoh, *Resource Allocation Problems* (1988), ch. 4.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class Infeasible(ValueError):
    """No plan satisfies the limits, the multiple and the units; the text says which of them."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MicroBatchPlan:
    """``counts[d]`` per replica, the slowest replica's time ``step_s``, micro-batches ``moved`` away."""

    counts: list[int]
    step_s: float
    moved: int


def plan_micro_batches(
    *,
    unit_s: Sequence[float],
    fixed_s: Sequence[float],
    total: int,
    current: Sequence[int],
    minimum: int = 1,
    maximum: int = -1,
    multiple: int = 1,
    units: Sequence[Sequence[int]] = (),
) -> MicroBatchPlan:
    """The plan of ``total`` micro-batches with the earliest finish, then the fewest moves from ``current``.

    ``unit_s[d]`` seconds per micro-batch (> 0), ``fixed_s[d]`` seconds per step (>= 0), ``maximum`` -1: no
    limit. ``units`` lists replicas whose counts must be equal; replicas in none of them are free. Raises
    ``Infeasible`` where the limits cannot be met, ``ValueError`` for times that are no times.

    >>> plan_micro_batches(
    ...     unit_s=[2.0, 1.0, 1.0, 1.0], fixed_s=[0.0] * 4, total=20, current=[5, 5, 5, 5])
    MicroBatchPlan(counts=[3, 6, 6, 5], step_s=6.0, moved=2)
    """
    problem = _Problem.of(unit_s, fixed_s, total, current, minimum, maximum, multiple, units)
    deadline = _earliest(problem)
    per_unit = _fewest_moves(problem, problem.caps(deadline))
    counts = np.empty_like(problem.now)
    counts[problem.order] = per_unit[problem.unit] * multiple
    moved = int(np.maximum(problem.now - counts[problem.order], 0).sum())
    finish = float(problem.times(per_unit).max())
    return MicroBatchPlan(counts=counts.tolist(), step_s=finish, moved=moved)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Problem:
    """Replicas sorted by unit (``order``); counts are in multiples from here on.

    Per replica (D,): ``slope`` s per multiple, ``fixed`` s, ``now`` micro-batches, ``unit``. Per unit (U,):
    ``starts`` (its first replica), ``size``, ``low``, ``high``. ``sizes``: the different sizes.
    """

    order: Ints
    slope: Floats
    fixed: Floats
    now: Ints
    unit: Ints
    starts: Ints
    size: Ints
    sizes: list[int]
    low: Ints
    high: Ints
    total: int
    multiple: int

    @classmethod
    def of(
        cls,
        unit_s: Sequence[float],
        fixed_s: Sequence[float],
        total: int,
        current: Sequence[int],
        minimum: int,
        maximum: int,
        multiple: int,
        units: Sequence[Sequence[int]],
    ) -> "_Problem":
        slope, fixed = np.asarray(unit_s, dtype=float), np.asarray(fixed_s, dtype=float)
        now = np.asarray(current, dtype=np.int64)
        replicas = len(now)
        if not (len(slope) == len(fixed) == replicas > 0):
            raise ValueError(f"{len(slope)} unit and {len(fixed)} fixed times, {replicas} replicas")
        if not (np.isfinite(slope).all() and (slope > 0).all()):
            raise ValueError("unit times must be positive and known")
        if not (np.isfinite(fixed).all() and (fixed >= 0).all()):
            raise ValueError("fixed times must be known and not negative")
        if multiple < 1:
            raise ValueError(f"the multiple is {multiple}")
        unit_of = _unit_of(replicas, units)
        order = np.argsort(unit_of, kind="stable")
        size = np.bincount(unit_of)
        low = np.full(len(size), max(0, -(-minimum // multiple)))
        high = np.full(len(size), (total if maximum < 0 else maximum) // multiple)
        if total % multiple:
            raise Infeasible(f"{total} micro-batches are no multiple of {multiple}")
        problem = cls(
            order=order,
            slope=slope[order] * multiple,
            fixed=fixed[order],
            now=now[order],
            unit=unit_of[order],
            starts=np.concatenate(([0], np.cumsum(size)[:-1])),
            size=size,
            sizes=np.unique(size).tolist(),
            low=low,
            high=high,
            total=total // multiple,
            multiple=multiple,
        )
        if (low > high).any() or not problem.reachable(high):
            raise Infeasible(
                f"{total} micro-batches over {replicas} replicas with {minimum} to "
                f"{maximum if maximum >= 0 else 'any number'} each, in multiples of {multiple}"
                + (f", equal within {[list(u) for u in units]}" if units else "")
            )
        return problem

    def times(self, counts: Ints) -> Floats:
        """(U,) or (U, n) counts to the slowest member's finishing times, same shape."""
        if counts.ndim == 1:
            each = self.fixed + self.slope * counts[self.unit]
        else:
            each = self.fixed[:, None] + self.slope[:, None] * counts[self.unit]
        return np.maximum.reduceat(each, self.starts, axis=0)

    def caps(self, deadline: float) -> Ints:
        """The largest count per unit with ``times(count) <= deadline``, exactly; below ``low`` if none."""
        room = np.floor((deadline - self.fixed) / self.slope)
        guess = np.minimum.reduceat(room, self.starts).clip(self.low - 1, self.high)
        caps = guess.astype(np.int64)
        caps -= (self.times(caps) > deadline) & (caps >= self.low)  # the division may round up
        caps += (self.times(caps + 1) <= deadline) & (caps < self.high)  # or down
        return caps

    def reachable(self, caps: Ints) -> bool:
        """Can counts between ``low`` and ``caps`` add up to the total?"""
        if (caps < self.low).any():
            return False
        need = self.total - int((self.low * self.size).sum())
        spare = caps - self.low
        if need < 0 or int((spare * self.size).sum()) < need:
            return False
        if len(self.sizes) == 1:
            return need % self.sizes[0] == 0
        sums, mask = 1, (1 << (need + 1)) - 1  # bit n: n can be reached
        for size in self.sizes:
            available, chunk = int(spare[self.size == size].sum()), 1
            while available:
                take = min(chunk, available)
                sums |= (sums << (take * size)) & mask
                available, chunk = available - take, chunk * 2
        return bool(sums >> need & 1)


def _unit_of(replicas: int, units: Sequence[Sequence[int]]) -> Ints:
    unit_of = np.full(replicas, -1)
    for index, members in enumerate(units):
        for replica in members:
            if not 0 <= replica < replicas:
                raise ValueError(f"rebalance unit names replica {replica} of {replicas}")
            if unit_of[replica] >= 0:
                raise ValueError(f"replica {replica} is in two rebalance units")
            unit_of[replica] = index
    alone = unit_of < 0
    unit_of[alone] = len(units) + np.arange(int(alone.sum()))
    return np.unique(unit_of, return_inverse=True)[1].astype(np.int64)  # empty units fall away


def _earliest(problem: _Problem) -> float:
    """The smallest finishing time for which a plan exists."""
    early = float(problem.times(problem.low).max())
    late = float((problem.fixed + problem.slope * problem.now / problem.multiple).max())
    low, high = problem.caps(early), problem.caps(late)
    if problem.reachable(low):
        return early
    if not problem.reachable(high):  # the present plan breaks a limit and bounds nothing
        late, high = float(problem.times(problem.high).max()), problem.high
    few = 4 * len(problem.size)
    for _ in range(64):
        if int((high - low).sum()) <= few:
            break
        middle = (early + late) / 2
        caps = problem.caps(middle)
        if problem.reachable(caps):
            late, high = middle, caps
        else:
            early, low = middle, caps
    width = int((high - low).max())
    grid = low[:, None] + np.arange(1, width + 1)
    values = np.unique(problem.times(grid)[grid <= high[:, None]])
    first, last = 0, len(values) - 1  # the last one is reachable
    while first < last:
        half = (first + last) // 2
        if problem.reachable(problem.caps(float(values[half]))):
            last = half
        else:
            first = half + 1
    return float(values[first])


def _fewest_moves(problem: _Problem, caps: Ints) -> Ints:
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

    problem: _Problem
    size: int
    full: Ints
    part: Ints
    caps: Ints

    @classmethod
    def of(cls, problem: _Problem, caps: Ints, size: int) -> "_Savings":
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

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
programming on these convex costs. Resource allocation
with separable convex costs: Ibaraki & Katoh, *Resource Allocation Problems* (1988), ch. 4.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from lineside.remediation.plans.moves import fewest_moves
from lineside.remediation.plans.problem import Infeasible, Problem

__all__ = ["Infeasible", "MicroBatchPlan", "plan_micro_batches"]


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

    ``unit_s[d]``: seconds per micro-batch (> 0). ``fixed_s[d]``: seconds per step, the intercept of a fitted
    line, hence maybe negative. ``maximum`` -1: no limit. ``units`` lists replicas whose counts must be equal;
    replicas in none of them are free. Raises ``Infeasible`` where the limits cannot be met, ``ValueError``
    for times that are no times.

    >>> plan_micro_batches(
    ...     unit_s=[2.0, 1.0, 1.0, 1.0], fixed_s=[0.0] * 4, total=20, current=[5, 5, 5, 5])
    MicroBatchPlan(counts=[3, 6, 6, 5], step_s=6.0, moved=2)
    """
    problem = Problem.of(unit_s, fixed_s, total, current, minimum, maximum, multiple, units)
    deadline = _earliest(problem)
    per_unit = fewest_moves(problem, problem.caps(deadline))
    counts = np.empty_like(problem.now)
    counts[problem.order] = per_unit[problem.unit] * multiple
    moved = int(np.maximum(problem.now - counts[problem.order], 0).sum())
    finish = float(problem.times(per_unit).max())
    return MicroBatchPlan(counts=counts.tolist(), step_s=finish, moved=moved)


def _earliest(problem: Problem) -> float:
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

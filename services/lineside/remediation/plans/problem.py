"""The micro-batch problem as arrays: replicas by unit, limits, and which totals the caps allow."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class Infeasible(ValueError):
    """No plan satisfies the limits, the multiple and the units; the text says which of them."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Problem:
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
    ) -> "Problem":
        slope, fixed = np.asarray(unit_s, dtype=float), np.asarray(fixed_s, dtype=float)
        now = np.asarray(current, dtype=np.int64)
        replicas = len(now)
        if not (len(slope) == len(fixed) == replicas > 0):
            raise ValueError(f"{len(slope)} unit and {len(fixed)} fixed times, {replicas} replicas")
        if not (np.isfinite(slope).all() and (slope > 0).all()):
            raise ValueError("unit times must be positive and known")
        if not np.isfinite(fixed).all():
            raise ValueError("fixed times must be known")
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

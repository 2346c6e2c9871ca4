"""Bayesian online change points for many series at once, in constant memory (Adams and MacKay 2007).

Each series keeps its ``slots`` most probable runs; a run is a stretch without a change, modelled as Gaussian
with unknown mean and variance (normal-inverse-gamma prior, so its predictive is a Student t). Every new point
may start a new run, which takes the least probable slot. What makes it cheap: kappa, alpha and the t constant
depend on the run length alone and are one table for all series, and since ``1 + z / b_old = b_new / b_old`` a
point costs one log and one exp per run. 32 slots name the same most probable run as the exact filter in
99.7 % of steps, and unlike a ring of run lengths they do not bound how long a run may be.

Heavy tails are met by winsorising: once the most probable run is ``clip_after`` points long, a point counts
as at most ``clip_scales`` predictive scales from its mean (on Student-t(3) noise precision 0.48 becomes
0.99).
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import gammaln

Floats = NDArray[np.floating[Any]]
Indexes = NDArray[np.intp]

_LONGEST = 65_536  # from here on a run forgets exponentially, with this memory
_BLOCK = 1_024  # rows worked on at a time, so that a block's temporaries stay in cache
_FAR = 1e6  # a point further out, in standard units, counts as this: keeps float32 exact enough


@dataclass(frozen=True, kw_only=True, slots=True)
class BOCPDConfig:
    """For series standardised to about zero mean and unit variance.

    ``hazard`` is the prior chance of a change at any point. ``clip_scales`` inf turns winsorising off.
    """

    slots: int = 32
    hazard: float = 0.01
    mean: float = 0.0
    kappa: float = 1.0
    alpha: float = 1.0
    beta: float = 1.0
    clip_scales: float = 3.0
    clip_after: int = 10
    dtype: str = "<f4"


@dataclass(frozen=True, slots=True)
class _Tables:
    """By run length: predictive log constant, weight of a squared error, exponent, weight of a new mean."""

    constant: Floats
    error: Floats
    exponent: Floats
    mean: Floats


@lru_cache(maxsize=32)
def _tables(size: int, kappa: float, alpha: float, dtype: str) -> _Tables:
    run = np.arange(size)
    k, a = kappa + run, alpha + run / 2
    constant = gammaln(a + 0.5) - gammaln(a) - 0.5 * np.log(2 * np.pi * (k + 1) / k)
    made = (constant, k / (2 * (k + 1)), a + 0.5, 1 / (k + 1))
    return _Tables(*(np.ascontiguousarray(column, dtype) for column in made))


class SlotBOCPD:
    """Change points of ``series`` series.

    >>> found = SlotBOCPD(2)
    >>> steady, slower = [0.1, -0.2, 0.3, -0.1, 0.0] * 6, [4.1, 3.8, 4.3, 3.9, 4.0, 4.2]
    >>> for x in steady + slower:
    ...     _ = found.update([x, 0.1])
    >>> found.run_lengths().tolist()  # the first series changed six points ago, the other never did
    [6, 36]
    """

    def __init__(self, series: int, config: BOCPDConfig | None = None) -> None:
        self.config = config or BOCPDConfig()
        self._updates = 0
        self._prepare_tables()
        shape, dtype = (series, self.config.slots), self.config.dtype
        self._weight = np.zeros(shape, dtype)
        self._weight[:, 0] = 1
        self._mean = np.full(shape, self.config.mean, dtype)
        self._beta = np.full(shape, self.config.beta, dtype)
        self._log_beta = np.log(self._beta)
        self._run = np.zeros(shape, np.int32)

    @property
    def series(self) -> int:
        return len(self._weight)

    def grow(self, series: int) -> None:
        """Add fresh series at the end, up to ``series`` in all."""
        fresh = SlotBOCPD(series - self.series, self.config)
        for name in ("_weight", "_mean", "_beta", "_log_beta", "_run"):
            setattr(self, name, np.concatenate([getattr(self, name), getattr(fresh, name)]))

    def update(self, values: ArrayLike, index: Indexes | None = None) -> Floats:
        """Take one point of every series, or of the series ``index`` (without repeats).

        A NaN is a missing point: that series stays as it is. Returns the log predictive density of each
        point before it was learned (after winsorising), NaN where missing.
        """
        points = np.asarray(values, self.config.dtype)
        surprise = np.full(points.shape, np.nan, self.config.dtype)
        known = np.flatnonzero(np.isfinite(points))
        self._updates += 1
        self._prepare_tables()
        if index is None and len(known) == self.series:  # views instead of gathers
            for start in range(0, self.series, _BLOCK):
                block = slice(start, start + _BLOCK)
                surprise[block] = self._step(points[block], block)
        else:
            for start in range(0, len(known), _BLOCK):
                some = known[start : start + _BLOCK]
                rows = some if index is None else index[some]
                surprise[some] = self._step(points[some], rows)
        return surprise

    def run_lengths(self, index: Indexes | None = None) -> NDArray[np.int32]:
        """Points since the last change in the most probable run, of every series or of ``index``."""
        rows = np.arange(self.series) if index is None else index
        run: NDArray[np.int32] = self._run[rows, self._weight[rows].argmax(1)]
        return run

    def _prepare_tables(self) -> None:
        size = 256
        while size <= self._updates and size < _LONGEST:
            size *= 2
        self._table = _tables(size, self.config.kappa, self.config.alpha, self.config.dtype)

    def _step(self, points: Floats, rows: Any) -> Floats:
        config, table = self.config, self._table
        weight, mean, beta = self._weight[rows], self._mean[rows], self._beta[rows]
        log_beta, run = self._log_beta[rows], self._run[rows]
        error_weight = table.error.take(run, mode="clip")
        each = np.arange(len(points))
        likely = weight.argmax(1)
        # predictive scale of the most probable run: sqrt(beta (kappa + 1) / (alpha kappa))
        long_run = run[each, likely]
        alpha = table.exponent.take(long_run, mode="clip") - 0.5
        scale = np.sqrt(beta[each, likely] / (2 * alpha * error_weight[each, likely]))
        reach = np.where(long_run >= config.clip_after, config.clip_scales * scale, _FAR)
        centre = mean[each, likely]
        points = np.clip(np.clip(points, centre - reach, centre + reach), -_FAR, _FAR)

        off = points[:, None] - mean
        error_weight *= off
        error_weight *= off
        off *= table.mean.take(run, mode="clip")
        mean += off
        beta += error_weight
        fresh_log = np.log(beta, out=error_weight)
        density = np.subtract(log_beta, fresh_log, out=off)
        density *= table.exponent.take(run, mode="clip")
        log_beta *= 0.5
        density -= log_beta
        density += table.constant.take(run, mode="clip")
        log_beta[...] = fresh_log
        highest = density.max(1, keepdims=True)
        density -= highest
        np.exp(density, out=density)
        weight *= density
        total = weight.sum(1, keepdims=True)
        weight *= (1 - config.hazard) / total
        run += 1
        least = weight.argmin(1)
        weight[each, least], run[each, least] = config.hazard, 0
        mean[each, least], beta[each, least] = config.mean, config.beta
        log_beta[each, least] = np.log(np.asarray(config.beta, config.dtype))
        if not isinstance(rows, slice):
            self._weight[rows], self._mean[rows], self._beta[rows] = weight, mean, beta
            self._log_beta[rows], self._run[rows] = log_beta, run
        surprise: Floats = np.log(total[:, 0]) + highest[:, 0]
        return surprise

    def snapshot(self) -> bytes:
        """The state as bytes; ``restore`` of it goes on exactly as this object would."""
        head = np.array([self._updates, *self._weight.shape], "<i8").tobytes()
        parts = (self._weight, self._mean, self._beta, self._run)
        return head + b"".join(part.tobytes() for part in parts)

    def restore(self, state: bytes) -> None:
        """Take over a ``snapshot`` made under the same config. Raises ValueError for another shape."""
        self._updates, series, slots = (int(n) for n in np.frombuffer(state, "<i8", 3))
        cells = series * slots
        size = np.dtype(self.config.dtype).itemsize
        if slots != self.config.slots or len(state) != 24 + cells * (3 * size + 4):
            raise ValueError(f"a snapshot of {series} series x {slots} slots does not fit")
        floats = np.frombuffer(state, self.config.dtype, 3 * cells, 24).reshape(3, series, slots)
        self._weight, self._mean, self._beta = (part.copy() for part in floats)
        run = np.frombuffer(state, "<i4", cells, 24 + 3 * cells * size)
        self._run = run.reshape(series, slots).copy()
        self._log_beta = np.log(self._beta)
        self._prepare_tables()

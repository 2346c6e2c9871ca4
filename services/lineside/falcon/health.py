"""How the job as a whole is doing: its recent step time against what it took when it was verified healthy.

A baseline holds for equal work only. Micro-batches of another size (tokens) scale it; another number of
micro-batches per step is a new baseline, scaled from the old one until it has been learned. It is learned
while nothing is wrong and while the micro-batches are split as they were when it was learned, so that
neither a fault nor a remedy becomes the new normal; a job that got faster learns anew.
"""

from collections import deque
from dataclasses import dataclass
from math import isfinite
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lineside.contracts import HealthState
from lineside.falcon.robust import median

Floats = NDArray[np.floating[Any]]


@dataclass(frozen=True, kw_only=True, slots=True)
class HealthConfig:
    """In training steps: ``settle`` are left out after a start, ``learn`` make a baseline of at most
    ``keep``, ``recent`` are what the step time is the median of. ``slow`` is the slowdown that counts as
    one; no new step for ``stall_steps`` step times, at least ``stall_s``, is a stall.
    """

    settle: int = 10
    learn: int = 10
    keep: int = 200
    recent: int = 20
    slow: float = 1.1
    stall_steps: float = 10.0
    stall_s: float = 30.0


@dataclass(frozen=True, slots=True)
class Standing:
    """Seconds, tokens per second; None where unknown."""

    step_s: float | None
    baseline_s: float | None
    throughput: float | None

    @property
    def slowdown(self) -> float | None:
        if self.step_s is None or self.baseline_s is None:
            return None
        return self.step_s / self.baseline_s


class HealthTrack:
    """Feeds on whole training steps."""

    def __init__(self, config: HealthConfig | None = None) -> None:
        self.config = config or HealthConfig()
        self.revision = -1
        self._steps = 0
        self._baseline: float | None = None  # seconds per step and unit of work
        self._learned = False
        self._split: list[float] = []
        # (seconds, work: tokens per micro-batch or 1, tokens or NaN)
        self._recent: deque[tuple[float, float, float]] = deque(maxlen=self.config.recent)
        self._healthy: deque[float] = deque(maxlen=self.config.keep)

    def observe(
        self, step_s: float, micro_batches: Floats, tokens: float, revision: int, *, healthy: bool
    ) -> None:
        """One step of ``step_s`` seconds: ``micro_batches`` (D,) per replica, ``tokens`` in all (NaN
        unknown). ``healthy``: nothing is known to be wrong with any rank."""
        if revision != self.revision:
            self.revision = revision
            self._recent.clear()
        total = float(np.nansum(micro_batches))
        work = tokens / total if tokens > 0 and total > 0 else 1.0
        self._steps += 1
        self._recent.append((step_s, work, tokens))
        split = [float(m) for m in micro_batches]
        if self._split and abs(sum(self._split) - total) > 0.5:
            self._rescale(total)
            self._split = split
        if self._steps > self.config.settle and healthy:
            self._learn(step_s / work, split)

    def forget_before(self, steps: int) -> None:
        """Only the last ``steps`` steps tell how the job is doing now (a fault began then)."""
        kept = list(self._recent)[-steps:]
        self._recent.clear()
        self._recent.extend(kept)

    def assume(self, step_s: float) -> None:
        """Take ``step_s`` for healthy where nothing has been learned: a job that was slow from the start."""
        if self._baseline is None and self._recent:
            self._baseline = step_s / float(median([work for _, work, _ in self._recent]))

    def standing(self) -> Standing:
        if not self._recent:
            return Standing(None, None, None)
        seconds, work, tokens = (median(column) for column in zip(*self._recent, strict=True))
        baseline = None if self._baseline is None else float(self._baseline * work)
        throughput = float(tokens / seconds)
        return Standing(float(seconds), baseline, throughput if isfinite(throughput) else None)

    def judge(self, standing: Standing, idle_s: float) -> HealthState:
        """``idle_s``: seconds since the last new step."""
        longest = self.config.stall_steps * (standing.step_s or 0.0)
        if idle_s > max(longest, self.config.stall_s):
            return HealthState.STALLED
        if standing.slowdown is None or not self._learned:
            return HealthState.LEARNING
        return HealthState.SLOW if standing.slowdown >= self.config.slow else HealthState.HEALTHY

    def _rescale(self, total: float) -> None:
        before = sum(self._split)
        if self._baseline is not None and before > 0:
            self._baseline *= total / before
        self._healthy.clear()
        self._learned = False

    def _learn(self, cost: float, split: list[float]) -> None:
        if not self._split:
            self._split = split
        if split != self._split:
            return
        if self._learned and self._baseline is not None:
            recent = float(median([s / w for s, w, _ in self._recent]))
            if recent > self.config.slow * self._baseline:
                return
            if recent * self.config.slow < self._baseline:
                self._learned = False
                self._healthy.clear()
        self._healthy.append(cost)
        if len(self._healthy) >= self.config.learn:
            self._baseline = float(median(list(self._healthy)))
            self._learned = True

    def state(self) -> dict[str, Any]:
        return {
            "revision": self.revision,
            "steps": self._steps,
            "baseline": self._baseline,
            "learned": self._learned,
            "split": self._split,
            "recent": [list(step) for step in self._recent],
            "healthy": list(self._healthy),
        }

    def load(self, state: dict[str, Any]) -> None:
        self.revision, self._steps = state["revision"], state["steps"]
        self._baseline, self._learned = state["baseline"], state["learned"]
        self._split = state["split"]
        self._recent.extend((s, w, t) for s, w, t in state["recent"])
        self._healthy.extend(state["healthy"])

"""The last ``WINDOW`` training steps of every series, oldest column first: what verdicts are read from."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from lineside.falcon.robust import median

WINDOW = 64
Floats = NDArray[np.floating[Any]]


class History:
    """Columns per step: each series' log unit cost and its excess over its peers (series, WINDOW), and what
    the job as a whole did. Columns that have not been filled yet are NaN (-1 for integers)."""

    def __init__(self, series: int, replicas: int) -> None:
        self.cost = np.full((series, WINDOW), np.nan, np.float32)
        self.excess = np.full((series, WINDOW), np.nan, np.float32)
        self.micro_batches = np.full((replicas, WINDOW), np.nan)
        self.step_s = np.full(WINDOW, np.nan)
        self.step = np.full(WINDOW, -1, np.int64)
        self.start_ns = np.full(WINDOW, -1, np.int64)

    def grow(self, series: int, replicas: int) -> None:
        """Add series and replicas of which nothing is known."""
        for name, size in (("cost", series), ("excess", series), ("micro_batches", replicas)):
            old = getattr(self, name)
            fresh = np.full((size - len(old), WINDOW), np.nan, old.dtype)
            setattr(self, name, np.concatenate([old, fresh]))

    def push(
        self,
        *,
        cost: Floats,
        excess: Floats,
        micro_batches: Floats,
        step_s: float,
        step: int,
        start_ns: int,
    ) -> None:
        for name in self.__dict__:  # shifting costs less than reading a ring would
            column = getattr(self, name)
            column[..., :-1] = column[..., 1:]
        self.cost[:, -1], self.excess[:, -1] = cost, excess
        self.micro_batches[:, -1] = micro_batches
        self.step_s[-1], self.step[-1], self.start_ns[-1] = step_s, step, start_ns

    def recent_units(self, columns: slice) -> NDArray[np.float64]:
        """Median seconds per micro-batch of every series over ``columns``, (S,)."""
        return np.exp(median(self.cost[:, columns]))

    def state(self) -> dict[str, Any]:
        return dict(self.__dict__)

    def load(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)

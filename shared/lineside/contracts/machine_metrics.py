"""``machine-metrics.v1``: one machine's last second of metrics, samples x series."""

import msgspec
import numpy as np
from numpy.typing import NDArray

from lineside.contracts.columns import MatrixColumn, TelemetryBatch


class Series(msgspec.Struct, frozen=True):
    """One measured quantity; ``device`` is None for the machine as a whole."""

    name: str
    device: str | None = None


class MetricBatch(TelemetryBatch, frozen=True, array_like=True, tag="machine-metrics.1"):
    """``values`` is float32[samples, series], C order. An unavailable value is NaN, never zero.

    Names are OpenMetrics style with units, e.g. ``cpu_utilization_ratio``, ``memory_used_bytes``.
    """

    start_ns: int
    interval_s: float
    series: list[Series]
    values: MatrixColumn

    def matrix(self) -> NDArray[np.float32]:
        """The samples as a read-only array, shape (samples, series)."""
        flat = np.frombuffer(self.values, dtype="<f4")
        return flat.reshape(-1, len(self.series)) if self.series else flat.reshape(0, 0)

    def check(self) -> str | None:
        size = len(self.values) // 4
        if not self.interval_s > 0 or not np.isfinite(self.interval_s):
            return f"interval_s is {self.interval_s}"
        if (size % len(self.series)) if self.series else size:
            return f"{size} values do not fill rows of {len(self.series)} series"
        return None

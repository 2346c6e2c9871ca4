"""From what probes wrote to columns of the wire contracts. Pure.

Probe files are not trusted: a value that the contract forbids makes a row invalid, and it is left out and
counted; an infinity is unknown.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lineside.contracts import Phase, Timing
from lineside.contracts.collectives import ProgressTiming
from lineside.probe.layout import OPS
from lineside.probe.reader import GROUP_TYPE, RECORD_TYPE

_DURATIONS = {
    "step_s": "step_ns",
    "compute_s": "compute_ns",
    "comm_s": "comm_ns",
    "exposed_comm_s": "exposed_comm_ns",
    "wait_s": "wait_ns",
    "data_s": "data_ns",
    "checkpoint_s": "checkpoint_ns",
    "other_s": "other_ns",
}
_AT_LEAST = {
    **dict.fromkeys(_DURATIONS.values(), -1),
    "step": -1,
    "start_ns": -1,
    "micro_batches": -1,
    "tokens": -1,
    "revision": -1,
    "phase": 0,
    "timing": 0,
}
_GROUP_AT_LEAST = {
    "enqueued_seq": -1,
    "started_seq": -1,
    "completed_seq": -1,
    "oldest_open_seq": -1,
    "oldest_open_op": -1,
    "oldest_open_bytes": -1,
    "oldest_open_since_ns": -1,
    "open_count": 0,
    "completed_ops": 0,
    "completed_bytes": 0,
    "op_time_ns": 0,
    "window_max_ns": 0,
    "before_max_ns": 0,
    "last_started_ns": -1,
    "last_completed_ns": -1,
}
_PLAIN_GROUP_COLUMNS = (
    "enqueued_seq",
    "started_seq",
    "completed_seq",
    "oldest_open_seq",
    "oldest_open_bytes",
)
_MOST = 1 << 62
"""No number of ours is larger; beyond it the sum with a clock's distance would not fit 64 bits."""
_SECOND = 1_000_000_000
_TIMINGS = tuple(ProgressTiming)


def step_columns(
    ranks: Sequence[tuple[int, NDArray[Any]]], offset_ns: int
) -> tuple[dict[str, Any], int]:
    """``StepBatch``'s columns from each rank's records, and how many records were invalid.

    ``offset_ns`` is what turns the probe's clock into Unix time.
    """
    rank, rows = _together(ranks, RECORD_TYPE)
    valid = _valid(rows, _AT_LEAST)
    valid &= (rows["phase"] <= max(Phase)) & (rows["timing"] <= max(Timing))
    lost = int(len(rows) - np.count_nonzero(valid))
    rows, rank = rows[valid], rank[valid]
    columns: dict[str, Any] = {
        "rank": rank,
        "start_ns": unix_ns(rows["start_ns"], offset_ns),
        "loss": _finite(rows["loss"]),
        "grad_norm": _finite(rows["grad_norm"]),
    }
    for name in ("step", "micro_batches", "tokens", "revision", "phase", "timing"):
        columns[name] = rows[name]
    for name, source in _DURATIONS.items():
        columns[name] = np.where(rows[source] < 0, np.nan, rows[source] / 1e9)
    return columns, lost


class Progress:
    """``CollectiveBatch``'s progress columns: what grew since the row before needs the row before."""

    def __init__(self) -> None:
        self._before: dict[tuple[int, str], tuple[int, int, int, int]] = {}

    def columns(
        self, ranks: Sequence[tuple[int, NDArray[Any]]], offset_ns: int
    ) -> tuple[dict[str, Any], int]:
        """Columns from each rank's table of groups, and how many rows were invalid."""
        rank, rows = _together(ranks, GROUP_TYPE)
        valid = _valid(rows, _GROUP_AT_LEAST)
        valid &= (rows["oldest_open_op"] < len(OPS)) & (rows["timing"] < len(_TIMINGS))
        valid &= (rows["graph_captured"] <= 1) & (rows["open_count"] < 1 << 31)
        lost = int(len(rows) - np.count_nonzero(valid))
        rows, rank = rows[valid], rank[valid]
        names = [_name(row) for row in rows]
        grown = [self._grown(int(r), *at) for r, *at in zip(rank, names, rows, strict=True)]
        ops, nbytes, time_s, longest_s = np.array(grown, dtype=np.float64).reshape(-1, 4).T
        columns: dict[str, Any] = {name: rows[name] for name in _PLAIN_GROUP_COLUMNS}
        for name in ("oldest_open_since_ns", "last_started_ns", "last_completed_ns"):
            columns[name] = unix_ns(rows[name], offset_ns)
        return columns | {
            "rank": rank,
            "group_id": names,
            "oldest_open_op": [str(OPS[op]) if op >= 0 else "" for op in rows["oldest_open_op"]],
            "open_count": rows["open_count"],
            "completed_ops": ops,
            "completed_bytes": nbytes,
            "op_time_s": time_s,
            "op_time_max_s": longest_s,
            "graph_captured": rows["graph_captured"],
            "timing": [str(_TIMINGS[timing]) for timing in rows["timing"]],
        }, lost

    def _grown(self, rank: int, name: str, row: Any) -> tuple[int, int, float, float]:
        """(operations, bytes, seconds, longest seconds) since the row before of this rank and group."""
        now = (int(row["completed_ops"]), int(row["completed_bytes"]), int(row["op_time_ns"]))
        ops, nbytes, time_ns, seen_ns = self._before.get((rank, name), (0, 0, 0, 0))
        if now[0] < ops:  # another process writes this file now
            ops = nbytes = time_ns = 0
        self._before[rank, name] = (*now, int(row["last_completed_ns"]))
        if now[0] == ops:
            return 0, 0, 0.0, float("nan")
        # The window before counts only where operations of it were not in the row before.
        longest = int(row["window_max_ns"])
        if int(row["window"]) > seen_ns // _SECOND:
            longest = max(longest, int(row["before_max_ns"]))
        # The window may hold operations of the row before too: no single one took longer than the sum.
        took = max(0, now[2] - time_ns)
        return now[0] - ops, max(0, now[1] - nbytes), took / 1e9, min(longest, took) / 1e9


def unix_ns(times: NDArray[Any], offset_ns: int) -> NDArray[np.int64]:
    """Monotonic times as Unix times; unknown (-1) stays unknown."""
    return np.where(times < 0, -1, times + offset_ns)


def _together(
    ranks: Sequence[tuple[int, NDArray[Any]]], dtype: np.dtype[Any]
) -> tuple[NDArray[np.int32], NDArray[Any]]:
    """Every row's rank, and the rows of all ranks."""
    rank = np.repeat(
        np.array([r for r, _ in ranks], dtype=np.int32),
        np.array([len(rows) for _, rows in ranks], dtype=np.intp),
    )
    return rank, np.concatenate([np.empty(0, dtype), *(rows for _, rows in ranks)])


def _valid(rows: NDArray[Any], at_least: dict[str, int]) -> NDArray[np.bool_]:
    valid = np.ones(len(rows), dtype=bool)
    for name, minimum in at_least.items():
        valid &= (rows[name] >= minimum) & (rows[name] <= _MOST)
    return valid


def _finite(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Infinities, and what float32 would make one, become unknown."""
    return np.where(np.abs(values) <= np.finfo(np.float32).max, values, np.nan)


def _name(row: Any) -> str:
    name: bytes = row["name"]
    return name[: row["name_bytes"]].decode(errors="replace")

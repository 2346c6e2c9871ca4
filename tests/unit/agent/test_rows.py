"""Columns from probe records: units, unknowns, what is new since the row before, and nothing invalid."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from lineside.agent.rows import Progress, step_columns, unix_ns
from lineside.contracts import CollectiveBatch, Phase, StepBatch, pack
from lineside.probe import Probe
from lineside.probe.reader import GROUP_TYPE, RECORD_TYPE, ProbeReader

SENDER = {
    "job_id": "gpt", "run_id": "run", "generation": 0, "machine_id": "m", "incarnation": "i",
    "sequence": 0, "dropped": 0, "sent_ns": 0, "clock_offset_ns": -1, "clock_error_ns": -1,
}  # fmt: skip
OFFSET_NS = 1_800_000_000_000_000_000
"""Between a fresh machine's clock and Unix time."""


def test_seconds_unix_time_and_unknowns(tmp_path: Path) -> None:
    probe = Probe.create(tmp_path, 0)
    with probe.step(3, micro_batches=2, tokens=8, phase=Phase.TRAIN) as s, probe.phase("compute"):
        s.loss = math.inf
    reader = ProbeReader(tmp_path / "probe.0")
    rows, _ = reader.steps()
    reader.close()
    columns, lost = step_columns([(4, rows), (5, rows[:0])], 1_000)
    assert lost == 0
    assert list(columns["rank"]) == [4] and list(columns["step"]) == [3]
    assert columns["start_ns"][0] == rows["start_ns"][0] + 1_000
    assert columns["compute_s"][0] == rows["compute_ns"][0] / 1e9
    assert np.isnan(columns["wait_s"][0]) and np.isnan(columns["loss"][0])
    pack(StepBatch, SENDER | columns)


def test_no_ranks_make_an_empty_batch() -> None:
    columns, _ = step_columns([], 0)
    assert pack(StepBatch, SENDER | columns).rank == b""
    progress, _ = Progress().columns([], 0)
    assert pack(CollectiveBatch, SENDER | progress).group_id == []


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("step_ns", -2),
        ("phase", 9),
        ("timing", 7),
        ("micro_batches", -5),
        ("start_ns", -7),
        ("start_ns", (1 << 63) - 1),
    ],
)
def test_an_impossible_record_is_left_out_and_counted(field: str, value: int) -> None:
    rows = np.zeros(3, RECORD_TYPE)
    rows[field][1] = value
    rows["step"] = [0, 1, 2]
    columns, lost = step_columns([(0, rows)], OFFSET_NS)
    assert lost == 1 and list(columns["step"]) == [0, 2]


def group_table(**values: Any) -> Any:
    table = np.zeros(1, GROUP_TYPE)
    table["name"], table["name_bytes"] = b"dp:1", 4
    for name, value in values.items():
        table[name] = value
    return table


def test_progress_says_what_grew_since_the_row_before() -> None:
    progress, second = Progress(), 1_000_000_000
    first = group_table(
        completed_ops=3, completed_bytes=30, op_time_ns=2 * second, window=7,
        window_max_ns=second, last_completed_ns=7 * second,
    )  # fmt: skip
    columns, _ = progress.columns([(4, first)], 0)
    assert list(columns["completed_ops"]) == [3] and list(columns["op_time_s"]) == [2.0]
    columns, _ = progress.columns([(4, first)], 0)
    assert list(columns["completed_ops"]) == [0] and list(columns["op_time_s"]) == [0.0]
    assert np.isnan(columns["op_time_max_s"][0]), "no operation, no longest one"
    later = group_table(
        completed_ops=5, completed_bytes=50, op_time_ns=3 * second, window=8,
        window_max_ns=second // 4, before_max_ns=second // 2, last_completed_ns=8 * second,
    )  # fmt: skip
    columns, _ = progress.columns([(4, later)], 0)
    assert list(columns["completed_ops"]) == [2] and list(columns["completed_bytes"]) == [20]
    assert list(columns["op_time_max_s"]) == [0.5], "the longest one came a second ago"


def test_a_new_process_starts_from_nothing() -> None:
    progress = Progress()
    progress.columns([(4, group_table(completed_ops=90, completed_bytes=90))], 0)
    columns, _ = progress.columns([(4, group_table(completed_ops=2, completed_bytes=20))], 0)
    assert list(columns["completed_ops"]) == [2] and list(columns["completed_bytes"]) == [20]


def test_progress_tells_ops_by_name(tmp_path: Path) -> None:
    probe = Probe.create(tmp_path, 0)
    probe.enqueue("dp:1", "reduce_scatter", 64)
    reader = ProbeReader(tmp_path / "probe.0")
    columns, lost = Progress().columns([(4, reader.groups())], 0)
    reader.close()
    assert lost == 0
    assert columns["oldest_open_op"] == ["reduce_scatter"] and columns["timing"] == ["host"]
    assert list(columns["rank"]) == [4] and list(columns["oldest_open_bytes"]) == [64]
    pack(CollectiveBatch, SENDER | columns)


def test_unknown_times_stay_unknown() -> None:
    assert list(unix_ns(np.array([-1, 5]), 100)) == [-1, 105]


def random_rows(dtype: np.dtype[Any]) -> st.SearchStrategy[Any]:
    size = dtype.itemsize
    return hnp.arrays(np.uint8, st.integers(0, 4).map(lambda n: n * size)).map(
        lambda raw: np.frombuffer(raw.tobytes(), dtype)
    )


@pytest.mark.parametrize(
    ("dtype", "kind", "columns_of"),
    [
        (RECORD_TYPE, StepBatch, step_columns),
        (GROUP_TYPE, CollectiveBatch, lambda ranks, offset: Progress().columns(ranks, offset)),
    ],
    ids=["steps", "collectives"],
)
@settings(deadline=None)
@given(data=st.data())
def test_whatever_a_rank_wrote_the_batch_keeps_the_contract(
    dtype: np.dtype[Any], kind: Any, columns_of: Callable[..., Any], data: st.DataObject
) -> None:
    rows = data.draw(random_rows(dtype))
    columns, lost = columns_of([(0, rows)], OFFSET_NS)
    pack(kind, SENDER | columns)
    assert lost + len(columns["rank"]) == len(rows)

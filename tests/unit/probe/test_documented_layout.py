"""``docs/probe-file.md`` is enough to read a probe file: this reader knows nothing but its tables."""

import re
import struct
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from lineside.contracts import Op, Phase
from lineside.probe import Probe

PAGE = Path(__file__).parents[3] / "docs" / "probe-file.md"
CODES = {"u8": "B", "u16": "<H", "u32": "<I", "i32": "<i", "i64": "<q", "f64": "<d"}
Table = list[tuple[int, str, str]]


def tables() -> dict[str, Table]:
    """(offset, type, name) of every row, by the heading it stands under."""
    found: dict[str, Table] = {}
    heading = ""
    for line in PAGE.read_text().splitlines():
        if line.startswith("#"):
            heading = line.strip("# ").split(",")[0].split(":")[0]
        elif row := re.match(r"\| (\d+) \| ([\w ]+) \| (\w+) \|", line):
            found.setdefault(heading, []).append((int(row[1]), row[2], row[3]))
    return found


def parse(data: bytes, table: Table, at: int = 0) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for offset, kind, name in table:
        if kind in CODES:
            (values[name],) = struct.unpack_from(CODES[kind], data, at + offset)
        else:
            length = re.match(r"(\d+) bytes", kind)
            values[name] = data[at + offset :][: int(length[1]) if length else None]
    return values


def area(data: bytes, at: int, table: Table, size: int) -> dict[str, Any]:
    (begin,), (end,) = (struct.unpack_from("<q", data, where) for where in (at, at + 8 + size))
    assert begin == end > 0
    return parse(data, table, at + 8)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    folder = tmp_path_factory.mktemp("documented")
    probe = Probe.create(folder, 5, generation=2)
    probe.declare(micro_batches=20)
    for step in range(10, 13):
        with probe.step(step, micro_batches=4, tokens=64, phase=Phase.TRAIN) as s:
            s.loss, s.grad_norm = 1.5, 0.25
            for name in ("data", "compute", "comm", "wait", "checkpoint"):
                with probe.phase(name):
                    pass
            with probe.collective("dp:0123", Op.ALL_REDUCE, 4096):
                pass
            probe.applied(1, 11)
    probe.enqueue("dp:0123", Op.BARRIER, 8)
    probe.rejected(2, "no")
    return (folder / "probe.5").read_bytes()


@pytest.fixture(scope="module")
def page() -> dict[str, Table]:
    return tables()


@pytest.fixture(scope="module")
def header(data: bytes, page: dict[str, Table]) -> dict[str, Any]:
    return parse(data, page["Header"])


def test_header(data: bytes, header: dict[str, Any]) -> None:
    assert header["magic"] == b"LSPROBE\n" and header["version"] == 1
    assert (header["rank"], header["generation"], header["size"]) == (5, 2, len(data))
    assert (header["header_bytes"], header["reason_bytes"]) == (88, 256)
    assert 0 < header["created_ns"] <= time.monotonic_ns()


def test_live_state_status_and_declaration(
    data: bytes, page: dict[str, Table], header: dict[str, Any]
) -> None:
    live = area(data, header["live"], page["Live state"], 56)
    assert (live["step"], live["kind"], live["phase"]) == (12, 0, 1)
    assert (live["revision"], live["steps"]) == (1, 3)
    assert live["phase_since_ns"] == live["updated_ns"] > header["created_ns"]
    status = area(data, header["status"], page["Plan status"], 304)
    assert (status["applied_revision"], status["applied_step"]) == (1, 11)
    assert (status["rejected_revision"], status["reason"][: status["reason_length"]]) == (2, b"no")
    capacity = header["declaration_bytes"]
    said = area(data, header["declaration"], page["Declaration"], 8 + capacity)
    text = data[header["declaration"] + 16 :][: said["length"]]
    assert msgspec.json.decode(text)["micro_batches"] == 20


def test_groups(data: bytes, page: dict[str, Table], header: dict[str, Any]) -> None:
    assert header["group_bytes"] == page["Table of groups"][-1][0] + 8
    assert parse(data, page["Counters"])["groups_used"] == 1
    row = parse(data, page["Table of groups"], header["groups"])
    assert row["name"][: row["name_bytes"]] == b"dp:0123"
    assert row["begin"] == row["end"] > 0
    assert (row["enqueued_seq"], row["started_seq"], row["completed_seq"]) == (4, 3, 3)
    assert (row["oldest_open_seq"], row["oldest_open_op"], row["oldest_open_bytes"]) == (4, 7, 8)
    assert (row["open_count"], row["completed_ops"], row["completed_bytes"]) == (1, 3, 3 * 4096)
    assert row["last_started_ns"] < row["last_completed_ns"] < row["oldest_open_since_ns"]
    assert row["window"] == row["last_completed_ns"] // 10**9
    assert 0 < row["window_max_ns"] <= row["op_time_ns"]


def test_steps(data: bytes, page: dict[str, Table], header: dict[str, Any]) -> None:
    counters = parse(data, page["Counters"])
    assert (counters["head"], counters["lost"]) == (3, 0)
    assert header["record_bytes"] == page["Ring of steps"][-1][0] + 8
    rows = [
        parse(data, page["Ring of steps"], header["ring"] + n * header["record_bytes"])
        for n in range(3)
    ]
    assert [row["seq"] for row in rows] == [1, 2, 3]
    assert [row["step"] for row in rows] == [10, 11, 12]
    assert [row["revision"] for row in rows] == [0, 1, 1]
    for row in rows:
        assert (row["micro_batches"], row["tokens"], row["phase"], row["timing"]) == (4, 64, 0, 0)
        assert (row["loss"], row["grad_norm"]) == (1.5, 0.25)
        parts = ("compute_ns", "comm_ns", "wait_ns", "data_ns", "checkpoint_ns", "other_ns")
        assert all(row[part] > 0 for part in parts)
        assert sum(row[part] for part in parts) == row["step_ns"]
        assert row["exposed_comm_ns"] == row["comm_ns"] + row["wait_ns"]

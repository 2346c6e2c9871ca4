"""Plans on the rank's side: reading the file, and all ranks switching at one step."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lineside.contracts import Plan, PlanKind
from lineside.probe.plans import common_revision


def plan(revision: int) -> Plan:
    return Plan(
        job_id="gpt",
        run_id="run",
        revision=revision,
        base_generation=0,
        base_revision=0,
        generation=0,
        issued_ns=1,
        valid_until_ns=-1,
        kind=PlanKind.REBALANCE,
    )


def replace(folder: Path, content: bytes) -> None:
    (folder / "new").write_bytes(content)
    (folder / "new").rename(folder / "plan")


def test_the_newest_plan_is_read(opened: Callable[..., Any], tmp_path: Path) -> None:
    probe, _ = opened()
    assert probe.plan() is None
    for revision in (1, 2):
        replace(tmp_path, msgspec.json.encode(plan(revision)))
        assert probe.plan() == plan(revision)
        assert probe.plan() is probe.plan(), "decoded once"


def test_a_broken_plan_file_is_counted_once_and_the_plan_before_stays(
    opened: Callable[..., Any], tmp_path: Path
) -> None:
    probe, reader = opened()
    replace(tmp_path, msgspec.json.encode(plan(1)))
    assert probe.plan() == plan(1)
    replace(tmp_path, b"{half")
    assert [probe.plan() for _ in range(3)] == [None, plan(1), plan(1)]
    assert reader.lost() == 1


revisions = st.integers(0, 1 << 20)


@settings(deadline=None)
@given(st.lists(revisions, min_size=1, max_size=64))
def test_the_sums_tell_whether_all_ranks_agree(held: list[int]) -> None:
    total = np.sum(np.array(held, dtype=np.float64))
    squares = np.sum(np.array(held, dtype=np.float64) ** 2)
    expected = held[0] if len(set(held)) == 1 else None
    assert common_revision(float(total), float(squares), len(held)) == expected


def test_one_rank_of_a_large_world_that_is_behind_is_noticed() -> None:
    world, newest = 65536, 100_000
    total, squares = newest * world - 1, newest**2 * (world - 1) + (newest - 1) ** 2
    assert common_revision(float(total), float(squares), world) is None


@pytest.mark.parametrize("sums", [(float("nan"), 1.0), (float("inf"), 1.0), (1.5, 2.25)])
def test_no_sums_of_revisions(sums: tuple[float, float]) -> None:
    assert common_revision(*sums, 1) is None


def agreed(probes: list[Any], plans: list[Plan | None]) -> list[Plan | None]:
    parts = [probe.agreement(held) for probe, held in zip(probes, plans, strict=True)]
    sums = [sum(column) for column in zip(*parts, strict=True)]
    return [probe.agreed(sums, len(probes)) for probe in probes]


def test_all_ranks_switch_at_the_same_step_or_none(opened: Callable[..., Any]) -> None:
    probes = [opened()[0] for _ in range(3)]
    one, two = plan(1), plan(2)
    assert agreed(probes, [one, None, one]) == [None] * 3
    assert agreed(probes, [one, one, two]) == [None] * 3
    assert agreed(probes, [two, two, two]) == [two] * 3
    for probe in probes:
        probe.applied(2, 5)
    assert agreed(probes, [two, two, two]) == [None] * 3, "in force already"
    assert agreed(probes, [one, one, one]) == [None] * 3, "never back"


def test_one_rank_that_rejects_a_plan_holds_all_back(opened: Callable[..., Any]) -> None:
    probes = [opened()[0] for _ in range(2)]
    probes[0].rejected(1, "7 micro-batches do not fit")
    assert agreed(probes, [plan(1), plan(1)]) == [None, None]
    assert agreed(probes, [plan(2), plan(2)]) == [plan(2)] * 2


def test_a_rejection_is_told_with_its_reason(opened: Callable[..., Any]) -> None:
    probe, reader = opened()
    assert reader.status() is None
    probe.rejected(4, "no such ring " + "é" * 300)
    status = reader.status()
    assert status.rejected_revision == 4 and status.reason.startswith("no such ring é")
    assert status.applied_revision == -1

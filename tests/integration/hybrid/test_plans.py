"""A plan that reaches the ranks at different steps is in force at one step, on all of them, or on none."""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from lineside.contracts import Capabilities, Mesh, MicroBatchLimits
from lineside.probe.reader import ProbeReader

SWITCH = 2 + 3 + 1
"""The last rank reads the plan before step 5; all know so after it."""
BACK = 12 + 1
STEPS = 15


class Run(NamedTuple):
    results: list[dict[str, Any]]
    readers: list[ProbeReader]


@pytest.fixture(scope="module")
def run(launcher: Any, tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("run")
    results = launcher.run("plans", folder)
    paths: list[Path] = [folder / f"machine.{rank}" / f"probe.{rank}" for rank in range(4)]
    return Run(results, [ProbeReader(path) for path in paths])


@pytest.fixture(scope="module")
def rows(run: Run) -> list[Any]:
    return [reader.steps()[0] for reader in run.readers]


def test_all_switch_at_the_same_step(run: Run) -> None:
    expected = [[3, 3]] * SWITCH + [[5, 1]] * (BACK - SWITCH) + [[3, 3]] * (STEPS - BACK)
    assert all(result["in_force"] == expected for result in run.results)


def test_the_step_rows_say_what_was_in_force(rows: list[Any]) -> None:
    for rank, row in enumerate(rows):
        own = (5, 1)[rank // 2]
        uneven = (row["step"] >= SWITCH) & (row["step"] < BACK)
        assert row["revision"].tolist() == [0] * SWITCH + [1] * (BACK - SWITCH) + [3] * 2
        assert row["micro_batches"].tolist() == np.where(uneven, own, 3).tolist()
        assert row["tokens"].tolist() == (row["micro_batches"] * 16).tolist()
        assert row["phase"].tolist() == [1] + [0] * (STEPS - 1)


def test_a_plan_that_cannot_be_carried_out_is_rejected_and_the_run_goes_on(run: Run) -> None:
    for reader in run.readers:
        status = reader.status()
        assert status is not None
        assert (status.applied_revision, status.applied_step) == (3, BACK)
        assert status.rejected_revision == 2
        assert status.reason == "micro_batch_plan sums to 10, a step has 6"


def test_what_was_declared(run: Run) -> None:
    for reader in run.readers:
        said = reader.declaration()
        assert said is not None
        assert said.mesh == Mesh(axes=["dp", "pp"], sizes=[2, 2])
        assert (said.micro_batches, said.micro_batch_limits) == (6, MicroBatchLimits(min=1))
        assert said.capabilities == Capabilities(rebalance=True)


def test_the_rows_carry_loss_norm_and_phases(run: Run, rows: list[Any]) -> None:
    for row in rows:
        assert row["loss"].tolist() == run.results[0]["losses"]
        assert (row["grad_norm"] > 0).all()
        parts = sum(row[name] for name in ("compute_ns", "comm_ns", "data_ns", "other_ns"))
        assert (parts == row["step_ns"]).all()
        assert (row["compute_ns"] > 0).all() and (row["comm_ns"] > 0).all()


def test_every_group_has_come_equally_far_on_all_its_ranks(run: Run) -> None:
    ends: dict[str, list[tuple[int, int]]] = {}
    for rank, reader in enumerate(run.readers):
        for row in reader.groups():
            assert row["enqueued_seq"] == row["started_seq"] == row["completed_seq"]
            ends.setdefault(row["name"].decode(), []).append((rank, int(row["completed_seq"])))
    dp = {name: members for name, members in ends.items() if name.startswith("dp:")}
    assert sorted(rank for members in dp.values() for rank, _ in members) == [0, 1, 2, 3]
    assert {name for name in ends if name.startswith("p2p:")} == {
        "p2p:0:1", "p2p:1:0", "p2p:2:3", "p2p:3:2"
    }  # fmt: skip
    for name, members in ends.items():
        assert len({seq for _, seq in members}) == 1, name
        if not name.startswith("p2p:"):
            assert members[0][1] == STEPS
    sent = 3 * SWITCH + 5 * (BACK - SWITCH) + 3 * (STEPS - BACK)
    assert ends["p2p:0:1"][0][1] == sent

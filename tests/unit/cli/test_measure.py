"""The demo's arithmetic on step rows whose medians are known."""

from typing import Any

import pytest

from lineside.cli.demo.measure import (
    Measurement,
    StepSeen,
    ideal_step_s,
    median_step_s,
    removed,
)
from lineside.cli.demo.summary import step_times, verdict
from lineside.contracts import Phase, StepBatch, pack
from lineside.contracts.columns import column_specs
from lineside.remediation.policy import Mode

SENDER: dict[str, Any] = {
    "job_id": "demo", "run_id": "r", "generation": 0, "machine_id": "m", "incarnation": "i",
    "sequence": 0, "dropped": 0, "sent_ns": 0, "clock_offset_ns": -1, "clock_error_ns": -1,
}  # fmt: skip


def rows(**values: list[Any]) -> StepBatch:
    n = len(values["rank"])
    empty = {
        name: [float("nan")] * n if spec.dtype == "<f4" else [0] * n
        for name, spec in column_specs(StepBatch).items()
    }
    return pack(StepBatch, SENDER | empty | values)


def run_of(
    measurement: Measurement, steps: range, step_s: float, unit_s: list[float], revision: int = 0
) -> None:
    for step in steps:
        for rank, unit in enumerate(unit_s):
            measurement.add(
                rows(
                    rank=[rank],
                    step=[step],
                    start_ns=[step * 1_000_000_000 + rank],
                    step_s=[step_s],
                    compute_s=[5 * unit],
                    micro_batches=[5],
                    revision=[revision],
                )
            )


def test_only_whole_training_steps_count() -> None:
    measurement = Measurement(world_size=2)
    measurement.add(rows(rank=[0], step=[1], start_ns=[10], step_s=[0.5], micro_batches=[1]))
    assert measurement.steps() == []
    measurement.add(rows(rank=[1], step=[1], start_ns=[12], step_s=[0.25], micro_batches=[1]))
    assert [(s.step, s.start_ns, s.step_s) for s in measurement.steps()] == [(1, 10, 0.375)]
    measurement.add(rows(rank=[0, 1], step=[2, 2], step_s=[9.0, 9.0], phase=[Phase.FIRST] * 2))
    assert len(measurement.steps()) == 1


def test_windows_and_revisions_select_steps() -> None:
    measurement = Measurement(world_size=2)
    run_of(measurement, range(0, 5), 0.25, [0.03, 0.03])
    run_of(measurement, range(5, 10), 0.5, [0.03, 0.09], revision=1)
    assert [s.step for s in measurement.steps(3_000_000_000, 7_000_000_000)] == [3, 4, 5, 6]
    assert [s.step for s in measurement.steps(revision=1)] == [5, 6, 7, 8, 9]
    assert median_step_s(measurement.steps(revision=1)) == 0.5


def test_the_ideal_split_is_that_of_the_measured_units() -> None:
    measurement = Measurement(world_size=8)
    healthy_units = [0.03] * 8
    run_of(measurement, range(0, 10), 6 * 0.03 + 0.02, healthy_units)
    slow_units = [0.03] * 7 + [0.09]
    run_of(measurement, range(10, 20), 15 * 0.03 + 0.05, slow_units)
    ideal = ideal_step_s(
        measurement,
        measurement.steps(to_ns=10_000_000_000),
        measurement.steps(10_000_000_000),
        victim=7,
        victim_replica=3,
        even=[5, 5, 5, 5],
    )
    # [6, 6, 6, 2]: six units of 30 ms, one more to fill the pipeline, 20 ms besides
    assert ideal == pytest.approx(6 * 0.03 + 0.03 + 0.02, abs=1e-6)


def test_share_removed() -> None:
    assert removed(0.2, 0.6, 0.2) == 1
    assert removed(0.2, 0.6, 0.6) == 0


GOOD = {
    "victim": 3, "culprit": 3, "incidents": 1, "slowdown_removed": 0.8, "of_ideal": 0.9,
}  # fmt: skip


@pytest.mark.parametrize(
    ("changed", "mode", "plans", "reason"),
    [
        ({}, Mode.AUTO, 2, None),
        ({"culprit": 4}, Mode.AUTO, 2, "named rank 4 where rank 3 was slowed"),
        ({"incidents": 2}, Mode.AUTO, 2, "2 incidents"),
        ({"slowdown_removed": 0.69}, Mode.AUTO, 2, "only 69% of the slowdown"),
        ({"of_ideal": 0.84}, Mode.AUTO, 2, "only 84% of what the ideal"),
        ({"slowdown_removed": None, "of_ideal": None}, Mode.OBSERVE, 0, None),
        ({"slowdown_removed": None, "of_ideal": None}, Mode.OBSERVE, 1, "a plan was published"),
    ],
)
def test_the_demo_passes_only_if_it_did_what_it_promises(
    changed: dict[str, Any], mode: Mode, plans: int, reason: str | None
) -> None:
    found = verdict(GOOD | changed, mode, plans=plans)
    assert found["passed"] is (reason is None)
    assert reason is None or reason in found["verdict"]


def test_step_times_are_medians_and_shares() -> None:
    def seen(*step_s: float) -> list[StepSeen]:
        return [StepSeen(i, i, s, 0) for i, s in enumerate(step_s)]

    found = step_times(seen(0.2, 0.2, 0.9), seen(0.6), seen(0.3), ideal_s=0.25)
    assert found["slowdown_removed"] == 0.75
    assert found["of_ideal"] == pytest.approx(0.75 / 0.875, abs=1e-6)
    assert step_times(seen(0.2), seen(0.6), [], 0.25)["healed_step_s"] is None

"""Steps and phases: what the loop says is what the reader finds."""

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from lineside.contracts import Phase
from lineside.probe.layout import LivePhase

UNKNOWN = -1


def test_a_step_is_recorded_with_its_phases(opened: Callable[..., Any]) -> None:
    probe, reader = opened()
    with probe.step(7, micro_batches=5, tokens=100, phase=Phase.TRAIN) as s:
        with probe.phase("compute"):
            time.sleep(0.002)
            with probe.phase("wait"):
                time.sleep(0.004)
        s.loss = 2.5
    rows, dropped = reader.steps()
    (row,) = rows
    assert dropped == 0
    assert (row["seq"], row["step"], row["micro_batches"], row["tokens"]) == (1, 7, 5, 100)
    assert row["loss"] == 2.5 and np.isnan(row["grad_norm"])
    assert row["phase"] == Phase.TRAIN and row["revision"] == 0
    assert row["compute_ns"] >= 2e6 and row["wait_ns"] >= 4e6, "charged to the innermost phase"
    assert row["compute_ns"] + row["wait_ns"] + row["other_ns"] == row["step_ns"]


def test_a_phase_never_used_is_unknown_and_one_used_before_is_zero(
    opened: Callable[..., Any],
) -> None:
    probe, reader = opened()
    with probe.step(0), probe.phase("data"):
        pass
    with probe.step(1):
        pass
    rows, _ = reader.steps()
    assert list(rows["wait_ns"]) == [UNKNOWN, UNKNOWN]
    assert list(rows["comm_ns"]) == list(rows["compute_ns"]) == [UNKNOWN, UNKNOWN]
    assert rows["data_ns"][0] > 0 and rows["data_ns"][1] == 0


def test_exposed_communication_is_what_blocks_the_loop(opened: Callable[..., Any]) -> None:
    probe, reader = opened()
    with probe.step(0):
        with probe.phase("comm"), probe.phase("wait"):
            pass
    (row,), _ = reader.steps()
    assert row["exposed_comm_ns"] == row["comm_ns"] + row["wait_ns"]


@pytest.mark.parametrize("given", [None, Phase.EVAL])
def test_the_first_step_of_a_process_says_so_unless_told_otherwise(
    opened: Callable[..., Any], given: Phase | None
) -> None:
    probe, reader = opened()
    for step in range(3):
        with probe.step(step, phase=given if step == 0 else None):
            pass
    rows, _ = reader.steps()
    assert list(rows["phase"]) == [
        Phase.FIRST if given is None else given,
        Phase.TRAIN,
        Phase.TRAIN,
    ]


def test_what_is_known_only_inside_the_step(opened: Callable[..., Any]) -> None:
    probe, reader = opened()
    with probe.step(0, tokens=1) as s:
        s.tokens, s.micro_batches, s.grad_norm = 64, 3, 1
    (row,), _ = reader.steps()
    assert (row["tokens"], row["micro_batches"], row["grad_norm"]) == (64, 3, 1.0)


def test_a_step_whose_body_raises_is_no_measure_and_the_error_passes(
    opened: Callable[..., Any],
) -> None:
    probe, reader = opened()
    with pytest.raises(ZeroDivisionError), probe.step(0), probe.phase("compute"):
        raise ZeroDivisionError
    assert len(reader.steps()[0]) == 0
    assert reader.live().phase == LivePhase.IDLE
    with probe.step(1):
        pass
    assert list(reader.steps()[0]["step"]) == [1]


def test_a_step_inside_a_step_is_not_recorded(opened: Callable[..., Any]) -> None:
    probe, reader = opened()
    with probe.step(0), probe.step(1) as inner:
        inner.loss = 1.0
    assert list(reader.steps()[0]["step"]) == [0]


def test_live_state_follows_the_loop(opened: Callable[..., Any]) -> None:
    probe, reader = opened()
    seen = [LivePhase(reader.live().phase)]
    with probe.step(4, phase=Phase.EVAL):
        seen.append(LivePhase(reader.live().phase))
        with probe.phase("comm"):
            live = reader.live()
            seen.append(LivePhase(live.phase))
            assert (live.step, live.kind, live.steps) == (4, Phase.EVAL, 0)
            assert live.phase_since_ns <= live.updated_ns <= time.monotonic_ns()
    seen.append(LivePhase(reader.live().phase))
    with probe.phase("checkpoint"):
        seen.append(LivePhase(reader.live().phase))
    assert seen == [
        LivePhase.STARTUP,
        LivePhase.EVAL,
        LivePhase.COMM,
        LivePhase.IDLE,
        LivePhase.CHECKPOINT,
    ]


def test_rows_carry_the_revision_in_force_when_they_began(opened: Callable[..., Any]) -> None:
    probe, reader = opened()
    with probe.step(0):
        probe.applied(2, 1)
    with probe.step(1):
        pass
    assert list(reader.steps()[0]["revision"]) == [0, 2]
    status = reader.status()
    assert (status.applied_revision, status.applied_step, status.rejected_revision) == (2, 1, -1)


def test_nonsense_is_counted_and_said_once(
    opened: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    probe, reader = opened()
    for _ in range(3):
        with probe.step("not a number"), probe.phase("no such phase"):
            pass
    with probe.step(1, micro_batches="x") as s:
        s.loss = object()
    probe.declare(mesh="no mesh")
    with probe.step(2) as s:
        s.loss = object()
    assert reader.lost() == 5
    assert len(caplog.records) == 1
    rows, _ = reader.steps()
    assert list(rows["step"]) == [2] and np.isnan(rows["loss"][0])

"""When the next remedy is due, what the trouble has cost, and how an effect is judged."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scene import S, fault

from lineside.contracts import FaultKind, HealthState, JobHealth, Suspect, SuspectKind
from lineside.remediation import verification
from lineside.remediation.ladder import Costs, Rung, Tally, due, rungs


def sample(second: int, step: int, step_s: float | None, **changes) -> JobHealth:
    return JobHealth(
        **{
            "job_id": "gpt",
            "run_id": "r",
            "generation": 0,
            "at_ns": second * S,
            "step": step,
            "step_s": step_s,
            "baseline_s": 0.4,
            "slowdown": None,
            "throughput": None,
            "last_progress_ns": second * S,
            "ranks_reporting": 4,
            "ranks_expected": 4,
            "revision": 0,
            "state": HealthState.HEALTHY,
        }
        | changes
    )


def test_a_remedy_is_due_once_the_illness_has_cost_as_much():
    ladder = rungs(FaultKind.SLOW_COMPUTE, [fault()])
    costs = Costs(rebalance_s=15.0)
    assert due(ladder, 14.9, costs) is Rung.WATCH
    assert due(ladder, 15.0, costs) is Rung.REBALANCE


@pytest.mark.parametrize("kind", set(FaultKind) - {FaultKind.SLOW_COMPUTE})
def test_other_troubles_are_only_watched(kind):
    nobody = msgspec.structs.replace(fault(), suspects=[])
    assert rungs(kind, [nobody]) == (Rung.WATCH,)
    link = msgspec.structs.replace(fault(), suspects=[Suspect(kind=SuspectKind.LINK, id="0")])
    assert rungs(kind, [link]) == (Rung.WATCH,)


def test_a_slow_collective_of_a_rank_is_a_slow_rank():
    assert Rung.REBALANCE in rungs(FaultKind.SLOW_COLLECTIVE, [fault()])


def test_impact_is_the_time_that_slow_steps_took_longer():
    samples = [sample(1, 10, 0.4), sample(2, 12, 0.6), sample(3, 15, 0.41), sample(4, 16, 0.6)]
    tally = Tally().add(samples, 0.4, from_ns=2 * S)
    assert tally.impact_s == pytest.approx(2 * 0.2 + 1 * 0.2), "noise of 2.5 % is not slow"
    assert tally.step == 16


def test_before_the_onset_nothing_counts_and_without_a_baseline_neither():
    samples = [sample(second, second, 9.0) for second in range(10)]
    assert Tally().add(samples, 0.4, from_ns=100 * S).impact_s == 0
    assert Tally().add(samples, None, from_ns=0).impact_s == 0


@given(
    st.lists(st.tuples(st.integers(0, 5), st.floats(0.1, 3)), max_size=20),
    st.integers(0, 20),
    st.integers(0, 5),
)
def test_samples_that_are_read_again_are_counted_once(steps, cut, again):
    samples, step = [], 0
    for second, (more, step_s) in enumerate(steps):
        step += more
        samples.append(sample(second, step, step_s))
    whole = Tally().add(samples, 0.5, from_ns=0)
    parts = Tally().add(samples[:cut], 0.5, from_ns=0)
    parts = parts.add(samples[max(0, cut - again) :], 0.5, from_ns=0)
    assert parts.step == whole.step
    assert parts.impact_s == pytest.approx(whole.impact_s)


def test_healthy_is_what_was_before_the_onset_else_the_baseline():
    before = [sample(second, second, 0.5) for second in range(6)]
    after = [sample(second, second, 0.9) for second in range(6, 9)]
    assert verification.healthy_step_s(before + after, onset_ns=6 * S) == 0.5
    assert verification.healthy_step_s(after, onset_ns=6 * S) == 0.4
    assert verification.healthy_step_s([], onset_ns=0) is None


def test_a_verdict_waits_for_enough_steps_under_the_plan():
    samples = [sample(s, 100 + 2 * s, 0.6 if s > 10 else 0.9, revision=3) for s in range(30)]
    assert verification.healed(samples, 3, applied_step=100, steps=60) is None
    assert verification.healed(samples, 2, applied_step=100, steps=10) is None
    found = verification.healed(samples, 3, applied_step=100, steps=50)
    assert found is not None and found.step_s == 0.6, "the first half still holds older steps"


def test_noise_widens_the_tolerance():
    quiet = verification.measure([1.08] * 9)
    noisy = verification.measure([0.9, 1.3, 0.8, 1.08, 1.4, 0.7, 1.08, 1.3, 0.8])
    assert not verification.as_predicted(quiet, 1.0)
    assert verification.as_predicted(noisy, 1.0)
    assert verification.as_predicted(quiet, 1.05)

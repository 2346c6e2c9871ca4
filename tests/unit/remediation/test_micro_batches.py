"""The planner against brute force: value, limits, units and the fewest moves."""

from itertools import pairwise, product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lineside.remediation.plans.micro_batches import Infeasible, plan_micro_batches

TIMES = st.one_of(st.sampled_from([1.0, 2.0, 3.0]), st.floats(0.5, 4.0))
FIXED = st.one_of(st.just(0.0), st.floats(-1.0, 3.0))


@st.composite
def problems(draw):
    replicas = draw(st.integers(1, 5))
    current = draw(st.lists(st.integers(0, 4), min_size=replicas, max_size=replicas))
    order = draw(st.permutations(range(replicas)))
    cuts = sorted(draw(st.sets(st.integers(1, replicas), max_size=2)) | {0, replicas})
    units = [order[a:b] for a, b in pairwise(cuts)]
    minimum = draw(st.integers(0, 2))
    return {
        "unit_s": [draw(TIMES) for _ in range(replicas)],
        "fixed_s": [draw(FIXED) for _ in range(replicas)],
        "total": draw(st.one_of(st.just(sum(current)), st.integers(0, 12))),
        "current": current,
        "minimum": minimum,
        "maximum": draw(st.sampled_from([-1, minimum + 1, minimum + 3, minimum + 6])),
        "multiple": draw(st.sampled_from([1, 1, 1, 2, 3])),
        "units": [] if draw(st.booleans()) else units[: draw(st.integers(1, len(units)))],
    }


def allowed(problem):
    """Every plan that the limits allow."""
    total = problem["total"]
    top = total if problem["maximum"] < 0 else problem["maximum"]
    choices = [n for n in range(problem["minimum"], top + 1) if n % problem["multiple"] == 0]
    for counts in product(choices, repeat=len(problem["current"])):
        if sum(counts) == total and all(
            len({counts[replica] for replica in unit}) == 1 for unit in problem["units"]
        ):
            yield counts


def finish(problem, counts):
    times = zip(problem["fixed_s"], problem["unit_s"], counts, strict=True)
    return max(fixed + unit * count for fixed, unit, count in times)


def moved(problem, counts):
    return sum(max(0, now - n) for now, n in zip(problem["current"], counts, strict=True))


@settings(max_examples=400, deadline=None)
@given(problems())
def test_no_allowed_plan_is_faster_and_no_fastest_plan_moves_less(problem):
    plans = list(allowed(problem))
    if not plans:
        with pytest.raises(Infeasible):
            plan_micro_batches(**problem)
        return
    found = plan_micro_batches(**problem)
    best = min(finish(problem, counts) for counts in plans)
    assert tuple(found.counts) in plans
    assert found.step_s == finish(problem, found.counts) == best
    fewest = min(moved(problem, counts) for counts in plans if finish(problem, counts) == best)
    assert found.moved == moved(problem, found.counts) == fewest


@given(st.lists(TIMES, min_size=2, max_size=64), st.integers(1, 40))
@settings(max_examples=50, deadline=None)
def test_greedy_agrees_on_larger_instances(unit_s, share):
    replicas = len(unit_s)
    counts = [0] * replicas
    for _ in range(share * replicas):
        counts[min(range(replicas), key=lambda d: unit_s[d] * (counts[d] + 1))] += 1
    found = plan_micro_batches(
        unit_s=unit_s,
        fixed_s=[0.0] * replicas,
        total=share * replicas,
        current=[share] * replicas,
        minimum=0,
    )
    assert found.step_s == max(u * n for u, n in zip(unit_s, counts, strict=True))


def test_a_plan_that_is_already_best_stays():
    found = plan_micro_batches(unit_s=[1.0, 1.0], fixed_s=[0.0, 0.0], total=8, current=[4, 4])
    assert (found.counts, found.moved) == ([4, 4], 0)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"unit_s": [1.0]}, "2 replicas"),
        ({"unit_s": [0.0, 1.0]}, "positive"),
        ({"unit_s": [float("nan"), 1.0]}, "positive"),
        ({"fixed_s": [float("inf"), 0.0]}, "fixed times"),
        ({"multiple": 0}, "multiple"),
        ({"units": [[0, 2]]}, "names replica 2"),
        ({"units": [[0], [0, 1]]}, "two rebalance units"),
        ({"maximum": 3}, "8 micro-batches over 2 replicas with 1 to 3 each"),
    ],
)
def test_nonsense_is_named(change, complaint):
    problem = {"unit_s": [1.0, 1.0], "fixed_s": [0.0, 0.0], "total": 8, "current": [4, 4]} | change
    with pytest.raises(ValueError, match=complaint):
        plan_micro_batches(**problem)

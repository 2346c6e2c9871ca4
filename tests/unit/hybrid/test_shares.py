"""Micro-batch shares: exact cover, and plans that cannot be carried out are refused with the reason."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lineside.contracts import Plan, PlanKind
from lineside.hybrid import shares


def plan(micro_batches: list[int], **said: dict[str, list[int]]) -> Plan:
    return Plan(
        job_id="job",
        run_id="run",
        revision=1,
        base_generation=0,
        base_revision=0,
        generation=0,
        issued_ns=0,
        valid_until_ns=0,
        kind=PlanKind.REBALANCE,
        micro_batch_plan=micro_batches,
        **said,
    )


@given(st.lists(st.integers(0, 20), min_size=1, max_size=8))
def test_the_shares_cover_a_step_exactly(split: list[int]) -> None:
    covered = [k for replica in range(len(split)) for k in shares.own(split, replica)]
    assert covered == list(range(sum(split)))


@given(micro_batches=st.integers(0, 100), replicas=st.integers(1, 16))
def test_even_is_as_even_as_can_be(micro_batches: int, replicas: int) -> None:
    split = shares.even(micro_batches, replicas)
    assert sum(split) == micro_batches and max(split) - min(split) <= 1


def test_a_plan_is_followed_and_an_empty_one_means_even() -> None:
    assert shares.wanted(plan([6, 6, 6, 2]), 20, 4) == [6, 6, 6, 2]
    assert shares.wanted(plan([]), 20, 4) == [5, 5, 5, 5]


@pytest.mark.parametrize(
    ("micro_batches", "why"),
    [
        ([10, 10], "2 entries for 4 replicas"),
        ([6, 6, 6, 3], "sums to 21, a step has 20"),
        ([7, 7, 6, 0], "gives a replica 0"),
        ([21, -1, 0, 0], "gives a replica -1"),
    ],
)
def test_what_cannot_be_done_is_refused(micro_batches: list[int], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        shares.wanted(plan(micro_batches), 20, 4)


def test_ring_orders_are_not_for_this_trainer() -> None:
    with pytest.raises(ValueError, match="ring orders"):
        shares.wanted(plan([5, 5, 5, 5], ring_orders={"dp:0": [0, 1]}), 20, 4)

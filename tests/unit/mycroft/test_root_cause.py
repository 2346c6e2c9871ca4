"""The root cause of hangs made on purpose: right culprit, no victim accused, no word where nothing tells."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from lineside.mycroft.evidence import no_calls
from lineside.mycroft.root_cause import find_root_cause
from lineside.mycroft.verdict import Cause, Kind, Verdict

from .hangs import Call, Program, Run, relabelled, shuffled, training


def judge(run: Run, silent: set[int] | None = None) -> Verdict:
    return find_root_cause(run.snapshot(silent))


MESH = training(dp=2, pp=2, tp=2)


@pytest.mark.parametrize("ahead", [1, 3, 21])
@pytest.mark.parametrize("rank", [0, 3, 5])
def test_a_rank_that_stops_calling_is_absent_and_everybody_else_waits(
    rank: int, ahead: int
) -> None:
    verdict = judge(Run(MESH, ahead, host_stops={rank: 4}))
    assert (verdict.kind, verdict.cause) == (Kind.HANG, Cause.ABSENT)
    assert verdict.culprits == (rank,)
    assert verdict.victims == tuple(sorted(set(MESH) - {rank}))
    assert verdict.blames[0].rank == rank


def test_the_oldest_open_operation_counts_and_not_how_far_the_host_is_ahead() -> None:
    """The culprit's host has issued as much as its peers' hosts; its device finished less than they know
    of."""
    run = Run(MESH, ahead=12, device_stops={3: 8}, forgets={3: 5})
    verdict = judge(run)
    assert (verdict.cause, verdict.culprits) == (Cause.STUCK, (3,))
    assert verdict.confidence == 0.95


def test_two_culprits() -> None:
    verdict = judge(Run(MESH, host_stops={0: 3, 7: 4}))
    assert (verdict.cause, verdict.culprits) == (Cause.ABSENT, (0, 7))


def test_one_rank_left_nothing_and_its_peers_wait() -> None:
    verdict = judge(Run(MESH, host_stops={5: 4}), silent={5})
    assert (verdict.kind, verdict.cause) == (Kind.HANG, Cause.DEAD)
    assert verdict.culprits == verdict.missing_ranks == (5,)


@pytest.mark.parametrize("victim", sorted(set(MESH) - {5}))
def test_a_missing_victim_is_not_accused(victim: int) -> None:
    verdict = judge(Run(MESH, host_stops={5: 4}), silent={victim})
    assert verdict.culprits == (5,)
    assert verdict.missing_ranks == (victim,)
    assert verdict.confidence < 0.9


def test_two_missing_ranks_in_one_operation_could_both_be_the_cause() -> None:
    program: Program = {rank: [Call((0, 1, 2, 3))] * 5 for rank in range(4)}
    run = Run(program, host_stops={1: 2})
    verdict = judge(run, silent={1, 2})
    assert verdict.kind is Kind.CANNOT_TELL
    assert verdict.missing_ranks == (1, 2)
    assert not verdict.culprits
    assert "records of ranks 1 and 2" in verdict.reasons[0]


def test_silence_proves_nothing_where_records_were_lost() -> None:
    run = Run(MESH, host_stops={5: 4})
    verdict = find_root_cause(replace(run.snapshot({5}), complete=False))
    assert (verdict.kind, verdict.culprits) == (Kind.CANNOT_TELL, ())


def test_all_in_the_same_operation_names_nobody() -> None:
    program: Program = {rank: [Call((0, 1, 2))] * 5 for rank in range(3)}
    verdict = judge(Run(program, device_stops={1: 2}))
    assert (verdict.kind, verdict.culprits) == (Kind.CANNOT_TELL, ())
    assert verdict.victims == (0, 1, 2)
    assert verdict.operation == "all_reduce"


def test_the_order_of_programs_narrows_down_what_sequences_leave_open() -> None:
    """Ranks 2 and 3 have issued operations of both groups; the tensor group of 0 and 1 comes first in
    theirs."""
    run = Run(training(dp=2, pp=1, tp=2), ahead=8, device_stops={1: 2})
    verdict = judge(run)
    assert (verdict.kind, verdict.culprits) == (Kind.CANNOT_TELL, ())
    assert verdict.details["suspects"] == [0, 1]
    assert "the others wait for ranks 0 and 1" in verdict.reasons[0]


def test_a_rank_that_is_first_in_an_operation_of_its_own_is_stuck() -> None:
    program = training(dp=3, pp=1, tp=1)
    verdict = judge(Run(program, ahead=4, device_stops={1: 3}))
    assert (verdict.cause, verdict.culprits) == (Cause.STUCK, (1,))
    assert "needs nobody else" in verdict.reasons[0]


def test_all_in_the_same_operation_but_one_device_has_not_begun_it() -> None:
    program: Program = {rank: [Call((0, 1, 2))] * 5 for rank in range(3)}
    snapshot = Run(program, device_stops={1: 2}).snapshot()
    verdict = find_root_cause(replace(snapshot, started=np.where(snapshot.rank == 1, 0, 1)))
    assert (verdict.cause, verdict.culprits) == (Cause.BEHIND, (1,))


def test_healthy() -> None:
    verdict = judge(Run(MESH))
    assert (verdict.kind, verdict.cause, verdict.culprits) == (Kind.HEALTHY, None, ())


def test_not_healthy_where_a_rank_is_missing_or_empty() -> None:
    assert judge(Run(MESH), silent={2}).kind is Kind.CANNOT_TELL
    snapshot = Run(MESH).snapshot()
    completed = np.where(snapshot.rank == 2, -1, snapshot.completed_seq)
    assert find_root_cause(replace(snapshot, completed_seq=completed)).kind is Kind.CANNOT_TELL


@pytest.mark.parametrize("history", [True, False])
def test_another_operation_is_the_minoritys_error(history: bool) -> None:
    program: Program = {rank: [Call((0, 1, 2, 3))] * 3 for rank in range(4)}
    program[2] = [*program[2][:2], Call((0, 1, 2, 3), "broadcast")]
    verdict = find_root_cause(Run(program).snapshot(history=history))
    assert (verdict.kind, verdict.cause) == (Kind.APPLICATION_ERROR, Cause.COLLECTIVE_MISMATCH)
    assert verdict.culprits == (2,)
    assert verdict.victims == (0, 1, 3)


def test_without_a_majority_both_sides_are_named() -> None:
    program: Program = {rank: [Call((0, 1), size=8), Call((0, 1), size=8)] for rank in (0, 1)}
    program[1][1] = Call((0, 1), size=4)
    verdict = judge(Run(program))
    assert (verdict.cause, verdict.culprits) == (Cause.SIZE_MISMATCH, (0, 1))
    assert "both sides are named" in " ".join(verdict.reasons)
    assert "all_reduce of 4 bytes" in verdict.summary


def test_uneven_all_to_alls_are_lawful() -> None:
    program: Program = {r: [Call((0, 1, 2), "all_to_all", size=r)] * 2 for r in range(3)}
    verdict = judge(Run(program, host_stops={2: 1}))
    assert (verdict.cause, verdict.culprits) == (Cause.ABSENT, (2,))


def test_a_skipped_operation_with_the_same_shape_shows_as_absence() -> None:
    program: Program = {rank: [Call((0, 1, 2, 3))] * 6 for rank in range(4)}
    program[3] = program[3][:5]
    verdict = judge(Run(program))
    assert (verdict.cause, verdict.culprits) == (Cause.ABSENT, (3,))


ORDERS = {
    "two groups": {
        0: [Call((0, 1, 2)), Call((0, 1), label="b")],
        1: [Call((0, 1), label="b"), Call((0, 1, 2))],
        2: [Call((0, 1, 2))],
    },
    "three groups": {
        0: [Call((0, 1)), Call((0, 2))],
        1: [Call((1, 2)), Call((0, 1))],
        2: [Call((0, 2)), Call((1, 2))],
    },
    "a transfer and a collective": {
        0: [Call((0, 1), "transfer"), Call((0, 1))],
        1: [Call((0, 1)), Call((0, 1), "transfer")],
    },
}


CULPRITS = {"two groups": (1,), "three groups": (0, 1, 2), "a transfer and a collective": (0, 1)}
"""Rank 2 agrees with rank 0 in the first; in the others nobody has a majority."""


@pytest.mark.parametrize("name", ORDERS)
def test_ranks_that_order_their_groups_differently_wait_for_each_other(name: str) -> None:
    verdict = judge(Run(ORDERS[name]))
    assert (verdict.kind, verdict.cause) == (Kind.APPLICATION_ERROR, Cause.ORDER_DEADLOCK)
    assert verdict.culprits == CULPRITS[name]


@pytest.mark.parametrize("name", ["two groups", "three groups"])
def test_order_deadlocks_show_although_hosts_have_issued_everything(name: str) -> None:
    verdict = judge(Run(ORDERS[name], ahead=8))
    assert (verdict.cause, verdict.culprits) == (Cause.ORDER_DEADLOCK, CULPRITS[name])


@pytest.mark.parametrize("ahead", [1, 4])
def test_a_rank_that_skips_an_operation_and_goes_on_is_outvoted(ahead: int) -> None:
    world = Call((0, 1, 2, 3), label="world")
    program: Program = {r: [Call((r % 2, r % 2 + 2)), world] * 5 for r in range(4)}
    del program[3][5]
    verdict = judge(Run(program, ahead))
    assert (verdict.kind, verdict.culprits) == (Kind.APPLICATION_ERROR, (3,))
    assert set(verdict.victims) == {0, 1, 2}


def test_transfers_that_both_sides_have_posted_may_be_in_any_order() -> None:
    """Each side posts its send first: lawful where sends do not block, so no deadlock is claimed."""
    program: Program = {
        0: [Call((0, 1), "transfer"), Call((1, 0), "transfer")],
        1: [Call((1, 0), "transfer"), Call((0, 1), "transfer")],
    }
    verdict = judge(Run(program, ahead=2))
    assert verdict.kind is Kind.CANNOT_TELL


def test_counts_of_different_pairs_are_never_compared() -> None:
    """Stage 1 serves two neighbours and has fewer transfers with one: that makes nobody late."""
    program: Program = {
        0: [Call((0, 1), "transfer")] * 6,
        1: [*[Call((0, 1), "transfer")] * 6, Call((1, 2), "transfer"), Call((1, 2), "transfer")],
        2: [Call((1, 2), "transfer")] * 2,
    }
    verdict = judge(Run(program, host_stops={0: 4}))
    assert (verdict.cause, verdict.culprits) == (Cause.ABSENT, (0,))
    assert verdict.victims == (1, 2)


def test_a_finished_operation_that_a_peer_never_entered_has_failed() -> None:
    """gloo retires failed operations: rank 0's last one is finished by word only, and rank 1 has left
    nothing."""
    program: Program = {
        0: [Call((0, 1)), Call((0, 1))],
        1: [Call((0, 1))],
        2: [Call((2, 3)), Call((2, 3))],
        3: [Call((2, 3)), Call((2, 3))],
    }
    for rank, calls in program.items():
        program[rank] = [*calls[:1], Call((0, 1, 2, 3), label="world"), *calls[1:]]
        program[rank] += [] if rank < 2 else [Call((0, 1, 2, 3), label="world")]
    s = Run(program).snapshot({1})
    failed = (s.open_seq >= 0) & s.reported[s.rank]
    s = replace(
        s, doubtful=np.ones(len(s.rank), np.bool_), calls=no_calls(),
        completed_seq=np.where(failed, s.open_seq, s.completed_seq),
        open_seq=np.full(len(s.rank), -1),
    )  # fmt: skip
    verdict = find_root_cause(s)
    assert (verdict.kind, verdict.cause, verdict.culprits) == (Kind.HANG, Cause.DEAD, (1,))
    assert verdict.victims == (0, 2, 3)


meshes = st.sampled_from([(2, 2, 2), (1, 2, 2), (4, 2, 1), (2, 3, 2), (3, 1, 1)])


@st.composite
def hangs(draw: st.DrawFn) -> tuple[Run, set[int]]:
    program = training(*draw(meshes))
    ranks = sorted(program)
    culprits = draw(st.lists(st.sampled_from(ranks), min_size=1, max_size=2, unique=True))
    stops = {rank: draw(st.integers(0, len(program[rank]) - 1)) for rank in culprits}
    ahead = draw(st.sampled_from([1, 2, 8]))
    if draw(st.booleans()):
        return Run(program, ahead, host_stops=stops), set(culprits)
    lag = draw(st.integers(0, 6))
    run = Run(program, ahead, device_stops=stops, forgets=dict.fromkeys(stops, lag))
    return run, set(culprits)


@given(meshes, st.data(), st.sampled_from([1, 3, 20]))
@settings(max_examples=100, deadline=None)
def test_suspects_hold_the_culprit(
    mesh: tuple[int, int, int], data: st.DataObject, ahead: int
) -> None:
    program = training(*mesh)
    rank = data.draw(st.sampled_from(sorted(program)))
    stop = data.draw(st.integers(0, len(program[rank]) - 2))
    verdict = judge(Run(program, ahead, device_stops={rank: stop}))
    assert rank in verdict.details.get("suspects", verdict.culprits or [rank])


@given(hangs())
@settings(max_examples=200, deadline=None)
def test_victims_are_never_accused(hang: tuple[Run, set[int]]) -> None:
    run, culprits = hang
    verdict = judge(run)
    assert set(verdict.culprits) <= culprits
    assert verdict.kind in (Kind.HANG, Kind.CANNOT_TELL, Kind.HEALTHY)


@given(hangs(), st.integers(0, 1000), st.data())
@settings(max_examples=100, deadline=None)
def test_the_verdict_depends_on_no_order(
    hang: tuple[Run, set[int]], seed: int, data: st.DataObject
) -> None:
    run, _ = hang
    silent = set(data.draw(st.lists(st.sampled_from(sorted(run.program)), max_size=2)))
    snapshot = run.snapshot(silent)
    verdict = find_root_cause(snapshot)
    assert find_root_cause(shuffled(snapshot, seed)) == verdict
    names = data.draw(st.permutations(snapshot.ranks.tolist()))
    renamed = find_root_cause(relabelled(snapshot, names))
    assert (renamed.kind, renamed.cause) == (verdict.kind, verdict.cause)
    assert set(renamed.culprits) == {names[rank] for rank in verdict.culprits}
    assert set(renamed.victims) == {names[rank] for rank in verdict.victims}


@given(hangs(), st.data())
@settings(max_examples=100, deadline=None)
def test_a_missing_dump_accuses_nobody_else_who_reported(
    hang: tuple[Run, set[int]], data: st.DataObject
) -> None:
    run, culprits = hang
    missing = data.draw(st.sampled_from(sorted(run.program)))
    verdict = judge(run, {missing})
    assume(verdict.culprits)
    assert set(verdict.culprits) <= culprits | {missing}
    if missing not in culprits and culprits & set(verdict.culprits):
        assert missing not in verdict.culprits

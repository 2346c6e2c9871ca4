"""1F1B as data: complete, in dependency order across stages, and light on memory."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lineside.hybrid.schedule import Action, Direction, one_forward_one_backward

F, B = Direction.FORWARD, Direction.BACKWARD


def text(stage: int, stages: int, micro_batches: int) -> str:
    actions = one_forward_one_backward(stage, stages, micro_batches)
    return " ".join(f"{action.direction}{action.micro_batch}" for action in actions)


def test_warm_up_steady_and_cool_down() -> None:
    assert text(0, 4, 6) == "F0 F1 F2 F3 B0 F4 B1 F5 B2 B3 B4 B5"
    assert text(2, 4, 6) == "F0 F1 B0 F2 B1 F3 B2 F4 B3 F5 B4 B5"
    assert text(3, 4, 6) == "F0 B0 F1 B1 F2 B2 F3 B3 F4 B4 F5 B5"


def test_fewer_micro_batches_than_stages() -> None:
    assert text(0, 4, 1) == "F0 B0"
    assert text(0, 4, 2) == "F0 F1 B0 B1"
    assert text(0, 2, 0) == ""


def test_a_stage_outside_of_the_pipeline() -> None:
    with pytest.raises(ValueError, match="stage 2 of 2"):
        one_forward_one_backward(2, 2, 4)


@given(stages=st.integers(1, 6), micro_batches=st.integers(0, 12))
def test_every_stage_does_all_of_it_and_holds_little(stages: int, micro_batches: int) -> None:
    for stage in range(stages):
        actions = one_forward_one_backward(stage, stages, micro_batches)
        for direction in (F, B):
            assert [k for d, k in actions if d is direction] == list(range(micro_batches))
        held = peak = 0
        for action in actions:
            held += 1 if action.direction is F else -1
            peak = max(peak, held)
        assert peak == min(stages - stage, micro_batches)


@given(stages=st.integers(1, 6), micro_batches=st.integers(0, 12))
def test_blocking_receives_and_one_message_buffers_never_deadlock(
    stages: int, micro_batches: int
) -> None:
    """The wires' rule, played through: an action waits for its input; the message before it to the same
    neighbour must have been asked for (its action is next or begun there) before its own can leave."""
    plans = [one_forward_one_backward(stage, stages, micro_batches) for stage in range(stages)]
    done = [0] * stages

    def finished(stage: int, action: Action) -> bool:
        return action in plans[stage][: done[stage]]

    def asked_for(stage: int, action: Action) -> bool:
        return action in plans[stage][: done[stage] + 1]

    def can_run(stage: int) -> bool:
        direction, k = plans[stage][done[stage]]
        source, sink = (stage - 1, stage + 1) if direction is F else (stage + 1, stage - 1)
        ready = not 0 <= source < stages or finished(source, Action(direction, k))
        before = Action(direction, k - 1)
        return ready and (k == 0 or not 0 <= sink < stages or asked_for(sink, before))

    while any(done[stage] < len(plans[stage]) for stage in range(stages)):
        free = [s for s in range(stages) if done[s] < len(plans[s]) and can_run(s)]
        assert free, f"deadlock at {done}"
        for stage in free:
            done[stage] += 1

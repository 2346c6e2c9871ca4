"""The 1F1B pipeline schedule as data: what one stage does in one step, in order.

Each stage runs a few forwards ahead (warm-up), then one forward and one backward in turn (steady), then the
backwards that are left (cool-down). Against "all forwards, then all backwards" it takes the same time, but
stage s of P never holds more than P - s micro-batches. Narayanan et al., "PipeDream" (SOSP 2019) and
"Efficient Large-Scale Language Model Training on GPU Clusters Using Megatron-LM" (SC 2021), section 2.2.1.
"""

from enum import StrEnum
from typing import NamedTuple


class Direction(StrEnum):
    FORWARD = "F"
    BACKWARD = "B"


class Action(NamedTuple):
    """One piece of a stage's work; ``micro_batch`` counts from 0 within the replica's share."""

    direction: Direction
    micro_batch: int


def one_forward_one_backward(stage: int, stages: int, micro_batches: int) -> list[Action]:
    """The order of work of ``stage`` (0 is the first of ``stages``) for ``micro_batches``, which may be 0.

    >>> " ".join(f"{a.direction}{a.micro_batch}" for a in one_forward_one_backward(0, 2, 3))
    'F0 F1 B0 F2 B1 B2'
    >>> " ".join(f"{a.direction}{a.micro_batch}" for a in one_forward_one_backward(1, 2, 3))
    'F0 B0 F1 B1 F2 B2'
    """
    if not 0 <= stage < stages:
        raise ValueError(f"stage {stage} of {stages}")
    ahead = min(stages - stage - 1, micro_batches)
    actions = [Action(Direction.FORWARD, k) for k in range(ahead)]
    for k in range(micro_batches - ahead):
        actions += (Action(Direction.FORWARD, k + ahead), Action(Direction.BACKWARD, k))
    actions += (Action(Direction.BACKWARD, k) for k in range(micro_batches - ahead, micro_batches))
    return actions

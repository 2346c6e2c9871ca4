"""``steps.v1``: one machine's recent training steps, column-wise."""

from enum import IntEnum

from lineside.contracts.columns import (
    F32,
    U8,
    CountColumn,
    DurationColumn,
    RankColumn,
    SmallCountColumn,
    TelemetryBatch,
)


class Phase(IntEnum):
    """What a step was. Only ``TRAIN`` steps are comparable with each other."""

    TRAIN = 0
    FIRST = 1
    """The first step of a generation: lazy initialisation makes it slow, which is no fault."""
    EVAL = 2
    CHECKPOINT = 3
    COMPILE = 4


class Timing(IntEnum):
    """Which clock measured the durations."""

    HOST = 0
    CUDA_EVENT = 1


class StepBatch(TelemetryBatch, frozen=True, array_like=True, tag="steps.1"):
    """Columns of equal length n, one row per (rank, step). Seconds are float32, NaN is unknown.

    Phases may overlap (asynchronous collectives) and need not add up to ``step_s``. ``wait_s`` is NaN
    unless it was really measured. ``revision`` is the plan in force.
    """

    rank: RankColumn
    step: CountColumn
    start_ns: CountColumn
    step_s: DurationColumn
    compute_s: DurationColumn
    comm_s: DurationColumn
    exposed_comm_s: DurationColumn
    wait_s: DurationColumn
    data_s: DurationColumn
    checkpoint_s: DurationColumn
    other_s: DurationColumn
    micro_batches: SmallCountColumn
    tokens: CountColumn
    loss: F32
    grad_norm: F32
    revision: CountColumn
    phase: U8
    timing: U8

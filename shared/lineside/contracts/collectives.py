"""``collectives.v1``: how far each rank has come in each of its communication groups."""

from enum import StrEnum

import msgspec

from lineside.contracts.columns import (
    U8,
    CountColumn,
    DurationColumn,
    RankColumn,
    SmallCountColumn,
    TelemetryBatch,
    unpack,
)


class Op(StrEnum):
    """Names of collective operations on the wire."""

    ALL_REDUCE = "all_reduce"
    REDUCE_SCATTER = "reduce_scatter"
    ALL_GATHER = "all_gather"
    BROADCAST = "broadcast"
    SEND = "send"
    RECV = "recv"
    ALL_TO_ALL = "all_to_all"
    BARRIER = "barrier"
    OTHER = "other"


class ProgressTiming(StrEnum):
    """How start and completion of an operation were seen."""

    HOST = "host"
    WATCHDOG_POLL = "watchdog_poll"
    CUDA_EVENT = "cuda_event"
    KERNEL_CLOCK = "kernel_clock"


class FlowRow(msgspec.Struct, frozen=True, array_like=True):
    """One flow (rank, group, operation, channel, peer) that is open for long. -1: not counted here."""

    rank: int
    group_id: str
    op_seq: int
    op: str
    bytes: int
    channel: int
    direction: str
    peer_rank: int
    flow_seq: int
    transport: str
    phase: str
    enqueued_ns: int
    started_ns: int
    completed_ns: int
    chunks_total: int
    chunks_ready: int
    chunks_sent: int
    chunks_done: int
    chunks_received: int
    stuck_s: float
    step: int
    source: str


class RankStateRow(msgspec.Struct, frozen=True, array_like=True):
    """One local rank as its agent sees it from outside, each second."""

    rank: int
    pid: int
    state: str
    """starting, running, exited, silent"""
    exit_code: int
    signal: int
    stderr_tail: str
    step: int
    phase: str
    phase_since_ns: int
    last_record_ns: int


class CollectiveBatch(TelemetryBatch, frozen=True, array_like=True, tag="collectives.1"):
    """Progress columns (one row per rank and group), open flows, and the state of every local rank.

    ``op_time_s`` and ``op_time_max_s`` cover the operations completed since the row before. Hosts enqueue
    ahead: ``oldest_open_seq`` is what a rank really waits in, ``enqueued_seq`` says little.
    """

    rank: RankColumn
    group_id: list[str]
    enqueued_seq: CountColumn
    started_seq: CountColumn
    completed_seq: CountColumn
    oldest_open_seq: CountColumn
    oldest_open_op: list[str]
    oldest_open_bytes: CountColumn
    oldest_open_since_ns: CountColumn
    open_count: SmallCountColumn
    completed_ops: CountColumn
    completed_bytes: CountColumn
    op_time_s: DurationColumn
    op_time_max_s: DurationColumn
    last_started_ns: CountColumn
    last_completed_ns: CountColumn
    graph_captured: U8
    timing: list[str]
    flows: list[FlowRow] = []
    rank_states: list[RankStateRow] = []

    def check(self) -> str | None:
        rows = len(unpack(type(self), "rank", self.rank))
        for name in ("group_id", "oldest_open_op", "timing"):
            if len(getattr(self, name)) != rows:
                return f"{name} has {len(getattr(self, name))} rows, rank has {rows}"
        return None

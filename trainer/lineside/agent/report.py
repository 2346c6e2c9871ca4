"""What an agent says each second: steps, collectives, rank states, machine metrics, and that it lives."""

import functools
import time
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import msgspec

from lineside.agent.machine import SERIES, ScopeSampler
from lineside.agent.ranks import RankProcess
from lineside.agent.rows import Progress, step_columns
from lineside.agent.sender import Clock, Sender
from lineside.agent.spec import AgentSpec
from lineside.agent.status import RankStatus
from lineside.agent.view import RankView
from lineside.contracts import (
    CollectiveBatch,
    Declaration,
    Member,
    MemberState,
    MetricBatch,
    RankStateRow,
    StepBatch,
    TopicName,
)

_MEMBER_EVERY_S = 10.0
_MAX_STEP_ROWS = 16_384
"""Rows per batch: some 100 bytes each, well below a record's 4 MB."""

Watched = Sequence[tuple[RankProcess, RankView]]


class Reporter:
    """Builds and sends the batches of one agent."""

    def __init__(
        self, spec: AgentSpec, sender: Sender, clock: Clock, silent_after_s: float
    ) -> None:
        self._spec = spec
        self._sender = sender
        self._clock = clock
        self._silent_after_ns = int(silent_after_s * 1e9)
        self._progress = Progress()
        self._sampler = ScopeSampler()
        self._member: Member | None = None

    def steps(self, watched: Watched) -> None:
        """Every step finished since the last call; an empty batch too, so that time moves."""
        read = [(view.rank, *view.steps()) for _, view in watched]
        lost = sum(dropped for *_, dropped in read)
        parts = [(rank, rows) for rank, rows, _ in read]
        columns, invalid = step_columns(parts, self._clock.offset_ns())
        rows = len(columns["rank"])
        for start in range(0, max(rows, 1), _MAX_STEP_ROWS):
            part = {name: v[start : start + _MAX_STEP_ROWS] for name, v in columns.items()}
            count = len(part["rank"])
            self._sender.batch(
                TopicName.STEPS, StepBatch, part, rows=count, lost=0 if start else lost + invalid
            )

    def collectives(self, watched: Watched) -> None:
        """How far each rank has come in its groups, and the state of each rank's process."""
        tables = [(view.rank, view.groups()) for _, view in watched]
        columns, lost = self._progress.columns(tables, self._clock.offset_ns())
        columns["rank_states"] = [self._state(process, view) for process, view in watched]
        self._sender.batch(
            TopicName.COLLECTIVES,
            CollectiveBatch,
            columns,
            rows=len(columns["rank"]),
            lost=lost,
        )

    def metrics(self) -> None:
        sample = self._sampler.sample()
        columns = {
            "start_ns": sample.start_ns + self._clock.offset_ns(),
            "interval_s": sample.interval_s,
            "series": SERIES,
            "values": sample.values,
        }
        self._sender.batch(TopicName.MACHINE_METRICS, MetricBatch, columns, rows=1)

    def pids(self, watched: Watched) -> set[int]:
        """Every process of the job on this machine, past ones too."""
        return self._sampler.seen | {process.pid for process, _ in watched}

    def ranks(self, watched: Watched) -> list[RankStatus]:
        """The state of each rank for people on the machine."""
        rows = [self._state(process, view) for process, view in watched]
        names = RankStatus.__struct_fields__
        return [RankStatus(**{name: getattr(row, name) for name in names}) for row in rows]

    def member(self, watched: Watched, state: MemberState) -> None:
        """The member's record: where something has changed, and every 10 s."""
        now_ns = time.time_ns()
        before = self._member
        member = Member(
            job_id=self._spec.job_id,
            run_id=self._spec.run_id,
            generation=self._spec.generation,
            machine_id=self._spec.machine_id,
            at_ns=now_ns if before is None else before.at_ns,
            state=state,
            ranks=self._spec.ranks,
            pids=[process.pid for process, _ in watched],
            agent_version=_version(),
            boot_id=_boot_id(),
            declared=declared(watched),
        )
        if member != before or now_ns - member.at_ns > _MEMBER_EVERY_S * 1e9:
            self._member = msgspec.structs.replace(member, at_ns=now_ns)
            self._sender.record(TopicName.MEMBERS, self._member)

    def _state(self, process: RankProcess, view: RankView) -> RankStateRow:
        offset, live = self._clock.offset_ns(), view.live
        return RankStateRow(
            rank=process.rank,
            pid=process.pid,
            state=self._state_name(process, view),
            exit_code=process.exit_code,
            signal=process.signal,
            stderr_tail=process.stderr_tail() if process.failed else "",
            step=live.step if live else -1,
            phase=view.phase,
            phase_since_ns=live.phase_since_ns + offset if live else -1,
            last_record_ns=live.updated_ns + offset if live else -1,
        )

    def _state_name(self, process: RankProcess, view: RankView) -> str:
        if process.ended:
            return "exited"
        if view.live is None:
            return "running"  # no probe: that it lives is all that is known
        if time.monotonic_ns() - view.live.updated_ns > self._silent_after_ns:
            return "silent"
        return "running" if view.live.step >= 0 else "starting"


def declared(watched: Watched) -> Declaration | None:
    """What the trainer said of itself: the word of the lowest local rank that has said something."""
    return next((view.declared for _, view in watched if view.declared is not None), None)


@functools.cache
def _version() -> str:
    try:
        return version("lineside")
    except PackageNotFoundError:
        return ""


@functools.cache
def _boot_id() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""

"""Puts the machines' rows together: which step is complete, and what every rank said of it.

Rows of one step arrive in as many batches as there are machines. A step is decided once every awaited rank
has reported it or a later one. A rank that lets the others wait (``patience_s`` by the batches' own send
times, or ``ahead`` steps) is not awaited again until its next row; what comes for a decided step is counted
and dropped. Only this topic's content decides, never the moment at which another topic was read, so a
replay decides alike.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lineside.contracts import StepBatch
from lineside.contracts.columns import unpack

_FIELDS = ("step_s", "compute_s", "micro_batches", "tokens", "phase", "revision")
_COLUMNS = ("rank", "step", "start_ns", *_FIELDS)
_MOST_RANKS = 131_072
_LEAP_NS = (
    2_000_000_000  # agents send every second: more than this between two batches is a clock jump
)


@dataclass(frozen=True, kw_only=True, slots=True)
class AssemblyConfig:
    """``ahead`` only bounds memory: 256 steps of 40 ms are the 10 s of ``patience_s``."""

    patience_s: float = 10.0
    ahead: int = 256


@dataclass(frozen=True, slots=True)
class DecidedStep:
    """One step over all series (first axis); NaN where a rank did not report."""

    step: int
    reported: NDArray[np.bool_]
    start_ns: NDArray[np.int64]
    step_s: NDArray[np.float64]
    compute_s: NDArray[np.float64]
    micro_batches: NDArray[np.float64]
    tokens: NDArray[np.float64]
    phase: NDArray[np.float64]
    revision: NDArray[np.float64]


@dataclass(slots=True)
class _Pending:
    since_ns: int
    parts: list[tuple[NDArray[np.intp], NDArray[np.float64], NDArray[np.int64]]]


class Assembler:
    """Rows in by ``add``, whole steps out by ``decided``, in order of their numbers.

    ``ranks`` are the known ranks, series 0 first; with ``closed`` rows of any other are dropped, else they
    become new series at the end.
    """

    def __init__(
        self, ranks: NDArray[np.int64], *, closed: bool, config: AssemblyConfig | None = None
    ) -> None:
        self.config = config or AssemblyConfig()
        self.counts: Counter[str] = Counter()
        self.ranks = np.asarray(ranks, np.int64)
        self.machines: list[str] = [""] * len(self.ranks)
        self._closed = closed
        self._newest = np.full(len(self.ranks), -1, np.int64)
        self._awaited = np.ones(len(self.ranks), np.bool_)
        self._pending: dict[int, _Pending] = {}
        self._decided = -1
        self._clock_ns = -1
        self._index_ranks()

    @property
    def reporting(self) -> int:
        """How many ranks are not silent."""
        return int(np.count_nonzero(self._awaited & (self._newest >= 0)))

    def add(self, batch: StepBatch) -> bool:
        """Take over a batch's rows; true if any of them was new."""
        self._advance(batch.sent_ns)
        table = {name: unpack(StepBatch, name, getattr(batch, name)) for name in _COLUMNS}
        index = self._series_of(table["rank"])
        usable = (index >= 0) & (table["step"] >= 0)
        self.counts["stray"] += int(np.count_nonzero(~usable))
        rows = np.flatnonzero(usable)
        if not len(rows):
            return False
        rows = rows[np.argsort(table["step"][rows], kind="stable")]
        index, step = index[rows], table["step"][rows]
        np.maximum.at(self._newest, index, step)  # a batch that was overtaken moves nothing back
        self._awaited[index] = True
        for series in set(index.tolist()):
            self.machines[series] = batch.machine_id
        values = np.array([table[name][rows] for name in _FIELDS], np.float64)
        start_ns = table["start_ns"][rows]
        edges = [0, *(np.flatnonzero(np.diff(step)) + 1).tolist(), len(step)]
        fresh = False
        for first, last in pairwise(edges):
            part = slice(first, last)
            number = int(step[first])
            if number <= self._decided:
                self.counts["late"] += last - first
                continue
            fresh = True
            pending = self._pending.setdefault(number, _Pending(self._clock_ns, []))
            pending.parts.append((index[part], values[:, part], start_ns[part]))
        return fresh

    def decided(self) -> Iterator[DecidedStep]:
        """The steps that nothing more is awaited for."""
        frontier = int(self._newest[self._awaited].min()) if self._awaited.any() else -1
        patience_ns = int(self.config.patience_s * 1e9)
        overdue = [
            s for s, p in self._pending.items() if p.since_ns + patience_ns <= self._clock_ns
        ]
        if len(self._pending) > self.config.ahead:
            overdue.append(sorted(self._pending)[-self.config.ahead - 1])
        if overdue and max(overdue) > frontier:
            frontier = max(overdue)
            self._awaited &= self._newest >= frontier
        for number in sorted(s for s in self._pending if s <= frontier):
            whole = self._whole(number, self._pending.pop(number))
            if 2 * np.count_nonzero(whole.reported) < np.count_nonzero(self._newest >= 0):
                self.counts["partial"] += 1  # a stray step number must not make all others late
                continue
            self._decided = number
            yield whole

    def _whole(self, number: int, pending: _Pending) -> DecidedStep:
        size = len(self.ranks)
        values = np.full((len(_FIELDS), size), np.nan)
        start_ns = np.full(size, -1, np.int64)
        reported = np.zeros(size, np.bool_)
        for index, part, start in reversed(pending.parts):  # what was said first stands
            backwards = index[::-1]
            values[:, backwards] = part[:, ::-1]
            start_ns[backwards], reported[index] = start[::-1], True
        rows = sum(len(index) for index, *_ in pending.parts)
        self.counts["duplicate"] += rows - int(np.count_nonzero(reported))
        return DecidedStep(number, reported, start_ns, *values)

    def _advance(self, sent_ns: int) -> None:
        if sent_ns > self._clock_ns:
            leap = sent_ns - self._clock_ns
            self._clock_ns = sent_ns if self._clock_ns < 0 else self._clock_ns + min(leap, _LEAP_NS)

    def _series_of(self, ranks: NDArray[Any]) -> NDArray[np.intp]:
        index = np.full(len(ranks), -1, np.intp)
        plausible = (ranks >= 0) & (ranks < _MOST_RANKS)
        inside = plausible & (ranks < len(self._lookup))
        index[inside] = self._lookup[ranks[inside]]
        if not self._closed and (unknown := plausible & (index < 0)).any():
            self._welcome(np.unique(ranks[unknown]))
            index[unknown] = self._lookup[ranks[unknown]]
        return index

    def _welcome(self, ranks: NDArray[Any]) -> None:
        more = len(ranks)
        self.ranks = np.concatenate([self.ranks, ranks.astype(np.int64)])
        self.machines += [""] * more
        self._newest = np.concatenate([self._newest, np.full(more, -1, np.int64)])
        self._awaited = np.concatenate([self._awaited, np.ones(more, np.bool_)])
        self._index_ranks()

    def _index_ranks(self) -> None:
        self._lookup = np.full(int(self.ranks.max(initial=-1)) + 1, -1, np.intp)
        self._lookup[self.ranks] = np.arange(len(self.ranks))

    def state(self) -> dict[str, Any]:
        return {
            "counts": dict(self.counts),
            "ranks": self.ranks,
            "machines": self.machines,
            "newest": self._newest,
            "awaited": self._awaited,
            "pending": [(s, p.since_ns, p.parts) for s, p in self._pending.items()],
            "decided": self._decided,
            "clock_ns": self._clock_ns,
        }

    def load(self, state: dict[str, Any]) -> None:
        self.counts = Counter(state["counts"])
        self.ranks, self.machines = state["ranks"], list(state["machines"])
        self._newest, self._awaited = state["newest"], state["awaited"]
        self._pending = {
            number: _Pending(since, [(*part,) for part in parts])
            for number, since, parts in state["pending"]
        }
        self._decided, self._clock_ns = state["decided"], state["clock_ns"]
        self._index_ranks()

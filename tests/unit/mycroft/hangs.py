"""A small machine room: programs of ranks, executed until nothing moves, and what the recorders then
hold.

Hosts issue operations up to ``ahead`` before the device; the device takes them in order; an operation
ends when all members' devices are at it. That is enough to make every kind of hang with a known cause.
"""

from collections import Counter
from dataclasses import dataclass, field, replace
from itertools import product

import numpy as np

from lineside.mycroft.evidence import EQUAL_SIZES, Calls, Snapshot, table


@dataclass(frozen=True)
class Call:
    """One operation in a rank's program: ``group`` is the tuple of members (from, to for a transfer)."""

    group: tuple[int, ...]
    op: str = "all_reduce"
    size: int = 1024
    label: str = ""

    @property
    def key(self) -> tuple[tuple[int, ...], str, bool]:
        """What has one sequence: collectives and transfers of the same ranks count apart."""
        return self.group, self.label, self.op == "transfer"


Instance = tuple[tuple[tuple[int, ...], str, bool], int]
Program = dict[int, list[Call]]


def training(dp: int, pp: int, tp: int, micro_batches: int = 2, steps: int = 2) -> Program:
    """Tensor, pipeline and data parallel, forward only: enough groups to be entangled."""

    def rank(d: int, p: int, t: int) -> int:
        return (p * dp + d) * tp + t

    program: Program = {}
    for d, p, t in product(range(dp), range(pp), range(tp)):
        calls: list[Call] = []
        tensor = tuple(rank(d, p, x) for x in range(tp))
        data = tuple(rank(x, p, t) for x in range(dp))
        for _ in range(steps):
            for _ in range(micro_batches):
                if p > 0:
                    calls.append(Call((rank(d, p - 1, t), rank(d, p, t)), "transfer"))
                calls.append(Call(tensor, "all_gather"))
                calls.append(Call(tensor, "reduce_scatter"))
                if p < pp - 1:
                    calls.append(Call((rank(d, p, t), rank(d, p + 1, t)), "transfer"))
            calls.append(Call(data, "all_reduce", label="data"))
        program[rank(d, p, t)] = calls
    return program


@dataclass
class Run:
    """``host_stops``: a host calls nothing from that place on. ``device_stops``: a device executes
    nothing from there on. ``forgets``: a rank stops recording completions that many operations before its
    device's end."""

    program: Program
    ahead: int = 1
    host_stops: dict[int, int] = field(default_factory=dict)
    device_stops: dict[int, int] = field(default_factory=dict)
    forgets: dict[int, int] = field(default_factory=dict)

    def settle(self) -> tuple[dict[int, int], dict[int, int]]:
        """(operations issued, operations finished) of each rank when nothing moves any more."""
        done = dict.fromkeys(self.program, 0)
        instances = {rank: _instances(calls) for rank, calls in self.program.items()}
        moved = True
        while moved:
            moved = False
            ready: dict[Instance, list[int]] = {}
            for rank, calls in self.program.items():
                at = done[rank]
                stop = min(self.host_stops.get(rank, 10**9), self.device_stops.get(rank, 10**9))
                if at < len(calls) and at < stop:
                    ready.setdefault(instances[rank][at], []).append(rank)
            for (key, _), members in ready.items():
                if len(members) == len(key[0]) and self._agree(members, done):
                    moved = True
                    for rank in members:
                        done[rank] += 1
        issued = {
            rank: min(len(calls), done[rank] + self.ahead, self.host_stops.get(rank, 10**9))
            for rank, calls in self.program.items()
        }
        return issued, done

    def _agree(self, members: list[int], done: dict[int, int]) -> bool:
        calls = [self.program[rank][done[rank]] for rank in members]
        sizes = {c.size for c in calls} if calls[0].op in EQUAL_SIZES else {0}
        return len({c.op for c in calls}) == 1 and len(sizes) == 1

    def snapshot(self, silent: set[int] | None = None, *, history: bool = True) -> Snapshot:
        """What the recorders hold; nothing of ranks in ``silent``."""
        silent = silent or set()
        issued, done = self.settle()
        for rank, lag in self.forgets.items():
            done[rank] = max(0, done[rank] - lag)
        keys = sorted({c.key for cs in self.program.values() for c in cs})
        ops = sorted({c.op for cs in self.program.values() for c in cs})
        ranks = sorted(self.program)
        slots, calls = [], []
        for g, key in enumerate(keys):
            for rank in key[0]:
                own = [
                    (i, c) for i, c in enumerate(self.program[rank][: issued[rank]]) if c.key == key
                ]
                finished = sum(i < done[rank] for i, _ in own)
                index = ranks.index(rank)
                if rank in silent:
                    slots.append([index, g, -1, -1, -1, -1])
                    continue
                is_open = finished < len(own)
                at = own[finished] if is_open else (own[-1] if own else (-1, None))
                op = ops.index(at[1].op) if at[1] else -1
                slots.append([index, g, finished + 1 if is_open else -1, finished, op, at[0]])
                if not key[2]:
                    calls += [
                        [index, g, k + 1, ops.index(c.op), c.size if c.op in EQUAL_SIZES else -1]
                        for k, (_, c) in enumerate(own)
                        if history or k >= finished
                    ]
        rank_, group, open_seq, completed, op_, order = table(slots, 6)
        return Snapshot(
            ranks=np.array(ranks), reported=np.array([r not in silent for r in ranks]),
            groups=[f"{'-'.join(map(str, key[0]))}{key[1]}{'t' * key[2]}" for key in keys],
            operations=ops, rank=rank_, group=group, open_seq=open_seq, completed_seq=completed, op=op_,
            order=order, started=np.full(len(slots), -1), doubtful=np.zeros(len(slots), np.bool_),
            calls=Calls(*table(calls, 5)),
        )  # fmt: skip


def _instances(calls: list[Call]) -> list[Instance]:
    """(what has one sequence, place in it) of each operation of a program."""
    seen: Counter[tuple[tuple[int, ...], str, bool]] = Counter()
    places = []
    for call in calls:
        seen[call.key] += 1
        places.append((call.key, seen[call.key]))
    return places


def shuffled(s: Snapshot, seed: int) -> Snapshot:
    """The same moment with its rows in another order."""
    rng = np.random.default_rng(seed)
    slots, calls = rng.permutation(len(s.rank)), rng.permutation(len(s.calls.rank))
    columns = ("rank", "group", "open_seq", "completed_seq", "op", "order", "started", "doubtful")
    moved = {name: getattr(s, name)[slots] for name in columns}
    names = ("rank", "group", "seq", "op", "size")
    return replace(s, **moved, calls=Calls(*(getattr(s.calls, name)[calls] for name in names)))


def relabelled(s: Snapshot, order: list[int]) -> Snapshot:
    """The same moment with rank i called ``order[i]``."""
    place = np.argsort(np.argsort(order))
    reported = np.empty_like(s.reported)
    reported[place] = s.reported
    calls = replace(s.calls, rank=place[s.calls.rank])
    return replace(s, ranks=np.sort(order), reported=reported, rank=place[s.rank], calls=calls)

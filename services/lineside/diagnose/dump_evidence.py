"""Flight Recorder dumps of a job as one ``Snapshot`` for the root-cause core."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from lineside.diagnose.flight_recorder import Dump, Entry, GroupId
from lineside.mycroft.evidence import EQUAL_SIZES, Calls, Snapshot, table

Key = tuple[str, tuple[int, ...]]


@dataclass
class _Group:
    """A group, or the ordered pair of a transfer (``ranks`` from, to), and what each member has recorded
    in it."""

    name: str
    label: str
    ranks: tuple[int, ...]
    entries: dict[int, list[Entry]] = field(default_factory=lambda: defaultdict(list))
    pair: bool = False


@dataclass(frozen=True, slots=True)
class _Slot:
    open_seq: int = -1
    completed_seq: int = -1
    op: str = ""
    order: int = -1
    started: int = -1


def snapshot_of(
    dumps: Mapping[int, Dump], tables: Mapping[int, Mapping[str, GroupId]], *, complete: bool
) -> Snapshot:
    """``tables``: the groups by name that hold for each dump; ``complete``: every dump has found its rank."""
    groups = _groups(dumps, tables)
    world = set(dumps) | {r for t in tables.values() for g in t.values() for r in g.ranks}
    ranks = sorted(world)
    index = {rank: i for i, rank in enumerate(ranks)}
    called = {entry.operation for dump in dumps.values() for entry in dump.entries}
    operations = sorted(called | {"transfer"})
    code = {name: i for i, name in enumerate(operations)} | {"": -1}
    with_transfers = {group.name for group in groups if group.pair}
    unrecorded = {rank: _unrecorded(dump) for rank, dump in dumps.items()}
    slots: list[list[int]] = []
    calls: list[list[int]] = []
    for g, group in enumerate(groups):
        if group.pair:
            places = _pair_places(group, dumps)
        else:
            places = {rank: _place(group.entries.get(rank, ())) for rank in group.ranks}
            if group.name not in with_transfers:  # those count transfers and collectives in one
                for rank, counts in unrecorded.items():
                    if places.get(rank) == _Slot():
                        places[rank] = _Slot(completed_seq=counts.get(group.name, -1))
        for rank, slot in places.items():
            doubtful = rank in dumps and dumps[rank].gloo
            slots.append([
                index[rank], g, slot.open_seq, slot.completed_seq, code[slot.op], slot.order,
                slot.started, doubtful,
            ])  # fmt: skip
        if not group.pair:
            calls += [
                [index[rank], g, e.seq, code[e.operation], e.size if e.operation in EQUAL_SIZES else -1]
                for rank, own in group.entries.items()
                for e in own
            ]  # fmt: skip
    columns = table(slots, 8)
    return Snapshot(
        ranks=np.array(ranks, np.int64),
        reported=np.array([rank in dumps for rank in ranks], np.bool_),
        groups=[group.label for group in groups],
        operations=operations,
        rank=columns[0], group=columns[1], open_seq=columns[2], completed_seq=columns[3],
        op=columns[4], order=columns[5], started=columns[6], doubtful=columns[7] == 1,
        calls=Calls(*table(calls, 5)),
        complete=complete,
    )  # fmt: skip


def _groups(dumps: Mapping[int, Dump], tables: Mapping[int, Mapping[str, GroupId]]) -> list[_Group]:
    """All groups that something is recorded in, in a fixed order."""
    observed: dict[str, set[int]] = defaultdict(set)
    for rank, dump in dumps.items():
        for entry in dump.entries:
            if entry.group not in tables[rank]:
                observed[entry.group].add(rank)
    found: dict[Key, _Group] = {}
    for rank in sorted(dumps):
        dump = dumps[rank]
        for entry in dump.entries:
            known = tables[rank].get(entry.group)
            members = known.ranks if known else tuple(sorted(observed[entry.group]))
            label = (known.label if known else "") or dump.labels.get(entry.group) or entry.group
            if entry.peers is None:
                group = found.setdefault(
                    (entry.group, members), _Group(entry.group, label, members)
                )
            elif known and max(entry.peers) < len(members):
                pair = members[entry.peers[0]], members[entry.peers[1]]
                label = f"p2p:{pair[0]}:{pair[1]}"
                group = found.setdefault(
                    (f"{entry.group}/{label}", pair), _Group(entry.group, label, pair, pair=True)
                )
            else:
                continue
            group.entries[rank].append(entry)
    groups = [found[key] for key in sorted(found)]
    uses = Counter(group.label for group in groups)
    for group in groups:  # the description that people know, with the name where several share it
        if uses[group.label] > 1 or group.label == "undefined":
            group.label = f"{group.label} {group.name}"
    return groups


def _place(entries: Iterable[Entry]) -> _Slot:
    """How far a rank is in a group of collectives."""
    own = list(entries)
    if not own:
        return _Slot()
    first = min((e for e in own if not e.done), key=lambda e: (e.seq, e.record), default=None)
    if first:
        return _Slot(first.seq, first.seq - 1, first.operation, first.record, first.started)
    last = max(own, key=lambda e: (e.seq, e.record))
    return _Slot(-1, last.seq, last.operation, last.record)


def _pair_places(group: _Group, dumps: Mapping[int, Dump]) -> dict[int, _Slot]:
    """How far the two sides of an ordered pair are. Transfers complete in order, so where history is
    missing the oldest open ones of both sides are the same transfer; with the whole history they are
    counted."""
    whole = all(rank in dumps and dumps[rank].history for rank in group.ranks)
    places = {}
    for rank in group.ranks:
        own = group.entries.get(rank, [])
        before = [e for e in own if e.done]
        first = next((e for e in own if not e.done), None)
        count = len(before) if whole else 0
        if first:
            places[rank] = _Slot(count + 1, count, "transfer", first.record, first.started)
        else:
            last = own[-1].record if own else -1
            places[rank] = _Slot(-1, count if rank in dumps else -1, "transfer", last)
    return places


def _unrecorded(dump: Dump) -> dict[str, int]:
    """Newest completed sequence by group name, from ``pg_status``, which counts also what a dump leaves
    out, but by the process's own numbers. Numbers and PyTorch's numeric names both grow with the creation
    of groups, so they pair up in order; nothing is returned where an entry contradicts that."""
    names = sorted((name for name in dump.groups if name.isdecimal()), key=int)
    if dump.gloo or len(names) != len(dump.groups) or len(names) != len(dump.completed):
        return {}
    named = dict(zip(sorted(dump.completed), names, strict=True))
    if any(named.get(entry.pg_id) != entry.group for entry in dump.entries):
        return {}
    return {name: dump.completed[number] for number, name in named.items()}

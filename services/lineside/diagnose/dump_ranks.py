"""Whose dump is it? A Flight Recorder dump does not say which rank wrote it, and people rename files.

What the dump says goes first: a rank is in all of its groups, so their intersection holds it, and a
transfer names its own side. Then the file name, where it agrees. Then elimination. A dump whose rank
stays open is not used.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from lineside.diagnose.flight_recorder import Dump, GroupId

_NAMED = re.compile(r"rank\D?(\d+)", re.IGNORECASE)
_NUMBER = re.compile(r"\d+")


@dataclass(frozen=True, slots=True)
class Attribution:
    """``placed``: the dump of each rank; ``superseded``: dumps beside a newer one of the same rank, with that
    rank; ``unplaced``: dumps whose rank cannot be told."""

    placed: dict[int, Dump]
    superseded: list[tuple[Dump, int]]
    unplaced: list[Dump]


def attribute(dumps: Sequence[Dump], tables: Sequence[Mapping[str, GroupId]]) -> Attribution:
    """Finds each dump's rank. ``tables``: the groups that hold for each dump, its own or from a file."""
    world = {rank for table in tables for group in table.values() for rank in group.ranks}
    candidates = [_candidates(d, t) for d, t in zip(dumps, tables, strict=True)]
    placed: dict[int, Dump] = {}
    superseded: list[tuple[Dump, int]] = []
    open_ones: list[tuple[Dump, set[int] | None]] = []

    def place(rank: int, dump: Dump) -> None:
        other = placed.get(rank)
        if other is None:
            placed[rank] = dump
            return
        newer, older = sorted((dump, other), key=lambda d: (-d.newest_ns, d.path.as_posix()))
        placed[rank] = newer
        superseded.append((older, rank))

    ordered = sorted(zip(dumps, candidates, strict=True), key=lambda pair: pair[0].path.as_posix())
    for dump, possible in ordered:
        if dump.rank is not None:
            place(dump.rank, dump)
        elif possible is not None and len(possible) == 1:
            place(next(iter(possible)), dump)
        else:
            open_ones.append((dump, possible))
    sure = set(placed)
    unnamed = []
    for dump, possible in open_ones:
        allowed = possible if possible is not None else world or None
        named = next(
            (n for n in _hints(dump) if n not in sure and (allowed is None or n in allowed)), None
        )
        if named is None:
            unnamed.append((dump, allowed))
        else:
            place(named, dump)
    unplaced = _eliminate(unnamed, placed)
    return Attribution(placed, superseded, unplaced)


def _candidates(dump: Dump, table: Mapping[str, GroupId]) -> set[int] | None:
    """Ranks that can have written the dump, by what it holds; null: any."""
    used = {entry.group for entry in dump.entries}
    groups = [*dump.groups.values(), *(table[name] for name in used if name in table)]
    possible: set[int] | None = None
    for group in groups:
        possible = set(group.ranks) if possible is None else possible & set(group.ranks)
    for entry in dump.entries:
        if entry.peers and entry.group in table:
            ranks = table[entry.group].ranks
            own = entry.peers[0] if entry.sends else entry.peers[1]
            if own < len(ranks):
                return {ranks[own]}
    return possible or None


def _hints(dump: Dump) -> Iterable[int]:
    """Numbers in the file's name, the likeliest rank first."""
    stem = dump.path.name.split(".")[0] or dump.path.name
    yield from (int(n) for n in _NAMED.findall(dump.path.name))
    yield from (int(n) for n in reversed(_NUMBER.findall(stem)))
    yield from (int(n) for n in reversed(_NUMBER.findall(dump.path.name)))


def _eliminate(dumps: list[tuple[Dump, set[int] | None]], placed: dict[int, Dump]) -> list[Dump]:
    """Places dumps for which one free rank is left, until none is; returns the rest."""
    rest = dumps
    while True:
        free = [(dump, ranks - placed.keys() if ranks else set()) for dump, ranks in rest]
        found = next(((dump, ranks) for dump, ranks in free if len(ranks) == 1), None)
        if found is None:
            return [dump for dump, _ in rest]
        placed[next(iter(found[1]))] = found[0]
        rest = [(dump, ranks) for dump, ranks in rest if dump is not found[0]]

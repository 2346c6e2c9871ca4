"""PyTorch Flight Recorder dumps, one file per rank, as typed records.

Two dialects hide behind one format. NCCL: ``state`` tells whether an operation is complete, ``pg_config``
lists the rank's groups, ``pg_status`` counts even what the dump leaves out, and transfers are recorded
with ranks relative to their group. gloo: ``state`` stays ``scheduled`` for ever, only ``retired`` tells,
and also after a failure; ``pg_config`` is empty, ``pg_status`` counts something else, transfers are not
recorded.

Operations that were issued as one (``batch_isend_irecv``) are never updated by themselves: their
``coalesced`` entry speaks for them.
"""

import ast
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path
from typing import Any

from lineside.diagnose.safe_load import UnreadableFileError, load

_ITEM_BYTES = {
    "Bool": 1, "Byte": 1, "Char": 1, "Short": 2, "Half": 2, "BFloat16": 2, "Int": 4, "Float": 4, "Long": 8,
    "Double": 8, "ComplexFloat": 8, "ComplexDouble": 16, "Float8_e4m3fn": 1, "Float8_e5m2": 1,
}  # fmt: skip
_TRANSFER = re.compile(r"(?:i?send|i?recv)\w* (\d+)(->|<-)(\d+)")
_NAMES = (
    ("all_reduce", ("all_reduce", "allreduce")),
    ("reduce_scatter", ("reduce_scatter",)),
    ("all_gather", ("all_gather", "allgather")),
    ("all_to_all", ("all_to_all", "alltoall")),
    ("barrier", ("barrier",)),
    ("broadcast", ("broadcast",)),
    ("coalesced", ("coalesced",)),
)
MOST_RANKS = 1 << 24
"""A larger number is no rank, whatever the file says."""
_INPUT_SIZED = {"all_reduce", "reduce", "broadcast", "reduce_scatter"}
"""Of these the input is equal on all ranks; of a gather the output is (parts may be uneven)."""


@dataclass(frozen=True, slots=True)
class GroupId:
    """A group as one process knows it: its name, and its global ranks where the dump says so."""

    name: str
    ranks: tuple[int, ...]
    label: str = ""


@dataclass(frozen=True, slots=True)
class Entry:
    """One recorded operation. ``seq`` counts collectives of the group; transfers have ``peers`` (from, to)
    relative to the group instead."""

    record: int
    group: str
    pg_id: int
    seq: int
    transfer_seq: int
    operation: str
    size: int
    done: bool
    started: int
    peers: tuple[int, int] | None
    sends: bool


@dataclass(frozen=True, slots=True)
class Dump:
    """One rank's dump; which rank is not said inside. ``history``: nothing has been left out or evicted."""

    path: Path
    gloo: bool
    """Only ``retired`` tells, and it does not tell success from failure."""
    groups: Mapping[str, GroupId]
    entries: tuple[Entry, ...]
    completed: Mapping[int, int]
    """``pg_status``: the newest completed sequence by the process's own number of the group."""
    labels: Mapping[str, str]
    rank: int | None
    history: bool
    newest_ns: int


def read_dump(path: Path) -> Dump:
    """The dump in ``path``.

    Raises:
        UnreadableFileError: the file is no dump, or cannot be read safely.
    """
    raw = load(path)
    if not isinstance(raw, dict) or len({"version", "pg_config", "pg_status"} & raw.keys()) < 2:
        raise UnreadableFileError("not a Flight Recorder dump")
    listed = raw.get("entries", [])  # JSON leaves out what is empty, and an empty dump is evidence
    if not isinstance(listed, list):
        raise UnreadableFileError("not a Flight Recorder dump: it has no list of entries")
    rows = [row for row in listed if isinstance(row, dict)]
    gloo = any(str(row.get("profiling_name", "")).startswith("gloo:") for row in rows) and not any(
        row.get("state") == "completed" for row in rows
    )
    timed = any(
        row.get("state") == "started" or row.get("time_discovered_started_ns") for row in rows
    )
    entries = []
    for row in rows:
        try:
            entries.append(_entry(row, gloo, timed))
        except (KeyError, TypeError, ValueError, IndexError, OverflowError) as error:
            raise UnreadableFileError(f"a damaged dump: bad entry ({error!r})") from error
    entries.sort(key=lambda entry: entry.record)
    records = [entry.record for entry in entries]
    return Dump(
        path=path,
        gloo=gloo,
        groups=read_groups(raw.get("pg_config")),
        entries=tuple(_settle_coalesced(entries)),
        completed=_completed(raw.get("pg_status")),
        labels={str(row["process_group"][0]): str(row["process_group"][1]) for row in rows},
        rank=next((raw[k] for k in ("rank", "global_rank") if type(raw.get(k)) is int), None),
        history=bool(records) and records == list(range(len(records))),
        newest_ns=max((int(row.get("time_created_ns") or 0) for row in rows), default=0),
    )


def read_groups(raw: Any) -> dict[str, GroupId]:
    """Groups by name, from a dump's ``pg_config`` or a ``groups.json`` of that form: ``{name: {"desc",
    "ranks"}}``, ranks as a list or as text. Groups without ranks are left out."""
    groups = {}
    for name, value in raw.items() if isinstance(raw, dict) else ():
        ranks = value.get("ranks") if isinstance(value, dict) else None
        if isinstance(ranks, str):
            try:
                ranks = ast.literal_eval(ranks)
            except (ValueError, SyntaxError, MemoryError, RecursionError):
                continue
        if not isinstance(ranks, list | tuple):
            continue
        if ranks and all(type(rank) is int and 0 <= rank < MOST_RANKS for rank in ranks):
            groups[str(name)] = GroupId(str(name), tuple(ranks), str(value.get("desc") or ""))
    return groups


def _entry(row: Mapping[str, Any], gloo: bool, timed: bool) -> Entry:
    name = str(row["profiling_name"]).split(":", 1)[-1]
    transfer = _TRANSFER.match(name)
    operation = "transfer" if transfer else _operation(name)
    state = row.get("state")
    peers, sends = None, False
    if transfer:
        own, arrow, other = int(transfer[1]), transfer[2], int(transfer[3])
        sends = arrow == "->"
        peers = (own, other) if sends else (other, own)
    return Entry(
        record=_count(row["record_id"]),
        group=str(row["process_group"][0]),
        pg_id=_count(row.get("pg_id", -1)),
        seq=_count(row["collective_seq_id"]),
        transfer_seq=_count(row.get("p2p_seq_id", 0)),
        operation=operation,
        size=_size(row, operation),
        done=state == "completed" or (gloo and bool(row.get("retired"))),
        started=(1 if state != "scheduled" else 0) if timed else -1,
        peers=peers,
        sends=sends,
    )


def _count(value: Any) -> int:
    number = int(value)
    if not -1 <= number < 1 << 62:
        raise ValueError(f"{number} is no count")
    return number


def _operation(name: str) -> str:
    plain = name.lower().removeprefix("_")
    return next((known for known, parts in _NAMES if any(p in plain for p in parts)), plain)


def _size(row: Mapping[str, Any], operation: str) -> int:
    side = "input" if operation in _INPUT_SIZED else "output"
    sizes, types = row.get(f"{side}_sizes") or [], row.get(f"{side}_dtypes") or []
    if not sizes or len(types) != len(sizes) or any(t not in _ITEM_BYTES for t in types):
        return -1
    total = sum(prod(size) * _ITEM_BYTES[t] for size, t in zip(sizes, types, strict=True))
    return int(total) if 0 <= total < 1 << 62 else -1


def _settle_coalesced(entries: list[Entry]) -> list[Entry]:
    """Entries in which the parts of coalesced operations have the state and the place of the whole. Parts
    of a coalesced collective share one sequence, so their sizes are not compared."""
    parts: dict[tuple[str, int, int], list[Entry]] = {}
    wholes: dict[tuple[str, int, int], Entry] = {}
    for entry in entries:
        key = (entry.group, entry.seq, entry.transfer_seq)
        if entry.operation == "coalesced":
            wholes[key] = entry
        else:
            parts.setdefault(key, []).append(entry)
    settled = []
    for key, own in parts.items():
        whole = wholes.get(key)
        # Of a finished batch a dump of active operations keeps the parts, without the whole.
        done = whole.done if whole else (len(own) > 1 or own[0].done)
        for part in own:
            if whole or len(own) > 1:
                part = replace(
                    part,
                    done=done,
                    started=whole.started if whole else -1,
                    record=whole.record if whole else part.record,
                    size=part.size if part.peers else -1,
                    operation=part.operation if part.peers else "coalesced",
                )
            settled.append(part)
    return sorted(settled, key=lambda entry: entry.record)


def _completed(raw: Any) -> dict[int, int]:
    counts = {}
    for number, status in raw.items() if isinstance(raw, dict) else ():
        try:
            counts[_count(number)] = _count(status["last_completed_collective"])
        except (KeyError, TypeError, ValueError):
            continue
    return counts

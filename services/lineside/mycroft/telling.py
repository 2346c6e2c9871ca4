"""Findings in words and numbers: one sentence to act on, a few lines of reasons, and who is who."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from lineside.mycroft.evidence import Ints, Snapshot
from lineside.mycroft.mismatch import Mismatch
from lineside.mycroft.verdict import CONFIDENCE, DOUBT, Blame, Cause, Kind, Verdict, span
from lineside.mycroft.waits import Fronts

_BY_ITSELF = "{who} cannot finish {what}, for which it needs nobody else: the fault is at its side"
MOST_BLAMES = 64
MOST_REASONS = 8

_HOLDS_UP = {
    Cause.STUCK: "{who} cannot finish {what}; its peers have, so it was called and the fault is at its side",
    Cause.BEHIND: "{who} is still in {what}, which is older than what its peers wait in",
    Cause.ABSENT: "{who} has not called {what}, and waits in nothing else",
    Cause.DEAD: "{who} has left no record, and its peers wait for it in {what}",
}  # fmt: skip


def tell_hang(
    s: Snapshot, f: Fronts, culprits: Ints, causes: list[Cause], *, unexplained: bool
) -> Verdict:
    """``culprits``: indices of ranks, with the cause of each."""
    cause = _dominant(causes)
    pairs = sorted(
        zip(causes, culprits.tolist(), strict=True), key=lambda pair: pair[0] is not cause
    )
    blames = [_blame(s, f, rank, own_cause) for own_cause, rank in pairs[:MOST_BLAMES]]
    names = _names(s, culprits)
    first = blames[0]
    victims = _waiting(s, f, culprits)
    missing = _missing(s)
    confidence = CONFIDENCE[cause]
    confidence -= DOUBT if set(missing) - set(names) else 0
    confidence -= DOUBT if unexplained else 0
    verb = {
        Cause.STUCK: "cannot finish", Cause.BEHIND: "still in",
        Cause.ABSENT: "never called", Cause.DEAD: "left no record; peers wait in",
    }[cause]  # fmt: skip
    summary = (
        f"{span(names).capitalize()} {_verb(verb, len(names))} {_what(first)}; {span(victims)} "
        + ("waits" if len(victims) == 1 else "wait")
    )
    passed = set(s.ranks[s.rank[f.passed]].tolist())
    reasons = [
        (
            _BY_ITSELF if b.cause is Cause.STUCK and b.rank not in passed else _HOLDS_UP[b.cause]
        ).format(who=f"rank {b.rank}", what=_what(b))
        for b in blames[:MOST_REASONS]
    ]
    if len(names) > MOST_REASONS:
        reasons.append(f"... and {len(names) - MOST_REASONS} more")
    others = tuple(sorted(set(missing) - set(names)))
    if others:
        reasons.append(f"{span(others)} left no record either, which the culprits explain")
    if unexplained:
        reasons.append("some ranks wait for none of these: there may be another cause")
    return Verdict(
        kind=Kind.HANG, cause=cause, culprits=names, victims=victims,
        groups=tuple(dict.fromkeys(blame.group for blame in blames)), operation=first.operation,
        confidence=round(confidence, 2), summary=summary, missing_ranks=missing,
        reasons=tuple(reasons), blames=tuple(blames),
        details={"waiting_groups": _waiting_groups(s, f)},
    )  # fmt: skip


def tell_mismatch(s: Snapshot, f: Fronts, found: Sequence[Mismatch]) -> Verdict:
    culprits = np.unique([rank for m in found for rank in m.culprits])
    first = found[0]
    names = _names(s, culprits)
    missing = _missing(s)
    sides = "; ".join(
        f"{span(_names(s, ranks))}: {value}"
        for value, ranks in zip(first.values, first.ranks, strict=True)
    )
    what = "different operations" if first.cause is Cause.COLLECTIVE_MISMATCH else "different sizes"
    reasons = [
        f"{s.groups[m.group]} operation {m.seq}: "
        + "; ".join(
            f"{span(_names(s, ranks))} call{'s' if len(ranks) == 1 else ''} {value}"
            for value, ranks in zip(m.values, m.ranks, strict=True)
        )
        for m in found[:MOST_REASONS]
    ]
    if sum(map(len, first.ranks)) == len(first.culprits):
        reasons.append("no majority exists, so both sides are named")
    reasons.append("an error of the program: no machine is accused")
    return Verdict(
        kind=Kind.APPLICATION_ERROR, cause=first.cause, culprits=names,
        victims=_waiting(s, f, culprits),
        groups=tuple(dict.fromkeys(s.groups[m.group] for m in found)), operation=first.operation,
        confidence=round(CONFIDENCE[first.cause] - (DOUBT if missing else 0), 2),
        summary=f"Ranks call {what} as operation {first.seq} of {s.groups[first.group]} ({sides})",
        missing_ranks=missing, reasons=tuple(reasons),
        blames=tuple(
            Blame(int(s.ranks[rank]), m.cause, s.groups[m.group], value, m.seq)
            for m in found
            for value, ranks in zip(m.values, m.ranks, strict=True)
            for rank in ranks
            if rank in m.culprits
        )[:MOST_BLAMES],
    )  # fmt: skip


def tell_deadlock(s: Snapshot, f: Fronts, culprits: Ints) -> Verdict:
    first_open = []
    for rank in culprits[:MOST_BLAMES].tolist():
        own = np.flatnonzero(f.waiting & (s.rank == rank))
        first_open.append(_at(s, f, int(own[np.argmin(s.order[own])]), Cause.ORDER_DEADLOCK))
    names, missing = _names(s, culprits), _missing(s)
    groups = tuple(sorted({blame.group for blame in first_open}))
    return Verdict(
        kind=Kind.APPLICATION_ERROR, cause=Cause.ORDER_DEADLOCK, culprits=names,
        victims=_waiting(s, f, culprits), groups=groups, operation=first_open[0].operation,
        confidence=round(CONFIDENCE[Cause.ORDER_DEADLOCK] - (DOUBT if missing else 0), 2),
        summary=f"{span(names).capitalize()} wait for each other: they call the operations of "
        f"{' and '.join(groups)} in different order"
        if len(names) > 1
        else f"{span(names).capitalize()} went on to {_what(first_open[0])} before operations that its "
        "peers wait in: it has skipped or misplaced one",
        missing_ranks=missing,
        reasons=(
            *(f"rank {b.rank} is first in {_what(b)}" for b in first_open[:MOST_REASONS]),
            "an error of the program: no machine is accused",
        ),
        blames=tuple(first_open),
    )  # fmt: skip


def tell_nothing(
    s: Snapshot,
    f: Fronts | None,
    why: str,
    suspects: Ints | None = None,
    groups: Ints | None = None,
) -> Verdict:
    """``suspects``, ``groups``: indices of ranks and groups among which the cause is, where that much is
    known."""
    missing = _missing(s)
    wanted = (
        f"records of {span(missing)}"
        if missing
        else "stacks of all ranks, or the state of their transfers"
    )
    reasons = [f"what would tell: {wanted}"]
    details: dict[str, Any] = {}
    among = [] if groups is None else [s.groups[g] for g in groups.tolist()][:MOST_BLAMES]
    if suspects is not None and len(suspects) and len(suspects) < len(s.ranks):
        names = _names(s, suspects)
        details["suspects"] = list(names)
        reasons.insert(0, f"the others wait for {span(names)}, in {' and '.join(among[:4])}")
    return Verdict(
        kind=Kind.CANNOT_TELL,
        victims=_waiting(s, f, np.empty(0, np.int64)) if f else (),
        groups=tuple(among or (_waiting_groups(s, f) if f else ())),
        operation=_commonest_operation(s, f) if f else None,
        summary=f"Cannot tell: {why}", missing_ranks=missing,
        reasons=tuple(reasons), details=details,
    )  # fmt: skip


def tell_healthy(s: Snapshot) -> Verdict:
    return Verdict(
        kind=Kind.HEALTHY, confidence=0.9,
        summary=f"Healthy: all {len(s.ranks)} ranks have finished every operation that they recorded",
    )  # fmt: skip


def _blame(s: Snapshot, f: Fronts, rank: int, cause: Cause) -> Blame:
    """The operation that shows best how ``rank`` holds up others: where fewest others are held
    responsible."""
    own = s.rank == rank
    slots = np.flatnonzero(own & f.passed)
    if not len(slots) and cause is not Cause.STUCK:
        slots = np.flatnonzero(own & f.blocking)
    if not len(slots):
        slots = np.flatnonzero(own & f.waiting)
    shared_by = np.bincount(s.group[f.blocking], minlength=len(s.groups))
    if (
        cause is Cause.STUCK
    ):  # each unfinished operation proves as much: take the first of its program
        shared_by[:] = 0

    def directness(slot: int) -> tuple[int, int, str]:
        group = int(s.group[slot])
        return int(shared_by[group]), int(s.order[slot]), s.groups[group]

    return _at(s, f, min(slots.tolist(), key=directness), cause)


def _at(s: Snapshot, f: Fronts, slot: int, cause: Cause) -> Blame:
    group = int(s.group[slot])
    seq, op = int(f.seq[slot]), int(s.op[slot])
    if seq < 0:  # not there: what its peers wait in
        peers = np.flatnonzero(f.waiting & (s.group == group))
        peer = peers[np.argmin(f.seq[peers])]
        seq, op = int(f.seq[peer]), int(s.op[peer])
    name = s.operations[op] if op >= 0 else "other"
    return Blame(int(s.ranks[s.rank[slot]]), cause, s.groups[group], name, seq)


def _what(blame: Blame) -> str:
    if blame.operation == "transfer":
        return f"a transfer of {blame.group}"
    return f"{blame.operation} {blame.seq} of {blame.group}"


def _verb(verb: str, count: int) -> str:
    return f"{'is' if count == 1 else 'are'} {verb}" if verb.startswith("still") else verb


def _dominant(causes: list[Cause]) -> Cause:
    """The cause that most culprits share; of two, the better proven one."""
    counts = Counter(causes)
    return max(counts, key=lambda cause: (counts[cause], -list(Cause).index(cause)))


def _waiting(s: Snapshot, f: Fronts, culprits: Ints) -> tuple[int, ...]:
    return _names(s, np.setdiff1d(s.rank[f.waiting], culprits))


def _waiting_groups(s: Snapshot, f: Fronts) -> list[str]:
    return sorted({s.groups[g] for g in np.unique(s.group[f.waiting]).tolist()})[:MOST_BLAMES]


def _commonest_operation(s: Snapshot, f: Fronts) -> str | None:
    """The operation that most ranks wait in."""
    counts = Counter(s.operations[op] for op in s.op[f.waiting].tolist() if op >= 0)
    return max(sorted(counts), key=lambda name: counts[name], default=None)


def _missing(s: Snapshot) -> tuple[int, ...]:
    return tuple(s.ranks[~s.reported].tolist())


def _names(s: Snapshot, ranks: Ints | Sequence[int]) -> tuple[int, ...]:
    return tuple(int(s.ranks[int(rank)]) for rank in ranks)

"""Why a job hangs: who holds it up, who only waits, or that the records cannot tell.

After Mycroft (Deng et al., SOSP 2025, section 4.3), with three changes that real dumps ask for: a rank is
judged by its oldest open operation and never by its last enqueued one; its waits are a set, so the
culprit is where the wait-for graph ends instead of where a walk stops; and a verdict is refused where the
records cannot bear it.

In order of proof:

1. *Mismatch*: ranks call different operations or sizes at the same place (``mismatch.py``): an
   application error.
2. *Ends of the graph* (``waits.py``) that have reported. One rank: it is stuck, behind or absent. Several
   ranks that call the operations of their groups in different order: an order deadlock. Several ranks
   that are all in the same operation: their records name nobody.
3. *Silence*: ranks without any record, where nothing above is found (a silent rank may be one more
   victim of a known culprit). Accused is only who alone is missing from an operation that a peer
   waits in; otherwise several stories fit, and none is told.
"""

from dataclasses import dataclass

import numpy as np

from lineside.mycroft.evidence import Flags, Ints, Snapshot
from lineside.mycroft.mismatch import find_mismatches
from lineside.mycroft.telling import (
    tell_deadlock,
    tell_hang,
    tell_healthy,
    tell_mismatch,
    tell_nothing,
)
from lineside.mycroft.verdict import Cause, Verdict
from lineside.mycroft.waits import Fronts, Graph, fronts, graph

_SAME = "all waiting ranks are in the same operation, and their records name nobody"


def find_root_cause(snapshot: Snapshot) -> Verdict:
    """The verdict on one moment of a job. Deterministic, and independent of the order of rows."""
    f = fronts(snapshot)
    mismatches = find_mismatches(snapshot, f)
    if mismatches:
        return tell_mismatch(snapshot, f, mismatches)
    if not f.waiting.any():
        return _nothing_waits(snapshot)
    if not (snapshot.open_seq >= 0).any() and snapshot.reported.all():
        return tell_nothing(
            snapshot, f,
            "operations are retired although a rank has not entered them: they failed, or the records are of "
            "different moments",
        )  # fmt: skip
    g = graph(snapshot, f)
    ends = _ends(snapshot, f, g)
    if ends.deadlocked.any() and not ends.culprits.any():
        return tell_deadlock(snapshot, f, np.flatnonzero(ends.deadlocked))
    culprits = np.flatnonzero(ends.culprits)
    if len(culprits):
        causes = _causes(snapshot, f, culprits)
        return tell_hang(snapshot, f, culprits, causes, unexplained=ends.unexplained)
    if ends.silent.any():
        return tell_nothing(snapshot, f, _why_silence(snapshot))
    suspects, groups = _narrowed(snapshot, f)
    if len(suspects) and np.isin(snapshot.group, groups).sum() == len(
        groups
    ):  # alone in each of them
        causes = [Cause.STUCK] * len(suspects)
        return tell_hang(snapshot, f, suspects, causes, unexplained=False)
    return tell_nothing(snapshot, f, _SAME, suspects, groups)


@dataclass(frozen=True, slots=True)
class Ends:
    """Where the chains of waiting end. Flags over ranks [N]."""

    culprits: Flags
    deadlocked: Flags
    silent: Flags
    """Waited for without a record."""
    unexplained: bool
    """Some rank waits for none of the culprits."""


def _ends(s: Snapshot, f: Fronts, g: Graph) -> Ends:
    n = len(s.ranks)
    at_end = g.ends[:n]
    component = g.component[:n]
    size = np.bincount(component[at_end], minlength=int(g.component.max(initial=0)) + 1)
    alone = at_end & s.reported & (size[component] == 1)
    silent = at_end & ~s.reported
    deadlocked = _deadlocked(s, f, at_end & (size[component] > 1))
    waiters = np.zeros(n, np.bool_)
    waiters[s.rank[f.waiting]] = True

    culprits = alone
    # A silent rank may well wait for a culprit that is known, in a way that only its own records would show.
    if not (alone | deadlocked).any() and s.complete:
        needed = _only_missing(s, f, waiters)
        for_silent = waiters & g.leading_to(np.flatnonzero(silent))[:n]
        if needed.any() and not (for_silent & ~g.leading_to(np.flatnonzero(needed))[:n]).any():
            culprits = needed
    explained = g.leading_to(np.flatnonzero(culprits | deadlocked))[:n]
    return Ends(culprits, deadlocked, silent, bool((waiters & ~explained).any()))


def _only_missing(s: Snapshot, f: Fronts, waiters: Flags) -> Flags:
    """Silent ranks that alone hold up a group in which one of ``waiters`` waits."""
    groups = len(s.groups)
    asked = np.bincount(s.group[f.waiting & waiters[s.rank]], minlength=groups) > 0
    sole = asked & (np.bincount(s.group[f.blocking], minlength=groups) == 1)
    needed = np.zeros(len(s.ranks), np.bool_)
    needed[s.rank[f.blocking & sole[s.group] & ~s.reported[s.rank]]] = True
    return needed


def _deadlocked(s: Snapshot, f: Fronts, ranks: Flags) -> Flags:
    """Ranks among ``ranks`` that wait for each other because they order their groups differently.

    Each rank is taken to wait in the first of its open operations, and a group to wait for the members
    that are elsewhere first. Transfers that both sides have posted are left out: a program may post them
    in any order.
    """
    n = len(s.ranks)
    pair = np.array([name == "transfer" for name in s.operations] + [False])[s.op]
    waits = f.waiting & ranks[s.rank] & ~(pair & f.even[s.group])
    first = np.full(n, np.iinfo(np.int64).max, np.int64)
    np.minimum.at(first, s.rank[waits], s.order[waits])
    heads = waits & (s.order == first[s.rank])
    elsewhere = ranks[s.rank] & ~heads & ~(pair & f.waiting)
    headed = np.bincount(s.group[heads], minlength=len(s.groups)) > 0
    elsewhere &= headed[s.group] & (f.waiting | f.blocking)
    cycle = Graph(
        np.concatenate([s.rank[heads], n + s.group[elsewhere]]),
        np.concatenate([n + s.group[heads], s.rank[elsewhere]]),
        n + len(s.groups),
    )
    size = np.bincount(cycle.component[:n])
    involved = ranks & (size[cycle.component[:n]] > 1)
    odd = _outvoted(s, f.waiting & ~elsewhere, elsewhere, involved)
    return odd if odd.any() else np.asarray(involved)


def _outvoted(s: Snapshot, here: Flags, elsewhere: Flags, involved: Flags) -> Flags:
    """Ranks of a deadlock that are in the minority of one of its groups: one that has skipped an
    operation, or runs ahead. None where no group has a majority."""
    groups = len(s.groups)
    present = np.bincount(s.group[here], minlength=groups)
    missing = np.bincount(s.group[elsewhere], minlength=groups)
    torn = np.bincount(s.group[elsewhere & involved[s.rank]], minlength=groups) > 0
    fewer_here = torn & (present < missing)
    fewer_elsewhere = torn & (missing < present)
    odd = (here & fewer_here[s.group]) | (elsewhere & fewer_elsewhere[s.group])
    return np.asarray(involved & (np.bincount(s.rank[odd], minlength=len(s.ranks)) > 0))


def _causes(s: Snapshot, f: Fronts, culprits: Ints) -> list[Cause]:
    def ranks_of(slots: Flags) -> Flags:
        return np.bincount(s.rank[slots], minlength=len(s.ranks)) > 0

    late = ranks_of(f.blocking & f.waiting)
    # Nobody else in its groups is waited for either: what it has open is its own affair.
    by_itself = ranks_of(f.waiting & f.even[s.group]) & ~late
    rules = (
        (~s.reported, Cause.DEAD),
        (ranks_of(f.passed) | by_itself, Cause.STUCK),
        (~ranks_of(f.waiting), Cause.ABSENT),
    )
    return [
        next((cause for flags, cause in rules if flags[rank]), Cause.BEHIND)
        for rank in culprits.tolist()
    ]


def _nothing_waits(s: Snapshot) -> Verdict:
    """No rank has anything open: healthy, if all have reported and agree how far they are."""
    missing = s.ranks[~s.reported]
    if not s.complete or len(missing):
        return tell_nothing(s, None, "nobody waits, but not every rank has reported")
    known = s.completed_seq >= 0
    empty = np.setdiff1d(np.arange(len(s.ranks)), s.rank[known])
    if len(empty) or not len(s.ranks):
        return tell_nothing(s, None, f"nobody waits, and {len(empty)} ranks have recorded nothing")
    newest = np.full(len(s.groups), -1, np.int64)
    np.maximum.at(newest, s.group[known], s.completed_seq[known])
    if (known & (s.completed_seq < newest[s.group])).any():
        return tell_nothing(
            s, None, "nobody waits, but ranks are not equally far: records of different moments"
        )
    return tell_healthy(s)


def _why_silence(s: Snapshot) -> str:
    if not s.complete:
        return "ranks without records are waited for, but some records could not be attributed"
    return (
        "several of the ranks without records are waited for in the same operations: any of them may "
        "be the cause"
    )


def _narrowed(s: Snapshot, f: Fronts) -> tuple[Ints, Ints]:
    """(ranks, groups) among which the cause is, where the order of programs tells: groups whose members
    all have nothing else open before, and for which everybody else waits. Empty where that is not so."""
    n, groups = len(s.ranks), len(s.groups)
    nothing = np.empty(0, np.int64)
    if (s.order[f.waiting] < 0).any():
        return nothing, nothing
    first = np.full(n, np.iinfo(np.int64).max, np.int64)
    np.minimum.at(first, s.rank[f.waiting], s.order[f.waiting])
    heads = f.waiting & (s.order == first[s.rank])
    elsewhere = f.blocking | (f.waiting & ~heads)
    count = np.bincount(s.group[elsewhere], minlength=groups)
    settled = (np.bincount(s.group[heads], minlength=groups) > 0) & (count == 0)
    waits = Graph(
        np.concatenate([s.rank[heads], n + s.group[elsewhere]]),
        np.concatenate([n + s.group[heads], s.rank[elsewhere]]),
        n + groups,
    )
    explained = waits.leading_to(n + np.flatnonzero(settled))[:n]
    if not explained[s.rank[f.waiting]].all():
        return nothing, nothing
    return np.unique(s.rank[heads & settled[s.group]]), np.flatnonzero(settled)

"""The wait-for graph over ranks and groups, and its strongly connected components.

Nodes are ranks and groups: a rank points to every group it has something open in, a group to the members
that it waits for. With groups as nodes the edges stay linear in the memberships; pairs of ranks would be
quadratic. Components without a way out are where every chain of waiting ends (Mycroft section 4.3: the
culprit is the one who waits for nobody). Here a rank may be open in several groups, because hosts enqueue
ahead, so its edges are a set, and cycles are found instead of followed.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import breadth_first_order, connected_components

from lineside.mycroft.evidence import SYNCHRONISING, Flags, Ints, Snapshot

NEVER = np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True)
class Fronts:
    """How each slot stands against its group. Flags over slots [M], and per group [G]."""

    waiting: Flags
    """[M] the rank waits in this group."""
    seq: Ints
    """[M] the operation it waits in; -1 where it does not wait."""
    passed: Flags
    """[M] a peer has finished that operation, which needed this rank's part: the rank itself is stuck."""
    blocking: Flags
    """[M] the group waits for this member."""
    even: Flags
    """[G] all members that reported are in the same operation: the group waits, and its records name
    nobody. Not every device need have begun it, so any of them may wait elsewhere."""
    newest: Ints
    """[G] the newest operation that somebody waits in; -1: nobody waits."""
    impossible: Flags
    """[M] claims to have finished an operation that a reporting member has not entered: it failed."""


def fronts(s: Snapshot) -> Fronts:
    """Compares every slot with its group (O(M))."""
    g, groups = s.group, len(s.groups)
    synchronising = np.array([name in SYNCHRONISING for name in s.operations] + [False])[s.op]
    silent = ~s.reported[s.rank]
    has_silent = _any(silent, g, groups)
    is_open = s.open_seq >= 0

    failed, impossible = _failed(s, synchronising, silent, has_silent)
    waiting = is_open | failed
    seq = np.where(is_open, s.open_seq, np.where(failed, s.completed_seq, -1))
    newest = np.full(groups, -1, np.int64)
    np.maximum.at(newest, g, seq)
    waited = newest >= 0

    # What is proven to be finished: not what a source that cannot tell failure says next to a silent member.
    claims = np.maximum(np.where(failed, -1, s.completed_seq), s.open_seq - 1)
    claims[s.doubtful & has_silent[g]] = -1
    finished = np.full(groups, -1, np.int64)
    np.maximum.at(finished, g, claims)
    passed = is_open & synchronising & (s.open_seq <= finished[g])

    absent = ~waiting & ~silent & (s.completed_seq < newest[g])
    oldest = np.full(groups, NEVER, np.int64)
    held = waiting & ~passed
    np.minimum.at(oldest, g[held], seq[held])
    late = held & (seq == oldest[g]) & (seq < newest[g])
    blocking = waited[g] & (silent | absent | passed | late)
    # All in the same operation, but some devices have begun it and others not: those are waited for.
    begun = _any(waiting & (s.started == 1), g, groups) & ~_any(blocking & ~silent, g, groups)
    blocking |= begun[g] & waiting & (s.started == 0)
    even = waited & ~_any(blocking & ~silent, g, groups)
    return Fronts(waiting, seq, passed, blocking, even, newest, impossible)


def _failed(
    s: Snapshot, synchronising: Flags, silent: Flags, has_silent: Flags
) -> tuple[Flags, Flags]:
    """Slots whose finished operation must have failed, and those of them that contradict their peers."""
    g, groups = s.group, len(s.groups)
    ended = s.doubtful & (s.open_seq < 0) & (s.completed_seq >= 0) & synchronising
    entered = np.full(groups, NEVER, np.int64)
    known = ~silent & (s.open_seq < 0) & (s.completed_seq >= 0)
    np.minimum.at(entered, g[known], s.completed_seq[known])
    impossible = ended & (s.completed_seq > entered[g])
    if not (impossible.any() or (s.open_seq >= 0).any()):
        return impossible, impossible
    # A rank that fails stops there: only its last operation of all can hide a failure behind "finished", and
    # not if somebody went on after it, because then everybody had entered it.
    last = np.full(len(s.ranks), -1, np.int64)
    np.maximum.at(last, s.rank, s.order)
    stopped = s.order == last[s.rank]
    survived = np.full(groups, -1, np.int64)
    sure = np.where(s.open_seq >= 0, s.open_seq - 1, s.completed_seq - stopped)
    np.maximum.at(survived, g, sure)
    hidden = ended & has_silent[g] & stopped & (s.completed_seq > survived[g])
    return impossible | hidden, impossible


def _any(flags: Flags, group: Ints, groups: int) -> Flags:
    return np.bincount(group[flags], minlength=groups) > 0


@dataclass(frozen=True)
class Graph:
    """Directed edges ``source`` -> ``target`` ("waits for") over ``nodes`` numbers."""

    source: Ints
    target: Ints
    nodes: int

    @cached_property
    def component(self) -> Ints:
        """[nodes] the strongly connected component of each node."""
        matrix = self._matrix(self.source, self.target, self.nodes)
        return np.asarray(connected_components(matrix, connection="strong")[1], np.int64)

    @cached_property
    def ends(self) -> Flags:
        """[nodes] whether the node is in a component that somebody waits for and that waits for nobody
        else."""
        count = int(self.component.max(initial=-1)) + 1
        leaves = np.zeros(count, np.bool_)
        a, b = self.component[self.source], self.component[self.target]
        leaves[a[a != b]] = True
        waited_for = np.zeros(count, np.bool_)
        waited_for[b] = True
        return np.asarray((waited_for & ~leaves)[self.component])

    def leading_to(self, nodes: Ints) -> Flags:
        """[nodes] whether a chain of waiting leads from there to one of ``nodes``."""
        entry = np.full(len(nodes), self.nodes)  # one more node, which sees all of ``nodes``
        backwards = np.concatenate([self.target, entry]), np.concatenate([self.source, nodes])
        matrix = self._matrix(*backwards, self.nodes + 1)
        seen = np.zeros(self.nodes + 1, np.bool_)
        seen[breadth_first_order(matrix, self.nodes, return_predecessors=False)] = True
        return seen[: self.nodes]

    @staticmethod
    def _matrix(source: Ints, target: Ints, nodes: int) -> Any:
        edges = np.ones(len(source), np.bool_), (source, target)
        # scipy has no types here
        return csr_array(edges, shape=(nodes, nodes))  # type: ignore[no-untyped-call]


def graph(s: Snapshot, f: Fronts) -> Graph:
    """Rank r is node r, group g is node N + g. A stuck rank waits for nobody, whatever it has queued
    behind."""
    n = len(s.ranks)
    stuck = np.zeros(n, np.bool_)
    stuck[s.rank[f.passed]] = True
    waits = f.waiting & ~stuck[s.rank]
    holds = f.blocking | (f.waiting & f.even[s.group])
    source = np.concatenate([s.rank[waits], n + s.group[holds]])
    target = np.concatenate([n + s.group[waits], s.rank[holds]])
    return Graph(source, target, n + len(s.groups))

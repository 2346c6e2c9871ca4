"""CPU time of one root-cause step against its bar: ``python tests/benchmarks/root_cause.py``.

10,240 ranks in 4 groups each (TP8 PP8, data and expert groups), the whole job stalled by planted culprits.
"""

import sys
from time import process_time

import numpy as np

from lineside.mycroft.evidence import Calls, Flags, Ints, Snapshot
from lineside.mycroft.root_cause import find_root_cause

BAR_MS = 20.0
REPEATS = 15
TP, PP = 8, 8


def groups_of(ranks: int) -> tuple[Ints, int]:
    """[ranks, 4] the tensor, data, pipeline and expert group of each rank, and the number of groups."""
    dp = ranks // (TP * PP)
    r = np.arange(ranks)
    t, d, p = r % TP, (r // TP) % dp, r // (TP * dp)
    data = p * TP + t
    columns, count = [], 0
    for group in (r // TP, data, d * TP + t, data * ((dp + 7) // 8) + d // 8):
        names, index = np.unique(group, return_inverse=True)
        columns.append(index + count)
        count += len(names)
    return np.stack(columns, 1), count


def stalled(groups: Ints, count: int, culprits: list[int]) -> Snapshot:
    """The culprits stop before operation 100 of their tensor group; the stall spreads through all groups."""
    ranks = len(groups)
    halted: Flags = np.zeros(ranks, np.bool_)
    halted[culprits] = True
    open_seq = np.full((ranks, 4), -1, np.int64)
    completed = np.full((ranks, 4), 99, np.int64)
    front = np.array(culprits)
    while len(front):
        reached = []
        for kind in (0, 3, 1, 2):
            near = np.isin(groups[:, kind], groups[front, kind])
            waits = np.flatnonzero(near & ~halted)
            halted[waits] = True
            open_seq[waits, kind] = 100
            reached.append(waits)
        front = np.concatenate(reached)
    slots = groups.size
    called = np.flatnonzero(open_seq.ravel() >= 0)
    calls = Calls(
        called // 4, groups.ravel()[called], open_seq.ravel()[called],
        np.zeros(len(called), np.int64), np.full(len(called), 1 << 20),
    )  # fmt: skip
    return Snapshot(
        ranks=np.arange(ranks), reported=np.ones(ranks, np.bool_),
        groups=[str(g) for g in range(count)], operations=["all_reduce"],
        rank=np.repeat(np.arange(ranks), 4), group=groups.ravel(), open_seq=open_seq.ravel(),
        completed_seq=completed.ravel(), op=np.zeros(slots, np.int64),
        order=np.tile(np.arange(4), ranks), started=np.full(slots, -1),
        doubtful=np.zeros(slots, np.bool_), calls=calls,
    )  # fmt: skip


def main() -> int:
    print(f"bar: {BAR_MS} ms CPU for 10,240 ranks x 4 groups, best of {REPEATS}")
    missed = False
    for ranks, culprits in ((1_024, [517]), (10_240, [517]), (10_240, [3, 4_099, 9_000])):
        snapshot = stalled(*groups_of(ranks), culprits)
        best = float("inf")
        for _ in range(REPEATS):
            start = process_time()
            verdict = find_root_cause(snapshot)
            best = min(best, process_time() - start)
        right = list(verdict.culprits) == culprits
        missed |= not right or best * 1e3 > BAR_MS
        print(
            f"{ranks:6} ranks, {len(culprits)} culprits: {best * 1e3:6.2f} ms (bar {BAR_MS} ms), "
            f"{'right' if right else f'WRONG {verdict.culprits}'}, {len(verdict.victims)} victims"
        )
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())

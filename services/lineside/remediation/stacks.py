"""Stacks of many ranks side by side: equal ones once, the rarest (where the odd one out is) first. Pure."""

from collections.abc import Iterable, Mapping
from typing import Any


def side_by_side(results: Iterable[tuple[int, Mapping[str, Any]]]) -> list[dict[str, Any]]:
    """Groups of ranks whose main threads stand at the same place, from (rank, a reply's result).

    >>> at = lambda *frames: {"stacks": [{"threads": ["main"], "frames": list(frames)}]}
    >>> waits = at("all_reduce (train.py:9)")
    >>> groups = side_by_side([(0, waits), (1, at("sleep (x.py:1)")), (2, waits)])
    >>> [(group["ranks"], group["frames"]) for group in groups]
    [([1], ['sleep (x.py:1)']), ([0, 2], ['all_reduce (train.py:9)'])]
    """
    groups: dict[tuple[str, ...], list[int]] = {}
    for rank, result in results:
        groups.setdefault(_main(result), []).append(rank)
    found = [{"ranks": sorted(ranks), "frames": list(key)} for key, ranks in groups.items()]
    return sorted(found, key=lambda group: (len(group["ranks"]), group["ranks"]))


def _main(result: Mapping[str, Any]) -> tuple[str, ...]:
    """The first stack's frames; agents of others may send anything."""
    match result.get("stacks"):
        case [{"frames": [*frames]}, *_]:
            return tuple(map(str, frames))
    return ()


def spans(ranks: Iterable[int]) -> str:
    """
    >>> spans([0, 1, 2, 5, 7, 8])
    '0-2, 5, 7-8'
    """
    runs: list[list[int]] = []
    for rank in sorted(ranks):
        if runs and rank == runs[-1][1] + 1:
            runs[-1][1] = rank
        else:
            runs.append([rank, rank])
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)

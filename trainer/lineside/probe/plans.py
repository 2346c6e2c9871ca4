"""Plans on the rank's side: the newest one in the run folder, and agreeing on the step to switch at.

Ranks see a new plan file at different moments, yet all must switch at one step boundary. Each adds its
newest revision r and r squared to a sum that the step reduces over the world anyway. All hold the same
revision exactly where the variance is zero, that is where W * sum(r^2) = (sum r)^2; every rank sees the
same sums, so every rank draws the same conclusion.
"""

import os
from pathlib import Path

import msgspec

from lineside.contracts import Plan

_MAX_BYTES = 8 * 1024 * 1024


def common_revision(total: float, squares: float, world_size: int) -> int | None:
    """The one revision that all ``world_size`` ranks put in, or None where they differ.

    Exact in integers: the product of sums does not fit a float64's 53 bits on a large world.

    >>> common_revision(12.0, 48.0, 3)
    4
    >>> common_revision(11.0, 41.0, 3) is None
    True
    """
    try:
        s1, s2 = int(total), int(squares)
    except (ValueError, OverflowError):  # NaN, infinity
        return None
    if s1 != total or s2 != squares or world_size < 1 or world_size * s2 != s1 * s1:
        return None
    return s1 // world_size


class PlanFile:
    """The ``plan`` file of a run folder, which the agent replaces atomically."""

    def __init__(self, folder: Path) -> None:
        self._path = str(folder / "plan")
        self._signature: tuple[int, int, int] | None = None
        self._plan: Plan | None = None

    def newest(self) -> Plan | None:
        """The plan as it stands; one stat call where nothing changed. Raises what is wrong with a new one
        once, and keeps the plan before it."""
        try:
            found = os.stat(self._path)
        except FileNotFoundError:
            return self._plan
        signature = (found.st_ino, found.st_mtime_ns, found.st_size)
        if signature != self._signature:
            self._signature = signature
            if found.st_size > _MAX_BYTES:
                raise ValueError(f"the plan file takes {found.st_size} bytes")
            with open(self._path, "rb") as file:
                self._plan = msgspec.json.decode(file.read(_MAX_BYTES), type=Plan)
        return self._plan

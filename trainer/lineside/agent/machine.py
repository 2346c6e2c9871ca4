"""What this machine does for its ranks, once a second, by psutil.

An agent samples its own scope: the process trees of its ranks and nothing else. When several agents share a
host, as in a demo, each "machine" so shows its own numbers; what cannot be told per process (the network) is
absent rather than the same everywhere.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import nan
from typing import NamedTuple

import psutil

from lineside.contracts import Series

SERIES = [
    Series("cpu_utilization_ratio"),
    Series("memory_used_bytes"),
    Series("disk_bytes_per_second"),
]
_RESCAN_S = 5.0
"""Looking for new processes reads all of /proc (about 10 ms), so it is not done each second."""


class Sample(NamedTuple):
    """One interval of ``interval_s`` that began at ``start_ns`` (monotonic); values as in ``SERIES``."""

    start_ns: int
    interval_s: float
    values: list[float]


@dataclass(slots=True)
class _Used:
    cpu_s: float
    disk_bytes: float
    memory_bytes: int


@dataclass(slots=True)
class ScopeSampler:
    """CPU (of all the host's cores), resident memory and disk traffic of this agent's children."""

    _known: dict[int, psutil.Process] = field(default_factory=dict)
    _before: Mapping[int, _Used] = field(default_factory=dict)
    _sampled_ns: int = field(default_factory=time.monotonic_ns)
    _scanned_ns: int = -1
    seen: set[int] = field(default_factory=set)
    """Every process that was ever found."""

    def sample(self) -> Sample:
        now = time.monotonic_ns()
        if self._scanned_ns < 0 or now - self._scanned_ns > _RESCAN_S * 1e9:
            self._scan()
            self._scanned_ns = now
        used = {pid: used for pid, process in self._known.items() if (used := _used(process))}
        self._known = {pid: self._known[pid] for pid in used}
        start_ns, self._sampled_ns = self._sampled_ns, now
        interval_s = max((now - start_ns) / 1e9, 1e-3)
        both = [
            (self._before[pid], now_used) for pid, now_used in used.items() if pid in self._before
        ]
        self._before = used
        cpu_s = sum(after.cpu_s - before.cpu_s for before, after in both)
        disk = sum(after.disk_bytes - before.disk_bytes for before, after in both)
        memory = sum(one.memory_bytes for one in used.values())
        cores = psutil.cpu_count() or 1
        return Sample(
            start_ns, interval_s, [cpu_s / interval_s / cores, float(memory), disk / interval_s]
        )

    def _scan(self) -> None:
        found = {child.pid: child for child in psutil.Process().children(recursive=True)}
        self._known = {pid: self._known.get(pid, child) for pid, child in found.items()}
        self.seen.update(found)


def _used(process: psutil.Process) -> _Used | None:
    """What a process has used so far; None where it is gone or not ours to see."""
    try:
        with process.oneshot():
            cpu = process.cpu_times()
            return _Used(
                cpu_s=cpu.user + cpu.system,
                disk_bytes=_disk_bytes(process),
                memory_bytes=process.memory_info().rss,
            )
    except psutil.Error:
        return None


def _disk_bytes(process: psutil.Process) -> float:
    """NaN where the kernel does not tell, or not us."""
    try:
        io = process.io_counters()
    except (psutil.AccessDenied, AttributeError):  # psutil lacks the method without /proc/PID/io
        return nan
    return float(io.read_bytes + io.write_bytes)

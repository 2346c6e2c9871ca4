"""The time of an accelerator, emulated: work that takes time but no CPU.

A sleep *until* a deadline would hide a rank that is stopped half of the time: its deadline passes while it
stands still. So the emulated work is done in slices of about a millisecond, each credited at most with the
time that the thread ran or was ready to run, plus ``grace_s``. A process stopped for 40 ms out of 60 then
falls behind about threefold, as an accelerator does that is throttled itself. Waiting for a CPU that others
use is credited (an accelerator would not wait), which keeps a micro-batch's time steady on a busy host.
"""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Clock = Callable[[], float]

_SHORTEST_S = 1e-5
"""A sleep takes longer than this however short it is asked to be."""


class ReadyClock:
    """Seconds in which the constructing thread ran or was ready to run: not asleep, not stopped.

    The second half needs Linux's schedstat; without it, waiting for a CPU does not count.
    """

    def __init__(self) -> None:
        try:
            self._schedstat = os.open("/proc/thread-self/schedstat", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            self._schedstat = -1

    def __call__(self) -> float:
        ran = time.thread_time()
        if self._schedstat < 0:
            return ran
        return ran + int(os.pread(self._schedstat, 64, 0).split()[1]) / 1e9


class Accelerator:
    """Fills up real compute to ``units * unit_s`` seconds of emulated work. ``unit_s`` 0 adds nothing.

    For one thread. ``grace_s`` must exceed ``slice_s`` by what a sleep is usually late.

    >>> accelerator = Accelerator(0.002)
    >>> with accelerator.busy(units=1):
    ...     pass  # the real forward or backward
    """

    def __init__(
        self,
        unit_s: float,
        *,
        slice_s: float = 0.0015,
        grace_s: float = 0.002,
        clock: Clock = time.perf_counter,
        ready_clock: Clock | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._unit_s = unit_s
        self._slice_s = slice_s
        self._grace_s = grace_s
        self._clock = clock
        self._ready_clock = ready_clock or ReadyClock()
        self._sleep = sleep

    @contextmanager
    def busy(self, units: float) -> Iterator[None]:
        """Do the body as part of ``units`` of work, then the rest of it in slices."""
        wall, ready = self._clock(), self._ready_clock()
        yield
        left = units * self._unit_s
        while True:
            wall_now, ready_now = self._clock(), self._ready_clock()
            left -= min(wall_now - wall, ready_now - ready + self._grace_s)
            if left < _SHORTEST_S:
                return
            wall, ready = wall_now, ready_now
            self._sleep(min(self._slice_s, left))

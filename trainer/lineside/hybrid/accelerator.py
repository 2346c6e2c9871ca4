"""The time of an accelerator, emulated: work that takes time but no CPU.

A sleep *until* a deadline would hide a rank that is stopped half of the time: its deadline passes while it
stands still. So the emulated work is done in slices of about a millisecond, and a slice is credited at most
``grace_s`` beyond the CPU time that it really had. A process stopped for 40 ms out of 60 then falls behind
about threefold, as a real accelerator behind a throttled host does, while the jitter of sleeps and of a busy
machine (below the grace) is absorbed, which keeps the healthy time of a micro-batch steady.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Clock = Callable[[], float]


class Accelerator:
    """Fills up real compute to ``units * unit_s`` seconds of emulated work. ``unit_s`` 0 adds nothing.

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
        cpu_clock: Clock = time.thread_time,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._unit_s = unit_s
        self._slice_s = slice_s
        self._grace_s = grace_s
        self._clock = clock
        self._cpu_clock = cpu_clock
        self._sleep = sleep

    @contextmanager
    def busy(self, units: float) -> Iterator[None]:
        """Do the body as part of ``units`` of work, then the rest of it in slices."""
        wall, cpu = self._clock(), self._cpu_clock()
        yield
        left = units * self._unit_s
        while True:
            now, cpu_now = self._clock(), self._cpu_clock()
            left -= min(now - wall, cpu_now - cpu + self._grace_s)
            if left <= 0.0:
                return
            wall, cpu = now, cpu_now
            self._sleep(min(self._slice_s, left))

"""Victims: processes that count, so that one sees whether, and how fast, they run."""

import mmap
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator

import psutil
import pytest

TICKER = """
import mmap, sys, time
ticks = memoryview(mmap.mmap(int(sys.argv[1]), 8)).cast("q")
while True:
    ticks[0] += 1
    time.sleep(0.001)
"""


class Victim:
    """Counts about a thousand ticks a second while it runs."""

    def __init__(self) -> None:
        with tempfile.TemporaryFile() as file:
            file.truncate(8)
            self._ticks = memoryview(mmap.mmap(file.fileno(), 8)).cast("q")
            command = [sys.executable, "-c", TICKER, str(file.fileno())]
            self.process = subprocess.Popen(command, pass_fds=[file.fileno()])
        self.pid = self.process.pid
        wait_for(lambda: self.ticks > 0)

    @property
    def ticks(self) -> int:
        return int(self._ticks[0])

    @property
    def stopped(self) -> bool:
        return psutil.Process(self.pid).status() == psutil.STATUS_STOPPED

    def runs(self) -> bool:
        """It ticks and is not being stopped, over ten looks."""
        before = self.ticks
        for _ in range(10):
            time.sleep(0.01)
            if self.stopped:
                return False
        return self.ticks > before

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


def wait_for(condition: Callable[[], bool], deadline_s: float = 30.0) -> None:
    end = time.monotonic() + deadline_s
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.002)


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "lineside.faults.throttle", *map(str, arguments)]


def throttler(*arguments: object) -> subprocess.Popen[bytes]:
    return subprocess.Popen(command(*arguments))


@pytest.fixture
def victim() -> Iterator[Victim]:
    found = Victim()
    yield found
    found.kill()

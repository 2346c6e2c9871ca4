"""An agent's scope: its own children, and nothing of the rest of the host."""

import subprocess
import sys
import time
from collections.abc import Iterator

import psutil
import pytest

from lineside.agent.machine import SERIES, ScopeSampler

CPU, MEMORY, DISK = (
    [series.name for series in SERIES].index(name)
    for name in ("cpu_utilization_ratio", "memory_used_bytes", "disk_bytes_per_second")
)
BUSY = "import time; end = time.monotonic() + 60\nwhile time.monotonic() < end: pass"


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([sys.executable, "-c", BUSY]) as process:
        yield process
        process.kill()


def used_cpu(pid: int) -> bool:
    return psutil.Process(pid).cpu_times().user > 0.1


def test_what_a_child_uses_is_seen(child: subprocess.Popen[bytes]) -> None:
    sampler = ScopeSampler()
    first = sampler.sample()
    assert first.values[MEMORY] > 1e5 and first.values[CPU] == 0.0
    deadline = time.monotonic() + 30
    while not used_cpu(child.pid) and time.monotonic() < deadline:
        time.sleep(0.02)
    second = sampler.sample()
    assert 0 < second.values[CPU] <= 1.1
    assert second.values[DISK] >= 0
    assert second.start_ns > first.start_ns and second.interval_s > 0


def test_a_child_that_is_gone_counts_no_more(child: subprocess.Popen[bytes]) -> None:
    sampler = ScopeSampler()
    before = sampler.sample().values[MEMORY]
    child.kill()
    child.wait()
    after = sampler.sample().values
    assert after[MEMORY] < before and after[CPU] == 0.0

"""A rank slowed down from outside shows in its own compute, and in nobody else's."""

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from numpy.typing import NDArray

from lineside.probe.reader import ProbeReader

VICTIM = 2


def wait_for(condition: Callable[[], bool], deadline_s: float = 60.0) -> None:
    end = time.monotonic() + deadline_s
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.05)


def test_the_throttled_rank_is_the_one_that_computes_longer(launcher: Any, tmp_path: Path) -> None:
    launcher.start("until_stopped", tmp_path)
    paths = [tmp_path / f"probe.{rank}" for rank in range(4)]
    wait_for(lambda: all(path.exists() for path in paths))
    readers = [ProbeReader(path) for path in paths]

    def step() -> int:
        live = readers[0].live()
        return live.step if live else -1

    wait_for(lambda: step() >= 15)
    victim, truth = readers[VICTIM].pid, tmp_path / "truth.jsonl"
    command = [sys.executable, "-m", "lineside.faults.throttle", "--pid", str(victim)]
    command += ["--slowdown", "3", "--rank", str(VICTIM), "--truth", str(truth)]
    throttler = subprocess.Popen(command)
    try:
        wait_for(truth.exists)
        first = step() + 2
        wait_for(lambda: step() >= first + 12)
        last = step() - 1
    finally:
        throttler.terminate()
        assert throttler.wait(10) == 0
    assert psutil.Process(victim).status() != psutil.STATUS_STOPPED
    recovered = step() + 2
    wait_for(lambda: step() >= recovered + 8)
    (tmp_path / "stop").touch()
    ended = launcher.wait(tmp_path)
    assert len({rank["steps"] for rank in ended}) == 1, "all ranks end after the same step"

    rows = [reader.steps()[0] for reader in readers]

    def compute(begin: int, end: int) -> NDArray[np.float64]:
        """By rank. The lower quartile: what a busy host adds to some steps is not the question."""
        inside = [row[(row["step"] >= begin) & (row["step"] <= end)] for row in rows]
        return np.array([np.quantile(row["compute_ns"], 0.25) for row in inside])

    before, during, after = compute(5, 14), compute(first, last), compute(recovered, 10**9)
    peers = [rank for rank in range(4) if rank != VICTIM]
    assert during[VICTIM] > 2 * during[peers].max(), "it stands out among its peers"
    assert (during[peers] < 1.5 * before[peers]).all(), "whose own compute stays what it was"
    assert after[VICTIM] < 1.5 * after[peers].max(), "and it is whole again afterwards"

    onset, end = map(json.loads, truth.read_text().splitlines())
    assert onset["truth_id"] == end["truth_id"] and onset["to_ns"] == -1
    assert (end["what"], end["pid"], end["rank"]) == ("slow_compute", victim, VICTIM)
    assert onset["from_ns"] == end["from_ns"] < end["to_ns"]
    assert 2.0 < end["measured"] < 4.0

"""``python -m lineside.hybrid`` as a program: alone, ended politely, and with a grid that cannot be."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from lineside.probe.reader import ProbeReader

COMMAND = [sys.executable, "-m", "lineside.hybrid", "--micro-batches", "2"]


def test_sigterm_ends_it_after_a_whole_step_and_a_wrong_grid_at_once(tmp_path: Path) -> None:
    env = {name: text for name, text in os.environ.items() if not name.startswith("LINESIDE_")}
    recorded = env | {"LINESIDE_RUN_DIR": str(tmp_path)}
    wrong = subprocess.Popen([*COMMAND, "--dp", "2"], env=env, stderr=subprocess.PIPE, text=True)
    alone = subprocess.Popen([*COMMAND, "--seconds", "600"], env=recorded)
    try:
        deadline = time.monotonic() + 120
        finished = 0
        while finished < 2:
            assert alone.poll() is None and time.monotonic() < deadline
            time.sleep(0.1)
            if (tmp_path / "probe.0").exists():
                live = ProbeReader(tmp_path / "probe.0").live()
                finished = live.steps if live else 0
        alone.send_signal(signal.SIGTERM)
        assert alone.wait(30) == 0
        _, said = wrong.communicate(timeout=120)
    finally:
        alone.kill()
        wrong.kill()
    assert wrong.returncode == 2
    assert "dp 2 x pp 1 is not 1 ranks" in said

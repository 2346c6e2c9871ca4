"""The example runs by itself, and is recorded where a run folder is given."""

import os
import subprocess
import sys
from pathlib import Path

from lineside.probe.reader import ProbeReader

EXAMPLE = Path(__file__).parents[3] / "trainer" / "examples" / "plain_loop.py"


def test_it_runs_alone_and_under_an_agent(tmp_path: Path) -> None:
    alone = {name: text for name, text in os.environ.items() if not name.startswith("LINESIDE_")}
    under_an_agent = alone | {"LINESIDE_RUN_DIR": str(tmp_path), "RANK": "0"}
    running = [
        subprocess.Popen([sys.executable, EXAMPLE], env=env, stdout=subprocess.PIPE, text=True)
        for env in (alone, under_an_agent)
    ]
    for process in running:
        said, _ = process.communicate(timeout=120)
        assert process.returncode == 0
        assert float(said.removeprefix("last loss ")) < 1e-3
    rows, lost = ProbeReader(tmp_path / "probe.0").steps()
    assert (rows["step"] == range(200)).all() and lost == 0
    assert rows["loss"][-1] < 1e-3 < rows["loss"][0]

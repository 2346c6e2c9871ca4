"""What people on the machine are told of agents, living and dead."""

import json
import os
import time
from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner

from lineside.agent import status as status_module
from lineside.agent.status import AgentStatus, RankStatus, find, write_status
from lineside.cli.main import build


def agent(machine_id: str = "machine-0", **changes: object) -> AgentStatus:
    base = AgentStatus(
        pid=2**22 + 1,  # above what Linux gives
        job_id="gpt",
        run_id="run-1",
        generation=0,
        machine_id=machine_id,
        state="running",
        at_ns=time.time_ns(),
        revision=3,
        waiting=12,
        ranks=[
            RankStatus(
                rank=0, pid=7, state="running", step=41, phase="comm", exit_code=-1, signal=-1
            ),
            RankStatus(rank=1, pid=8, state="exited", step=40, phase="", exit_code=-1, signal=9),
        ],
    )
    return msgspec.structs.replace(base, **changes)


def told(folder: Path, *options: str) -> tuple[int, str]:
    app = build(["agent"])
    result = CliRunner().invoke(app, ["agent", "status", str(folder), *options])
    return result.exit_code, result.output


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for machine_id, changes in {
        "machine-0": {},
        "machine-1": {"state": "gone"},
        "machine-2": {"at_ns": time.time_ns() - 60 * 10**9},
    }.items():
        (tmp_path / "run" / machine_id).mkdir(parents=True)
        write_status(tmp_path / "run" / machine_id, agent(machine_id, **changes))
    (tmp_path / "status.json").write_text("no status")
    return tmp_path


def test_the_dead_cannot_say_that_they_are(folder: Path) -> None:
    found = {one.agent.machine_id: one for one in find([folder])}
    assert {machine: one.says for machine, one in found.items()} == {
        "machine-0": "died",
        "machine-1": "gone",
        "machine-2": "died",
    }
    assert found["machine-2"].age_s >= 60
    assert told(folder)[0] == 3
    code, text = told(folder, "--all")
    assert code == 3 and "signal 9" in text and "no agent runs" in text


def test_the_living_are_shown_and_late_ones_are_silent(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(status_module, "_is_agent", lambda pid: True)
    code, text = told(folder, "--json")
    rows = {row["agent"]["machine_id"]: row for row in json.loads(text)}
    assert code == 0
    assert [rows[f"machine-{n}"]["says"] for n in range(3)] == ["running", "gone", "silent"]
    assert rows["machine-0"]["agent"]["waiting"] == 12
    assert "machine-0" in told(folder)[1]


def test_a_pid_that_is_somebody_elses_is_no_agent() -> None:
    assert not status_module._is_agent(os.getpid())

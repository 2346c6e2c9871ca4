"""``lineside faults``: exit codes and what is printed."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from lineside.faults.commands import NO_TARGET, USAGE, faults
from lineside.faults.target import NoTarget, Target
from lineside.probe import Probe

from .conftest import Victim

run = CliRunner().invoke


def test_list() -> None:
    assert "slow-compute" in run(faults, ["list"]).stdout
    assert "slow-compute" in json.loads(run(faults, ["list", "--json"]).stdout)


def test_slow_compute_prints_the_truth(victim: Victim) -> None:
    arguments = ["--pid", str(victim.pid), "--seconds", "0.3", "--slowdown", "2"]
    result = run(faults, ["inject", "slow-compute", *arguments])
    assert result.exit_code == 0
    truth = json.loads(result.stdout)
    assert (truth["pid"], truth["wanted"]) == (victim.pid, 2.0)
    assert victim.runs()


def test_a_process_or_a_rank_must_be_named() -> None:
    result = run(faults, ["inject", "slow-compute"])
    assert result.exit_code == USAGE and "--pid or --run-dir" in result.stderr


def test_a_rank_without_a_probe_file(tmp_path: Path) -> None:
    arguments = ["--run-dir", str(tmp_path), "--rank", "3"]
    result = run(faults, ["inject", "slow-compute", *arguments])
    assert result.exit_code == NO_TARGET and "rank 3 has no probe file" in result.stderr


def test_a_rank_is_found_by_its_probe_file(tmp_path: Path) -> None:
    """Ours, so that it must be refused: nobody stops himself."""
    Probe.create(tmp_path, 3)
    arguments = ["--run-dir", str(tmp_path), "--rank", "3"]
    result = run(faults, ["inject", "slow-compute", *arguments])
    assert result.exit_code == NO_TARGET and "is no target" in result.stderr


def test_a_target_of_another_user(victim: Victim, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 54321)
    with pytest.raises(NoTarget, match="another user"):
        Target(victim.pid)


def test_a_dead_target_can_be_signalled_without_harm(victim: Victim) -> None:
    target = Target(victim.pid)
    assert target.alive
    victim.process.kill()
    victim.process.wait()
    assert not target.alive
    target.stop()
    target.resume()

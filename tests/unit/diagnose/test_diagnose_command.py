"""``lineside diagnose``: its exit codes, its JSON and what people read."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from lineside.cli.main import build

DATA = Path(__file__).parents[2] / "data" / "flight_recorder"
KEYS = {
    "kind", "class", "culprits", "victims", "groups", "operation", "confidence", "summary", "evidence",
    "missing_ranks", "skipped_files",
}  # fmt: skip


def call(*words: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(build(["diagnose"]), ["diagnose", *words])
    return result.exit_code, result.stdout, result.stderr


@pytest.mark.parametrize(
    ("case", "code"),
    [("gloo/hang_sleep/json", 0), ("gloo/mismatch_op/pickle", 0), ("gloo/healthy/json", 1)],
)
def test_exit_code_and_json(case: str, code: int) -> None:
    exit_code, out, _ = call(str(DATA / case), "--json")
    assert exit_code == code
    assert set(json.loads(out)) == KEYS


def test_cannot_tell_exits_2_and_says_what_is_missing() -> None:
    folder = DATA / "gloo" / "healthy" / "json"
    code, out, _ = call(*(str(folder / f"rank_{rank}.json") for rank in (0, 1, 3)))
    assert code == 2
    assert out.startswith("Cannot tell")
    assert "records of rank 2" in out


def test_nothing_readable_exits_3(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("nothing")
    code, out, err = call(str(tmp_path), "--json")
    assert (code, out) == (3, "")
    assert "Nothing to diagnose" in err


def test_groups_that_cannot_be_used_exit_3(tmp_path: Path) -> None:
    code, _, err = call(str(DATA / "gloo/dead/json"), "--groups", str(tmp_path / "no.json"))
    assert code == 3
    assert "Cannot use the groups" in err


def test_a_wrong_command_line_exits_64() -> None:
    answer = subprocess.run(
        [sys.executable, "-m", "lineside.cli", "diagnose"], capture_output=True, check=False
    )
    assert answer.returncode == 64


def test_people_read_who_and_why() -> None:
    code, out, _ = call(str(DATA / "megatron_moe" / "lock_gil_1st"))
    assert code == 0
    assert "Ranks 9 and 14 never called" in out
    assert "hang, absent" in out
    assert "skipped" in out
    assert "fault_injection.log" in out

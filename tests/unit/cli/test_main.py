"""The table of commands: every entry exists, explains itself, and is loaded only when called."""

import subprocess
import sys
from importlib.metadata import version
from typing import Any

import pytest
from typer.testing import CliRunner

from lineside.cli import main as cli
from lineside.cli.main import COMMANDS, build

runner = CliRunner()


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_with_an_example(name: str) -> None:
    answer = runner.invoke(build([name]), [name, "--help"], terminal_width=200)
    assert answer.exit_code == 0, answer.output
    assert "Usage" in answer.output


def test_the_overview_loads_no_room() -> None:
    program = (
        "import sys; from lineside.cli.main import build; build(['--help']);"
        "print([m for m in ('faust', 'torch', 'sqlalchemy', 'confluent_kafka') if m in sys.modules])"
    )
    answer = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert answer.stdout.strip() == "[]"


def test_the_version_is_told() -> None:
    answer = subprocess.run(
        [sys.executable, "-m", "lineside.cli", "--version"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert answer.stdout == f"lineside {version('lineside')}\n"


def test_a_wrong_command_line_exits_64() -> None:
    for words in (["nonsense"], ["record"], ["replay", "--detector", "nobody", "x"]):
        answer = subprocess.run(
            [sys.executable, "-m", "lineside.cli", *words],
            capture_output=True,
            text=True,
            check=False,
        )
        assert answer.returncode == cli.USAGE, answer.stderr
        assert "Error" in answer.stderr


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setitem(
        COMMANDS, "record", cli.Entry("lineside.cli.needs_what_is_not_there:x", "help")
    )
    with pytest.raises(ModuleNotFoundError):  # our own module missing is a bug, not an extra
        build(["record"])
    monkeypatch.setitem(COMMANDS, "record", cli.Entry("no_such_package:x", "help"))
    with pytest.raises(SystemExit) as ended:
        build(["record"])
    assert ended.value.code == 69
    assert "needs the package 'no_such_package'" in capsys.readouterr().err

"""The table of commands, of which only the called one is loaded.

A room offers its commands in ``commands.py``: a ``typer.Typer`` for a group of commands, a plain function for
a single one. Help of the whole program needs no room at all: the one-line texts stand here.
"""

import importlib
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import Annotated, Any

import typer


@dataclass(frozen=True, slots=True)
class Entry:
    """Where a command lives (``module:attribute``) and what it does, in one line."""

    target: str
    help: str


COMMANDS: dict[str, Entry] = {
    "demo": Entry(
        "lineside.cli.demo:demo", "See it work: a real run, a real fault, found and healed."
    ),
    "up": Entry("lineside.cli.up:up", "Start Kafka and all services, without a run."),
    "run": Entry("lineside.agent.commands:run", "Run a training program under agents."),
    "agent": Entry("lineside.agent.commands:agent", "See what the agents on this machine do."),
    "jobs": Entry("lineside.remediation.commands:jobs", "List the jobs that are being watched."),
    "incidents": Entry("lineside.remediation.commands:incidents", "List and show incidents."),
    "plan": Entry("lineside.remediation.commands:plan", "Give a job a plan by hand."),
    "request": Entry(
        "lineside.remediation.request_command:request", "Ask a run's agents for evidence."
    ),
    "alerts": Entry("lineside.remediation.commands:alerts", "Follow the stream of alerts."),
    "record": Entry("lineside.diagnose.commands:record", "Write topics to a file as JSON lines."),
    "replay": Entry("lineside.diagnose.commands:replay", "Feed a recording to a detector."),
    "dead-letters": Entry(
        "lineside.diagnose.commands:dead_letters", "List the records that no reader could use."
    ),
    "diagnose": Entry(
        "lineside.diagnose.hangs:diagnose", "Say from Flight Recorder dumps why a job hangs."
    ),
    "faults": Entry("lineside.faults.commands:faults", "Break a run on purpose."),
    "kafka": Entry("lineside.bus.commands:kafka", "Start and stop a local Apache Kafka."),
    "topics": Entry("lineside.bus.commands:topics", "Create and list the topics."),
    "keys": Entry("lineside.cli.keys:keys", "Create keys that sign plans and requests."),
    "db": Entry("lineside.remediation.commands:db", "Upgrade and check the incident database."),
}


USAGE = 64
"""Exit code of a wrong command line (EX_USAGE), so that 1, 2 and 3 can mean findings."""

# Typer exports only this leaf of its error tree; its parents are the usage error and the root.
_UsageError: Any
_ClickException: Any
_UsageError, _ClickException = typer.BadParameter.__mro__[1:3]


def build(words: Sequence[str]) -> typer.Typer:
    """The program for a command line of ``words``: the command it names is imported, the others are known
    by their line in the table."""
    app = typer.Typer(
        name="lineside",
        help="Watches training runs, says which machine is at fault, and heals the run.",
        epilog="Try `lineside demo` first. Each command explains itself: lineside COMMAND --help",
        context_settings={"help_option_names": ["-h", "--help"]},
        pretty_exceptions_enable=False,
    )
    app.callback()(_program)
    called = next((word for word in words if word in COMMANDS), None)
    for name, entry in COMMANDS.items():
        if name != called:
            app.command(name, help=entry.help)(_not_called)
            continue
        found = _load(name, entry)
        if isinstance(found, typer.Typer):
            app.add_typer(found, name=name, help=entry.help, no_args_is_help=True)
        else:
            app.command(name)(found)
    return app


def _program(
    show_version: Annotated[
        bool,
        typer.Option(
            "--version",
            is_eager=True,
            callback=lambda asked: _show_version() if asked else None,
            help="Show the version and exit.",
        ),
    ] = False,
) -> None:
    """The options of the program itself."""


def _show_version() -> None:
    typer.echo(f"lineside {version('lineside')}")
    raise typer.Exit


def _not_called() -> None:
    """Stands in the overview for a command that this command line does not name."""


def _load(name: str, entry: Entry) -> Any:
    """What ``entry`` points to. Exits with a clear message where a package of its room is missing."""
    module, attribute = entry.target.split(":")
    try:
        return getattr(importlib.import_module(module), attribute)
    except ModuleNotFoundError as error:
        if error.name and error.name.startswith("lineside"):
            raise
        typer.echo(
            f"`lineside {name}` needs the package {error.name!r}, which is not installed: "
            'pip install "lineside[services,local,torch]" has everything',
            err=True,
        )
        sys.exit(69)


def main() -> None:
    """Entry point of the ``lineside`` script."""
    # Shell completion passes the words so far in the environment.
    words = [*sys.argv[1:], *os.environ.get("_TYPER_COMPLETE_ARGS", "").split()]
    try:
        result = build(words)(sys.argv[1:] or ["--help"], standalone_mode=False)
    except _UsageError as error:
        error.show()
        sys.exit(USAGE)
    except _ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except typer.Abort:
        sys.exit(130)
    sys.exit(result if isinstance(result, int) else 0)

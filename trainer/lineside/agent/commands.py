"""``lineside run``: a training program under agents, from its start to its end; and ``lineside agent``, which
looks at agents from the machine that they run on."""

import json as json_module
import os
import re
import signal
import sys
import time
import uuid
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer
from rich.console import Console
from rich.table import Table

from lineside.agent.job import RunSpec
from lineside.agent.launcher import Launcher, launch
from lineside.agent.status import Found, RankStatus, find
from lineside.bus import BusError
from lineside.bus.connect import open_bus
from lineside.contracts import JobState
from lineside.kit.logging import configure
from lineside.kit.settings import BusSettings, home, read

_WIDE = 200  # where no terminal sets a limit, lines are not folded
_NOTHING_RUNS = 3
"""As init scripts have it."""
_POLL_S = 0.1


agent = typer.Typer(help="See what the agents on this machine do.", no_args_is_help=True)


@agent.callback()
def _group() -> None:
    """A group of commands, though it has one only."""


@agent.command("status")
def show_status(
    folder: Annotated[
        Path | None,
        typer.Argument(
            help="A run's folder, or one above several; Lineside's own runs unless given."
        ),
    ] = None,
    everyone: Annotated[
        bool, typer.Option("--all", help="Also agents that are gone; else those that live.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show agents and their ranks, as they stand in the run folders; needs no Kafka.

    `waiting` counts the records that Kafka has not taken yet. Exit code 3: no agent runs there.

    Example: lineside agent status --json
    """
    found = find([folder or home() / "runs"])
    living = any(one.alive for one in found)
    shown = found if everyone else [one for one in found if one.alive]
    if json:
        rows = [{"says": one.says, **msgspec.to_builtins(one)} for one in shown]
        typer.echo(json_module.dumps(rows, indent=2))
    elif shown:
        _print_agents(shown)
    if not living:
        typer.echo(f"no agent runs in {folder or home() / 'runs'}", err=True)
        raise typer.Exit(_NOTHING_RUNS)


def _print_agents(found: list[Found]) -> None:
    names = ("job", "machine", "agent", "plan", "waiting", "rank", "pid", "state", "step", "phase")
    table = Table(*names, box=None, pad_edge=False)
    for one in found:
        agent = one.agent
        said = f"{one.says}, {one.age_s:.0f} s ago"
        head = [agent.job_id, agent.machine_id, said, str(agent.revision), str(agent.waiting)]
        rows = [_cells(rank) for rank in agent.ranks] or [[""] * 5]
        for number, cells in enumerate(rows):
            table.add_row(*(head if number == 0 else [""] * 5), *cells)
    Console(width=None if sys.stdout.isatty() else _WIDE).print(table)


def _cells(rank: RankStatus) -> list[str]:
    state = rank.state
    if state == "exited":
        state += f" ({f'signal {rank.signal}' if rank.signal > 0 else rank.exit_code})"
    step = str(rank.step) if rank.step >= 0 else ""
    return [str(rank.rank), str(rank.pid), state, step, rank.phase]


def run(
    command: Annotated[
        list[str], typer.Argument(metavar="-- COMMAND...", help="The program that each rank runs.")
    ],
    job: Annotated[
        str | None, typer.Option(help="The job's name; made up from the program unless given.")
    ] = None,
    machines: Annotated[int, typer.Option(min=1, help='Agents to start: "machines".')] = 1,
    ranks_per_machine: Annotated[int, typer.Option(min=1, help="Ranks that each agent runs.")] = 1,
    bootstrap: Annotated[
        str | None,
        typer.Option(help="Kafka's HOST:PORT; else LINESIDE_BOOTSTRAP or the local broker."),
    ] = None,
    run_dir: Annotated[
        Path | None, typer.Option(help="Folder for probe files, logs and plans of this run.")
    ] = None,
    json: Annotated[
        bool, typer.Option("--json", help="Print the run's states as JSON lines and nothing else.")
    ] = False,
) -> None:
    """Run a training program under agents that watch it.

    Each rank gets RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT as under torchrun. A program
    that uses `lineside.probe` is seen step by step; any other one by its processes. What rank 0 prints is
    shown here, what each rank prints is in the run's folder. Ctrl-C ends the run, a second one kills it.

    Exit code: that of the rank which failed first (128 + the signal that ended it), 0 if all ended well,
    3 if a plan stopped the run, 130 after Ctrl-C, 69 if Kafka cannot be reached.

    Examples:

        lineside run -- python train.py

        lineside run --job gpt --machines 2 --ranks-per-machine 4 -- python -m lineside.hybrid --dp 4 --pp 2
    """
    configure(read(BusSettings).log_level)
    job_id = job or _made_up_name(command)
    folder = run_dir or home() / "runs" / job_id / time.strftime("%Y%m%d-%H%M%S")
    try:
        bus = open_bus(bootstrap)
        spec = RunSpec(
            job_id=job_id,
            command=command,
            run_dir=str(folder),
            machines=machines,
            ranks_per_machine=ranks_per_machine,
            environment={"LINESIDE_BOOTSTRAP": bus.bootstrap},
        )
        launcher = launch(spec, bus)
    except BusError as error:
        typer.echo(f"lineside run: {error}", err=True)
        raise typer.Exit(os.EX_UNAVAILABLE) from error
    except OSError as error:
        typer.echo(f"lineside run: cannot use the run's folder {folder}: {error}", err=True)
        raise typer.Exit(os.EX_CANTCREAT) from error
    raise typer.Exit(_watch(launcher, _Teller(launcher, json)))


class _Teller:
    """Says what becomes of a run: JSON lines on stdout, or words on stderr and rank 0's output on stdout."""

    def __init__(self, launcher: Launcher, json: bool) -> None:
        self._launcher = launcher
        self._json = json
        self._said: JobState | None = None
        self._output = launcher.folder("machine-0") / "rank-0.out"
        self._shown = 0

    def tell(self) -> None:
        if not self._json:
            self._show_output()
        state = self._launcher.job.state
        if state is self._said:
            return
        self._said = state
        end, spec = self._launcher.end, self._launcher.spec
        if self._json:
            said: dict[str, Any] = {
                "state": str(state),
                "job_id": spec.job_id,
                "run_id": self._launcher.run_id,
                "run_dir": spec.run_dir,
            }
            if end is not None:
                said |= {"exit_code": end.exit_code, "rank": end.rank, "detail": end.detail}
            typer.echo(json_module.dumps(said))
        else:
            where = f", {spec.machines} x {spec.ranks_per_machine} ranks, {spec.run_dir}"
            detail = f": {end.detail}" if end and end.detail else where if not end else ""
            typer.echo(f"lineside: {spec.job_id} is {state}{detail}", err=True)

    def _show_output(self) -> None:
        try:
            with self._output.open("rb") as file:
                file.seek(self._shown)
                while part := file.read(65536):
                    self._shown += len(part)
                    sys.stdout.buffer.write(part)
            sys.stdout.buffer.flush()
        except OSError:
            return  # it has printed nothing yet


def _watch(launcher: Launcher, teller: _Teller) -> int:
    """Until the run has ended; returns its exit code. The first signal asks, the second one kills."""

    def asked(number: int, _: Any) -> None:
        if stopping:
            launcher.kill()
        else:
            stopping.append(number)
            launcher.stop(128 + number)

    stopping: list[int] = []
    signal.signal(signal.SIGINT, asked)
    signal.signal(signal.SIGTERM, asked)
    while True:
        teller.tell()
        if (end := launcher.poll()) is not None:
            teller.tell()
            return end.exit_code
        time.sleep(_POLL_S)


def _made_up_name(command: list[str]) -> str:
    """The program's own name and a few digits, so that two runs of it are two jobs."""
    words = [word for word in command if not word.startswith("-") and "python" not in word]
    stem = Path(words[0]).stem if words else "job"
    return f"{re.sub('[^A-Za-z0-9_.-]', '-', stem)}-{uuid.uuid4().hex[:6]}"

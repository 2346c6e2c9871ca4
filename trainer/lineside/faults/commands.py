"""``lineside faults``: break a run on purpose, to see what finds it and what heals it."""

import json
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from lineside.faults.target import NoTarget
from lineside.faults.throttle import PERIOD_MS, throttle
from lineside.probe.reader import BadProbeFile, ProbeReader

USAGE = 64
NO_TARGET = 69

KINDS = {
    "slow-compute": "One rank computes slower: it is stopped for a part of the time (SIGSTOP).",
}

faults = typer.Typer(help="Break a run on purpose.", no_args_is_help=True)
inject = typer.Typer(help="Start a fault; it ends with the command.", no_args_is_help=True)
faults.add_typer(inject, name="inject")


@faults.command("list")
def list_kinds(
    as_json: Annotated[bool, typer.Option("--json", help="As one JSON object.")] = False,
) -> None:
    """The kinds of faults that can be injected.

    Example: lineside faults list
    """
    if as_json:
        typer.echo(json.dumps(KINDS))
        return
    for kind, text in KINDS.items():
        typer.echo(f"{kind:14s} {text}")


@inject.command("slow-compute")
def slow_compute(
    pid: Annotated[int | None, typer.Option(help="The process, or give --run-dir.")] = None,
    run_dir: Annotated[
        Path | None, typer.Option(help="The run folder of the machine that --rank is on.")
    ] = None,
    rank: Annotated[int, typer.Option(help="The rank: which to slow, or written as truth.")] = -1,
    slowdown: Annotated[float, typer.Option(help="3: a third of its speed.")] = 3.0,
    seconds: Annotated[
        float | None, typer.Option(help="How long; until Ctrl-C unless given.")
    ] = None,
    period_ms: Annotated[float, typer.Option(help="One stop and one run together.")] = PERIOD_MS,
    truth: Annotated[
        Path | None, typer.Option(help="File that the truth is appended to, as JSON lines.")
    ] = None,
) -> None:
    """Slow one process down from outside. It runs on afterwards, whatever happens to this command.

    Prints the truth when it is over: what, whom, from when to when, and the slowdown reached. Exit code 69:
    there is no such process, or it is not ours.

    Example: lineside faults inject slow-compute --pid 4711 --slowdown 3 --seconds 30
    """
    try:
        if run_dir is not None and pid is None:
            pid = _pid_of(run_dir, rank)
        elif pid is None or run_dir is not None:
            raise ValueError("give either --pid or --run-dir with --rank")
        done = throttle(pid, slowdown, seconds=seconds, period_ms=period_ms, rank=rank, truth=truth)
    except NoTarget as reason:
        raise _failure(str(reason), NO_TARGET) from reason
    except ValueError as reason:
        raise _failure(str(reason), USAGE) from reason
    typer.echo(msgspec.json.encode(done))


def _pid_of(run_dir: Path, rank: int) -> int:
    """The process that writes the probe file of ``rank``. Raises NoTarget."""
    try:
        reader = ProbeReader(run_dir / f"probe.{rank}")
    except (FileNotFoundError, BadProbeFile) as error:
        raise NoTarget(f"rank {rank} has no probe file in {run_dir}") from error
    reader.close()
    return int(reader.pid)


def _failure(why: str, code: int) -> typer.Exit:
    typer.echo(f"lineside faults: {why}", err=True)
    return typer.Exit(code)

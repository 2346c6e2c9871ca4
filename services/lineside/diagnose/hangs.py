"""``lineside diagnose``: the command, and a diagnosis as people read it on a terminal."""

import sys
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.console import Console

from lineside.diagnose.diagnosis import Diagnosis, NothingToDiagnoseError, diagnose_files
from lineside.diagnose.safe_load import UnreadableFileError
from lineside.mycroft.verdict import Kind, span

UNREADABLE = 3
MOST_SHOWN = 20
"""Skipped files that are listed; the JSON has all."""
_FINDING = {Kind.HEALTHY: 1, Kind.CANNOT_TELL: 2}

console = Console(stderr=True)


def diagnose(
    paths: Annotated[list[Path], typer.Argument(help="Flight Recorder dumps, or folders of them.")],
    groups: Annotated[
        Path | None,
        typer.Option(help="Groups for dumps that do not list them (default: groups.json beside)."),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="The verdict as JSON.")] = False,
) -> None:
    """Say from PyTorch Flight Recorder dumps why a job hangs: who is the culprit and who only waits.

    Exit code: 0 found, 1 healthy, 2 cannot tell, 3 nothing readable.

    Example: lineside diagnose /var/log/dumps --json
    """
    try:
        found = diagnose_files(paths, groups)
    except NothingToDiagnoseError as error:
        for file, reason in list(error.skipped.items())[:MOST_SHOWN]:
            console.print(f"{file}: {reason}", highlight=False, markup=False)
        console.print(f"[red]Nothing to diagnose:[/] {error}; give a job's folder of dumps")
        raise typer.Exit(UNREADABLE) from error
    except UnreadableFileError as error:
        console.print(f"Cannot use the groups: {error}", highlight=False, markup=False)
        raise typer.Exit(UNREADABLE) from error
    if json:
        sys.stdout.buffer.write(msgspec.json.format(msgspec.json.encode(found.as_json())) + b"\n")
        sys.stdout.buffer.flush()
    else:
        _print(found)
    raise typer.Exit(_FINDING.get(found.verdict.kind, 0))


def _print(found: Diagnosis) -> None:
    """To standard output: the sentence first, then who, then why."""
    v = found.verdict
    out = Console(highlight=False, soft_wrap=True)
    out.print(v.summary, style="bold", markup=False)
    rows = {
        "kind": f"{v.kind}, {v.cause}" if v.cause else str(v.kind),
        "culprits": ", ".join(map(str, v.culprits)),
        "victims": span(v.victims) if v.victims else "",
        "groups": ", ".join(v.groups),
        "operation": v.operation or "",
        "confidence": f"{v.confidence:.2f}" if v.kind is not Kind.CANNOT_TELL else "",
        "missing": span(v.missing_ranks) if v.missing_ranks else "",
    }
    for name, value in rows.items():
        if value:
            out.print(f"  {name:<11}{value}", markup=False)
    for reason in v.reasons:
        out.print(f"  - {reason}", markup=False)
    out.print(f"{len(found.dumps)} dumps used, {len(found.skipped)} files skipped")
    for file, reason in list(found.skipped.items())[:MOST_SHOWN]:
        out.print(f"  skipped {file}: {reason}", markup=False)

"""``lineside record`` and ``lineside replay``."""

import importlib
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, BinaryIO

import msgspec
import typer
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn, wrap_file
from rich.table import Table

from lineside.bus import Bus, BusError, BusMisuse, Message, Subscriber
from lineside.bus.connect import open_bus
from lineside.contracts import Fault, TopicName
from lineside.contracts.faults import event_time
from lineside.diagnose.recording import BadLine, Recorded, line_of, read_lines
from lineside.diagnose.replay import replay as replay_records
from lineside.stream import Processor

NOTHING_FOUND = 1
NOTHING_USABLE = 65
UNAVAILABLE = 69
CANNOT_WRITE = 73
_INTERNAL = {TopicName.DETECTOR_STATE, TopicName.DEAD_LETTERS}

console = Console(stderr=True)


class DetectorName(StrEnum):
    FALCON = "falcon"
    MINDER = "minder"
    MYCROFT = "mycroft"


_SILENT = {DetectorName.MINDER, DetectorName.MYCROFT}
"""Detectors whose cores only count so far."""


def record(
    output: Annotated[Path, typer.Option("--output", "-o", help="File to write, '-' for stdout.")],
    job: Annotated[str | None, typer.Option(help="Only this job (its partition is read).")] = None,
    topic: Annotated[
        list[TopicName] | None, typer.Option(help="Only this topic; may be given several times.")
    ] = None,
    follow: Annotated[
        bool, typer.Option(help="Go on until Ctrl-C instead of stopping when nothing more comes.")
    ] = False,
    bootstrap: Annotated[str | None, typer.Option(help="Kafka bootstrap servers.")] = None,
) -> None:
    """Write topics to a file as JSON lines, from the oldest record kept.

    Example: lineside record -o evidence.jsonl --job gpt
    """
    bus = open_bus(bootstrap)
    topics = topic or [name for name in TopicName if name not in _INTERNAL]
    try:
        _check_reachable(bus, topics)
        written = _record(bus.tail(topics, job), output, job, follow)
    except BusError as error:
        console.print(f"[red]Cannot read from Kafka:[/] {error}")
        raise typer.Exit(UNAVAILABLE) from error
    except OSError as error:
        console.print(f"[red]Cannot write {output}:[/] {error.strerror}")
        raise typer.Exit(CANNOT_WRITE) from error
    if not written:
        console.print(
            f"[red]No record[/] of {f'job {job!r}' if job else 'these topics'} is kept there"
        )
        raise typer.Exit(NOTHING_FOUND)
    console.print(f"{written} records written to {'stdout' if str(output) == '-' else output}")


def _check_reachable(bus: Bus, topics: Sequence[TopicName]) -> None:
    """Raises ``BusError`` where there is no broker or no such topic: nothing would ever come."""
    admin = bus.admin()
    try:
        if not any(admin.partitions(name) for name in topics):
            raise BusMisuse(
                "the topics do not exist there: create them with `lineside topics create`"
            )
    finally:
        admin.close()


def _record(source: Subscriber, output: Path, job: str | None, follow: bool) -> int:
    stopping = False

    def stop(*_: Any) -> None:
        nonlocal stopping
        stopping = True

    previous = {s: signal.signal(s, stop) for s in (signal.SIGINT, signal.SIGTERM)}
    written = 0
    try:
        with _writer(output) as file, _progress() as bar:
            task = bar.add_task("waiting for records")
            while not stopping and (follow or source.lag() != 0):
                for message in source.receive(500, 0.2):
                    if job is None or _is_of(message, job):
                        file.write(line_of(message))
                        written += 1
                file.flush()
                bar.update(task, description=f"{written} records")
    finally:
        source.close()
        for number, handler in previous.items():
            signal.signal(number, handler)
    return written


def _progress() -> Progress:
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    return Progress(*columns, console=console, transient=True, disable=not console.is_terminal)


def _is_of(message: Message, job: str) -> bool:
    """Keys are the job's id, or that and a machine's."""
    key = (message.key or b"").decode(errors="replace")
    return key == job or key.startswith(f"{job}/")


def _writer(output: Path) -> BinaryIO:
    return os.fdopen(os.dup(sys.stdout.fileno()), "wb") if str(output) == "-" else output.open("wb")


def dead_letters(
    json: Annotated[bool, typer.Option("--json", help="One letter per line as JSON.")] = False,
    bootstrap: Annotated[str | None, typer.Option(help="Kafka bootstrap servers.")] = None,
) -> None:
    """List the records that no reader could use, with the reason and where each came from.

    Example: lineside dead-letters --json | jq .reason
    """
    bus = open_bus(bootstrap)
    try:
        _check_reachable(bus, [TopicName.DEAD_LETTERS])
        letters = _letters(bus.tail([TopicName.DEAD_LETTERS]))
    except BusError as error:
        console.print(f"[red]Cannot read from Kafka:[/] {error}")
        raise typer.Exit(UNAVAILABLE) from error
    if json:
        for letter in letters:
            sys.stdout.buffer.write(msgspec.json.encode(letter) + b"\n")
        sys.stdout.buffer.flush()
        return
    table = Table("received", "by", "from", "key", "bytes", "reason")
    for letter in letters:
        place = f"{letter['topic']} {letter['partition']}:{letter['offset']}"
        table.add_row(
            letter["at"],
            letter["service"],
            place,
            letter["key"],
            str(letter["size"]),
            letter["reason"],
        )
    out = Console()
    if letters:
        out.print(table)
    out.print(f"{len(letters)} dead letters")


def _letters(source: Subscriber) -> list[dict[str, Any]]:
    found = []
    try:
        while source.lag() != 0:
            found += [_letter(message) for message in source.receive(500, 0.2)]
    finally:
        source.close()
    return found


def _letter(message: Message) -> dict[str, Any]:
    headers = {name: value.decode(errors="replace") for name, value in message.headers.items()}
    return {
        "at": event_time(message.timestamp_ms * 1_000_000),
        "service": headers.get("service", ""),
        "reason": headers.get("reason", ""),
        "topic": headers.get("source-topic", ""),
        "partition": message.partition,
        "offset": headers.get("source-offset", ""),
        "key": (message.key or b"").decode(errors="replace"),
        "size": len(message.value or b""),
    }


def replay(
    file: Annotated[Path, typer.Argument(help="A recording made by `lineside record`.")],
    detector: Annotated[
        DetectorName, typer.Option(help="Whose core to feed.")
    ] = DetectorName.FALCON,
    json: Annotated[bool, typer.Option("--json", help="One fault per line as JSON.")] = False,
) -> None:
    """Feed a recording to a detector's core, faster than real time, and print the faults.

    The same records give the same fault ids as the live run.

    Example: lineside replay evidence.jsonl --detector falcon --json
    """
    processor = _processor(detector)
    try:
        records, bad = _read(file, processor.inputs)
    except OSError as error:
        console.print(f"[red]Cannot read {file}:[/] {error.strerror}")
        raise typer.Exit(66) from error
    for line in bad[:5]:
        console.print(f"[yellow]line {line.number} skipped:[/] {line.reason}", highlight=False)
    if len(bad) > 5:
        console.print(f"[yellow]{len(bad) - 5} more lines skipped[/]")
    if not records:
        topics = ", ".join(processor.inputs)
        console.print(f"[red]Nothing to replay:[/] no usable record of {topics} in {file}")
        raise typer.Exit(NOTHING_USABLE)
    faults = [
        finding for finding in replay_records(records, processor.make) if isinstance(finding, Fault)
    ]
    if json:
        for fault in faults:
            sys.stdout.buffer.write(msgspec.json.encode(fault) + b"\n")
        sys.stdout.buffer.flush()
    else:
        _print(faults, len(records), detector)


def _read(file: Path, topics: tuple[TopicName, ...]) -> tuple[list[Recorded], list[BadLine]]:
    good: list[Recorded] = []
    bad: list[BadLine] = []
    with file.open("rb") as handle:
        shown = wrap_file(
            handle, file.stat().st_size, description=file.name, console=console, transient=True
        )
        with shown as lines:
            for item in read_lines(_split(lines), topics):
                if isinstance(item, BadLine):
                    bad.append(item)
                else:
                    good.append(item)
    return good, bad


def _split(lines: BinaryIO) -> Iterator[bytes]:
    while line := lines.readline():
        yield line


def _print(faults: list[Fault], records: int, detector: DetectorName) -> None:
    out = Console(highlight=False)
    for fault in faults:
        clock = event_time(fault.detected_ns).replace("T", " ").rstrip("Z")[:-3]
        out.print(
            f"[dim]{clock}[/]  {fault.job_id}  [bold]{fault.kind} {fault.phase}[/]  {fault.fault_id}"
        )
        out.print(f"    {fault.summary}")
    topics = ", ".join(_processor(detector).inputs)
    out.print(f"{len(faults)} findings in {records} records of {topics}")
    if detector in _SILENT:
        out.print(f"[yellow]{detector} gives no verdicts yet: this is no all-clear[/]")


def _processor(detector: DetectorName) -> Processor:
    found: Processor = importlib.import_module(f"lineside.{detector}.processor").PROCESSOR
    return found

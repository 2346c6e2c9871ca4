"""``lineside kafka`` and ``lineside topics``: a local broker, and the topics on any."""

import json
import signal
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from lineside.bus.connect import open_bus
from lineside.bus.local import LocalKafka, Running, default_data, find, is_free
from lineside.bus.local import stop as stop_broker
from lineside.bus.port import BusError
from lineside.contracts import TOPICS

NOT_RUNNING = 3
"""Exit code of ``status``, as init scripts have it."""
_KAFKA_PORT = 9092

kafka = typer.Typer(help="Start and stop a local Apache Kafka.", no_args_is_help=True)
topics = typer.Typer(help="Create and list the topics.", no_args_is_help=True)

Data = Annotated[
    Path | None,
    typer.Option("--data", help="Folder of the broker's data; Lineside's own unless given."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Bootstrap = Annotated[
    str | None,
    typer.Option("--bootstrap", help="Kafka's HOST:PORT[,...]; the local broker unless given."),
]


@kafka.command()
def start(
    data: Data = None,
    port: Annotated[
        int | None,
        typer.Option("--port", help="Port to listen on; 9092, or any free one if that is taken."),
    ] = None,
    foreground: Annotated[
        bool, typer.Option("--foreground", help="Stay here and stop Kafka on Ctrl-C.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Start a local Apache Kafka and leave it running. The first start fetches 43 MB.

    Starting one that runs is no error. Example: lineside kafka start --port 9092
    """
    folder = data or default_data()
    if port is None:
        port = _KAFKA_PORT if is_free(_KAFKA_PORT) else 0
    if foreground:
        _stay(LocalKafka(folder, port), as_json)
        return
    running = find(folder)
    broker = LocalKafka(folder, port, stays=True)
    try:
        started = running or broker.start().running
    except BusError as error:
        if (running := find(folder)) is None:
            _fail(error)
        started = running  # another starter was faster
    _tell_started(started, "already running" if running else "started", as_json)


@kafka.command()
def stop(data: Data = None, as_json: AsJson = False) -> None:
    """Stop the local Kafka; its data stays.

    Example: lineside kafka stop
    """
    running = find(data or default_data())
    if running is not None:
        stop_broker(running)
    state = {"stopped": running is not None}
    text = f"stopped Kafka at {running.bootstrap}" if running else "no Kafka was running"
    typer.echo(json.dumps(state) if as_json else text)


@kafka.command()
def status(data: Data = None, as_json: AsJson = False) -> None:
    """Say whether the local Kafka runs, and where.

    Exit code 0: it runs; 3: it does not.

    Example: lineside kafka status --json
    """
    folder = data or default_data()
    running = find(folder)
    answers = running is not None and running.answers()
    if as_json:
        state = {"running": running is not None, "answers": answers}
        typer.echo(json.dumps(state | (_plain(running) if running else {"data": str(folder)})))
    elif running is None:
        typer.echo(f"no Kafka runs on {folder}; start one with `lineside kafka start`")
    else:
        silent = "" if answers else ", but does not answer yet"
        typer.echo(f"Kafka runs at {running.bootstrap} (pid {running.pid}) on {folder}{silent}")
    if running is None:
        raise typer.Exit(NOT_RUNNING)


@topics.command()
def create(bootstrap: Bootstrap = None, as_json: AsJson = False) -> None:
    """Create the topics that are missing.

    Example: lineside topics create --bootstrap HOST:9092
    """
    bus = open_bus(bootstrap)
    try:
        created = bus.admin().ensure_topics(tuple(TOPICS.values()))
    except BusError as error:
        _fail(error)
    if as_json:
        typer.echo(json.dumps({"created": created, "topics": len(TOPICS)}))
    else:
        made = f"created {', '.join(created)}" if created else "nothing to create"
        typer.echo(f"{made}; {len(TOPICS)} topics stand at {bus.bootstrap}")


@topics.command("list")
def list_topics(bootstrap: Bootstrap = None, as_json: AsJson = False) -> None:
    """List the topics, their partitions and how long records are kept.

    Example: lineside topics list --json
    """
    bus = open_bus(bootstrap)
    admin = bus.admin()
    try:
        partitions = {name: admin.partitions(name) for name in TOPICS}
    except BusError as error:
        _fail(error)
    if as_json:
        rows = [
            {
                "topic": f"{bus.prefix}{name}",
                "partitions": partitions[name],
                "retention_ms": topic.retention_ms,
                "written_by": topic.written_by,
                "read_by": topic.read_by,
            }
            for name, topic in TOPICS.items()
        ]
        typer.echo(json.dumps(rows))
        return
    for name, topic in TOPICS.items():
        days = topic.retention_ms and topic.retention_ms / 86_400_000
        kept = f"kept {days:g} d" if days else "compacted"
        count = f"{partitions[name]} partitions" if partitions[name] else "missing"
        typer.echo(f"{bus.prefix + name:34} {count:14} {kept}")


def _stay(broker: LocalKafka, as_json: bool) -> None:
    """Run it until Ctrl-C or SIGTERM, or until it ends by itself."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        _tell_started(broker.start().running, "started", as_json)
        code = broker.wait()
    except BusError as error:
        _fail(error)
    except KeyboardInterrupt:
        typer.echo("stopping Kafka", err=True)
        return
    finally:
        broker.stop()
    typer.echo(f"Kafka ended with code {code}: see {broker.data_dir / 'kafka.log'}", err=True)
    raise typer.Exit(1)


def _tell_started(running: Running, how: str, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(_plain(running) | {"started": how == "started"}))
    else:
        typer.echo(
            f"Kafka {how} at {running.bootstrap} (pid {running.pid}), data in {running.data}"
        )


def _plain(running: Running) -> dict[str, object]:
    return {"bootstrap": running.bootstrap, "pid": running.pid, "data": running.data}


def _fail(error: BusError) -> NoReturn:
    typer.echo(str(error), err=True)
    raise typer.Exit(1)

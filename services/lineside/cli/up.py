"""``lineside up``: Kafka and all services on this machine, until Ctrl-C."""

import json as json_module
import os
import signal
import time
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from lineside.bus import BusError
from lineside.cli.stack import Stack, StackConfig, StackFailed
from lineside.kit.settings import API_PORT, home
from lineside.remediation.policy import Mode

console = Console(stderr=True)


def up(
    data: Annotated[
        Path | None, typer.Option(help="Folder for Kafka's data, SQLite and logs.")
    ] = None,
    bootstrap: Annotated[
        str | None,
        typer.Option(
            envvar="LINESIDE_BOOTSTRAP", help="Use this Kafka (HOST:PORT) instead of starting one."
        ),
    ] = None,
    kafka_port: Annotated[
        int, typer.Option(help="Port of the local Kafka; 0 takes a free one.")
    ] = 9092,
    api_port: Annotated[
        int, typer.Option(envvar="LINESIDE_API_PORT", help="Port of the API.")
    ] = API_PORT,
    mode: Annotated[
        Mode,
        typer.Option(envvar="LINESIDE_MODE", help="observe: say what would be done; auto: do it."),
    ] = Mode.OBSERVE,
    json: Annotated[
        bool, typer.Option("--json", help="Print one JSON line with the addresses when ready.")
    ] = False,
) -> None:
    """Start Kafka and all services, and keep them running until Ctrl-C.

    A service that dies is started again. Data is kept between starts.

    Example: lineside up --mode auto
    """
    config = StackConfig(
        data=data or home(),
        bootstrap=bootstrap,
        kafka_port=kafka_port,
        api_port=api_port,
        environment={"LINESIDE_MODE": mode},
    )
    stopping = False

    def stop(*_: Any) -> None:
        nonlocal stopping
        if stopping:
            raise KeyboardInterrupt
        stopping = True

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)
    try:
        with Stack(
            config, lambda text: console.print(f"[yellow]{text}[/]", highlight=False)
        ) as stack:
            stack.wait_ready(stop=lambda: stopping)
            if not stopping:
                _say_ready(stack, json)
            while not stopping:
                stack.supervise()
                time.sleep(0.5)
            console.print("Stopping.")
    except (BusError, StackFailed) as error:
        console.print(f"[red]Cannot start:[/] {error}", highlight=False)
        raise typer.Exit(os.EX_UNAVAILABLE) from error


def _say_ready(stack: Stack, json: bool) -> None:
    if json:
        addresses = {"bootstrap": stack.bootstrap, "api": stack.api, "logs": str(stack.logs)}
        typer.echo(json_module.dumps(addresses))
        return
    console.print(
        f"[green]Lineside is up.[/] Kafka {stack.bootstrap} · API {stack.api}/docs · logs {stack.logs}\n"
        "Next, in another terminal: lineside run -- python train.py",
        highlight=False,
    )

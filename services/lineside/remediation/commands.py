"""The commands of this room: ``lineside jobs``, ``incidents``, ``plan``, ``alerts`` and ``db``."""

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import httpx
import typer

from lineside.remediation import client, tables
from lineside.remediation.client import REFUSED, fail

Api = Annotated[
    str,
    typer.Option(
        "--api",
        default_factory=client.default_api,
        show_default=f"LINESIDE_API, else {client.LOCAL_API}",
        help="Address of the API.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]

incidents = typer.Typer(help="List and show incidents.", no_args_is_help=True)
plan = typer.Typer(help="Give a job a plan by hand.", no_args_is_help=True)
alerts = typer.Typer(help="Follow the stream of alerts.", no_args_is_help=True)
db = typer.Typer(help="Upgrade and check the incident database.", no_args_is_help=True)


def _print_json(value: Any) -> None:
    typer.echo(json.dumps(value, indent=2, ensure_ascii=False))


def jobs(api: Api, as_json: AsJson = False) -> None:
    """List the jobs that are being watched.

    Example: lineside jobs --json
    """
    found = client.get(api, "/v1/jobs")["items"]
    _print_json(found) if as_json else tables.print_jobs(found)


@incidents.command("list")
def list_incidents(
    api: Api,
    job: Annotated[str | None, typer.Option(help="Of this job only.")] = None,
    state: Annotated[
        list[str] | None, typer.Option(help="In this state only; may be given again.")
    ] = None,
    kind: Annotated[
        list[str] | None, typer.Option(help="Of this kind only; may be given again.")
    ] = None,
    since: Annotated[
        str | None, typer.Option(help="Opened at or after, as 2030-01-01T00:00:00Z.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=200, help="At most so many.")] = 50,
    as_json: AsJson = False,
) -> None:
    """List incidents, newest first. Times are in UTC. Exit code 64: an option has no such value.

    Example: lineside incidents list --job gpt --state open --state mitigating
    """
    found = client.get(
        api, "/v1/incidents", job=job, state=state, kind=kind, since=since, limit=limit
    )["items"]
    _print_json(found) if as_json else tables.print_incidents(found)


@incidents.command("show")
def show_incident(
    api: Api,
    incident_id: Annotated[
        str, typer.Argument(metavar="ID", help="Or the beginning, as `list` shows it.")
    ],
    as_json: AsJson = False,
) -> None:
    """Show one incident: timeline, suspects, plans, effect. Exit code 1: there is none; 2: there are several.

    Example: lineside incidents show 4e9c1c52
    """
    found = client.get(api, f"/v1/incidents/{incident_id}")
    _print_json(found) if as_json else tables.print_incident(found)


@plan.command("apply")
def apply_plan(
    api: Api,
    file: Annotated[Path, typer.Argument(help="JSON file; - reads standard input.")],
    job: Annotated[str | None, typer.Option(help="Job id, where the file has none.")] = None,
    as_json: AsJson = False,
) -> None:
    """Give a job a plan: micro-batches per data-parallel replica. Exit code 2: refused, with the reason.

    The file: {"job_id": "gpt", "micro_batch_plan": [2, 6, 6, 6], "reason": "host-0 is throttled"}

    Example: lineside plan apply plan.json
    """
    wanted = _read_plan(file)
    job_id = job or wanted.pop("job_id", None)
    wanted.pop("job_id", None)
    if not job_id:
        fail(f'{file}: add "job_id", or say it with --job', REFUSED)
    issued = client.post(api, f"/v1/jobs/{job_id}/plans", wanted)
    if as_json:
        _print_json(issued)
    else:
        typer.echo(f"revision {issued['revision']} issued: {issued['micro_batch_plan']}")


@plan.command("list")
def list_plans(
    api: Api,
    job: Annotated[str | None, typer.Option(help="Of this job only.")] = None,
    as_json: AsJson = False,
) -> None:
    """List plans, newest first.

    Example: lineside plan list --job gpt
    """
    found = client.get(api, "/v1/plans", job=job)["items"]
    _print_json(found) if as_json else tables.print_plans(found)


def _read_plan(file: Path) -> dict[str, Any]:
    try:
        text = sys.stdin.read() if str(file) == "-" else file.read_text()
        wanted = json.loads(text)
    except OSError as error:
        fail(f"{file}: {error.strerror}", REFUSED)
    except ValueError as error:
        fail(f"{file} is no JSON: {error}", REFUSED)
    if not isinstance(wanted, dict):
        fail(f'{file}: expected an object like {{"micro_batch_plan": [2, 6, 6, 6]}}', REFUSED)
    return wanted


@alerts.command("follow")
def follow_alerts(
    api: Api,
    after: Annotated[
        int | None, typer.Option(help="Begin after the alert of this number; 0: with the oldest.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Print alerts as they happen, one line each, until interrupted.

    Example: lineside alerts follow --json | jq .data.summary
    """
    url = api.rstrip("/") + "/v1/alerts/stream"
    parameters = {} if after is None else {"after": after}
    timeout = httpx.Timeout(10.0, read=60.0)
    with (
        client.reaching(api),
        httpx.stream(
            "GET", url, params=parameters, timeout=timeout, trust_env=not client.is_loopback(api)
        ) as stream,
    ):
        if not stream.is_success:
            stream.read()
            client.checked(stream, api)
        for line in stream.iter_lines():
            if line.startswith("data: "):
                _print_alert(line.removeprefix("data: "), as_json)


def _print_alert(data: str, as_json: bool) -> None:
    if as_json:
        typer.echo(data)
        return
    event = json.loads(data)
    incident = event["data"]
    kind = event["type"].split(".")[-2]
    last = incident["transitions"][-1]["reason"] if incident["transitions"] else ""
    typer.echo(
        f"{event['time'][:19]} {incident['job_id']} {kind}: {tables.suspects(incident)}: {last}"
    )


@db.command("upgrade")
def upgrade_database() -> None:
    """Bring the incident database (LINESIDE_DATABASE_URL) to this program's version.

    Example: LINESIDE_DATABASE_URL=sqlite:///history.db lineside db upgrade
    """
    from lineside.remediation.store import Store, StoreError

    try:
        store = Store(_database_url())
        store.upgrade()
    except StoreError as error:
        fail(str(error), client.UNAVAILABLE)
    typer.echo(f"{store.where} is at version {store.revision()}")
    store.close()


@db.command("check")
def check_database() -> None:
    """Is the incident database up to date? Exit code 1: no, with what is missing.

    Example: lineside db check
    """
    from lineside.remediation.store import Store, StoreError

    try:
        store = Store(_database_url())
        found, expected = store.revision(), store.head()
        missing = store.differences() if found == expected else []
    except StoreError as error:
        fail(str(error), client.UNAVAILABLE)
    if found != expected:
        fail(
            f"{store.where} is at version {found or 'none'}, this program needs {expected}: run `lineside db "
            "upgrade`",
            1,
        )
    if missing:
        fail(f"{store.where} differs from its version: {missing}", 1)
    typer.echo(f"{store.where} is up to date (version {found})")
    store.close()


def _database_url() -> str:
    from lineside.kit.settings import read
    from lineside.remediation.settings import DatabaseSettings

    return read(DatabaseSettings).database_url

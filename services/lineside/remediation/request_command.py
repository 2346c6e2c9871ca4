"""``lineside request``: ask a run's agents for evidence, and show what they found."""

import json
import time
from typing import Annotated, Any

import typer

from lineside.contracts import RequestKind
from lineside.remediation import client, tables
from lineside.remediation.client import REFUSED, fail
from lineside.remediation.commands import Api, AsJson

_POLL_S = 0.3
_FAILED, _UNANSWERED = 3, 4


def request(
    api: Api,
    job: Annotated[str, typer.Argument(metavar="JOB", help="Job id, as `lineside jobs` shows it.")],
    kind: Annotated[RequestKind, typer.Argument(metavar="KIND", help="What is wanted.")],
    ranks: Annotated[
        str, typer.Option(help="Of these ranks only, like 0,4-7; all unless given.")
    ] = "",
    parameter: Annotated[
        list[str] | None, typer.Option(help="NAME=VALUE for the kind, like seconds=1.")
    ] = None,
    max_pause: Annotated[
        float | None, typer.Option(help="Seconds for which the run may be held up.")
    ] = None,
    wait: Annotated[
        bool, typer.Option("--wait", help="Wait for the answers and show them.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Ask a job's agents for evidence: stacks, a validation, a dump.

    Kinds: dump_stacks (Python stacks of every thread, equal ones once), validate_compute (matrix products
    beside the rank: speed and correctness), and those that an agent may not know yet, which it says.

    Exit codes: 0 asked, or all answered with --wait; 1 no such job; 2 refused, with the reason; 3 some rank
    could not answer; 4 nobody answered in time.

    Examples:

        lineside request gpt dump_stacks --wait

        lineside request gpt validate_compute --ranks 0,4-7 --parameter seconds=1 --wait
    """
    body = {
        "kind": str(kind),
        "ranks": parse_ranks(ranks),
        "parameters": dict(_parameter(word) for word in parameter or []),
        "max_pause_s": max_pause,
    }
    asked = client.post(api, f"/v1/jobs/{job}/requests", body)
    while wait and asked["state"] == "sent":
        time.sleep(_POLL_S)
        path = f"/v1/jobs/{job}/requests"
        asked = client.get(api, path, request_id=asked["request_id"])["items"][0]
    if as_json:
        typer.echo(json.dumps(asked, indent=2, ensure_ascii=False))
    elif wait:
        tables.print_request(asked)
    else:
        typer.echo(f"request {asked['request_id']} sent")
    if wait:
        raise typer.Exit(_code(asked))


def _code(asked: dict[str, Any]) -> int:
    if asked["state"] != "answered":
        return _UNANSWERED
    return 0 if all(reply["ok"] for reply in asked["replies"]) else _FAILED


def parse_ranks(text: str) -> list[int]:
    """
    >>> parse_ranks("0,4-7")
    [0, 4, 5, 6, 7]
    """
    found: set[int] = set()
    for word in filter(None, text.replace(" ", "").split(",")):
        first, _, last = word.partition("-")
        if not first.isdecimal() or (last and not last.isdecimal()):
            fail(f"--ranks {text!r}: ranks look like 0,4-7", REFUSED)
        found.update(range(int(first), int(last or first) + 1))
    return sorted(found)


def _parameter(word: str) -> tuple[str, Any]:
    name, separator, value = word.partition("=")
    if not separator:
        fail(f"--parameter {word!r}: it looks like seconds=1", REFUSED)
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value

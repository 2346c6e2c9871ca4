"""The commands' way to the API: one place that turns what can go wrong into a sentence and an exit code."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

import httpx
import typer

from lineside.kit.settings import API_PORT

LOCAL_API = f"http://127.0.0.1:{API_PORT}"
NOT_FOUND = 1
REFUSED = 2
UNAVAILABLE = os.EX_UNAVAILABLE
"""Exit codes: what was named does not exist; the API says no; nobody answers."""
USAGE = os.EX_USAGE
"""Exit code: an option's value is none, as for every wrong command line."""
_EXAMPLES = {
    "state": "open",
    "kind": "slow_compute",
    "since": "2030-01-01T00:00:00Z",
    "limit": "50",
    "after": "0",
}
"""A value for each option that the API, not the command line, checks."""


def default_api() -> str:
    """``LINESIDE_API``, else the port where ``lineside up`` puts it."""
    return os.environ.get("LINESIDE_API") or LOCAL_API


def fail(text: str, code: int) -> NoReturn:
    typer.echo(text, err=True)
    raise typer.Exit(code)


@contextmanager
def reaching(api: str) -> Iterator[None]:
    """What nobody answers becomes one clear line."""
    try:
        yield
    except (httpx.UnsupportedProtocol, httpx.InvalidURL):
        fail(f"--api {api!r} is no address; it looks like {LOCAL_API}", REFUSED)
    except httpx.TransportError as error:
        fail(
            f"nobody answers at {api} ({error or type(error).__name__}): start the services with `lineside "
            "up`, or say where the API is with --api or LINESIDE_API",
            UNAVAILABLE,
        )


def get(api: str, path: str, **parameters: Any) -> Any:
    """The JSON answer to a GET; exits with a clear line where there is none."""
    return _ask("GET", api, path, params={k: v for k, v in parameters.items() if v is not None})


def post(api: str, path: str, body: Any) -> Any:
    return _ask("POST", api, path, json=body)


def _ask(method: str, api: str, path: str, **options: Any) -> Any:
    with reaching(api):
        answer = httpx.request(
            method, api.rstrip("/") + path, timeout=10.0, trust_env=not is_loopback(api), **options
        )
    return checked(answer, api)


def is_loopback(api: str) -> bool:
    """Whether ``api`` is on this machine: then no proxy that the environment names leads to it."""
    return httpx.URL(api).host in ("127.0.0.1", "localhost", "::1")


def checked(answer: httpx.Response, api: str) -> Any:
    """The answer's JSON; exits with the problem's own sentence otherwise."""
    try:
        body = answer.json()
    except ValueError:
        fail(
            f"{api} answers, but it is not Lineside's API (status {answer.status_code})",
            UNAVAILABLE,
        )
    if answer.is_success:
        return body
    _blame(body)
    detail = body.get("detail", answer.reason_phrase) if isinstance(body, dict) else str(body)
    if answer.status_code == httpx.codes.NOT_FOUND:
        fail(str(detail), NOT_FOUND)
    fail(str(detail), UNAVAILABLE if answer.status_code >= 500 else REFUSED)


def _blame(body: Any) -> None:
    """Exits where the API names what it refuses: a query parameter came from the option of that name, a field
    of the body from the user's file."""
    errors = body.get("errors") if isinstance(body, dict) else None
    for error in errors or ():
        match error:
            case {"where": ["query", str(name), *_], "what": what}:
                example = f" (for example --{name} {_EXAMPLES[name]})" if name in _EXAMPLES else ""
                fail(f"--{name}: {what}{example}", USAGE)
            case {"where": ["body", *place], "what": what}:
                fail(f"{'.'.join(map(str, place)) or 'the plan'}: {what}", REFUSED)

"""The commands' way to the API: one place that turns what can go wrong into a sentence and an exit code."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

import httpx
import typer

from lineside.kit.settings import API_PORT

NOT_FOUND = 1
REFUSED = 2
UNAVAILABLE = os.EX_UNAVAILABLE
"""Exit codes: what was named does not exist; the API says no; nobody answers."""


def default_api() -> str:
    """``LINESIDE_API``, else the port where ``lineside up`` puts it."""
    return os.environ.get("LINESIDE_API") or f"http://127.0.0.1:{API_PORT}"


def fail(text: str, code: int) -> NoReturn:
    typer.echo(text, err=True)
    raise typer.Exit(code)


@contextmanager
def reaching(api: str) -> Iterator[None]:
    """What nobody answers becomes one clear line."""
    try:
        yield
    except (httpx.UnsupportedProtocol, httpx.InvalidURL):
        fail(f"--api {api!r} is no address; it looks like http://127.0.0.1:{API_PORT}", REFUSED)
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
    detail = body.get("detail", answer.reason_phrase) if isinstance(body, dict) else str(body)
    if answer.status_code == httpx.codes.NOT_FOUND:
        fail(str(detail), NOT_FOUND)
    fail(str(detail), UNAVAILABLE if answer.status_code >= 500 else REFUSED)

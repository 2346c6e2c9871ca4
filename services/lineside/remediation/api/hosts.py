"""Whose requests are answered at all: those that were addressed to this machine by name."""

import re

from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send


class OwnHostOnly:
    """Refuses foreign ``Host`` headers (421).

    Otherwise a web page could have its own name resolved to loopback (DNS rebinding) and let a visitor's
    browser post plans here.
    """

    def __init__(self, app: ASGIApp, own: str) -> None:
        self._app = app
        self._names = {"localhost", "127.0.0.1", "[::1]", own.lower(), f"[{own.lower()}]"}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            host = Headers(scope=scope).get("host", "").lower()
            if re.sub(r":\d+$", "", host) not in self._names:
                refusal = PlainTextResponse(f"no service of the name {host!r} is here\n", 421)
                await refusal(scope, receive, send)
                return
        await self._app(scope, receive, send)

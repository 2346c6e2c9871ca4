"""Serves the API from a thread of the service's process, on loopback."""

import socket
import threading
import time

import uvicorn
from fastapi import FastAPI

_GRACE_S = 3
"""Open streams end themselves within a poll; what still stands after this is cut off."""


class PortTaken(Exception):
    """Another process listens there; the text says what to do."""


class ApiServer:
    """Bound when created (``port`` says where), served from ``start`` to ``stop``."""

    def __init__(self, app: FastAPI, host: str, port: int) -> None:
        """Raises ``PortTaken``."""
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._socket = socket.socket(family, socket.SOCK_STREAM)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            self._socket.bind((host, port))
            self._socket.listen()  # a port that is only bound can be bound again
        except OSError as error:
            self._socket.close()
            raise PortTaken(
                f"the API cannot listen on {host}:{port} ({error.strerror}); set LINESIDE_API_PORT to a free "
                "port, or 0 for any"
            ) from error
        self.port: int = self._socket.getsockname()[1]
        config = uvicorn.Config(
            app, log_config=None, lifespan="off", timeout_graceful_shutdown=_GRACE_S
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._serve, name="api", daemon=True)

    def start(self, timeout_s: float = 10.0) -> None:
        """Returns when requests are answered. Raises TimeoutError."""
        self._thread.start()
        deadline = time.monotonic() + timeout_s
        while not self._server.started:
            if time.monotonic() > deadline or not self._thread.is_alive():
                raise TimeoutError("the API did not start")
            time.sleep(0.01)

    def stop(self) -> None:
        self._server.should_exit = True
        if self._thread.is_alive():
            self._thread.join(_GRACE_S + 5.0)
        self._socket.close()

    def _serve(self) -> None:
        self._server.run(sockets=[self._socket])

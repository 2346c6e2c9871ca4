"""The process: in which order it takes what it needs."""

import socket
import threading

import pytest

from lineside.remediation import __main__ as program
from lineside.remediation.api import PortTaken
from lineside.remediation.settings import RemediationSettings


def test_who_does_not_get_the_port_joins_no_group(tmp_path, monkeypatch):
    monkeypatch.setattr(program, "Processor", lambda *_: pytest.fail("the group was joined"))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        settings = RemediationSettings(
            database_url=f"sqlite:///{tmp_path / 'history.db'}", api_port=taken.getsockname()[1]
        )
        with pytest.raises(PortTaken, match="LINESIDE_API_PORT"):
            program.serve(settings, threading.Event())


def test_without_a_processor_the_port_is_free_again(tmp_path, monkeypatch):
    def broken(*_):
        raise RuntimeError("no bus")

    monkeypatch.setattr(program, "Processor", broken)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    settings = RemediationSettings(
        database_url=f"sqlite:///{tmp_path / 'history.db'}", api_port=port
    )
    with pytest.raises(RuntimeError, match="no bus"):
        program.serve(settings, threading.Event())
    socket.create_server(("127.0.0.1", port)).close()

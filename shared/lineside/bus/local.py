"""A real Apache Kafka on this machine, for one-command runs and for tests: no Docker, no installed Java.

One node in KRaft mode on loopback, its data in one folder. The folder keeps the data between starts (the
ports may differ), ``kafka.log``, and ``kafka.json``: who runs there, so that another process can find it,
use it or stop it.
"""

import fcntl
import json
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from lineside.bus import distribution, kraft
from lineside.bus.local_errors import BrokerExited, FolderInUse, LocalKafkaError, PortTaken
from lineside.kit import processes, settings

__all__ = [
    "LocalKafka",
    "LocalKafkaError",
    "Running",
    "default_data",
    "find",
    "running_bootstrap",
    "stop",
]

_HOST = "127.0.0.1"
_START_S = 60.0
_STOP_S = 30.0
_PORT_TRIES = 3


class Running(msgspec.Struct, frozen=True, kw_only=True):
    """What ``kafka.json`` says: the broker's process and address.

    ``started_ticks`` is the process's start time as the kernel counts it, so that a reused pid is not
    mistaken for the broker.
    """

    pid: int
    started_ticks: int
    bootstrap: str
    data: str

    def alive(self) -> bool:
        return _start_ticks(self.pid) == self.started_ticks

    def answers(self, timeout_s: float = 2.0) -> bool:
        """Whether it answers a metadata request."""
        client = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        try:
            client.list_topics(timeout=timeout_s)
        except KafkaException:
            return False
        return True


def find(data_dir: Path) -> Running | None:
    """The broker that runs on ``data_dir``, whoever started it; None if none does."""
    try:
        running = msgspec.json.decode((data_dir / "kafka.json").read_bytes(), type=Running)
    except (OSError, msgspec.MsgspecError):
        return None
    return running if running.alive() else None


def default_data() -> Path:
    """Where ``lineside kafka start`` keeps its data."""
    return settings.home() / "kafka"


def running_bootstrap(data_dir: Path | None = None) -> str | None:
    """The address of the broker that runs on ``data_dir`` (the default folder), if one does."""
    running = find(data_dir or default_data())
    return running.bootstrap if running else None


def stop(running: Running, grace_s: float = _STOP_S) -> None:
    """SIGTERM, wait, SIGKILL. Data that was acknowledged stays either way."""
    for sent, patience_s in ((signal.SIGTERM, grace_s), (signal.SIGKILL, 10.0)):
        try:
            os.kill(running.pid, sent)
        except ProcessLookupError:
            return
        deadline = time.monotonic() + patience_s
        while time.monotonic() < deadline:
            if not running.alive():
                return
            time.sleep(0.02)


class LocalKafka:
    """One broker on one data folder.

    ``data_dir`` None: a temporary folder, removed at the end. ``port`` 0: any free one. The broker dies with
    the thread that started it unless ``stays``; then ``find`` and ``stop`` reach it later. Raises the
    errors of ``local_errors``.

    >>> with LocalKafka() as kafka:     # doctest: +SKIP
    ...     KafkaBus(bootstrap=kafka.bootstrap)
    """

    def __init__(
        self,
        data_dir: Path | None = None,
        port: int = 0,
        *,
        stays: bool = False,
        heap_mb: int = 256,
    ) -> None:
        self._temporary = data_dir is None
        self._port = port
        self._stays = stays
        self._heap_mb = heap_mb
        self._child: subprocess.Popen[bytes] | None = None
        self._running: Running | None = None
        self.data_dir = (
            data_dir if data_dir is not None else Path(tempfile.mkdtemp(prefix="kafka-"))
        )

    @property
    def bootstrap(self) -> str:
        """``127.0.0.1:PORT`` of the running broker."""
        return self.running.bootstrap

    @property
    def running(self) -> Running:
        if self._running is None:
            raise BrokerExited("the broker has not been started")
        return self._running

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def start(self) -> Self:
        """Format the folder if it is new, start, and wait until the broker answers."""
        classpath, java = distribution.kafka_classpath(), distribution.find_java()
        self.data_dir.mkdir(parents=True, exist_ok=True)
        with _starting(self.data_dir):
            if running := find(self.data_dir):
                raise FolderInUse(
                    f"Kafka already runs on {self.data_dir} at {running.bootstrap} (pid {running.pid}): use "
                    f"that address, or stop it with `lineside kafka stop --data {self.data_dir}`"
                )
            jvm = kraft.jvm(java, classpath, self.data_dir, self._heap_mb)
            for attempt in range(_PORT_TRIES):
                try:
                    self._launch(jvm)
                    break
                except PortTaken:  # a free port can be taken by another before Kafka binds it
                    if self._port or attempt == _PORT_TRIES - 1:
                        raise
        return self

    def stop(self) -> None:
        """End the broker; a temporary folder goes too."""
        if self._child is not None:
            processes.stop([self._child], _STOP_S)
            self._child = None
        (self.data_dir / "kafka.json").unlink(missing_ok=True)
        self._running = None
        if self._temporary:
            shutil.rmtree(self.data_dir, ignore_errors=True)

    def _launch(self, jvm: list[str]) -> None:
        port, controller = self._port or _free_port(), _free_port()
        if self._port and not _is_free(port):
            raise PortTaken(
                f"port {port} is taken by another program: give another with --port, or leave it out"
            )
        properties = kraft.write_settings(self.data_dir, _HOST, port, controller)
        kraft.format_once(jvm, self.data_dir, properties)
        log = self.data_dir / "kafka.log"
        before = log.stat().st_size if log.exists() else 0
        self._child = processes.spawn(
            [*jvm, kraft.MAIN, str(properties)], log=log, outlives_parent=self._stays
        )
        running = Running(
            pid=self._child.pid,
            started_ticks=_start_ticks(self._child.pid) or 0,
            bootstrap=f"{_HOST}:{port}",
            data=str(self.data_dir.resolve()),
        )
        _write_state(self.data_dir, running)
        try:
            self._await_answer(running, log, before)
        except BaseException:
            processes.stop([self._child])
            (self.data_dir / "kafka.json").unlink(missing_ok=True)
            raise
        self._running = running

    def _await_answer(self, running: Running, log: Path, before: int) -> None:
        assert self._child is not None  # noqa: S101
        deadline = time.monotonic() + _START_S
        while time.monotonic() < deadline:
            if (code := self._child.poll()) is not None:
                raise _exit_error(self.data_dir, running, code, log, before)
            if _listens(running.bootstrap) and running.answers():
                return
            time.sleep(0.03)
        raise BrokerExited(
            f"Kafka did not answer at {running.bootstrap} within {_START_S:.0f} s; it is stopped again. "
            f"Last lines of {log}:\n{_tail(log, before)}"
        )


def _exit_error(
    data_dir: Path, running: Running, code: int, log: Path, before: int
) -> BrokerExited | PortTaken | FolderInUse:
    said = _tail(log, before)
    if "Address already in use" in said:
        return PortTaken(
            f"{running.bootstrap} or the controller's port is taken by another program"
        )
    if "Failed to acquire lock" in said:
        return FolderInUse(
            f"another broker has {data_dir} locked, and it was not started by this program: stop it, or "
            "use another folder"
        )
    return BrokerExited(f"Kafka ended with code {code}. Last lines of {log}:\n{said}")


def _tail(log: Path, start: int, lines: int = 15) -> str:
    with log.open("rb") as file:
        file.seek(start)
        text = file.read().decode(errors="replace")
    return "\n".join(text.splitlines()[-lines:])


def _write_state(data_dir: Path, running: Running) -> None:
    written = data_dir / "kafka.json.new"
    written.write_text(json.dumps(msgspec.to_builtins(running), indent=2) + "\n")
    written.replace(data_dir / "kafka.json")


@contextmanager
def _starting(data_dir: Path) -> Iterator[None]:
    """One starter at a time; a second waits and then finds the first's broker."""
    with (data_dir / "starting.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _start_ticks(pid: int) -> int | None:
    """When process ``pid`` was started, in clock ticks since boot (proc_pid_stat(5), field 22); None if it is
    gone or only waits to be reaped."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    state, *fields = text.rpartition(")")[2].split()
    return None if state in "ZX" else int(fields[18])


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((_HOST, 0))
        return int(probe.getsockname()[1])


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as Java does
        try:
            probe.bind((_HOST, port))
        except OSError:
            return False
        return True


def _listens(bootstrap: str) -> bool:
    host, port = bootstrap.split(":")
    try:
        with socket.create_connection((host, int(port)), timeout=0.5):
            return True
    except OSError:
        return False

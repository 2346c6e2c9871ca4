"""A real Apache Kafka on this machine, for one-command runs and for tests: no Docker, no installed Java.

One node in KRaft mode on loopback, its data in one folder. The folder keeps the data between starts (the
ports may differ), ``kafka.log``, and ``kafka.json``: who runs there, so that another process can find it,
use it or stop it.
"""

import fcntl
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from lineside.bus import distribution, kraft
from lineside.bus.local_errors import BrokerExited, FolderInUse, LocalKafkaError, PortTaken
from lineside.bus.local_state import (
    STOP_S,
    Running,
    default_data,
    find,
    forget,
    running_bootstrap,
    start_ticks,
    stop,
    write_state,
)
from lineside.kit import processes

__all__ = [
    "LocalKafka",
    "LocalKafkaError",
    "Running",
    "default_data",
    "find",
    "is_free",
    "running_bootstrap",
    "stop",
]

_HOST = "127.0.0.1"
_START_S = 120.0  # 2 s on an idle machine
_LOG = "kafka.log"
_PORT_TRIES = 3


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
            # Nothing is worth an orderly end where the data goes too.
            processes.stop([self._child], 0.0 if self._temporary else STOP_S)
            self._child = None
            forget(self.data_dir)
        self._running = None
        if self._temporary:
            shutil.rmtree(self.data_dir, ignore_errors=True)

    def wait(self) -> int:
        """Wait until the broker ends by itself; its exit code."""
        if self._child is None:
            raise BrokerExited("the broker has not been started")
        return self._child.wait()

    def _launch(self, jvm: list[str]) -> None:
        port = self._port or processes.free_port(_HOST)
        controller = processes.free_port(_HOST)
        if self._port and not is_free(port):
            raise PortTaken(
                f"port {port} is taken by another program: give another port, or 0 for any free one"
            )
        properties = kraft.write_settings(self.data_dir, _HOST, port, controller)
        kraft.format_once(jvm, self.data_dir, properties)
        with _locked(self.data_dir) as log:
            before = log.tell()
            self._child = processes.spawn(
                [*jvm, kraft.MAIN, str(properties)], log=log, outlives_parent=self._stays
            )
        running = Running(
            pid=self._child.pid,
            started_ticks=start_ticks(self._child.pid) or 0,
            bootstrap=f"{_HOST}:{port}",
            data=str(self.data_dir.resolve()),
        )
        write_state(self.data_dir, running)
        try:
            self._await_answer(running, before)
        except BaseException:
            processes.stop([self._child])
            forget(self.data_dir)
            raise
        self._running = running

    def _await_answer(self, running: Running, before: int) -> None:
        """Until the broker answers; ``before`` is where its own lines begin in the log."""
        assert self._child is not None  # noqa: S101
        deadline = time.monotonic() + _START_S
        while time.monotonic() < deadline:
            if (code := self._child.poll()) is not None:
                said = _said(self.data_dir, before)
                if "Address already in use" in said:
                    raise PortTaken(f"{running.bootstrap} was taken by another program just now")
                raise BrokerExited(f"Kafka ended with code {code}. {said}")
            if _listens(running.bootstrap) and running.answers():
                return
            time.sleep(0.03)
        raise BrokerExited(
            f"Kafka did not answer at {running.bootstrap} within {_START_S:.0f} s and is stopped again. "
            f"{_said(self.data_dir, before)}"
        )


def _said(data_dir: Path, start: int, lines: int = 15) -> str:
    """The broker's last words, without the frames of stack traces."""
    log = data_dir / _LOG
    with log.open("rb") as file:
        file.seek(start)
        text = file.read().decode(errors="replace")
    words = [line for line in text.splitlines() if not line.startswith("\tat ")]
    return "\n".join([f"Last lines of {log}:", *words[-lines:]])


@contextmanager
def _locked(data_dir: Path) -> Iterator[IO[bytes]]:
    """The log, open and locked for the broker. Raises ``FolderInUse`` where another broker has it.

    The lock belongs to the open file, which becomes the broker's standard output: it lasts as long as the
    broker lives, whoever else dies. Kafka's own lock is taken too late, after its metadata log was opened.
    """
    with (data_dir / _LOG).open("ab") as log:
        try:
            fcntl.flock(log, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise FolderInUse(
                f"another broker runs on {data_dir}, and its kafka.json is gone: stop its Java process, or "
                "use another folder"
            ) from None
        yield log


@contextmanager
def _starting(data_dir: Path) -> Iterator[None]:
    """One starter at a time; a second waits and then finds the first's broker."""
    with (data_dir / "starting.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def is_free(port: int) -> bool:
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

"""Kafka and the services as child processes: started in order, restarted when they die, ended together.

What ``lineside up`` and the demo share. Every part is a process of its own; this one only watches them.
"""

import fcntl
import os
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from subprocess import Popen
from types import TracebackType
from typing import TextIO
from urllib.error import URLError
from urllib.request import ProxyHandler, build_opener

from lineside.bus.kafka import KafkaBus
from lineside.bus.local import LocalKafka, LocalKafkaError, find, is_free
from lineside.contracts import TOPICS
from lineside.kit.processes import ending, free_port, spawn, stop
from lineside.kit.settings import BusSettings, read

SERVICES = ("minder", "mycroft", "falcon", "remediation")
_direct = build_opener(ProxyHandler({}))
"""For loopback: no proxy that the environment names has anything to do with it."""
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.5, 10.0


@dataclass(frozen=True, kw_only=True, slots=True)
class StackConfig:
    """``bootstrap`` None starts a local Kafka with its data under ``data``. ``environment`` is what the
    services get beyond the parent's environment, e.g. LINESIDE_MODE."""

    data: Path
    bootstrap: str | None = None
    kafka_port: int = 0
    api_port: int = 0
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class _Service:
    """One supervised process; ``pause_s`` grows while it keeps dying young."""

    name: str
    port: int
    process: Popen[bytes]
    started_s: float
    restart_at_s: float | None = None
    pause_s: float = _FIRST_PAUSE_S


class StackFailed(Exception):
    """The services cannot run here or did not become ready; the text says why, or where the log is."""


_HOPELESS = {os.EX_UNAVAILABLE, os.EX_CONFIG}
"""Exit codes of a service that would end in the same way again: a port is taken, a setting is wrong."""


class Stack:
    """Use as a context manager; call ``supervise`` about once a second."""

    def __init__(self, config: StackConfig, say: Callable[[str], None]) -> None:
        self.config = config
        self._say = say
        self._kafka: LocalKafka | None = None
        self._services: dict[str, _Service] = {}
        self._lock: TextIO | None = None
        self.bootstrap = ""

    @property
    def api(self) -> str:
        """The API's address."""
        return f"http://127.0.0.1:{self._services['remediation'].port}"

    @property
    def logs(self) -> Path:
        return self.config.data / "logs"

    def __enter__(self) -> "Stack":
        self.logs.mkdir(parents=True, exist_ok=True)
        try:
            self._claim()
            self._start_kafka()
            for name in SERVICES:
                port = self.config.api_port if name == "remediation" else 0
                self._start(name, port or free_port())
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        stop([service.process for service in self._services.values()])
        if self._kafka is not None:
            self._kafka.stop()
        if self._lock is not None:
            self._lock.close()

    def _claim(self) -> None:
        """One set of services per data folder, and an API port of its own."""
        self._lock = (self.config.data / "up.lock").open("w")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise StackFailed(
                f"Lineside already runs on {self.config.data}; another one needs another --data folder"
            ) from None
        if self.config.api_port and not is_free(self.config.api_port):
            raise StackFailed(
                f"port {self.config.api_port} is taken; give another with --api-port, or 0 for any"
            )

    def bus(self) -> KafkaBus:
        settings = read(BusSettings)
        return KafkaBus(
            bootstrap=self.bootstrap,
            prefix=settings.topic_prefix,
            partitions=settings.partitions,
            replication=settings.replication,
        )

    def wait_ready(self, timeout_s: float = 60.0, stop: Callable[[], bool] = lambda: False) -> None:
        """Until every service says so itself, or ``stop()``. Raises ``StackFailed``."""
        deadline = time.monotonic() + timeout_s
        waiting = set(SERVICES)
        while waiting and not stop():
            self._give_up_on_the_hopeless()
            self.supervise()
            waiting = {name for name in waiting if not self._is_ready(name)}
            if time.monotonic() > deadline:
                late = ", ".join(
                    f"{name} (log: {self.logs / name}.log)" for name in sorted(waiting)
                )
                raise StackFailed(f"not ready after {timeout_s:.0f} s: {late}")
            time.sleep(0.2)

    def _give_up_on_the_hopeless(self) -> None:
        for name, service in self._services.items():
            if service.process.poll() in _HOPELESS:
                lines = (self.logs / f"{name}.log").read_text(errors="replace").splitlines()
                raise StackFailed(
                    f"{name}: {lines[-1] if lines else ending(service.process.returncode)}"
                )

    def supervise(self) -> None:
        """Restart what has died, each time after a longer pause while it keeps dying young."""
        self._supervise_kafka()
        now = time.monotonic()
        for service in list(self._services.values()):
            code = service.process.poll()
            if code is None:
                continue
            if service.restart_at_s is None:
                if now - service.started_s > 60:
                    service.pause_s = _FIRST_PAUSE_S
                service.restart_at_s = now + service.pause_s
                self._say(
                    f"{service.name} ended ({ending(code)}), restarting in {service.pause_s:g} s; "
                    f"log: {self.logs / service.name}.log"
                )
            elif now >= service.restart_at_s:
                self._start(service.name, service.port, min(2 * service.pause_s, _LONGEST_PAUSE_S))

    def _supervise_kafka(self) -> None:
        if self._kafka is None or self._kafka.running.alive():
            return
        self._say("Kafka ended, restarting on the same port and data")
        with suppress(LocalKafkaError):  # the next call tries again
            port = int(self.bootstrap.rpartition(":")[2])
            self._kafka = LocalKafka(self._kafka.data_dir, port=port).start()

    def _start_kafka(self) -> None:
        data = self.config.data / "kafka"
        if self.config.bootstrap is not None:
            self.bootstrap = self.config.bootstrap
        elif running := find(data):
            self._say(f"using the Kafka that already runs on {data}")
            self.bootstrap = running.bootstrap
        else:
            self._kafka = LocalKafka(data, port=self.config.kafka_port).start()
            self.bootstrap = self._kafka.bootstrap
        admin = self.bus().admin()
        try:
            admin.ensure_topics(tuple(TOPICS.values()))
        finally:
            admin.close()

    def _start(self, name: str, port: int, pause_s: float = _FIRST_PAUSE_S) -> None:
        environment = {
            "LINESIDE_DATABASE_URL": database_in(self.config.data),
            **os.environ,
            **self.config.environment,
            "LINESIDE_BOOTSTRAP": self.bootstrap,
            "LINESIDE_API_PORT" if name == "remediation" else "LINESIDE_METRICS_PORT": str(port),
        }
        process = spawn(
            [sys.executable, "-m", f"lineside.{name}"],
            env=environment,
            log=self.logs / f"{name}.log",
        )
        self._services[name] = _Service(name, port, process, time.monotonic(), pause_s=pause_s)

    def _is_ready(self, name: str) -> bool:
        if self._services[name].process.poll() is not None:
            return False
        url = f"http://127.0.0.1:{self._services[name].port}/readyz"
        with suppress(URLError, OSError), _direct.open(url, timeout=2) as answer:
            return bool(answer.status == 200)
        return False


def database_in(data: Path) -> str:
    """The URL of the incident history that is kept under ``data``."""
    return f"sqlite:///{data.resolve() / 'lineside.db'}"

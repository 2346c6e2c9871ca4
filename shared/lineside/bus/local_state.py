"""Who runs on a data folder: ``kafka.json`` in it, so that any process can find, use or stop the broker."""

import json
import os
import signal
import time
from pathlib import Path

import msgspec
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from lineside.kit import settings

STOP_S = 30.0
"""A broker with a thousand partitions ends in a few seconds; under load it takes longer."""
_FILE = "kafka.json"


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
        return start_ticks(self.pid) == self.started_ticks

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
        running = msgspec.json.decode((data_dir / _FILE).read_bytes(), type=Running)
    except (OSError, msgspec.MsgspecError):
        return None
    return running if running.alive() else None


def forget(data_dir: Path) -> None:
    """Nobody runs on ``data_dir`` any more."""
    (data_dir / _FILE).unlink(missing_ok=True)


def default_data() -> Path:
    """Where ``lineside kafka start`` keeps its data."""
    return settings.home() / "kafka"


def running_bootstrap(data_dir: Path | None = None) -> str | None:
    """The address of the broker that runs on ``data_dir`` (the default folder), if one does."""
    running = find(data_dir or default_data())
    return running.bootstrap if running else None


def stop(running: Running, grace_s: float = STOP_S) -> None:
    """SIGTERM, wait, SIGKILL. Data that was acknowledged stays either way."""
    for sent, patience_s in ((signal.SIGTERM, grace_s), (signal.SIGKILL, 10.0)):
        deadline = time.monotonic() + patience_s
        if running.alive():
            os.kill(running.pid, sent)
        while running.alive() and time.monotonic() < deadline:
            time.sleep(0.02)
    forget(Path(running.data))


def write_state(data_dir: Path, running: Running) -> None:
    written = data_dir / f"{_FILE}.new"
    written.write_text(json.dumps(msgspec.to_builtins(running), indent=2) + "\n")
    written.replace(data_dir / _FILE)


def start_ticks(pid: int) -> int | None:
    """When process ``pid`` was started, in clock ticks since boot (proc_pid_stat(5), field 22); None if it is
    gone or only waits to be reaped."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    state, *fields = text.rpartition(")")[2].split()
    return None if state in "ZX" else int(fields[18])

"""The demo as a user runs it: one command, watched by what it prints and what it leaves."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest


class Demo:
    """``lineside demo`` as a process. Lines it prints can be waited for; its services can be killed."""

    def __init__(self, out: Path, *options: str) -> None:
        self.out = out
        self.lines: list[str] = []
        environment = os.environ | {"LINESIDE_HOME": str(out / "home"), "PYTHONUNBUFFERED": "1"}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "lineside.cli", "demo", "--out", str(out), *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=environment,
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self._family: dict[int, float] = {}

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line.rstrip())

    def text(self) -> str:
        return "\n".join(self.lines)

    def wait_for(self, text: str, limit_s: float = 150) -> None:
        """Until the demo prints ``text``; fails with all it printed if it ends or takes too long."""
        self.until(lambda: any(text in line for line in list(self.lines)), f"{text!r}", limit_s)

    def until(self, condition: Callable[[], bool], what: str, limit_s: float = 150) -> None:
        deadline = time.monotonic() + limit_s
        while not condition():
            self.remember_family()
            assert self.process.poll() is None, f"ended before {what}:\n{self.text()}"
            assert time.monotonic() < deadline, f"no {what} in {limit_s} s:\n{self.text()}"
            time.sleep(0.1)

    def remember_family(self) -> None:
        """Every process it ever had, so that none can be left unseen."""
        try:
            for child in psutil.Process(self.process.pid).children(recursive=True):
                self._family.setdefault(child.pid, child.create_time())
        except psutil.NoSuchProcess:
            pass

    def left(self) -> list[str]:
        """Command lines of descendants that still run."""
        found = []
        for pid, created in self._family.items():
            try:
                process = psutil.Process(pid)
                if process.create_time() == created and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(" ".join(process.cmdline()))
            except psutil.NoSuchProcess:
                continue
        return found

    def kill_service(self, name: str) -> int:
        """SIGKILL to the service's process; returns its pid."""
        for child in psutil.Process(self.process.pid).children(recursive=True):
            if child.cmdline()[-1:] == [f"lineside.{name}"]:
                child.kill()
                return int(child.pid)
        raise AssertionError(f"no process of {name}")

    def end(self, limit_s: float = 150) -> int:
        """Its exit code once it has ended by itself."""
        deadline = time.monotonic() + limit_s
        while self.process.poll() is None:
            self.remember_family()
            assert time.monotonic() < deadline, f"did not end in {limit_s} s:\n{self.text()}"
            time.sleep(0.2)
        self._reader.join(10)
        return self.process.returncode

    def close(self) -> None:
        self._reader.join(10)
        assert self.process.stdout is not None
        self.process.stdout.close()

    def summary(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.out / "summary.json").read_text())
        return found


@pytest.fixture
def demo(tmp_path: Path) -> Iterator[Callable[..., Demo]]:
    """Starts demos and leaves none behind."""
    started: list[Demo] = []

    def start(*options: str) -> Demo:
        started.append(Demo(tmp_path / f"demo-{len(started)}", *options))
        return started[-1]

    yield start
    for running in started:
        if running.process.poll() is None:
            running.process.send_signal(signal.SIGTERM)
            try:
                running.process.wait(40)
            except subprocess.TimeoutExpired:
                running.process.kill()
                running.process.wait()
        running.close()

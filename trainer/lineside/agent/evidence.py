"""The kinds of evidence that an agent can gather: each is a child process whose output becomes the result.

``KINDS`` is the map; a kind that is not in it is answered with "cannot".
"""

import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import psutil

from lineside.agent.ranks import RankProcess
from lineside.agent.stacks import NotReadable, grouped, why_not
from lineside.contracts import Request, RequestKind
from lineside.kit import processes

_MOST_BYTES = 16 * 1024 * 1024
_STACKS_S = 10.0
_ONE_THREAD = {"OMP_NUM_THREADS": "1"}  # the ranks need the other cores
_GEMM_S, _GEMM_MOST_S, _GEMM_START_S = 0.5, 5.0, 20.0


class CannotAnswer(Exception):
    """Why there is no result; goes into the reply."""


Reading = Callable[[bytes], dict[str, Any]]


class Work:
    """A child process that gathers one rank's evidence, its output in a file without a name."""

    def __init__(self, command: list[str], read: Reading, patience_s: float) -> None:
        self._read = read
        self._deadline = time.monotonic() + patience_s
        self._patience_s = patience_s
        self._files = ExitStack()
        try:
            self._out = self._files.enter_context(tempfile.TemporaryFile())
            self._err = self._files.enter_context(tempfile.TemporaryFile())
            self._process = processes.spawn(
                command, env=os.environ | _ONE_THREAD, log=self._out, stderr=self._err
            )
        except OSError as error:
            self._files.close()
            raise CannotAnswer(f"{command[0]} cannot be started: {error.strerror}") from error

    def result(self) -> dict[str, Any] | None:
        """None while it works. Raises ``CannotAnswer`` where nothing comes of it."""
        code = self._process.poll()
        if code is None and time.monotonic() < self._deadline:
            return None
        out, err = self._content(self._out), self._content(self._err)
        self.close()
        if code is None:
            raise CannotAnswer(f"it was not done after {self._patience_s:.0f} s")
        if code != 0:
            raise CannotAnswer(why_not(err.decode(errors="replace"), code))
        try:
            return self._read(out)
        except NotReadable as error:
            raise CannotAnswer(str(error)) from error

    def close(self) -> None:
        """End it, done or not."""
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        self._files.close()

    @staticmethod
    def _content(file: Any) -> bytes:
        file.seek(0)
        content: bytes = file.read(_MOST_BYTES)
        return content


@dataclass(frozen=True, slots=True)
class Kind:
    """``at_once``: ranks that are looked at side by side; ``pause_s``: between two looks at one rank."""

    begin: Callable[[Request, RankProcess, Path], Work]
    at_once: int
    pause_s: float


def _dump_stacks(request: Request, rank: RankProcess, folder: Path) -> Work:
    """Python stacks by py-spy, from outside: works while the rank hangs, holds the GIL or is stopped."""
    program = shutil.which("py-spy", path=str(Path(sys.executable).parent)) or shutil.which(
        "py-spy"
    )
    if program is None:
        raise CannotAnswer("py-spy is not installed: pip install py-spy")
    pid, stopped = _python_of(rank.pid)
    # py-spy cannot pause what is stopped already; its stacks do not move anyway.
    how = ["--nonblocking"] if stopped else []
    command = [program, "dump", "--json", *how, "--pid", str(pid)]
    return Work(command, lambda out: grouped(out, pid, stopped), _STACKS_S)


def _python_of(pid: int) -> tuple[int, bool]:
    """The Python process of a rank (the rank itself, or what its shell or launcher has started), and whether
    it is stopped."""
    try:
        own = psutil.Process(pid)
        family = [own, *own.children(recursive=True)]
        python = next((p for p in family if "python" in _program(p)), own)
        return python.pid, python.status() in (psutil.STATUS_STOPPED, psutil.STATUS_TRACING_STOP)
    except psutil.Error as error:
        raise CannotAnswer(f"process {pid} cannot be seen: {error}") from error


def _program(process: psutil.Process) -> str:
    with suppress(psutil.Error):
        return Path(process.exe()).name
    return ""


def _validate_compute(request: Request, rank: RankProcess, folder: Path) -> Work:
    """Matrix products beside the rank, on its device: as fast as they should be, and right each time?"""
    seconds = request.parameters.get("seconds", _GEMM_S)
    if not isinstance(seconds, int | float) or not 0 < seconds <= _GEMM_MOST_S:
        raise CannotAnswer(f"parameters.seconds must be above 0 and at most {_GEMM_MOST_S:g}")
    if request.max_pause_s is not None and seconds > request.max_pause_s:
        raise CannotAnswer(f"it would take {seconds:g} s, max_pause_s is {request.max_pause_s:g}")
    where = str(request.parameters.get("device") or _device_of(rank))
    command = [sys.executable, "-m", "lineside.agent.gemm", "--seconds", str(seconds)]
    return Work([*command, "--device", where], _json, seconds + _GEMM_START_S)


def _device_of(rank: RankProcess) -> str:
    return f"cuda:{rank.local_rank}" if Path(f"/dev/nvidia{rank.local_rank}").exists() else "cpu"


def _json(out: bytes) -> dict[str, Any]:
    try:
        return msgspec.json.decode(out, type=dict[str, Any])
    except msgspec.MsgspecError as error:
        raise NotReadable(f"the answer cannot be read: {error}") from error


KINDS: dict[str, Kind] = {
    RequestKind.DUMP_STACKS: Kind(_dump_stacks, at_once=4, pause_s=1.0),
    RequestKind.VALIDATE_COMPUTE: Kind(_validate_compute, at_once=1, pause_s=5.0),
}

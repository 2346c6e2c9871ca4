"""Child processes that never outlive their parent, that are ended politely first, and what they need.

A child is started through this very file run as a script: it asks the kernel (``PR_SET_PDEATHSIG``) to be
killed when the parent dies, then becomes the wanted program. No function runs between fork and exec in the
parent's address space, so it is safe in programs with threads. The kernel watches the *thread* that started
the child: start children from a thread that lives as long as they should.
"""

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import IO

_PR_SET_PDEATHSIG = 1


def spawn(
    command: Sequence[str],
    *,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    log: Path | IO[bytes] | None = None,
    stderr: int | IO[bytes] | None = None,
    outlives_parent: bool = False,
) -> subprocess.Popen[bytes]:
    """Start ``command`` in a session of its own (a Ctrl-C at the terminal reaches the parent only).

    ``log``: file that stdout (and stderr, unless given) is appended to; None inherits. The returned pid is
    the program's own. Raises FileNotFoundError where the program does not exist.
    """
    argv = list(command)
    if not outlives_parent:
        argv = [sys.executable, "-I", "-S", __file__, str(os.getpid()), *argv]
    out = open(log, "ab") if isinstance(log, Path) else log
    try:
        return subprocess.Popen(
            argv,
            env=None if env is None else dict(env),
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=stderr if stderr is not None else (subprocess.STDOUT if out else None),
            start_new_session=True,
        )
    finally:
        if isinstance(log, Path) and out is not None:
            out.close()


def stop(children: Iterable[subprocess.Popen[bytes]], grace_s: float = 10.0) -> None:
    """SIGTERM to all, wait ``grace_s`` in all, SIGKILL to the rest (a stopped process gets SIGCONT first)."""
    living = [child for child in children if child.poll() is None]
    for child in living:
        child.terminate()
        child.send_signal(signal.SIGCONT)
    deadline = time.monotonic() + grace_s
    for child in living:
        try:
            child.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


def ending(code: int) -> str:
    """How a process with this ``returncode`` ended, in words.

    >>> ending(-9), ending(1)
    ('signal 9', 'exit code 1')
    """
    return f"signal {-code}" if code < 0 else f"exit code {code}"


def free_port(host: str = "127.0.0.1") -> int:
    """A port that nobody listens on now. Another program may take it before the child does: where that must
    not fail, try again."""
    import socket  # here, since every child's start would pay for it (3 ms)

    with socket.socket() as probe:
        probe.bind((host, 0))
        return int(probe.getsockname()[1])


def _become(parent: int, command: list[str]) -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # the parent died before we asked
        os._exit(1)
    try:
        os.execvp(command[0], command)  # noqa: S606
    except OSError as error:
        print(f"{command[0]}: {error.strerror}", file=sys.stderr)
        os._exit(127)


if __name__ == "__main__":
    _become(int(sys.argv[1]), sys.argv[2:])

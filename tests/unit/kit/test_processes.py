"""Children end with their parent, whatever it dies of, and are stopped even when they are stopped."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil

from lineside.kit.processes import free_port, spawn, stop

SLEEP = [sys.executable, "-c", "import time; time.sleep(600)"]
PARENT = """
import sys, time
from lineside.kit.processes import spawn
print(spawn([sys.executable, "-c", "import time; time.sleep(600)"]).pid, flush=True)
time.sleep(600)
"""


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.01)


def gone(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def test_a_child_dies_with_a_parent_that_is_killed() -> None:
    with subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        assert not gone(child)
        parent.kill()
        wait_for(lambda: gone(child))


def test_a_child_has_a_session_of_its_own_and_a_program_that_is_missing_says_so(
    tmp_path: Path,
) -> None:
    log = tmp_path / "log"
    child = spawn([sys.executable, "-c", "import os; print(os.getsid(0) == os.getpid())"], log=log)
    assert child.wait(30) == 0
    assert spawn(["no-such-program"], log=log).wait(30) == 127
    assert log.read_text().splitlines() == ["True", "no-such-program: No such file or directory"]


def test_one_that_is_stopped_is_ended_politely_and_one_that_does_not_listen_is_killed() -> None:
    frozen = spawn(SLEEP)
    deaf = spawn(
        [
            sys.executable,
            "-c",
            "import signal, time; signal.signal(15, signal.SIG_IGN); time.sleep(600)",
        ]
    )
    wait_for(lambda: psutil.Process(frozen.pid).cmdline() == SLEEP)
    wait_for(lambda: _ignores_sigterm(deaf.pid))
    os.kill(frozen.pid, signal.SIGSTOP)
    stop([frozen, deaf], grace_s=1.0)
    assert (frozen.returncode, deaf.returncode) == (-signal.SIGTERM, -signal.SIGKILL)


def _ignores_sigterm(pid: int) -> bool:
    status = Path(f"/proc/{pid}/status").read_text()
    mask = next(line for line in status.splitlines() if line.startswith("SigIgn:")).split()[1]
    return bool(int(mask, 16) >> (signal.SIGTERM - 1) & 1)


def test_a_free_port_can_be_bound() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", free_port()))

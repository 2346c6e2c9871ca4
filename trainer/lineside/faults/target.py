"""A process that faults are done to, held by a pidfd: the kernel never lets its signals reach another one.

A number alone could by then belong to a process that was started later. Only processes of the same user
are accepted, and never this one.
"""

import os
import signal
from select import select


class NoTarget(Exception):
    """The process cannot be a target; the message says why."""


class Target:
    """Raises NoTarget where there is no such process, or it is not ours to stop."""

    def __init__(self, pid: int) -> None:
        if pid <= 1 or pid == os.getpid():
            raise NoTarget(f"process {pid} is no target")
        self.pid = pid
        try:
            self._fd = os.pidfd_open(pid)
            owner = os.stat(f"/proc/{pid}").st_uid
        except OSError as error:
            raise NoTarget(f"there is no process {pid}") from error
        if owner != os.geteuid():
            raise NoTarget(f"process {pid} belongs to another user")

    @property
    def alive(self) -> bool:
        """False once the process has ended (a zombie has)."""
        return not select([self._fd], [], [], 0)[0]

    def stop(self) -> None:
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def _signal(self, number: int) -> None:
        try:
            signal.pidfd_send_signal(self._fd, number)
        except ProcessLookupError:
            pass  # it has ended: nothing is left to slow down

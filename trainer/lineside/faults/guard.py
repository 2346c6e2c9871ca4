"""A second process that resumes a target when its injector dies without having done so.

An injector that is killed outright (SIGKILL, out of memory) runs no ``finally``. The guard, forked
beforehand into a session of its own, waits for the end of a pipe that only the injector holds open; the
kernel closes that whatever the injector dies of. Only someone who kills both leaves a target stopped.
"""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager

from lineside.faults.target import Target


@contextmanager
def resumed_at_the_end(target: Target) -> Iterator[None]:
    """Whatever happens to the body or to this process, ``target`` runs afterwards.

    Forks: for single-threaded command-line processes.
    """
    gone, alive = os.pipe()
    guard = os.fork()
    if guard == 0:
        try:
            os.setsid()
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                signal.signal(number, signal.SIG_IGN)
            os.close(alive)
            os.read(gone, 1)
            target.resume()
        finally:
            os._exit(0)
    os.close(gone)
    try:
        yield
    finally:
        target.resume()
        os.close(alive)
        os.waitpid(guard, 0)

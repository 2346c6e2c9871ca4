"""One rank's process: started, watched from outside, ended."""

import os
import signal
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from lineside.agent.spec import AgentSpec, rank_environment
from lineside.kit import processes

_TAIL_BYTES, _TAIL_LINES = 4096, 20


class RankProcess:
    """A rank's process. What it prints goes to ``rank-<rank>.out`` and ``rank-<rank>.err``."""

    def __init__(self, spec: AgentSpec, local_rank: int, inherited: dict[str, str]) -> None:
        self.rank = spec.ranks[local_rank]
        self.local_rank = local_rank
        self._stderr = spec.folder / f"rank-{self.rank}.err"
        with self._stderr.open("ab") as stderr:
            self.process = processes.spawn(
                spec.command,
                env=rank_environment(spec, local_rank, inherited),
                log=spec.folder / f"rank-{self.rank}.out",
                stderr=stderr,
            )

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def ended(self) -> bool:
        return self.process.poll() is not None

    @property
    def exit_code(self) -> int:
        """Its exit code; -1 while it runs and where a signal ended it."""
        code = self.process.poll()
        return -1 if code is None or code < 0 else code

    @property
    def signal(self) -> int:
        """The signal that ended it; -1 where none did."""
        code = self.process.poll()
        return -code if code is not None and code < 0 else -1

    @property
    def failed(self) -> bool:
        return self.process.poll() not in (None, 0)

    def how_it_ended(self) -> str:
        if self.signal > 0:
            with suppress(ValueError):
                return f"rank {self.rank} was ended by {signal.Signals(self.signal).name}"
            return f"rank {self.rank} was ended by signal {self.signal}"
        return f"rank {self.rank} ended with exit code {self.exit_code}"

    def sweep(self) -> None:
        """End what it started and left in its process group. Only right after it has ended: its number may
        be another's later."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)

    def stderr_tail(self) -> str:
        """Its last lines on stderr."""
        return tail(self._stderr)


def tail(path: Path, size: int = _TAIL_BYTES, lines: int = _TAIL_LINES) -> str:
    """The last ``lines`` lines within the last ``size`` bytes; empty where there is no such file."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - size))
            text = file.read(size).decode(errors="replace")
    except OSError:
        return ""
    return "\n".join(text.splitlines()[-lines:])


def stop(ranks: Iterable[RankProcess], grace_s: float) -> None:
    """End those that live politely, then whatever they started and left in their process group."""
    living = [rank for rank in ranks if not rank.ended]
    processes.stop([rank.process for rank in living], grace_s)
    for rank in living:
        rank.sweep()

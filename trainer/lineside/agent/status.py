"""What an agent says of itself in its run folder, for people on the machine: ``status.json``, each second.

It is there whether or not Kafka is, and outlives the agent, so that one can see what it last saw.
"""

import time
from collections.abc import Sequence
from pathlib import Path

import msgspec
import psutil

FILE = "status.json"
_LATE_S = 5.0


class RankStatus(msgspec.Struct, frozen=True, kw_only=True):
    """As in ``rank_states`` of ``collectives.v1``."""

    rank: int
    pid: int
    state: str
    step: int
    phase: str
    exit_code: int
    signal: int


class AgentStatus(msgspec.Struct, frozen=True, kw_only=True):
    """``waiting``: records that Kafka has not taken; ``revision``: of the plan in hand, 0: none."""

    pid: int
    job_id: str
    run_id: str
    generation: int
    machine_id: str
    state: str
    at_ns: int
    revision: int
    waiting: int
    ranks: list[RankStatus]


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """A status with its folder. ``alive``: the agent's process is there; ``age_s``: of its last word."""

    folder: str
    alive: bool
    age_s: float
    agent: AgentStatus

    @property
    def says(self) -> str:
        """Its state as it is to be taken: who died cannot say so."""
        if self.agent.state == "gone":
            return "gone"
        if not self.alive:
            return "died"
        return "silent" if self.age_s > _LATE_S else self.agent.state


def write_status(folder: Path, status: AgentStatus) -> None:
    """Replace the folder's status. Raises OSError."""
    draft = folder / (FILE + ".new")
    draft.write_bytes(msgspec.json.encode(status))
    draft.replace(folder / FILE)


def find(folders: Sequence[Path]) -> list[Found]:
    """The agents of these folders and of all below them, newest word first; what is no status is left out."""
    found = []
    for folder in folders:
        for path in folder.rglob(FILE):
            try:
                status = msgspec.json.decode(path.read_bytes(), type=AgentStatus)
            except (OSError, msgspec.MsgspecError):
                continue
            age_s = max(0.0, (time.time_ns() - status.at_ns) / 1e9)
            alive = _is_agent(status.pid)
            found.append(Found(folder=str(path.parent), alive=alive, age_s=age_s, agent=status))
    return sorted(found, key=lambda one: (-one.agent.at_ns // 10**9, one.agent.machine_id))


def _is_agent(pid: int) -> bool:
    """A pid may be somebody else's by now."""
    try:
        return "lineside.agent" in psutil.Process(pid).cmdline()
    except psutil.Error:
        return False

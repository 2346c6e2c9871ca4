"""What one agent is to run, and how its ranks and its launcher hear of each other: files and environment."""

from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path

import msgspec

from lineside.contracts import JobState


class AgentSpec(msgspec.Struct, frozen=True, kw_only=True):
    """One machine's share of a run. ``ranks`` are global and in order of their local rank; ``shares_host``:
    other agents of the run are on the same host, so that what the whole host does is not this one's."""

    job_id: str
    run_id: str
    generation: int
    machine_id: str
    ranks: list[int]
    world_size: int
    master_addr: str
    master_port: int
    command: list[str]
    run_dir: str
    shares_host: bool = False

    @property
    def folder(self) -> Path:
        """The run folder that this agent and its ranks share."""
        return Path(self.run_dir)


class Reason(StrEnum):
    """Why an agent's ranks were stopped."""

    ASKED = "asked"
    PLAN = "plan"


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """How an agent's ranks ended, left in ``outcome.json`` for the launcher.

    ``at_ns`` is when the first rank failed, so that the first failure of a run can be told from those that
    it caused; ``exit_code`` is the agent's own.
    """

    state: JobState
    exit_code: int
    at_ns: int
    rank: int = -1
    detail: str = ""
    reason: Reason | None = None


def device_id(machine_id: str, local_rank: int) -> str:
    """How a rank's device is named, here and in the Job."""
    return f"{machine_id}/{local_rank}"


def rank_environment(
    spec: AgentSpec, local_rank: int, inherited: Mapping[str, str]
) -> dict[str, str]:
    """A rank's whole environment. One thread per rank unless the user says otherwise, as torchrun does."""
    own = {
        "RANK": str(spec.ranks[local_rank]),
        "WORLD_SIZE": str(spec.world_size),
        "LOCAL_RANK": str(local_rank),
        "LOCAL_WORLD_SIZE": str(len(spec.ranks)),
        "MASTER_ADDR": spec.master_addr,
        "MASTER_PORT": str(spec.master_port),
        "LINESIDE_RUN_DIR": spec.run_dir,
        "LINESIDE_JOB_ID": spec.job_id,
        "LINESIDE_RUN_ID": spec.run_id,
        "LINESIDE_GENERATION": str(spec.generation),
        "LINESIDE_MACHINE_ID": spec.machine_id,
    }
    threads = {"OMP_NUM_THREADS": "1"} if spec.world_size > 1 else {}
    inherited = {name: v for name, v in inherited.items() if name != "LINESIDE_AGENT_SPEC"}
    return threads | inherited | own

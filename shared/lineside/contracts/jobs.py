"""``jobs.v1``: what was asked to run. Written by the launcher only."""

from enum import StrEnum
from itertools import pairwise
from math import prod

import msgspec

from lineside.contracts.identity import group_id


class JobState(StrEnum):
    STARTING = "starting"
    RUNNING = "running"
    STOPPED = "stopped"
    FINISHED = "finished"
    FAILED = "failed"


_MOST_RANKS = 1 << 20
"""Readers make lists of so many; more than any machine hall holds is a mistake."""

ENDED = frozenset({JobState.STOPPED, JobState.FINISHED, JobState.FAILED})


class RestartOwner(StrEnum):
    """Who starts and kills the worker processes."""

    LINESIDE = "lineside"
    ORCHESTRATOR = "orchestrator"
    NONE = "none"


class Mesh(msgspec.Struct, frozen=True):
    """The parallel grid; ranks fill it row-major, the last axis fastest.

    >>> Mesh(axes=["dp", "pp"], sizes=[2, 2]).coordinates(3)
    {'dp': 1, 'pp': 1}
    >>> Mesh(axes=["dp", "pp"], sizes=[2, 2]).groups("dp")
    [[0, 2], [1, 3]]
    """

    axes: list[str] = []
    sizes: list[int] = []

    @property
    def world_size(self) -> int:
        return prod(self.sizes)

    def coordinates(self, rank: int) -> dict[str, int]:
        """Where ``rank`` sits, by axis. Raises IndexError outside the mesh."""
        if not 0 <= rank < self.world_size:
            raise IndexError(f"rank {rank} is outside a mesh of {self.world_size}")
        place: dict[str, int] = {}
        for axis, size in zip(reversed(self.axes), reversed(self.sizes), strict=True):
            rank, place[axis] = divmod(rank, size)
        return {axis: place[axis] for axis in self.axes}

    def groups(self, axis: str) -> list[list[int]]:
        """The regular groups along ``axis``, each sorted, ordered by their first rank."""
        by_rest: dict[tuple[int, ...], list[int]] = {}
        for rank in range(self.world_size):
            place = self.coordinates(rank)
            by_rest.setdefault(tuple(v for a, v in place.items() if a != axis), []).append(rank)
        return sorted(by_rest.values())

    def group_ids(self) -> dict[str, list[int]]:
        """Every regular group of more than one rank: group id to its ranks."""
        return {
            group_id(axis, ranks): ranks
            for axis in self.axes
            for ranks in self.groups(axis)
            if len(ranks) > 1
        }

    def pipeline_hops(self, axis: str = "pp") -> list[tuple[int, int]]:
        """Ordered pairs of neighbours along the pipeline."""
        return [hop for ranks in self.groups(axis) for hop in pairwise(ranks)]


class Group(msgspec.Struct, frozen=True):
    """An irregular communication group; regular ones follow from the mesh."""

    group_id: str
    kind: str
    axes: list[str]
    ranks: list[int]


class Device(msgspec.Struct, frozen=True):
    rank: int
    local_rank: int
    device_id: str
    nic: str | None = None


class Machine(msgspec.Struct, frozen=True):
    machine_id: str
    host: str
    hardware: str = ""
    rack: str | None = None
    switch: str | None = None
    spare: bool = False
    devices: list[Device] = []


class MicroBatchLimits(msgspec.Struct, frozen=True):
    """Per replica and step. ``max`` -1: no limit but the global number."""

    min: int = 1
    max: int = -1
    multiple: int = 1


class Capabilities(msgspec.Struct, frozen=True):
    """What the trainer can carry out, as it declared; nothing unless said."""

    rebalance: bool = False
    ring_order: bool = False
    swap_roles: bool = False
    pause: bool = False
    checkpoint_now: bool = False
    restart: bool = False


class Checkpoint(msgspec.Struct, frozen=True):
    interval_steps: int = -1
    save_s: float | None = None
    restart_s: float | None = None


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """One generation of one run. ``mesh`` gives every rank's coordinates and all regular groups.

    ``micro_batches`` is the global number per step. ``rebalance_units`` lists replicas whose counts must
    be equal.
    """

    job_id: str
    run_id: str
    name: str = ""
    generation: int = 0
    attempt_id: str = ""
    restart_owner: RestartOwner = RestartOwner.NONE
    elastic: bool = False
    state: JobState = JobState.STARTING
    started_ns: int = -1
    mesh: Mesh = Mesh()
    virtual_stages: int = 1
    groups: list[Group] = []
    machines: list[Machine] = []
    micro_batches: int = -1
    micro_batch_limits: MicroBatchLimits = MicroBatchLimits()
    rebalance_units: list[list[int]] = []
    capabilities: Capabilities = Capabilities()
    checkpoint: Checkpoint = Checkpoint()
    labels: dict[str, str] = {}

    @property
    def replicas(self) -> int:
        """Data-parallel size: the length of a micro-batch plan."""
        return dict(zip(self.mesh.axes, self.mesh.sizes, strict=True)).get("dp", 1)

    @property
    def world_size(self) -> int:
        """The number of ranks: the mesh's, else that of the machines' devices; 0 where neither is said.

        >>> Job(job_id="j", run_id="r").world_size
        0
        """
        if self.mesh.axes:
            return self.mesh.world_size
        return len({d.rank for m in self.machines if not m.spare for d in m.devices})

    def machine_of(self, rank: int) -> tuple[str | None, str | None]:
        """(machine_id, device_id) that serve ``rank``; (None, None) where the Job does not say."""
        for machine in self.machines:
            for device in machine.devices:
                if device.rank == rank:
                    return machine.machine_id, device.device_id
        return None, None

    def even_plan(self) -> list[int]:
        """The baseline split of micro-batches over replicas, the remainder to the first ones."""
        share, extra = divmod(max(self.micro_batches, 0), self.replicas)
        return [share + (replica < extra) for replica in range(self.replicas)]

    def check(self) -> str | None:
        if len(self.mesh.axes) != len(self.mesh.sizes):
            return "mesh.axes and mesh.sizes differ in length"
        if any(size < 1 for size in self.mesh.sizes):
            return f"mesh.sizes holds {min(self.mesh.sizes)}"
        if self.mesh.world_size > _MOST_RANKS:
            return f"mesh.sizes make {self.mesh.world_size} ranks, more than {_MOST_RANKS}"
        if len(set(self.mesh.axes)) != len(self.mesh.axes):
            return f"mesh.axes names an axis twice: {self.mesh.axes}"
        if self.micro_batch_limits.multiple < 1 or self.micro_batch_limits.min < 0:
            return f"micro_batch_limits are impossible: {self.micro_batch_limits}"
        units = [replica for unit in self.rebalance_units for replica in unit]
        if len(set(units)) != len(units) or not all(0 <= unit < self.replicas for unit in units):
            return (
                f"rebalance_units name a replica twice, or one of {self.replicas} that is not there"
            )
        if not self.job_id or not self.run_id:
            return "job_id and run_id must not be empty"
        return None

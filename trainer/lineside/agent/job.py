"""The Job record as the launcher writes it: what was asked for, and what the trainers then declared. Pure."""

from collections.abc import Mapping

import msgspec

from lineside.agent.spec import device_id
from lineside.contracts import (
    Declaration,
    Device,
    Job,
    JobState,
    Machine,
    RestartOwner,
)


class RunSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A run as it is asked for: ``machines`` agents of ``ranks_per_machine`` ranks that run ``command``.

    ``environment`` is added to the launcher's own for agents and ranks; ``labels`` go into the Job.
    """

    job_id: str
    command: list[str]
    run_dir: str
    machines: int = 1
    ranks_per_machine: int = 1
    environment: dict[str, str] = {}
    labels: dict[str, str] = {}

    @property
    def world_size(self) -> int:
        return self.machines * self.ranks_per_machine

    def machine_ids(self) -> list[str]:
        return [f"machine-{index}" for index in range(self.machines)]

    def ranks(self, machine: int) -> list[int]:
        """Global ranks of the machine with this index, by local rank."""
        first = machine * self.ranks_per_machine
        return list(range(first, first + self.ranks_per_machine))


def starting_job(spec: RunSpec, run_id: str, host: str, started_ns: int) -> Job:
    """The Job before any rank has said a word."""
    machines = [
        Machine(
            machine_id=machine_id,
            host=host,
            devices=[
                Device(rank=rank, local_rank=local, device_id=device_id(machine_id, local))
                for local, rank in enumerate(spec.ranks(index))
            ],
        )
        for index, machine_id in enumerate(spec.machine_ids())
    ]
    return Job(
        job_id=spec.job_id,
        run_id=run_id,
        name=" ".join(spec.command)[:200],
        restart_owner=RestartOwner.LINESIDE,
        state=JobState.STARTING,
        started_ns=started_ns,
        machines=machines,
        labels=spec.labels,
    )


def running_job(
    job: Job, declared: Mapping[str, Declaration | None], world_size: int
) -> tuple[Job, list[str]]:
    """The Job with what the machines' trainers declared, and what is wrong with that.

    Where machines say different things the first one's word stands; a mesh that does not fit the world is
    left out, for a wrong topology would accuse the wrong ranks.
    """
    said = {machine: word for machine, word in declared.items() if word is not None}
    problems: list[str] = []
    running = msgspec.structs.replace(job, state=JobState.RUNNING)
    if not said:
        return running, problems
    first = min(said)
    word = said[first]
    if others := sorted(machine for machine, other in said.items() if other != word):
        problems.append(f"{', '.join(others)} declared something else than {first}")
    mesh = word.mesh or job.mesh
    if mesh.axes and (len(mesh.axes) != len(mesh.sizes) or mesh.world_size != world_size):
        problems.append(f"a mesh of {mesh.sizes} does not make {world_size} ranks; it is left out")
        mesh = job.mesh
    running = msgspec.structs.replace(
        running,
        mesh=mesh,
        groups=word.groups,
        micro_batches=word.micro_batches,
        micro_batch_limits=word.micro_batch_limits,
        rebalance_units=word.rebalance_units,
        capabilities=word.capabilities,
    )
    if reason := running.check():
        problems.append(f"what was declared cannot be used: {reason}")
        running = msgspec.structs.replace(job, state=JobState.RUNNING)
    return running, problems

"""The Job record: what was asked for, then what the trainers declared."""

import pytest

from lineside.agent.job import RunSpec, running_job, starting_job
from lineside.agent.spec import AgentSpec, rank_environment
from lineside.contracts import Capabilities, Declaration, JobState, Mesh, RestartOwner

SPEC = RunSpec(
    job_id="gpt", command=["python", "train.py"], run_dir="run", machines=2, ranks_per_machine=2
)
JOB = starting_job(SPEC, "run-1", "host", 7)
SAID = Declaration(
    mesh=Mesh(["dp", "pp"], [2, 2]), micro_batches=20, capabilities=Capabilities(rebalance=True)
)


def test_every_rank_has_its_machine_and_device() -> None:
    assert JOB.state is JobState.STARTING and JOB.restart_owner is RestartOwner.LINESIDE
    assert (JOB.name, JOB.started_ns) == ("python train.py", 7)
    assert [JOB.machine_of(rank) for rank in range(4)] == [
        ("machine-0", "machine-0/0"),
        ("machine-0", "machine-0/1"),
        ("machine-1", "machine-1/0"),
        ("machine-1", "machine-1/1"),
    ]


def test_what_was_declared_stands_in_the_running_job() -> None:
    running, problems = running_job(JOB, {"machine-0": SAID, "machine-1": SAID}, 4)
    assert problems == []
    assert running.state is JobState.RUNNING
    assert (running.mesh, running.micro_batches) == (SAID.mesh, 20)
    assert running.capabilities.rebalance and running.machines == JOB.machines


def test_a_program_without_a_probe_runs_without_a_mesh() -> None:
    running, problems = running_job(JOB, {"machine-0": None, "machine-1": None}, 4)
    assert (running.state, running.mesh, problems) == (JobState.RUNNING, Mesh(), [])


def test_different_words_are_told_and_the_first_machines_stands() -> None:
    other = Declaration(mesh=Mesh(["dp"], [4]))
    running, problems = running_job(JOB, {"machine-1": other, "machine-0": SAID}, 4)
    assert running.mesh == SAID.mesh
    assert problems == ["machine-1 declared something else than machine-0"]


@pytest.mark.parametrize("mesh", [Mesh(["dp"], [3]), Mesh(["dp", "pp"], [4])])
def test_a_mesh_that_does_not_fit_the_world_is_left_out(mesh: Mesh) -> None:
    said = Declaration(mesh=mesh, micro_batches=8)
    running, problems = running_job(JOB, {"machine-0": said}, 4)
    assert running.mesh == Mesh() and running.micro_batches == 8
    assert len(problems) == 1


def test_a_declaration_that_breaks_the_contract_is_left_out() -> None:
    said = Declaration(mesh=Mesh(["dp", "pp"], [-2, -2]))
    running, problems = running_job(JOB, {"machine-0": said}, 4)
    assert (running.state, running.mesh) == (JobState.RUNNING, Mesh())
    assert len(problems) == 1


def test_a_ranks_environment_is_torchruns_and_the_run_folder(spec: AgentSpec) -> None:
    inherited = {"PATH": "/bin", "LINESIDE_AGENT_SPEC": "x", "RANK": "99"}
    environment = rank_environment(spec, 1, inherited)
    assert environment["PATH"] == "/bin" and "LINESIDE_AGENT_SPEC" not in environment
    assert {name: environment[name] for name in ("RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE")} == {
        "RANK": "5",
        "LOCAL_RANK": "1",
        "LOCAL_WORLD_SIZE": "2",
    }
    assert environment["WORLD_SIZE"] == "8" and environment["MASTER_PORT"] == "29500"
    assert environment["LINESIDE_RUN_DIR"] == spec.run_dir
    assert environment["OMP_NUM_THREADS"] == "1"
    assert rank_environment(spec, 0, {"OMP_NUM_THREADS": "4"})["OMP_NUM_THREADS"] == "4"

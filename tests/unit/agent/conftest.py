"""An agent's share of a small run."""

from pathlib import Path

import pytest

from lineside.agent.spec import AgentSpec


@pytest.fixture
def spec(tmp_path: Path) -> AgentSpec:
    return AgentSpec(
        job_id="gpt",
        run_id="run-1",
        generation=2,
        machine_id="machine-0",
        ranks=[4, 5],
        world_size=8,
        master_addr="127.0.0.1",
        master_port=29500,
        command=["true"],
        run_dir=str(tmp_path),
    )

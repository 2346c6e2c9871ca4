"""The agent's loop, without ranks: what must not end it, and what must not be lost."""

import logging
from pathlib import Path

import msgspec
import pytest

from lineside.agent.agent import Agent
from lineside.agent.inbox import Inbox
from lineside.agent.settings import AgentSettings
from lineside.agent.spec import AgentSpec
from lineside.bus.memory import MemoryBus
from lineside.contracts import Plan, PlanKind, TopicName, decode, encode
from lineside.contracts.signatures import Trust


@pytest.fixture
def bus() -> MemoryBus:
    return MemoryBus(partitions=1)


@pytest.fixture
def agent(spec: AgentSpec, bus: MemoryBus) -> Agent:
    settings = AgentSettings(agent_spec=Path("unused"))
    inbox = Inbox(spec, bus, Trust())
    return Agent(spec, settings, sending=bus, inbox=inbox, environment={})


def test_a_record_that_is_no_plan_costs_no_other_plan(
    agent: Agent, bus: MemoryBus, spec: AgentSpec, caplog: pytest.LogCaptureFixture
) -> None:
    plan = Plan(
        job_id=spec.job_id,
        run_id=spec.run_id,
        revision=1,
        base_generation=spec.generation,
        base_revision=0,
        generation=spec.generation,
        issued_ns=0,
        valid_until_ns=-1,
        kind=PlanKind.STOP,
    )
    good = encode(TopicName.PLANS, plan, 1)
    publisher = bus.publisher()
    publisher.publish(msgspec.structs.replace(good, value=b"{"))
    publisher.publish(good)
    with caplog.at_level(logging.WARNING):
        assert agent._read_mail()
    assert "plans.v1 at offset 0" in caplog.text
    (said,) = bus.reader().read(TopicName.PLAN_STATUS, 0, 0)
    assert decode(TopicName.PLAN_STATUS, said.value).state == "accepted"
    assert (spec.folder / "plan").exists()


def test_a_report_that_fails_ends_nothing(agent: Agent, caplog: pytest.LogCaptureFixture) -> None:
    def broken() -> None:
        raise AttributeError("a library that changed")

    with caplog.at_level(logging.WARNING):
        agent._report_safely(broken)
    assert "AttributeError" in caplog.text

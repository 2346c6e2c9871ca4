"""Plans and requests from the bus: signed or not, in what order, and what is passed over."""

import base64
import time
from typing import Any

import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from lineside.agent.inbox import Inbox, Letter
from lineside.agent.plans import Desk
from lineside.agent.spec import AgentSpec
from lineside.bus import BusUnavailable
from lineside.bus.memory import MemoryBus
from lineside.contracts import (
    Plan,
    PlanKind,
    PlanState,
    Request,
    TopicName,
    WireMessage,
    encode,
)
from lineside.contracts.signatures import Signer, Trust

SIGNER = Signer(Ed25519PrivateKey.from_private_bytes(bytes(range(32))))
TRUST = Trust(base64.b64encode(SIGNER.public).decode())
NOW = time.time_ns()


def plan(revision: int, **changes: Any) -> Plan:
    base = Plan(
        job_id="gpt", run_id="run-1", revision=revision, base_generation=2, base_revision=0, generation=2,
        issued_ns=NOW, valid_until_ns=NOW + 10**12, kind=PlanKind.BASELINE, micro_batch_plan=[4, 4],
    )  # fmt: skip
    return msgspec.structs.replace(base, **changes)


REQUEST = Request(
    request_id="r", fault_id=None, job_id="gpt", run_id="run-1", generation=2, kind="dump_stacks",
    expires_ns=NOW + 10**12,
)  # fmt: skip


def send(bus: MemoryBus, record: Plan | Request, *, signed: bool = True) -> WireMessage:
    topic = TopicName.PLANS if isinstance(record, Plan) else TopicName.REQUESTS
    message = encode(topic, record, bus.partitions)
    bus.publisher().publish(SIGNER.sign(message) if signed else message)
    return message


@pytest.fixture
def bus() -> MemoryBus:
    return MemoryBus()


def test_what_is_signed_counts_and_what_is_not_is_refused(spec: AgentSpec, bus: MemoryBus) -> None:
    inbox = Inbox(spec, bus, TRUST)
    send(bus, plan(1))
    send(bus, REQUEST)
    assert inbox.receive() == [Letter(plan(1), None), Letter(REQUEST, None)]
    send(bus, plan(2), signed=False)
    send(bus, REQUEST, signed=False)
    assert [letter.refusal for letter in inbox.receive()] == ["it is not signed"] * 2
    assert inbox.receive() == []


def test_without_trusted_keys_unsigned_ones_are_taken(spec: AgentSpec, bus: MemoryBus) -> None:
    send(bus, plan(1), signed=False)
    assert Inbox(spec, bus, Trust()).receive() == [Letter(plan(1), None)]


def test_what_cannot_be_read_does_not_hide_what_follows(
    spec: AgentSpec, bus: MemoryBus, caplog: pytest.LogCaptureFixture
) -> None:
    good = encode(TopicName.PLANS, plan(1), bus.partitions)
    bus.publisher().publish(msgspec.structs.replace(good, value=b"{"))
    bus.publisher().publish(msgspec.structs.replace(good, value=None))
    send(bus, plan(1, job_id="gpt-x"))
    send(bus, plan(1))
    assert [letter.record for letter in Inbox(spec, bus, TRUST).receive()] == [plan(1)]
    assert "plans.v1 at offset 0" in caplog.text


def test_who_was_away_for_ten_revisions_takes_the_newest_only(
    spec: AgentSpec, bus: MemoryBus
) -> None:
    for revision in range(1, 11):
        send(bus, plan(revision))
    desk = Desk(spec, started_ns=NOW)
    answers = [
        desk.consider(letter.record, None, NOW)
        for letter in Inbox(spec, bus, TRUST).receive()
        if isinstance(letter.record, Plan)
    ]
    states = {answer.revision: answer.state for answer in answers if answer is not None}
    assert states.pop(10) is PlanState.ACCEPTED
    assert states == dict.fromkeys(range(1, 10), PlanState.STALE)
    assert desk.plan == plan(10)


def test_a_forged_plan_is_reported_once_and_stands_in_nobodys_way(
    spec: AgentSpec, bus: MemoryBus
) -> None:
    desk, inbox = Desk(spec, started_ns=NOW), Inbox(spec, bus, TRUST)
    for _ in range(2):
        send(bus, plan(5, micro_batch_plan=[8, 0]), signed=False)
    refused = []
    for letter in inbox.receive():
        assert isinstance(letter.record, Plan) and letter.refusal
        refused.append(desk.refuse(letter.record, letter.refusal, NOW))
    first, again = refused
    assert first is not None and again is None
    assert (first.state, first.revision, first.detail) == (
        PlanState.REJECTED,
        5,
        "it is not signed",
    )
    assert desk.refuse(plan(5, run_id="run-2"), "it is not signed", NOW) is None
    send(bus, plan(5))
    [letter] = inbox.receive()
    assert isinstance(letter.record, Plan) and letter.refusal is None
    answer = desk.consider(letter.record, None, NOW)
    assert answer is not None and answer.state is PlanState.ACCEPTED


def test_a_bus_that_cannot_be_opened_is_tried_again(spec: AgentSpec) -> None:
    class Away(MemoryBus):
        def tail(self, *_: Any) -> Any:
            raise BusUnavailable("away")

    inbox = Inbox(spec, Away(), TRUST)
    assert inbox.receive() == [] and inbox.receive() == []
    inbox.close()

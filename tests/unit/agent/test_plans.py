"""Which plans an agent follows, and what it says of the others."""

import os
from pathlib import Path
from typing import Any

import msgspec
import pytest

from lineside.agent.plans import Desk, write_plan
from lineside.agent.spec import AgentSpec
from lineside.contracts import Capabilities, Declaration, Plan, PlanKind, PlanState
from lineside.probe.reader import Status

NOW = 1_700_000_000_000_000_000
ABLE = Declaration(capabilities=Capabilities(rebalance=True))


PLAN = Plan(
    job_id="gpt",
    run_id="run-1",
    revision=3,
    base_generation=2,
    base_revision=0,
    generation=2,
    issued_ns=NOW,
    valid_until_ns=NOW + 1,
    kind=PlanKind.REBALANCE,
    micro_batch_plan=[5, 3],
)


def plan(**changes: Any) -> Plan:
    return msgspec.structs.replace(PLAN, **changes)


@pytest.fixture
def desk(spec: AgentSpec) -> Desk:
    return Desk(spec, started_ns=NOW)


def applied(revision: int, step: int = 40) -> Status:
    return Status(revision, step, 500, -1, -1, "")


def test_a_good_plan_is_accepted_once(desk: Desk) -> None:
    answer = desk.consider(plan(), ABLE, NOW)
    assert answer is not None and answer.state is PlanState.ACCEPTED
    assert (answer.rank, answer.revision, answer.machine_id) == (-1, 3, "machine-0")
    assert desk.plan == plan() and not desk.stop
    assert desk.consider(plan(), ABLE, NOW + 9) is None, "a replay changes nothing"


@pytest.mark.parametrize(
    ("changes", "state", "said"),
    [
        ({"run_id": "run-2"}, PlanState.STALE, "not run-2"),
        ({"base_generation": 1}, PlanState.STALE, "generation 2"),
        ({"valid_until_ns": NOW - 10**9}, PlanState.STALE, "1.0 s ago"),
        ({"generation": 3}, PlanState.REJECTED, "only a restart"),
        ({"kind": PlanKind.RESTART, "generation": 3}, PlanState.REJECTED, "cannot restart yet"),
        ({"kind": PlanKind.REROUTE}, PlanState.REJECTED, "reroute"),
    ],
)
def test_a_plan_that_does_not_fit_is_answered_with_the_reason(
    desk: Desk, changes: dict[str, Any], state: PlanState, said: str
) -> None:
    answer = desk.consider(plan(**changes), ABLE, NOW)
    assert answer is not None and answer.state is state and said in answer.detail
    assert desk.plan is None


def test_plans_of_other_jobs_and_of_earlier_runs_are_no_news(desk: Desk) -> None:
    assert desk.consider(plan(job_id="other"), ABLE, NOW) is None
    assert desk.consider(plan(run_id="run-0", issued_ns=NOW - 1), ABLE, NOW) is None


def test_an_unknown_end_of_validity_is_no_end(desk: Desk) -> None:
    answer = desk.consider(plan(valid_until_ns=-1), ABLE, NOW)
    assert answer is not None and answer.state is PlanState.ACCEPTED


@pytest.mark.parametrize("declared", [None, Declaration()])
def test_a_trainer_that_cannot_rebalance_is_not_asked_to(
    desk: Desk, declared: Declaration | None
) -> None:
    answer = desk.consider(plan(), declared, NOW)
    assert answer is not None and answer.state is PlanState.REJECTED
    baseline = desk.consider(plan(revision=4, kind=PlanKind.BASELINE), declared, NOW)
    assert baseline is not None and baseline.state is PlanState.ACCEPTED


def test_the_same_revision_with_other_content_is_rejected_and_the_first_stays(desk: Desk) -> None:
    desk.consider(plan(), ABLE, NOW)
    answer = desk.consider(plan(micro_batch_plan=[8, 0]), ABLE, NOW)
    assert answer is not None and answer.state is PlanState.REJECTED
    assert desk.plan == plan()


def test_an_older_revision_comes_too_late(desk: Desk) -> None:
    desk.consider(plan(), ABLE, NOW)
    answer = desk.consider(plan(revision=2), ABLE, NOW)
    assert answer is not None and answer.state is PlanState.STALE
    assert desk.plan == plan()


def test_a_stop_is_followed_whatever_was_declared(desk: Desk) -> None:
    answer = desk.consider(plan(kind=PlanKind.STOP), None, NOW)
    assert answer is not None and answer.state is PlanState.ACCEPTED and desk.stop


def test_ranks_answers_are_passed_on_once_each(desk: Desk) -> None:
    desk.consider(plan(), ABLE, NOW)
    assert desk.pending
    assert desk.answers({4: applied(1), 5: None}, 0) == [], "not a revision it was given"
    offset = NOW + 250_000_000
    (answer,) = desk.answers({4: applied(3), 5: None}, offset)
    assert (answer.state, answer.rank, answer.step) == (PlanState.APPLIED, 4, 40)
    assert answer.at_ns == offset + 500
    assert answer.took_s == pytest.approx(0.25, abs=1e-6)
    assert desk.answers({4: applied(3), 5: None}, offset) == []
    assert desk.pending
    refused = Status(-1, -1, -1, 3, 600, "too many micro-batches")
    (answer,) = desk.answers({5: refused}, offset)
    assert (answer.state, answer.rank) == (PlanState.REJECTED, 5)
    assert answer.detail == "too many micro-batches"
    assert not desk.pending


def test_the_plan_file_is_replaced_whole(tmp_path: Path) -> None:
    for revision in (3, 4):
        write_plan(tmp_path, plan(revision=revision))
        text = (tmp_path / "plan").read_bytes()
        assert msgspec.json.decode(text, type=Plan) == plan(revision=revision)
    assert os.listdir(tmp_path) == ["plan"]

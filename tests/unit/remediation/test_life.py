"""An incident's whole life through the real service: bus, SQL, policy, outbox."""

import pytest
from msgspec.structs import replace
from scene import BEST, BEST_S, HEALTHY_S, SLOW_S, S, fault, job
from sqlalchemy import select

from lineside.contracts import (
    FaultPhase,
    JobState,
    Mesh,
    PlanKind,
    PlanState,
    TopicName,
    fault_event,
)
from lineside.remediation import advance
from lineside.remediation.store import FaultEventRow, IncidentRow, PlanRow, TransitionRow


def incidents(scene):
    with scene.store.reading() as session:
        return list(session.scalars(select(IncidentRow).order_by(IncidentRow.onset_ns)))


def states(scene, incident=0):
    """The states an incident went through, remarks left out."""
    with scene.store.reading() as session:
        rows = session.scalars(
            select(TransitionRow)
            .where(TransitionRow.incident_id == incidents(scene)[incident].incident_id)
            .order_by(TransitionRow.sequence)
        ).all()
    return [row.to_state for row in rows if row.from_state != row.to_state]


def reasons(scene, incident=0):
    with scene.store.reading() as session:
        return session.scalars(
            select(TransitionRow.reason)
            .where(TransitionRow.incident_id == incidents(scene)[incident].incident_id)
            .order_by(TransitionRow.sequence)
        ).all()


def plan_states(scene):
    with scene.store.reading() as session:
        return session.scalars(select(PlanRow.progress).order_by(PlanRow.revision)).all()


def heal(scene):
    """Up to mitigated; returns the fault."""
    scene.begin()
    found = scene.strike()
    scene.train(12)
    scene.apply(1, BEST_S)
    scene.train(12)
    return found


def test_a_straggler_is_watched_rebalanced_verified_and_undone(scene):
    scene.begin()
    found = scene.strike()
    scene.train(2)
    assert states(scene) == ["open"]
    assert scene.plans() == [], "the ladder's first rung is to watch"
    scene.train(10)
    [plan] = scene.plans()
    assert (plan.kind, plan.micro_batch_plan, plan.revision) == (PlanKind.REBALANCE, BEST, 1)
    assert plan.valid_until_ns == plan.issued_ns + 30 * S
    assert states(scene) == ["open", "mitigating"]
    scene.answer(1, ranks=[0, 1, 2])
    scene.train(2)
    assert states(scene) == ["open", "mitigating"], "one rank has not said so yet"
    scene.apply(1, BEST_S)
    assert states(scene)[-1] == "verifying"
    scene.train(12)
    assert states(scene)[-1] == "mitigated"
    effect = incidents(scene)[0].effect
    assert effect["healthy_step_s"] == HEALTHY_S
    assert effect["faulty_step_s"] == SLOW_S
    assert effect["healed_step_s"] == BEST_S
    assert effect["predicted_step_s"] == pytest.approx(BEST_S)
    assert effect["slowdown_removed"] == pytest.approx((SLOW_S - BEST_S) / (SLOW_S - HEALTHY_S))
    scene.train(30)
    assert len(scene.plans()) == 1, "a straggler that stays gives one plan"
    scene.relieve(found, step_s=0.5)
    scene.train(15)
    assert len(scene.plans()) == 1, "the remedy is held while the fault may come back"
    scene.train(10)
    undo = scene.plans()[-1]
    assert (undo.kind, undo.revision, undo.micro_batch_plan) == (PlanKind.BASELINE, 2, [5] * 4)
    assert undo.base_revision == 1
    scene.apply(2, HEALTHY_S)
    assert states(scene) == ["open", "mitigating", "verifying", "mitigated", "resolved"]
    scene.train(60)
    assert len(scene.plans()) == 2
    assert [kind for kind in scene.told() if kind != "updated"] == [
        "opened",
        "mitigating",
        "mitigated",
        "resolved",
    ]
    [row] = incidents(scene)
    assert row.suspects[0]["machine_id"] == "machine-0"
    assert row.effect["seconds_saved"] > (SLOW_S - BEST_S) * 40 * 2


def test_observe_mode_says_once_what_it_would_do_and_publishes_nothing(make_scene):
    scene = make_scene(mode="observe")
    scene.begin()
    found = scene.strike()
    scene.train(60)
    assert scene.plans() == []
    assert states(scene) == ["open"]
    assert [r for r in reasons(scene) if "would have" in r] == [
        f"would have rebalanced to {BEST} (mode observe)"
    ]
    assert scene.told() == ["opened", "updated"]
    [proposed] = scene.alerts()[-1].data.plans
    assert (proposed["progress"], proposed["revision"]) == ("proposed", -1)
    assert proposed["micro_batch_plan"] == BEST
    scene.relieve(found)
    scene.train(2)
    assert states(scene) == ["open", "resolved"]


def test_duplicates_and_reordered_phases_change_nothing(scene):
    scene.begin()
    found = fault(onset_ns=scene.now_ns)
    update = fault(onset_ns=scene.now_ns, phase=FaultPhase.UPDATE, sequence=1)
    bare = {"suspects": [], "evidence": {}, "summary": ""}
    relief = fault(onset_ns=scene.now_ns, phase=FaultPhase.RELIEF, sequence=2, **bare)
    for phase in (relief, found, update, found, relief, update):
        scene.tell(TopicName.FAULTS, fault_event(phase))
    scene.train(3)
    assert states(scene) == ["open", "resolved"]
    with scene.store.reading() as session:
        kept = session.scalars(select(FaultEventRow.sequence).order_by(FaultEventRow.sequence))
        assert list(kept) == [0, 1, 2]
    [row] = incidents(scene)
    assert row.suspects[0]["machine_id"] == "machine-0", "a bare relief takes nothing away"
    assert row.summary


def test_two_culprits_are_two_incidents_and_share_the_plan_in_force(scene):
    scene.begin()
    first, second = fault(0, onset_ns=scene.now_ns), fault(1, onset_ns=scene.now_ns + S)
    unit = [0.25, 0.25, 0.1, 0.1]
    scene.step_s = SLOW_S
    for found in (first, second):
        found.evidence["replica_unit_s"] = unit
        scene.tell(TopicName.FAULTS, fault_event(found))
    scene.train(25)
    assert [row.suspects[0]["machine_id"] for row in incidents(scene)] == ["machine-0", "machine-1"]
    [plan] = scene.plans()
    assert plan.micro_batch_plan == [3, 3, 7, 7], "one in flight per job, for both culprits"
    scene.apply(1, 0.75)
    scene.train(20)
    assert len(scene.plans()) == 1, "nothing is left to gain for the second"
    assert any("small" in (row.note or "") for row in incidents(scene))


def test_a_fault_seen_by_two_detectors_is_one_incident(scene):
    scene.begin()
    scene.strike()
    other = fault(onset_ns=scene.now_ns - 2 * S, detector="minder", confidence=0.5)
    machine = fault().suspects[0]
    other = type(other)(
        **{
            **{name: getattr(other, name) for name in other.__struct_fields__},
            "fault_id": "0" * 8 + "-0000-4000-8000-000000000000",
            "suspects": [type(machine)(kind="machine", id="machine-0")],
        }
    )
    scene.tell(TopicName.FAULTS, fault_event(other))
    scene.train(3)
    [row] = incidents(scene)
    assert row.confidence == 1 - 0.1 * 0.5


def test_a_fault_that_comes_back_reopens_its_incident(scene):
    scene.begin()
    found = scene.strike()
    scene.train(2)
    scene.relieve(found)
    scene.train(3)
    assert states(scene) == ["open", "resolved"]
    scene.strike()
    scene.train(12)
    assert states(scene) == ["open", "resolved", "open", "mitigating"]
    assert scene.told()[:3] == ["opened", "resolved", "updated"]


def test_a_fault_that_comes_back_during_the_hold_keeps_the_remedy(scene):
    found = heal(scene)
    scene.relieve(found, step_s=0.5)
    scene.train(10)
    scene.step_s = BEST_S
    scene.tell(
        TopicName.FAULTS,
        fault_event(
            fault(
                onset_ns=found.onset_ns,
                phase=FaultPhase.UPDATE,
                sequence=2,
                detected_ns=scene.now_ns,
            )
        ),
    )
    scene.train(40)
    assert len(scene.plans()) == 1
    assert states(scene)[-1] == "mitigated"
    assert reasons(scene)[-1] == "the fault is back; the remedy stays"


def test_a_refused_plan_is_tried_again_but_not_for_ever(scene):
    scene.begin()
    scene.strike()
    for revision in (1, 2, 3):
        scene.train(25)
        assert scene.plans()[-1].revision == revision
        scene.answer(revision, PlanState.REJECTED, ranks=[2], detail="no such schedule")
        scene.train(1)
    assert states(scene) == ["open", *["mitigating", "open"] * 2, "mitigating", "escalated"]
    assert "rank 2: no such schedule; 3 plans in a row came to nothing" in reasons(scene)[-1]
    scene.train(60)
    assert len(scene.plans()) == 3


def test_a_plan_that_nobody_applies_expires(scene):
    scene.begin()
    scene.strike()
    scene.train(12)
    scene.answer(1, ranks=[0])
    scene.train(36)
    assert states(scene) == ["open", "mitigating", "open"]
    assert "3 of 4 ranks did not say that they applied it" in reasons(scene)[-1]
    scene.apply(1, BEST_S)
    assert states(scene)[-1] == "verifying", "the truth counts, also when it comes late"


def test_a_remedy_that_does_not_help_goes_to_a_person(scene):
    scene.begin()
    scene.strike()
    scene.train(12)
    scene.apply(1, 1.2)
    scene.train(12)
    assert states(scene)[-1] == "escalated"
    assert incidents(scene)[0].effect["healed_step_s"] == 1.2
    assert len(scene.plans()) == 1


def test_a_remedy_that_makes_it_worse_is_undone_at_once(scene):
    scene.begin()
    found = scene.strike()
    scene.train(12)
    scene.apply(1, 2.0)
    scene.train(12)
    assert states(scene)[-1] == "escalated"
    assert [plan.kind for plan in scene.plans()] == [PlanKind.REBALANCE, PlanKind.BASELINE]
    scene.apply(2, SLOW_S)
    scene.train(60)
    assert len(scene.plans()) == 2, "what is escalated is a person's"
    scene.relieve(found)
    scene.train(3)
    assert states(scene)[-1] == "resolved"


def test_the_end_of_the_run_ends_its_incidents(scene):
    heal(scene)
    scene.tell(TopicName.JOBS, job(state=JobState.FINISHED))
    scene.work()
    assert states(scene)[-1] == "resolved"
    assert reasons(scene)[-1] == "the run ended (finished)"


def test_a_new_generation_clears_incidents_and_plans_of_the_old_one(scene):
    heal(scene)
    scene.tell(TopicName.JOBS, job(generation=1))
    scene.work()
    assert states(scene)[-1] == "resolved"
    assert reasons(scene)[-1].startswith("generation 1 began")


def test_no_plan_without_capability_evidence_or_gain(make_scene):
    cases = {
        "declare": ({"capabilities": type(job().capabilities)()}, {}),
        "no micro-batch times": ({}, {"evidence": {}}),
        "less than 5%": ({}, {"evidence": {"replica_unit_s": [0.1] * 4}}),
        "no split satisfies": ({"rebalance_units": [[0, 1, 2, 3]], "micro_batches": 18}, {}),
    }
    for complaint, (job_changes, fault_changes) in cases.items():
        scene = make_scene()
        scene.begin(**job_changes)
        scene.step_s = SLOW_S
        scene.tell(TopicName.FAULTS, fault_event(fault(onset_ns=scene.now_ns, **fault_changes)))
        scene.train(30)
        assert scene.plans() == []
        [refusal] = [reason for reason in reasons(scene) if reason.startswith("not rebalanced")]
        assert complaint in refusal


def test_no_plan_on_stale_telemetry(scene):
    scene.begin()
    scene.strike()
    scene.train(4)
    with scene.store.writing() as session:
        session.scalars(select(IncidentRow)).one().impact_s = 100.0
    scene.now_ns += 60 * S
    scene.work()
    assert scene.plans() == []
    assert "telemetry lags" in reasons(scene)[-1]
    scene.train(2)
    assert len(scene.plans()) == 1


def test_bytes_that_are_no_record_are_dead_letters_and_the_rest_goes_on(scene):
    from lineside.contracts import WireMessage

    for topic in (TopicName.FAULTS, TopicName.HEALTH, TopicName.JOBS, TopicName.PLAN_STATUS):
        scene.publisher.publish(
            WireMessage(topic=topic, partition=0, key=b"k", value=b"\xff{", headers=())
        )
    huge = fault(onset_ns=2**63)
    scene.tell(TopicName.FAULTS, fault_event(huge))
    scene.begin()
    scene.strike()
    scene.train(2)
    assert states(scene) == ["open"]
    letters = [
        m for (name, _), log in scene.bus.logs.items() if name == "dead-letters.v1" for m in log
    ]
    assert len(letters) == 5
    assert {letter.headers["service"] for letter in letters} == {b"remediation"}
    assert {letter.value for letter in letters if letter.key == b"k"} == {b"\xff{"}


def test_an_incident_that_cannot_be_moved_holds_up_no_other(scene, monkeypatch, caplog):
    scene.begin()
    stuck = scene.strike(0).fault_id
    scene.tell(TopicName.FAULTS, fault_event(fault(1, onset_ns=scene.now_ns)))
    decide = advance.decide

    def broken(situation, config):
        if any(fault.fault_id == stuck for fault in situation.faults):
            raise IndexError("evidence that nobody thought of")
        return decide(situation, config)

    monkeypatch.setattr(advance, "decide", broken)
    scene.train(20)
    assert "cannot be moved on" in caplog.text
    assert len(scene.plans()) == 1, "the other incident got its plan"
    assert [row.state for row in incidents(scene)] == ["open", "mitigating"]


def test_a_job_that_is_not_known_is_watched_until_it_is(scene):
    scene.strike()
    scene.train(25)
    assert states(scene) == ["open"]
    scene.tell(TopicName.JOBS, job())
    scene.train(2)
    assert states(scene) == ["open", "mitigating"]


def test_revisions_never_fall_below_what_runs_already(scene):
    scene.begin()
    scene.revision = 7
    scene.strike()
    scene.train(12)
    assert [plan.revision for plan in scene.plans()] == [8]
    with scene.store.reading() as session:
        assert session.scalars(select(PlanRow.revision)).all() == [8]


def test_without_a_mesh_a_plan_waits_for_the_ranks_of_all_machines(scene):
    scene.begin()
    scene.strike()
    scene.train(12)
    scene.tell(TopicName.JOBS, job(mesh=Mesh()))
    scene.answer(1, ranks=[0])
    scene.work()
    assert plan_states(scene) == ["issued"]
    scene.answer(1, ranks=[1, 2, 3])
    scene.work()
    assert plan_states(scene) == ["applied"]


def test_a_resolved_incident_tells_what_was_wrong(scene):
    scene.begin()
    found = scene.strike()
    scene.train(4)
    scene.relieve(replace(found, summary="rank 0 is as fast as its peers again"))
    scene.train(3)
    [row] = incidents(scene)
    assert row.state == "resolved"
    assert row.summary == found.summary
    assert scene.alerts()[-1].data.summary == found.summary

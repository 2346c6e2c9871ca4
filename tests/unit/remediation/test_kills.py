"""The service dies at any moment: the history and what is published come out the same."""

import random

import pytest
from scene import BEST_S, HEALTHY_S
from sqlalchemy import select

from lineside.remediation.store import IncidentRow, PlanRow, TransitionRow


class Killed(Exception):
    """Stands for SIGKILL: nothing after it runs."""


def killed(*_args, **_kwargs):
    raise Killed


POINTS = {
    "before it reads": lambda scene: setattr(scene.processor, "step", killed),
    "before the transaction commits": lambda scene: setattr(scene.processor, "_prune", killed),
    "before the offsets are committed": lambda scene: setattr(
        scene.processor._subscriber, "commit", killed
    ),
    "before the outbox is sent": lambda scene: setattr(scene.processor._sender, "send", killed),
    "before what was sent is marked": lambda scene: setattr(
        scene.processor._sender, "_mark", killed
    ),
}


def live(scene):
    """From a healthy run to a resolved incident."""
    scene.begin()
    found = scene.strike()
    scene.train(12)
    scene.apply(1, BEST_S)
    scene.train(10)
    scene.relieve(found)
    scene.train(22)
    scene.apply(2, HEALTHY_S)
    scene.train(3)


def outcome(scene):
    """All that must not depend on kills: rows without their times, plans and alerts without repeats."""
    with scene.store.reading() as session:
        incidents = session.execute(select(IncidentRow.incident_id, IncidentRow.state)).all()
        plans = session.execute(
            select(PlanRow.plan_id, PlanRow.revision, PlanRow.kind, PlanRow.progress).order_by(
                PlanRow.revision
            )
        ).all()
        moves = session.execute(
            select(
                TransitionRow.sequence, TransitionRow.from_state, TransitionRow.to_state
            ).order_by(TransitionRow.sequence)
        ).all()
    published = [(plan.revision, plan.micro_batch_plan) for plan in scene.plans()]
    return incidents, plans, moves, published, sorted(alert.id for alert in scene.alerts())


@pytest.fixture
def undisturbed(make_scene):
    scene = make_scene()
    live(scene)
    result = outcome(scene)
    assert [revision for revision, _ in result[3]] == [1, 2]
    assert [state for _, state in result[0]] == ["resolved"]
    return result


@pytest.mark.parametrize("seed", range(3))
def test_a_kill_at_every_step_changes_nothing(make_scene, undisturbed, seed):
    scene, chance, deaths = make_scene(), random.Random(seed), 0
    undisturbed_work = scene.work

    def work():
        nonlocal deaths
        POINTS[chance.choice(list(POINTS))](scene)
        try:
            undisturbed_work()
        except Killed:
            deaths += 1
        scene.restart()
        undisturbed_work()

    scene.work = work
    live(scene)
    assert deaths > 30
    assert outcome(scene) == undisturbed

"""What holds for every order of reading and every moment of stopping."""

from itertools import pairwise
from types import SimpleNamespace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lineside.contracts import Fault, JobState
from lineside.falcon.config import FalconConfig
from lineside.falcon.detector import FalconDetector

RELAXED = settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@pytest.fixture
def troubled(synthetic):
    """A slow rank that recovers and a second one that does not, then a restart; about 20 s in all."""

    def slow(rank, step):
        return 2.0 if (rank == 3 and 35 <= step < 60) or (rank == 4 and step >= 80) else 1.0

    old = synthetic.but(slow=slow, steps=100, seed=3)
    new = synthetic.but(slow=slow, steps=40, seed=4, generation=1, first_step=70)
    return SimpleNamespace(
        jobs=[
            old.job(JobState.STARTING),
            old.job(),
            new.job(JobState.STARTING),
            new.job(),
            new.job(JobState.FINISHED),
        ],
        steps=[*old.batches(), *new.batches()],
        restart=len(old.batches()),
    )


def told(faults):
    """Everything but the moment of telling, which is when records were read."""
    return [
        (
            f.fault_id,
            f.fault_sequence,
            f.phase,
            f.onset_ns,
            f.suspects,
            f.victims,
            f.evidence,
            f.summary,
        )
        for f in faults
    ]


@given(data=st.data())
@RELAXED
def test_any_interleaving_of_topics_gives_the_same_faults(troubled, watch, data):
    """Jobs may come at any moment before the rows of the next generation, and the end of the run last."""
    steps, jobs = troubled.steps, troubled.jobs
    straight = watch(
        [*jobs[:2], *steps[: troubled.restart], *jobs[2:4], *steps[troubled.restart :], jobs[4]]
    )
    at = sorted(data.draw(st.lists(st.integers(0, troubled.restart), min_size=2, max_size=2)))
    later = data.draw(st.lists(st.integers(troubled.restart, len(steps)), min_size=2, max_size=2))
    at += [*sorted(later), len(steps)]
    mixed = []
    for place in range(len(steps) + 1):
        mixed += [job for job, where in zip(jobs, at, strict=True) if where == place]
        mixed += steps[place : place + 1]
    assert told(watch(mixed).faults) == told(straight.faults)
    assert len(straight.of("onset")) >= 3


@given(data=st.data())
@RELAXED
def test_wherever_the_jobs_come_the_fault_ids_are_the_same(troubled, watch, data):
    """Also where a Job of the next generation or the end overtakes rows: closed early, never otherwise."""
    steps, jobs = troubled.steps, troubled.jobs
    straight = watch([*jobs, *steps])
    at = sorted(data.draw(st.lists(st.integers(0, len(steps)), min_size=5, max_size=5)))
    mixed = []
    for place in range(len(steps) + 1):
        mixed += [job for job, where in zip(jobs, at, strict=True) if where == place]
        mixed += steps[place : place + 1]
    found = watch(mixed)
    ids = lambda run: {f.fault_id for f in run.faults}  # noqa: E731
    assert ids(found) == ids(straight)
    onsets = lambda run: sorted(told(run.of("onset")))  # noqa: E731
    assert [o[:6] for o in onsets(found)] == [o[:6] for o in onsets(straight)]
    for fault_id in ids(found):
        phases = [f.phase for f in found.faults if f.fault_id == fault_id]
        assert phases[0] == "onset" and phases.count("relief") == 1 and phases[-1] == "relief"
        sequence = [f.fault_sequence for f in found.faults if f.fault_id == fault_id]
        assert sequence == list(range(len(sequence)))


@given(data=st.data())
@RELAXED
def test_a_restored_detector_goes_on_exactly(troubled, watch, data):
    jobs, steps = troubled.jobs, troubled.steps
    with_jobs = [*jobs[:1], *steps[:10], *jobs[1:4], *steps[10:], jobs[4]]
    without = steps
    records = with_jobs if data.draw(st.booleans()) else without
    cut = data.draw(st.integers(0, len(records)))
    first = watch(records[:cut]).detector
    state = first.snapshot()
    second = FalconDetector(FalconConfig(), "job")
    second.restore(state)
    assert second.snapshot() == state
    now_ns = max([r.sent_ns + 5_000_000 for r in records[:cut] if hasattr(r, "sent_ns")], default=0)
    going_on, restored = (watch(records[cut:], d, now_ns) for d in (first, second))
    assert going_on.faults == restored.faults
    assert going_on.health == restored.health
    assert first.snapshot() == second.snapshot()


def test_health_comes_at_most_once_a_second(troubled, watch):
    run = watch([*troubled.jobs[:2], *troubled.steps])
    times = [h.at_ns for h in run.health]
    assert len(times) > 10
    assert all(b - a >= 10**9 for a, b in pairwise(times))
    assert all(isinstance(f, Fault) for f in run.faults)

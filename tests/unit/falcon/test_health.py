"""The job's baseline: what it is learned from, and what does not change it."""

import numpy as np
import pytest

from lineside.contracts import JobState
from lineside.falcon.health import HealthTrack

EVEN = np.array([5.0, 5.0])


def fed(steps, track=None, *, split=EVEN, tokens=np.nan, revision=0, healthy=True):
    track = track or HealthTrack()
    for seconds in steps:
        track.observe(seconds, split, tokens, revision, healthy=healthy)
    return track


def test_it_learns_from_the_tenth_step_on():
    track = fed([9.0] * 10 + [1.0] * 9)
    assert track.standing().baseline_s is None
    assert track.judge(track.standing(), 0.0) == "learning"
    fed([1.0] * 15, track)
    assert track.standing().baseline_s == 1.0
    assert track.judge(track.standing(), 0.0) == "healthy"


def test_a_slow_job_is_slow_against_what_it_was_and_stays_so():
    track = fed([1.0] * 40)
    fed([1.5] * 500, track)
    assert track.standing().baseline_s == pytest.approx(1.0)
    assert track.standing().slowdown == pytest.approx(1.5)
    assert track.judge(track.standing(), 0.0) == "slow"


def test_a_job_that_gets_faster_learns_anew():
    track = fed([1.0] * 40)
    fed([0.7] * 60, track)
    assert track.standing().baseline_s == pytest.approx(0.7)


def test_a_remedy_is_measured_against_the_healthy_split():
    track = fed([1.0] * 40)
    fed([1.08] * 60, track, split=np.array([6.0, 4.0]), revision=1)
    assert track.standing().baseline_s == 1.0
    assert track.standing().slowdown == pytest.approx(1.08)


def test_a_new_revision_forgets_the_steps_before_it():
    track = fed([1.0] * 40)
    fed([2.0] * 20, track, healthy=False)
    fed([1.1], track, split=np.array([6.0, 4.0]), revision=1, healthy=False)
    assert track.standing().step_s == 1.1


def test_more_micro_batches_are_more_work_and_not_slower():
    track = fed([1.0] * 40)
    fed([2.0] * 5, track, split=2 * EVEN)
    assert track.standing().baseline_s == pytest.approx(2.0)
    assert track.judge(track.standing(), 0.0) == "learning"
    fed([1.9] * 40, track, split=2 * EVEN)
    assert track.standing().baseline_s == pytest.approx(1.9)


def test_longer_sequences_are_more_work():
    track = fed([1.0] * 40, tokens=1000)
    fed([2.0] * 20, track, tokens=2000)
    assert track.standing().slowdown == pytest.approx(1.0)
    assert track.standing().throughput == pytest.approx(1000)


def test_no_new_step_for_long_is_a_stall():
    track = fed([5.0] * 40)
    assert track.judge(track.standing(), 45.0) == "healthy"
    assert track.judge(track.standing(), 51.0) == "stalled"


def test_a_job_says_how_it_is_doing(synthetic, watch):
    job = synthetic.but(steps=120)
    run = watch([job.job(JobState.STARTING), job.job(), *job.batches()])
    health = run.health[-1]
    assert health.state == "healthy" and health.ranks_reporting == health.ranks_expected == 8
    step_s = np.median(job.table()["step_s"][-20:])
    # 20 micro-batches of 512 tokens over all replicas: counted once, not once per pipeline stage
    assert health.throughput == pytest.approx(20 * 512 / step_s, rel=0.1)
    assert health.last_progress_ns == health.at_ns
    assert run.health[0].state == "learning" and run.health[0].baseline_s is None


def test_silence_while_agents_go_on_is_a_stall(synthetic, watch, batch_of):
    job = synthetic.but(steps=60)
    last = job.batches()[-1].sent_ns
    empty = {name: [] for name in ("rank", "step", "step_s", "compute_s", "micro_batches")}
    beats = [batch_of(empty, sent_ns=last + s * 10**9) for s in range(1, 40)]
    run = watch([job.job(), *job.batches(), *beats])
    assert run.health[-1].state == "stalled"
    assert run.health[-1].last_progress_ns <= last + 10**9

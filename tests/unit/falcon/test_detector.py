"""What FALCON says about whole jobs: the right rank, in time, with numbers that a planner can use."""

from dataclasses import replace

import msgspec
import numpy as np
import pytest

from lineside.contracts import JobState, Mesh, Phase, fault_event, fault_id
from lineside.contracts.columns import column_specs
from lineside.falcon.config import FalconConfig
from lineside.falcon.detector import FalconDetector


def only(rank, factor, first=90, last=10**9):
    return lambda r, step: factor if r == rank and first <= step < last else 1.0


def records(job, *, table=None, end=None):
    yield job.job(JobState.STARTING)
    yield job.job()
    yield from job.batches(table)
    if end:
        yield job.job(end)


@pytest.mark.parametrize("factor", [1.3, 2.0, 3.0])
@pytest.mark.parametrize("seed", range(4))
def test_names_the_slow_rank_within_six_steps_and_its_relief_within_twelve(
    synthetic, watch, factor, seed
):
    rank = int(np.random.default_rng(seed).integers(8))
    job = synthetic.but(slow=only(rank, factor, 90, 150), seed=seed, steps_per_batch=1)
    run = watch(records(job))
    (onset,), (relief,) = run.of("onset"), run.of("relief")
    assert onset.suspects[0].id == str(rank)
    assert onset.evidence["step"] <= 97
    assert abs(onset.evidence["onset_step"] - 90) <= 1
    assert onset.evidence["ratio"] == pytest.approx(factor, rel=0.15)
    assert relief.fault_id == onset.fault_id and relief.fault_sequence == len(run.faults) - 1
    assert 150 + 4 <= relief.evidence["step"] <= 150 + 12


def test_a_fault_says_who_where_since_when_and_what_it_costs(synthetic, watch):
    job = synthetic.but(slow=only(3, 2.0), steps=100)
    run = watch(records(job))
    (fault,) = run.faults
    (suspect,) = fault.suspects
    assert (suspect.kind, suspect.id) == ("rank", "3")
    assert (suspect.machine_id, suspect.device) == ("machine-1", "gpu1")
    assert fault.detector == "falcon" and fault.kind == "slow_compute"
    started = int(job.table()["start_ns"][90, 0])
    assert fault.onset_ns == started
    assert fault.fault_id == fault_id("run-1", 0, "falcon", "slow_compute", "3", started)
    assert [v.id for v in fault.victims] == ["1", "5", "7", "0", "2", "4", "6"]
    step_s = job.table()["step_s"][:, 0]
    assert fault.evidence["baseline_step_s"] == pytest.approx(np.median(step_s[:90]), rel=0.03)
    assert fault.evidence["slow_step_s"] == pytest.approx(np.median(step_s[90:]), rel=0.05)
    assert fault.slowdown == pytest.approx(
        np.median(step_s[90:]) / np.median(step_s[:90]), rel=0.05
    )
    assert 0.9 < fault.confidence < 1
    assert fault.summary.startswith(
        "Rank 3 (machine-1, gpu1) computes 1.97x slower per micro-batch"
    )
    assert b"NaN" not in msgspec.json.encode(fault_event(fault))


def test_planners_can_predict_another_split(synthetic, watch):
    """The evidence's line per replica gives the step time that the simulated job then really has."""
    job = synthetic.but(slow=only(3, 2.0), steps=120, noise=0.02)
    (fault,) = watch(records(job)).faults
    unit, fixed = fault.evidence["replica_unit_s"], fault.evidence["replica_fixed_s"]
    assert unit == pytest.approx([0.02, 0.04, 0.02, 0.02], rel=0.06)
    for split in ([5, 5, 5, 5], [6, 3, 6, 5], [6, 4, 5, 5]):
        other = job.but(plan=lambda _, split=split: split)
        true = float(np.median(other.table()["step_s"][90:]))
        predicted = max(f + u * m for f, u, m in zip(fixed, unit, split, strict=True))
        assert predicted == pytest.approx(true, rel=0.05), split


def test_moving_work_away_is_no_relief(synthetic, watch):
    """Under a remedy the step time is nearly healthy again, the rank's unit cost is not."""
    job = synthetic.but(
        slow=only(3, 2.0, 60, 250),
        plan=lambda step: [6, 2, 6, 6] if 90 <= step < 280 else [5, 5, 5, 5],
        steps=320,
        noise=0.03,
    )
    table = job.table()
    table["revision"] = np.broadcast_to(
        np.select([table["step"] < 90, table["step"] < 280], [0, 1], 2), table["step"].shape
    )
    run = watch(records(job, table=table))
    (onset,), (relief,) = run.of("onset"), run.of("relief")
    assert 250 < relief.evidence["step"] <= 262
    assert not run.of("update")
    states = {h.step: h for h in run.health}
    under = [h for step, h in states.items() if 120 < step < 250]
    assert under and all(h.revision == 1 for h in under)
    # compared with the healthy baseline, learned before the fault and kept
    baseline = onset.evidence["baseline_step_s"]
    assert all(h.baseline_s == pytest.approx(baseline, rel=0.02) for h in under)


def test_slow_from_the_start_needs_no_change(synthetic, watch):
    job = synthetic.but(slow=only(5, 1.6, 0), steps=60, first_step=1000)
    run = watch(records(job))
    (fault,) = run.faults
    assert fault.suspects[0].id == "5"
    assert fault.onset_ns == job.table()["start_ns"][0, 0]
    assert fault.evidence["onset_step"] == 1000
    assert "from its first steps" in fault.summary
    # what it would be without the slow rank follows from the model
    healthy = np.median(job.but(slow=lambda r, s: 1.0).table()["step_s"])
    assert fault.evidence["baseline_step_s"] == pytest.approx(healthy, rel=0.06)
    assert fault.slowdown > 1.3


def test_severity_that_changes_is_told(synthetic, watch):
    def slow(rank, step):
        return {0: 1.0, 1: 1.5, 2: 3.0}[(step >= 60) + (step >= 100)] if rank == 2 else 1.0

    run = watch(records(synthetic.but(slow=slow, steps=140)))
    (onset,), (update,) = run.of("onset"), run.of("update")
    assert update.fault_id == onset.fault_id and update.onset_ns == onset.onset_ns
    assert update.fault_sequence == 1
    assert 100 < update.evidence["step"] <= 106
    assert update.evidence["ratio"] == pytest.approx(3.0, rel=0.15)


def test_two_slow_ranks_are_two_faults(synthetic, watch):
    def slow(rank, step):
        return 2.0 if rank in (1, 4) and step >= 80 else 1.0

    run = watch(records(synthetic.but(slow=slow, steps=110)))
    assert sorted(f.suspects[0].id for f in run.of("onset")) == ["1", "4"]
    assert len({f.fault_id for f in run.faults}) == 2


def whole_stage(rank, step):
    return 1.5 if rank % 2 == 1 and step >= 80 else 1.0


def whole_job(rank, step):
    return 1.8 if step >= 80 else 1.0


def taking_turns(rank, step):
    return 3.0 if step >= 80 and step % 8 == rank else 1.0


def brief_stall(rank, step):
    return 3.0 if rank == 6 and 80 <= step < 84 else 1.0


@pytest.mark.parametrize("slow", [whole_stage, whole_job, taking_turns, brief_stall])
@pytest.mark.parametrize("seed", range(3))
def test_names_nobody(synthetic, watch, slow, seed):
    assert watch(records(synthetic.but(slow=slow, seed=seed))).faults == []


@pytest.mark.parametrize(("dp", "pp", "rank"), [(2, 1, 1), (2, 2, 3), (1, 4, 2), (2, 2, 0)])
def test_few_ranks_are_enough(synthetic, watch, dp, pp, rank):
    """Two peers tell by which of them changed; a pipeline alone by how far each is from its own past."""
    run = watch(records(synthetic.but(dp=dp, pp=pp, slow=only(rank, 2.0), steps=130)))
    assert [f.suspects[0].id for f in run.of("onset")] == [str(rank)]
    assert run.faults[0].evidence["step"] <= 100


def test_when_the_peer_gets_faster_nobody_is_accused(synthetic, watch):
    slow = lambda rank, step: 1.6 if rank == 1 and step < 90 else 1.0  # noqa: E731
    run = watch(records(synthetic.but(dp=2, pp=1, slow=slow, steps=160)))
    assert run.faults == []


def test_one_rank_has_no_peers(synthetic, watch):
    run = watch(records(synthetic.but(dp=1, pp=1, slow=only(0, 2.0))))
    assert run.faults == []
    assert run.health[-1].state == "slow"


def test_tensor_parallel_ranks_are_peers_too(synthetic, watch):
    run = watch(records(synthetic.but(dp=2, pp=2, tp=2, slow=only(6, 1.5), steps=130)))
    assert [f.suspects[0].id for f in run.of("onset")] == ["6"]


def test_nonsense_in_rows_is_survived(synthetic, watch):
    job = synthetic.but(slow=only(3, 2.0), steps=140)
    table = {name: column.copy() for name, column in job.table().items()}
    rng = np.random.default_rng(5)
    hole = rng.random(table["step"].shape) < 0.1
    table["compute_s"][hole] = np.nan
    table["micro_batches"][rng.random(hole.shape) < 0.05] = 0
    table["step_s"][rng.random(hole.shape) < 0.05] = np.nan
    table["compute_s"][50] = 0.0
    table["start_ns"][rng.random(hole.shape) < 0.02] += 3600 * 10**9
    run = watch(records(job, table=table))
    (fault,) = run.of("onset")
    assert fault.suspects[0].id == "3" and fault.evidence["step"] <= 100


def test_only_training_steps_are_timed(synthetic, watch):
    """A checkpoint on one rank makes all others wait; the first step of a start is slow by nature."""
    job = synthetic
    table = {name: column.copy() for name, column in job.table().items()}
    table["phase"][0] = Phase.FIRST
    table["compute_s"][0] *= 50
    for step in range(40, 200, 10):
        table["phase"][step, 0] = Phase.CHECKPOINT
        table["step_s"][step] *= 30
        table["phase"][step + 5] = Phase.EVAL
        table["compute_s"][step + 5, 2] *= 20
    run = watch(records(job, table=table))
    assert run.faults == []
    assert run.health[-1].slowdown == pytest.approx(1, abs=0.05)


def test_longer_sequences_on_one_replica_are_no_fault(synthetic, watch):
    job = synthetic
    table = {name: column.copy() for name, column in job.table().items()}
    table["tokens"][80:, 2:4] *= 2
    table["compute_s"][80:, 2:4] *= 2
    assert watch(records(job, table=table)).faults == []


@pytest.mark.parametrize("state", [JobState.FINISHED, JobState.FAILED, JobState.STOPPED])
def test_the_end_of_a_run_closes_its_faults(synthetic, watch, state):
    run = watch(records(synthetic.but(slow=only(3, 2.0), steps=120), end=state))
    onset, relief = run.faults
    assert relief.phase == "relief" and relief.fault_id == onset.fault_id
    assert relief.summary == f"Rank 3 is watched no longer: the run has {state}."


def test_a_new_generation_starts_anew(synthetic, watch):
    old = synthetic.but(slow=only(3, 2.0), steps=120)
    new = synthetic.but(generation=1, first_step=100, seed=9)
    detector = FalconDetector(FalconConfig(), "job")
    run = watch([*records(old), *records(new)], detector)
    _, relief = run.faults
    assert relief.phase == "relief" and "generation 1" in relief.summary
    assert run.health[-1].generation == 1 and run.health[-1].state == "healthy"
    # what comes late of a generation that is over for good is not used
    for run_id in ("run-2", "run-3", "run-4"):
        watch(records(synthetic.but(run_id=run_id, steps=3)), detector)
    late = watch(old.batches()[:3], detector)
    assert not late.faults and detector.counters["superseded"] == 3


def test_late_rows_of_the_generation_before_are_still_judged(synthetic, watch):
    old = synthetic.but(slow=only(3, 2.0), steps=120)
    new = synthetic.but(generation=1, first_step=100, steps=40)
    first, last = old.batches()[:-60], old.batches()[-60:]
    run = watch([old.job(), *first, new.job(), *last, *new.batches()])
    onset, relief = run.faults
    assert (onset.phase, relief.phase) == ("onset", "relief")
    assert onset.generation == 0 and onset.suspects[0].id == "3"


def test_without_a_job_rows_wait_thirty_seconds(synthetic, watch):
    job = synthetic.but(slow=only(3, 2.0, 250), steps=300)
    run = watch(job.batches())
    assert run.detector.counters["without_job"] == 1
    assert min(h.at_ns for h in run.health) >= job.batches()[0].sent_ns + 30 * 10**9
    (fault,) = run.of("onset")
    assert (fault.suspects[0].id, fault.suspects[0].machine_id) == ("3", "machine-1")
    assert fault.suspects[0].device is None
    assert "replica_unit_s" not in fault.evidence


def test_a_slow_start_does_not_cost_the_topology(synthetic, watch):
    """Agents publish empty batches while ranks import for minutes, and the launcher may call the job running
    before its trainers have declared the mesh."""
    job = synthetic.but(slow=only(3, 2.0, 90), steps=150)
    first = job.batches()[0]
    nothing = [
        msgspec.structs.replace(
            first,
            sent_ns=first.sent_ns - ago * 10**9,
            **{name: b"" for name in column_specs(type(first))},
        )
        for ago in range(120, 0, -1)
    ]
    unarranged = msgspec.structs.replace(job.job(), mesh=Mesh())
    few = job.batches()[:4]
    run = watch([job.job(JobState.STARTING), *nothing, unarranged, *few, job.job(), *job.batches()[4:]],
                now_ns=first.sent_ns - 130 * 10**9)  # fmt: skip
    assert run.detector.counters["without_job"] == 0
    (fault,) = run.of("onset")
    assert fault.evidence["replica_unit_s"]


def test_what_waits_for_a_job_is_bounded(synthetic, watch):
    config = replace(FalconConfig(), hold_bytes=2_000)
    detector = FalconDetector(config, "job")
    watch(synthetic.but(steps=40).batches(), detector)
    assert detector.counters["held_dropped"] > 0


def test_a_rank_that_joins_late_is_watched_too(synthetic, watch):
    job = synthetic.but(slow=only(6, 2.0, 150), steps=200, ranks_per_machine=1)
    late = [
        b
        for b in job.batches()
        if b.machine_id != "machine-6" or np.frombuffer(b.step, "<i8")[0] >= 100
    ]
    run = watch([job.job(), *late])
    assert [f.suspects[0].id for f in run.of("onset")] == ["6"]


def test_other_records_are_refused(synthetic):
    with pytest.raises(TypeError, match="jobs and steps"):
        FalconDetector(FalconConfig(), "job").observe(object(), 0)


def test_evidence_of_a_wide_job_stays_within_16_kib(synthetic, watch):
    job = synthetic.but(
        dp=700, pp=1, slow=only(3, 2.0, 35), steps=45, micro_batches=1400, ranks_per_machine=700
    )
    (fault,) = watch(records(job)).of("onset")
    assert len(fault.evidence["replica_unit_s"]) == 700
    assert len(msgspec.json.encode(fault.evidence)) <= 16 * 1024
    assert len(fault.victims) == 64

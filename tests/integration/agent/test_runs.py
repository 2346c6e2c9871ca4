"""Runs from start to end: what agents and launcher publish about them."""

import json
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from lineside.bus.kafka import KafkaBus
from lineside.bus.local import LocalKafka
from lineside.contracts import (
    TOPICS,
    CollectiveBatch,
    JobState,
    Mesh,
    MetricBatch,
    Plan,
    PlanKind,
    PlanState,
    StepBatch,
    TopicName,
    columns,
    encode,
)

from .conftest import JOB, RANK, Run, alive

Start = Callable[..., Run]


def test_a_run_is_told_from_start_to_end(start: Start, tmp_path: Path) -> None:
    steps = 80
    run = start([*RANK, "--steps", str(steps), "--world", "4"], machines=2, ranks=2)
    assert run.end().exit_code == 0
    seen = run.seen
    for rank in range(4):
        assert seen.steps(rank) == list(range(steps)), "complete and in order"
    for kind in (StepBatch, CollectiveBatch, MetricBatch):
        for machine in ("machine-0", "machine-1"):
            numbers = seen.sequences(kind, machine)
            assert numbers == list(range(len(numbers)))
    assert [job.state for job in seen.jobs()] == ["starting", "running", "finished"]
    running = seen.jobs()[1]
    assert (running.mesh, running.micro_batches) == (Mesh(["dp"], [4]), 8)
    assert running.capabilities.rebalance
    assert {running.machine_of(rank)[1] for rank in range(4)} == {
        f"machine-{m}/{r}" for m in range(2) for r in range(2)
    }
    batch = columns(next(b for b in seen.of(StepBatch) if len(b.rank)))
    assert np.all(batch["compute_s"] > 0) and np.all(np.isnan(batch["wait_s"]))
    assert np.all(batch["comm_s"] + batch["compute_s"] <= batch["step_s"])
    completed = sum(int(columns(b)["completed_ops"].sum()) for b in seen.of(CollectiveBatch))
    assert completed == 4 * steps
    last = seen.states(3)[-1]
    assert (last.state, last.exit_code, last.signal, last.step) == ("exited", 0, -1, steps - 1)
    values = np.concatenate([b.matrix() for b in seen.metrics()])
    assert np.all(np.isfinite(values)) and values[:, 1].max() > 1e6, "memory of the ranks"
    assert "done" in (tmp_path / "run" / "machine-1" / "rank-2.out").read_text()


def publish(bus: KafkaBus, plan: Plan) -> None:
    publisher = bus.publisher()
    publisher.publish(encode(TopicName.PLANS, plan, bus.partitions))
    assert publisher.flush(10) == 0
    publisher.close()


def plan(run: Run, revision: int, kind: PlanKind, **more: Any) -> Plan:
    now = time.time_ns()
    return Plan(
        job_id=JOB, run_id=run.launcher.run_id, revision=revision, base_generation=0, base_revision=0,
        generation=0, issued_ns=now, valid_until_ns=now + 60 * 10**9, kind=kind, **more,
    )  # fmt: skip


def test_plans_are_handed_over_applied_and_answered(start: Start, bus: KafkaBus) -> None:
    run = start(RANK, machines=2)
    seen = run.seen
    run.until(lambda: run.launcher.job.state is JobState.RUNNING, "the run to start")
    publish(bus, plan(run, 1, PlanKind.REBALANCE, micro_batch_plan=[5, 3]))
    publish(bus, plan(run, 2, PlanKind.RESTART))

    def answers(revision: int, state: PlanState) -> set[tuple[str, int]]:
        return {
            (status.machine_id, status.rank)
            for status in seen.statuses()
            if (status.revision, status.state) == (revision, state)
        }

    agents = {("machine-0", -1), ("machine-1", -1)}
    run.until(lambda: answers(1, PlanState.ACCEPTED) == agents, "agents to accept")
    ranks = {("machine-0", 0), ("machine-1", 1)}
    run.until(lambda: answers(1, PlanState.APPLIED) == ranks, "ranks to apply")
    run.until(lambda: answers(2, PlanState.REJECTED) == agents, "the restart to be rejected")
    applied = {s.rank: s for s in seen.statuses() if s.state is PlanState.APPLIED}
    run.until(lambda: all(1 in seen.revisions(rank) for rank in range(2)), "rows under the plan")
    for rank in range(2):
        first = seen.steps(rank)[seen.revisions(rank).index(1)]
        assert first == applied[rank].step
        assert applied[rank].took_s is not None
    publish(bus, plan(run, 3, PlanKind.STOP))
    end = run.end()
    assert (end.state, end.exit_code) == (JobState.STOPPED, 3)
    assert answers(3, PlanState.ACCEPTED) == agents


def test_a_stopped_rank_is_still_reported_and_a_killed_one_leaves_its_last_state(
    start: Start,
) -> None:
    run = start(RANK, ranks=2)
    seen = run.seen
    run.until(lambda: len(seen.steps(1)) > 5, "steps")
    pid = seen.pids()[1]
    os.kill(pid, signal.SIGSTOP)
    silent = run.until(
        lambda: next((s for s in seen.states(1) if s.state == "silent"), None), "silence"
    )
    assert silent.pid == pid and silent.step > 0 and silent.phase in ("compute", "comm", "step")
    before = len(seen.steps(0))
    run.until(lambda: len(seen.steps(0)) > before + 20, "the other rank to go on")
    os.kill(pid, signal.SIGKILL)
    end = run.end()
    assert (end.state, end.exit_code, end.rank) == (JobState.FAILED, 137, 1)
    assert "SIGKILL" in end.detail
    last = seen.states(1)[-1]
    assert (last.state, last.signal, last.exit_code) == ("exited", signal.SIGKILL, -1)
    assert (last.step, last.phase) == (silent.step, silent.phase)
    assert last.stderr_tail == "warming up"
    assert seen.jobs()[-1].state is JobState.FAILED
    assert alive(list(seen.pids().values())) == []


def test_a_program_without_a_probe_is_watched_from_outside(start: Start) -> None:
    program = "import sys, time; time.sleep(2.5); sys.exit('no such file: data.bin')"
    run = start([sys.executable, "-c", program])
    end = run.end()
    assert (end.state, end.exit_code, end.rank) == (JobState.FAILED, 1, 0)
    assert "no such file: data.bin" in end.detail
    states = run.seen.states(0)
    assert [states[0].state, states[0].phase, states[0].step] == ["running", "", -1]
    assert (states[-1].exit_code, states[-1].stderr_tail) == (1, "no such file: data.bin")
    assert len(run.seen.metrics()) >= 2


def test_nothing_is_lost_while_kafka_is_away(start: Start, tmp_path: Path) -> None:
    spool = tmp_path / "run" / "machine-0" / "spool"
    with LocalKafka(tmp_path / "kafka") as kafka:
        port = int(kafka.bootstrap.rsplit(":", 1)[1])
        bus = KafkaBus(kafka.bootstrap, partitions=1)
        bus.admin().ensure_topics(tuple(TOPICS.values()))
        run = start(RANK, on=bus, environment={"LINESIDE_QUEUE_RECORDS": "2"})
        run.until(lambda: len(run.seen.steps(0)) > 20, "steps")
        kafka.stop()
        deadline = time.monotonic() + 5
        while time.monotonic() < deadline:
            run.launcher.poll()
            time.sleep(0.05)
        assert list(spool.glob("*.spool")), "what waits is on disk"
        with LocalKafka(tmp_path / "kafka", port=port):
            reached = len(run.seen.steps(0))
            run.until(lambda: len(run.seen.steps(0)) > reached + 200, "what had to wait")
            run.launcher.stop()
            run.end()
            steps = run.seen.steps(0)
            assert steps == list(range(len(steps))), "complete, in order, once"
            batches = run.seen.of(StepBatch)
            assert sum(batch.dropped for batch in batches) == 0
            assert [batch.sequence for batch in batches] == list(range(len(batches)))
            assert not list(spool.glob("*.spool"))


def test_beyond_the_spools_bound_the_oldest_is_missing_and_counted(
    start: Start, tmp_path: Path
) -> None:
    status = tmp_path / "run" / "machine-0" / "status.json"
    with LocalKafka(tmp_path / "kafka") as kafka:
        port = int(kafka.bootstrap.rsplit(":", 1)[1])
        bus = KafkaBus(kafka.bootstrap, partitions=1)
        bus.admin().ensure_topics(tuple(TOPICS.values()))
        tight = {"LINESIDE_QUEUE_RECORDS": "2", "LINESIDE_SPOOL_BYTES": "6000"}
        run = start(RANK, on=bus, environment=tight)
        run.until(lambda: len(run.seen.steps(0)) > 20, "steps")
        kafka.stop()

        def last_step() -> int:
            run.launcher.poll()
            return int(json.loads(status.read_bytes())["ranks"][0]["step"])

        stopped_at = last_step()
        run.until(lambda: last_step() > stopped_at + 250, "an outage of many steps")
        with LocalKafka(tmp_path / "kafka", port=port):
            back_at = last_step()
            run.until(lambda: run.seen.steps(0)[-1] > back_at + 100, "telemetry after the outage")
            run.launcher.stop()
            run.end()
    steps = run.seen.steps(0)
    assert steps == sorted(set(steps)), "in order, each once"
    missing = set(range(steps[-1] + 1)) - set(steps)
    batches = run.seen.of(StepBatch)
    assert missing and sum(batch.dropped for batch in batches) == len(missing)
    gap = sorted(missing)
    assert gap == list(range(gap[0], gap[-1] + 1)), "one gap: the oldest part of the outage"
    assert [b.sequence for b in batches] == sorted({b.sequence for b in batches})

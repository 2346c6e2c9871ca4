"""Agents of a real run are asked for evidence, and tell only what is signed as it must be."""

import base64
import json
import os
import signal
import sys
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from typer.testing import CliRunner

from lineside.bus.kafka import KafkaBus
from lineside.cli.main import build
from lineside.contracts import (
    Decoded,
    EventSource,
    JobState,
    MachineEvent,
    Plan,
    PlanKind,
    PlanState,
    Request,
    TopicName,
    encode,
)
from lineside.contracts.signatures import Signer

from .conftest import JOB, RANK, Run

Start = Callable[..., Run]
SIGNER = Signer(Ed25519PrivateKey.generate())
STRANGER = Signer(Ed25519PrivateKey.generate())


def publish(bus: KafkaBus, topic: TopicName, record: Decoded, signer: Signer | None) -> None:
    message = encode(topic, record, bus.partitions)
    publisher = bus.publisher()
    publisher.publish(signer.sign(message) if signer else message)
    assert publisher.flush(10) == 0
    publisher.close()


def request(run: Run, kind: str, **more: Any) -> Request:
    return Request(
        request_id=str(uuid.uuid4()),
        fault_id=None,
        job_id=JOB,
        run_id=run.launcher.run_id,
        generation=0,
        kind=kind,
        expires_ns=time.time_ns() + 120 * 10**9,
        **more,
    )


def test_evidence_of_a_hung_rank_and_of_its_machine(
    start: Start, bus: KafkaBus, tmp_path: Path
) -> None:
    kernel = tmp_path / "kern.log"
    kernel.touch()
    run = start(RANK, ranks=2, environment={"LINESIDE_KERNEL_LOG": str(kernel)})
    seen = run.seen
    run.until(lambda: run.launcher.job.state is JobState.RUNNING and seen.steps(1), "steps")
    os.kill(seen.pids()[1], signal.SIGSTOP)

    stacks = request(run, "dump_stacks")
    products = request(run, "validate_compute", ranks=[0], parameters={"seconds": 0.05})
    unknown = request(run, "read_minds")
    for one in (stacks, products, unknown, stacks):
        publish(bus, TopicName.REQUESTS, one, None)
    run.until(lambda: len(seen.replies(stacks.request_id)) == 2, "stacks of both ranks")
    for (_, rank), reply in seen.replies(stacks.request_id).items():
        assert reply.ok, reply.detail
        frames = [frame for stack in reply.result["stacks"] for frame in stack["frames"]]
        assert any("rank.py" in frame for frame in frames)
        assert reply.result["stopped"] == (rank == 1)
    run.until(lambda: seen.replies(products.request_id), "products")
    product = seen.replies(products.request_id)["machine-0", 0]
    assert product.ok and product.result["wrong"] == 0, product.detail
    run.until(lambda: seen.replies(unknown.request_id), "the refusal")
    assert not seen.replies(unknown.request_id)["machine-0", -1].ok

    with kernel.open("a") as file:
        file.write("[    2.500000] NVRM: Xid (PCI:0000:9b:00): 79, pid=1, name=python, fell off\n")
    [xid] = run.until(lambda: seen.of(MachineEvent), "the kernel's event")
    assert (xid.code, xid.device, xid.machine_id) == ("79", "0000:9b:00", "machine-0")

    app = build(["agent"])
    result = CliRunner().invoke(app, ["agent", "status", str(tmp_path / "run"), "--json"])
    [row] = json.loads(result.output)
    assert (row["says"], row["alive"]) == ("running", True)
    assert [rank["state"] for rank in row["agent"]["ranks"]] == ["running", "silent"]

    os.kill(seen.pids()[1], signal.SIGKILL)
    run.end()
    ended = [event for event in seen.of(MachineEvent) if event.source is EventSource.WORKER_EXIT]
    assert (ended[0].code, ended[0].device) == ("SIGKILL", "machine-0/1")
    assert len([r for r in seen.records if getattr(r, "request_id", "") == stacks.request_id]) == 2
    after = CliRunner().invoke(app, ["agent", "status", str(tmp_path / "run"), "--all", "--json"])
    assert after.exit_code == 3 and json.loads(after.stdout)[0]["says"] == "gone"


def test_outside_local_mode_only_what_a_known_key_signed_is_followed(
    start: Start, bus: KafkaBus
) -> None:
    trusted = base64.b64encode(SIGNER.public).decode()
    run = start(RANK, environment={"LINESIDE_TRUSTED_KEYS": trusted})
    seen = run.seen
    run.until(lambda: run.launcher.job.state is JobState.RUNNING, "the run to start")
    now = time.time_ns()

    def plan(revision: int, kind: PlanKind = PlanKind.STOP, **more: Any) -> Plan:
        said: dict[str, Any] = {
            "run_id": run.launcher.run_id,
            "base_generation": 0,
            "generation": 0,
            "valid_until_ns": now + 120 * 10**9,
        }
        return Plan(
            job_id=JOB, revision=revision, base_revision=0, issued_ns=time.time_ns(), kind=kind,
            **(said | more),
        )  # fmt: skip

    publish(bus, TopicName.PLANS, plan(1), None)
    publish(bus, TopicName.PLANS, plan(2), STRANGER)
    publish(bus, TopicName.PLANS, plan(3, run_id=str(uuid.uuid4())), SIGNER)
    publish(bus, TopicName.PLANS, plan(4, base_generation=7), SIGNER)
    publish(bus, TopicName.PLANS, plan(5, valid_until_ns=now - 10**9), SIGNER)
    rebalance = {"kind": PlanKind.REBALANCE, "micro_batch_plan": [2]}
    publish(bus, TopicName.PLANS, plan(6, **rebalance), SIGNER)
    run.until(lambda: 6 in seen.revisions(0), "the signed plan to be in force")
    publish(bus, TopicName.PLANS, plan(6, PlanKind.STOP), SIGNER)
    forged = request(run, "dump_stacks")
    publish(bus, TopicName.REQUESTS, forged, STRANGER)
    run.until(lambda: seen.replies(forged.request_id), "the forged request to be refused")
    assert "unknown key" in seen.replies(forged.request_id)["machine-0", -1].detail

    def answers() -> dict[int, list[tuple[PlanState, str]]]:
        said: dict[int, list[tuple[PlanState, str]]] = {}
        for status in seen.statuses():
            said.setdefault(status.revision, []).append((status.state, status.detail))
        return said

    run.until(lambda: len(answers().get(6, [])) == 3, "all answers")
    said = answers()
    assert said[1] == [(PlanState.REJECTED, "it is not signed")]
    assert said[2][0][0] is PlanState.REJECTED and "unknown key" in said[2][0][1]
    assert said[3][0][0] is PlanState.STALE and "not " in said[3][0][1]
    assert said[4][0][0] is PlanState.STALE and "generation" in said[4][0][1]
    assert said[5][0][0] is PlanState.STALE and "valid until" in said[5][0][1]
    assert [state for state, _ in said[6]] == [
        PlanState.ACCEPTED,
        PlanState.APPLIED,
        PlanState.REJECTED,
    ]
    assert "other content" in said[6][2][1]
    assert run.launcher.poll() is None, "none of them has stopped the run"
    publish(bus, TopicName.PLANS, plan(7), SIGNER)
    assert run.end().exit_code == 3


def test_a_trusted_key_that_is_none_stops_the_agent_with_a_clear_line(
    start: Start, tmp_path: Path
) -> None:
    run = start([sys.executable, "-c", ""], environment={"LINESIDE_TRUSTED_KEYS": "nonsense"})
    run.until(lambda: run.launcher.end, "the run to end")
    log = (tmp_path / "run" / "machine-0" / "agent.log").read_text()
    assert "LINESIDE_TRUSTED_KEYS: 'nonsense' is no public key" in log

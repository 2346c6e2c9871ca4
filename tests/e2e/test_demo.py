"""The whole house, every part real: found, healed and resolved, through kills of what watches."""

import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from .conftest import Demo

StartDemo = Callable[..., Demo]


def rows(out: Path, query: str) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(out / "data" / "lineside.db")) as database:
        return database.execute(query).fetchall()


def fault_ids(recording: Path) -> set[str]:
    lines = [json.loads(line) for line in recording.read_text().splitlines()]
    return {line["value"]["data"]["fault_id"] for line in lines if line["topic"] == "faults.v1"}


@pytest.mark.demo
@pytest.mark.timeout(300)
def test_killed_services_change_nothing(demo: StartDemo) -> None:
    """FALCON and remediation are killed (-9) while they have the fault in hands; the supervisor starts them
    again. Still one incident, opened once and closed once, and each plan applied once."""
    running = demo()
    running.wait_for("is now slowed")
    time.sleep(random.uniform(0, 3))
    running.kill_service("falcon")
    running.wait_for("is open")
    time.sleep(random.uniform(0, 6))
    running.kill_service("remediation")
    running.wait_for("applied by every rank")
    running.kill_service(random.choice(["falcon", "remediation"]))
    code = running.end()
    print(running.text())
    summary = running.summary()
    assert code == 0, running.text()
    assert running.text().count("ended (signal 9)") == 3
    assert summary["culprit"] == summary["victim"]
    assert summary["slowdown_removed"] >= 0.7
    assert summary["of_ideal"] >= 0.85
    assert min(summary["steps"].values()) >= 50
    assert (
        summary["onset_ns"]
        < summary["detected_ns"]
        < summary["applied_ns"]
        < summary["resolved_ns"]
    )
    assert rows(running.out, "select count(*) from incidents") == [(1,)]
    assert rows(running.out, "select kind from plans order by revision") == [
        ("rebalance",),
        ("baseline",),
    ]
    for state in ("open", "resolved"):
        query = f"select count(*) from incident_transitions where to_state = '{state}'"
        assert rows(running.out, query) == [(1,)], state
    assert running.left() == []

    # The recording, fed to the same core, gives the fault ids of the live run.
    recording = running.out / "recording.jsonl"
    replayed = subprocess.run(
        [sys.executable, "-m", "lineside.cli", "replay", str(recording), "--json"],
        capture_output=True,
        text=True,
        check=True,
    )
    again = {json.loads(line)["fault_id"] for line in replayed.stdout.splitlines()}
    assert again == fault_ids(recording) != set()


@pytest.mark.demo
@pytest.mark.timeout(300)
def test_without_a_fault_nothing_is_raised(demo: StartDemo) -> None:
    running = demo("--no-fault")
    assert running.end() == 0, running.text()
    assert running.summary()["faults"] == 0
    assert rows(running.out, "select count(*) from incidents") == [(0,)]
    assert running.left() == []


@pytest.mark.demo
@pytest.mark.timeout(300)
def test_observe_says_what_it_would_do_and_does_nothing(demo: StartDemo) -> None:
    running = demo("--mode", "observe", "--rank", "5")
    assert running.end() == 0, running.text()
    summary = running.summary()
    assert summary["culprit"] == summary["victim"] == 5
    assert summary["healed_step_s"] is None
    assert rows(running.out, "select progress, revision from plans") == [("proposed", None)]
    assert running.left() == []


@pytest.mark.demo
@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    "moment", ["starting Kafka", "ranks on 2 machines", "is now slowed", "plan 1"]
)
def test_ctrl_c_at_any_moment_leaves_no_process(demo: StartDemo, moment: str) -> None:
    running = demo()
    running.wait_for(moment)
    time.sleep(random.uniform(0, 2))
    running.remember_family()
    running.process.send_signal(signal.SIGINT)
    assert running.end(60) == 130, running.text()
    deadline = time.monotonic() + 10
    while running.left() and time.monotonic() < deadline:
        time.sleep(0.1)
    assert running.left() == []


@pytest.mark.demo
@pytest.mark.timeout(300)
def test_kafka_killed_in_mid_run_changes_nothing(demo: StartDemo) -> None:
    running = demo("--rank", "2")
    running.wait_for("is now slowed")
    state = json.loads((running.out / "data" / "kafka" / "kafka.json").read_text())
    time.sleep(random.uniform(0, 10))
    os.kill(state["pid"], signal.SIGKILL)
    assert running.end(200) == 0, running.text()
    assert "Kafka ended, restarting" in running.text()
    assert rows(running.out, "select count(*) from incidents") == [(1,)]
    assert running.left() == []

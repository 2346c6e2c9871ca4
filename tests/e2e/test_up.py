"""``lineside up``: all services as processes, fed with what no reader can use."""

import json
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from lineside.bus.kafka import KafkaBus
from lineside.contracts import Job, Mesh, StepBatch, TopicName, WireMessage, encode, pack
from lineside.contracts.codec import headers_of
from lineside.contracts.columns import column_specs
from lineside.contracts.topics import TOPICS

READERS = {
    TopicName.JOBS: {"falcon", "minder", "mycroft", "remediation"},
    TopicName.STEPS: {"falcon"},
    TopicName.COLLECTIVES: {"mycroft"},
    TopicName.MACHINE_METRICS: {"minder"},
    TopicName.HEALTH: {"remediation"},
    TopicName.FAULTS: {"remediation"},
    TopicName.PLAN_STATUS: {"remediation"},
}
PARTITION = 3


@pytest.fixture
def up(tmp_path: Path) -> Iterator[dict[str, Any]]:
    command = [sys.executable, "-m", "lineside.cli", "up", "--data", str(tmp_path), "--json"]
    with (tmp_path / "up.log").open("wb") as log:
        process = subprocess.Popen(
            [*command, "--kafka-port", "0", "--api-port", "0"],
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line, (tmp_path / "up.log").read_text()
            yield json.loads(line) | {"process": process, "log": tmp_path / "up.log"}
        finally:
            process.send_signal(signal.SIGINT)
            assert process.wait(60) == 0
            process.stdout.close()


def bad_step_batch() -> bytes:
    """Bytes as a careless writer would send them: a duration below zero."""
    sender = {
        "job_id": "gpt", "run_id": "r", "generation": 0, "machine_id": "m", "incarnation": "i",
        "sequence": 0, "dropped": 0, "sent_ns": 0, "clock_offset_ns": -1, "clock_error_ns": -1,
    }  # fmt: skip
    good = pack(StepBatch, sender | {name: [1] for name in column_specs(StepBatch)})
    value = encode(TopicName.STEPS, good, 12).value
    assert value is not None
    one, minus_one = b"\x00\x00\x80\x3f", b"\x00\x00\x80\xbf"
    return value.replace(one, minus_one, 1)


@pytest.mark.timeout(200)
def test_what_no_reader_can_use_becomes_a_dead_letter_and_nothing_else_is_lost(
    up: dict[str, Any],
) -> None:
    bus = KafkaBus(up["bootstrap"], prefix="lineside.", partitions=12)
    publisher = bus.publisher()
    expected: Counter[str] = Counter()
    for topic, readers in READERS.items():
        whole = (
            bad_step_batch()
            if topic is TopicName.STEPS
            else encode(TopicName.JOBS, Job(job_id="", run_id="r"), 12).value
        )
        for value in (b"\xff\x00", b"", b"{}", b"[" * 2000, whole):
            headers = headers_of(TOPICS[topic])
            publisher.publish(
                WireMessage(
                    topic=topic, partition=PARTITION, key=b"k", value=value, headers=headers
                )
            )
            expected.update(readers)
        wrong = (("schema", b"steps.99"),)
        publisher.publish(
            WireMessage(topic=topic, partition=PARTITION, key=b"k", value=b"x", headers=wrong)
        )
        expected.update(readers)
    good = Job(job_id="gpt", run_id="r", mesh=Mesh(["dp"], [2]), started_ns=1)
    publisher.publish(encode(TopicName.JOBS, good, 12))
    assert publisher.flush(20) == 0
    publisher.close()

    letters: Counter[str] = Counter()
    tail = bus.tail([TopicName.DEAD_LETTERS])
    deadline = time.monotonic() + 90
    while letters != expected and time.monotonic() < deadline:
        for message in tail.receive(500, 0.2):
            letters[message.headers["service"].decode()] += 1
            assert message.headers["reason"] and message.partition == PARTITION
    tail.close()
    assert letters == expected

    listed = subprocess.run(
        [
            sys.executable,
            "-m",
            "lineside.cli",
            "dead-letters",
            "--json",
            "--bootstrap",
            up["bootstrap"],
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    rows = [json.loads(line) for line in listed.stdout.splitlines()]
    assert Counter(row["service"] for row in rows) == expected
    assert any("holds -1.0, below 0" in row["reason"] for row in rows)

    second = subprocess.run(
        [
            sys.executable,
            "-m",
            "lineside.cli",
            "up",
            "--data",
            str(up["log"].parent),
            "--kafka-port",
            "0",
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert second.returncode == 69
    assert "Lineside already runs on" in second.stderr.replace("\n", " ")

    jobs: list[Any] = []
    while not jobs and time.monotonic() < deadline:
        jobs = httpx.get(f"{up['api']}/v1/jobs", timeout=10).json()["items"]
        time.sleep(0.2)
    assert [job["job_id"] for job in jobs] == ["gpt"]
    assert httpx.get(f"{up['api']}/readyz", timeout=10).status_code == 200
    assert "ended" not in up["log"].read_text(), "a service died of it"

"""What was on the wire can be kept, read back and replayed, and bad lines cost only themselves."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import pytest

from lineside.bus import Message
from lineside.contracts import Fault, Job, JobHealth, Mesh, StepBatch, TopicName, encode
from lineside.diagnose.recording import BadLine, Recorded, line_of, read_lines
from lineside.diagnose.replay import replay

EXAMPLE_JOB = Job(job_id="gpt", run_id="r", mesh=Mesh(["dp"], [2]))
MAGIC = Path(__file__).parents[2] / "contract" / "golden.json"


def message(offset: int, value: bytes | None, topic: TopicName = TopicName.JOBS) -> Message:
    return Message(topic, 3, offset, 1000 + offset, b"gpt", value)


def job_bytes() -> bytes:
    value = encode(TopicName.JOBS, EXAMPLE_JOB, 12).value
    assert value is not None
    return value


def read(*lines: bytes) -> list[Recorded | BadLine]:
    return list(read_lines(lines, [TopicName.JOBS, TopicName.STEPS]))


def test_a_message_survives_the_file() -> None:
    line = line_of(message(7, job_bytes()))
    assert json.loads(line)["value"]["mesh"] == {"axes": ["dp"], "sizes": [2]}
    (found,) = read(line)
    assert isinstance(found, Recorded)
    assert (found.topic, found.partition, found.offset, found.timestamp_ms) == (
        "jobs.v1",
        3,
        7,
        1007,
    )
    assert found.record == EXAMPLE_JOB


def test_every_contract_example_survives_the_file() -> None:
    for name, hexed in json.loads(MAGIC.read_text()).items():
        topic = {
            "job": "jobs.v1", "member": "members.v1", "steps": "steps.v1",
            "metrics": "machine-metrics.v1", "collectives": "collectives.v1", "health": "health.v1",
            "fault": "faults.v1", "plan": "plans.v1", "plan-status": "plan-status.v1",
            "alert": "alerts.v1", "detector-state": "detector-state.v1", "request": "requests.v1",
            "reply": "replies.v1", "machine-event": "machine-events.v1",
        }[name]  # fmt: skip
        line = line_of(message(0, bytes.fromhex(hexed), TopicName(topic)))
        (found,) = read_lines([line], [TopicName(topic)])
        assert isinstance(found, Recorded), found


def test_a_tombstone_and_an_undecodable_record_are_kept() -> None:
    tombstone, broken = line_of(message(1, None)), line_of(message(2, b"\xff"))
    first, second = read(tombstone, broken)
    assert isinstance(first, Recorded) and first.record is None
    assert isinstance(second, BadLine) and "undecodable" in second.reason
    assert json.loads(broken)["raw"] == "/w=="


@pytest.mark.parametrize(
    "bad",
    [
        b"not json\n",
        b"{}\n",
        b'{"topic": "nonsense.v1", "key": null, "partition": 0, "offset": 0, "timestamp_ms": 0,'
        b' "value": null}\n',
        b'{"topic": "jobs.v1", "key": null, "partition": 0, "offset": 0, "timestamp_ms": 0, "value": {}}\n',
        b'{"topic": "steps.v1", "key": null, "partition": 0, "offset": 0, "timestamp_ms": 0,'
        b' "value": {"job_id": "gpt"}}\n',
    ],
)
def test_a_bad_line_is_named_and_the_rest_counts(bad: bytes) -> None:
    good = line_of(message(0, job_bytes()))
    first, second, third = read(good, bad, good)
    assert isinstance(first, Recorded) and isinstance(third, Recorded)
    assert isinstance(second, BadLine) and second.number == 2


class Echo:
    """A detector that tells what it was fed, in order."""

    seen: ClassVar[list[tuple[str, int]]] = []

    def __init__(self, job_id: str) -> None:
        self._job_id = job_id

    def observe(self, record: Job | StepBatch, now_ns: int) -> list[Fault | JobHealth]:
        Echo.seen.append((record.run_id, now_ns))
        return []

    def snapshot(self) -> bytes:
        return b""

    def restore(self, state: bytes) -> None: ...


def test_replay_is_in_the_order_of_append_times_whatever_the_files_order() -> None:
    Echo.seen.clear()

    def recorded() -> Iterator[Recorded]:
        for run, at_ms in (("b", 2), ("a", 1), ("c", 3)):
            job = Job(job_id="gpt", run_id=run)
            yield Recorded(
                topic=TopicName.JOBS, partition=0, offset=at_ms, timestamp_ms=at_ms, record=job
            )

    assert list(replay(recorded(), Echo)) == []
    assert Echo.seen == [("a", 1_000_000), ("b", 2_000_000), ("c", 3_000_000)]

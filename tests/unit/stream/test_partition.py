"""What one record does to a partition."""

from typing import Any

import numpy as np
import pytest

from lineside.bus import Message
from lineside.contracts import (
    Fault,
    JobHealth,
    JobState,
    TopicName,
    WireMessage,
    decode,
    partition_of,
)
from lineside.stream import Processor
from lineside.stream.partition import ENDED_KEPT_NS, SILENT_KEPT_NS, Outcome, Partition, Verdict
from lineside.stream.snapshot import read

from .toy import INPUTS, PARTITIONS, PROCESSOR, Broken, Toy, buried, job, metric, received, steps

EMPTY = {topic: (0, 0) for topic in INPUTS}
NOWHERE = {topic: (0, 10**9) for topic in INPUTS}


def fresh() -> Partition:
    partition = Partition(PROCESSOR, 0, PARTITIONS)
    assert partition.restore(read("toy", 0, []), EMPTY) == []
    return partition


def feed(partition: Partition, *wires: WireMessage, at_ms: int = 0) -> list[Outcome]:
    return [
        partition.apply(received(wire, partition.positions[wire.topic], at_ms)) for wire in wires
    ]


def toy(partition: Partition, job_id: str = "a") -> Toy:
    detector = partition.detector(job_id)
    assert isinstance(detector, Toy)
    return detector


def stored(*partitions: Partition) -> list[Message]:
    """What their snapshots leave on the state topic, in this order."""
    log: list[Message] = []
    for partition in partitions:
        snapshot = partition.snapshot()
        for wire in (*snapshot.states.values(), snapshot.cursor):
            log.append(received(wire, len(log)))
    return log


def restored(log: list[Message], bounds: dict[TopicName, tuple[int, int]] = NOWHERE) -> Partition:
    partition = Partition(PROCESSOR, 0, PARTITIONS)
    assert partition.restore(read("toy", 0, log), bounds) == []
    return partition


def test_position_decides() -> None:
    partition = fresh()
    feed(partition, steps("a", 0), steps("a", 1))
    verdicts = [partition.judge(TopicName.STEPS, offset) for offset in (1, 2, 3)]
    assert verdicts == [Verdict.SKIP, Verdict.APPLY, Verdict.BEHIND]
    assert partition.judge(TopicName.MACHINE_METRICS, 0) is Verdict.APPLY


def test_findings_become_messages_for_their_topics() -> None:
    partition = fresh()
    outcomes = feed(partition, job("a"), steps("a", 0), steps("a", 1), steps("a", 2))
    health, *_, fault = [message for outcome in outcomes for message in outcome.messages]
    assert isinstance(decode(TopicName.HEALTH, health.value), JobHealth)
    event = decode(fault.topic, fault.value, dict(fault.headers))
    assert isinstance(event.data, Fault) and event.subject == "a" and fault.key == b"a"


def test_now_is_the_largest_append_time_of_the_partition() -> None:
    partition = fresh()
    feed(partition, steps("a", 0), at_ms=50)
    feed(partition, steps("b", 0), at_ms=40)
    assert toy(partition, "b").now_ns == 50_000_000


@pytest.mark.parametrize(
    ("value", "headers", "reason"),
    [
        (b"\xff\x00nonsense", {}, "expected `array`"),
        (b"", {}, "truncated"),
        (steps("a", 0).value[:-3], {}, "truncated"),  # type: ignore[index]
        (steps("a", 0).value, {"schema": b"steps.9"}, "steps.9"),
        (None, {}, "no value"),
    ],
)
def test_what_cannot_be_decoded_is_a_dead_letter_byte_for_byte(
    value: bytes | None, headers: dict[str, bytes], reason: str
) -> None:
    partition = fresh()
    message = Message(TopicName.STEPS, 0, 0, 0, b"key", value, headers)
    (letter,) = partition.apply(message).messages
    said = dict(letter.headers)
    assert letter.topic is TopicName.DEAD_LETTERS and letter.value == (value or b"")
    assert reason in said["reason"].decode().lower()
    assert (said["service"], said["source-topic"]) == (b"toy", b"steps.v1")
    assert (said["source-partition"], said["source-offset"]) == (b"0", b"0")
    assert partition.positions[TopicName.STEPS] == 1 and partition.changed


def _with(column: str, value: Any) -> WireMessage:
    """A step record whose column holds what ``pack`` would refuse to send."""
    columns: dict[str, Any] = {column: [0.25]}
    good = steps("a", 0, **columns)
    assert good.value is not None
    old, new = (np.array([v], "<f4").tobytes() for v in (0.25, value))
    bad = good.value.replace(old, new)
    return WireMessage(topic=good.topic, partition=0, key=good.key, value=bad, headers=good.headers)


def test_a_negative_duration_is_a_dead_letter_and_nan_is_not() -> None:
    partition = fresh()
    negative, infinite, unknown = feed(
        partition, _with("step_s", -1.0), _with("loss", float("inf")), _with("wait_s", float("nan"))
    )
    assert b"below 0" in dict(negative.messages[0].headers)["reason"]
    assert b"infinity" in dict(infinite.messages[0].headers)["reason"]
    assert unknown.messages == [] and toy(partition).seen == {"StepBatch": [0]}


def test_a_record_of_the_largest_size_still_fits_with_its_reason() -> None:
    message = Message(TopicName.STEPS, 0, 0, 0, b"k", b"\xff" * (4 * 1024 * 1024), {})
    (letter,) = fresh().apply(message).messages
    assert letter.value is not None and len(letter.value) < 4 * 1024 * 1024 - 8192
    assert b"only the first" in dict(letter.headers)["reason"]


def test_a_detector_that_fails_costs_one_record_and_says_why() -> None:
    partition = fresh()
    _, failed, after = feed(
        partition, steps("a", 0), steps("a", 1, machine="broken"), steps("a", 2)
    )
    assert isinstance(failed.error, Broken)
    reason = dict(failed.messages[0].headers)["reason"].decode()
    assert reason.startswith("toy failed: Broken: cannot take 1 (observe, line")
    assert after.error is None and toy(partition).seen == {"StepBatch": [0, 2]}


def test_a_job_on_a_foreign_partition_is_refused_with_the_remedy() -> None:
    job_id = next(name for name in "abcdef" if partition_of(name, 2) == 1)
    partition = Partition(PROCESSOR, 0, 2)
    partition.restore(read("toy", 0, []), EMPTY)
    (outcome,) = feed(partition, steps(job_id, 0))
    assert b"murmur2" in dict(outcome.messages[0].headers)["reason"]


def test_no_job_can_pass_for_a_cursor() -> None:
    (outcome,) = feed(fresh(), steps("cursor/0", 0))
    assert outcome.messages[0].topic is TopicName.DEAD_LETTERS


def test_a_snapshot_holds_what_changed_only() -> None:
    partition = fresh()
    feed(partition, steps("a", 0), steps("b", 0))
    assert set(partition.snapshot().states) == {"a", "b"}
    feed(partition, steps("b", 1))
    assert set(partition.snapshot().states) == {"b"}
    assert not partition.changed


def test_what_was_not_saved_is_in_the_next_snapshot() -> None:
    partition = fresh()
    feed(partition, steps("a", 0), job("b"))
    partition.snapshot()
    feed(partition, buried("b"))
    lost = partition.snapshot()
    assert lost.states["b"].value is None
    partition.not_saved(lost)
    assert partition.changed and set(partition.snapshot().states) == {"b"}


def test_a_restored_partition_goes_on_where_the_saved_one_stood() -> None:
    first = fresh()
    feed(first, job("a"), steps("a", 0), metric("a", 0), at_ms=7)
    second = restored(stored(first))
    assert second.positions == first.positions and second.now_ns == 7_000_000
    assert toy(second).seen == toy(first).seen


def test_a_state_ahead_of_the_cursor_passes_over_what_it_holds() -> None:
    first = fresh()
    feed(first, steps("a", 0), steps("b", 0))
    log = stored(first)
    feed(first, steps("a", 1), steps("b", 1))
    states = list(first.snapshot().states.items())
    log += [received(wire, 9) for job_id, wire in states if job_id == "a"]  # then it was killed
    second = restored(log)
    assert second.positions[TopicName.STEPS] == 2
    feed(second, steps("a", 1), steps("b", 1))
    assert toy(second, "a").seen == toy(second, "b").seen == {"StepBatch": [0, 1]}


def test_a_state_that_an_overtaken_worker_wrote_late_is_replayed_from_its_own_offset() -> None:
    overtaken = fresh()
    feed(overtaken, steps("a", 0), steps("b", 0))
    late = overtaken.snapshot()
    owner = fresh()
    feed(owner, steps("a", 0), steps("b", 0), steps("a", 1), steps("b", 1))
    log = [*stored(owner), received(late.states["a"], 9)]
    third = restored(log)
    assert third.positions[TopicName.STEPS] == 1
    feed(third, steps("b", 0), steps("a", 1), steps("b", 1))
    assert toy(third, "a").seen == toy(third, "b").seen == {"StepBatch": [0, 1]}


def test_states_of_other_detectors_are_none_of_our_business() -> None:
    first = fresh()
    feed(first, steps("a", 0))
    log = stored(first)
    assert read("to", 0, log).jobs == {} and read("falcon", 0, log).cursor.offsets == {}


def test_an_unreadable_state_starts_its_job_anew_and_is_told() -> None:
    first = fresh()
    feed(first, steps("a", 0), steps("b", 0))
    log = stored(first)
    for spoiled in (b"\xc1", log[0].value[:-2]):  # type: ignore[index]
        bad = Message(log[0].topic, 0, 9, 0, log[0].key, spoiled, {})
        partition = Partition(PROCESSOR, 0, PARTITIONS)
        (trouble,) = partition.restore(read("toy", 0, [*log, bad]), NOWHERE)
        assert "'a'" in trouble and partition.jobs == 1


def test_a_state_of_another_version_starts_its_job_anew_at_its_offsets() -> None:
    class Newer(Toy):
        def restore(self, state: bytes) -> None:
            raise ValueError("version 1")

    first = fresh()
    feed(first, steps("a", 0))
    partition = Partition(Processor(name="toy", inputs=INPUTS, make=Newer), 0, PARTITIONS)
    (trouble,) = partition.restore(read("toy", 0, stored(first)), NOWHERE)
    assert "version 1" in trouble
    feed(partition, steps("a", 1))
    assert toy(partition).seen == {"StepBatch": [1]}


def test_what_fell_out_of_retention_is_counted_and_what_was_compacted_is_not() -> None:
    partition = fresh()
    assert partition.retained(TopicName.STEPS, 5) == 5
    assert partition.retained(TopicName.JOBS, 5) == 0
    assert partition.retained(TopicName.STEPS, 5) == 0
    assert partition.positions[TopicName.STEPS] == partition.positions[TopicName.JOBS] == 5


def test_the_first_start_begins_at_the_logs_first_record() -> None:
    partition = Partition(PROCESSOR, 0, PARTITIONS)
    partition.restore(read("toy", 0, []), {topic: (3, 9) for topic in INPUTS})
    assert set(partition.positions.values()) == {3}


def test_a_log_made_anew_is_told_and_read_from_its_end() -> None:
    first = fresh()
    feed(first, steps("a", 0), steps("a", 1), steps("a", 2))
    partition = Partition(PROCESSOR, 0, PARTITIONS)
    bounds = {topic: (0, 1) for topic in INPUTS}
    (trouble,) = partition.restore(read("toy", 0, stored(first)), bounds)
    assert "made anew" in trouble
    feed(partition, steps("a", 3))
    assert toy(partition).seen["StepBatch"] == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("state", "kept_ns"),
    [(JobState.FINISHED, ENDED_KEPT_NS), (JobState.RUNNING, SILENT_KEPT_NS)],
)
def test_a_job_silent_for_long_is_forgotten(state: JobState, kept_ns: int) -> None:
    partition = restored(stored(with_job(state)))  # that it ended outlives a restart
    feed(partition, steps("b", 0), at_ms=kept_ns // 1_000_000)
    assert partition.snapshot().states.keys() == {"b"}
    feed(partition, steps("b", 1), at_ms=kept_ns // 1_000_000 + 1)
    states = partition.snapshot().states
    assert states["a"].value is None and partition.detector("a") is None


def with_job(state: JobState) -> Partition:
    partition = fresh()
    feed(partition, job("a", state=state), steps("a", 0))
    return partition


def test_a_job_that_comes_back_after_that_time_starts_anew_whenever_snapshots_fell() -> None:
    for saved_between in (True, False):
        partition = with_job(JobState.FINISHED)
        feed(partition, steps("b", 0), at_ms=ENDED_KEPT_NS // 1_000_000 + 1)
        if saved_between:
            partition.snapshot()
        feed(partition, steps("a", 1), at_ms=ENDED_KEPT_NS // 1_000_000 + 2)
        assert toy(partition).seen == {"StepBatch": [1]}


def test_a_tombstone_forgets_the_job_and_is_no_dead_letter() -> None:
    partition = fresh()
    *_, outcome = feed(partition, job("a"), steps("a", 0), buried("a"))
    assert outcome.messages == [] and partition.detector("a") is None
    assert partition.snapshot().states["a"].value is None


def test_a_tombstone_read_again_does_not_bury_the_next_run() -> None:
    first = fresh()
    feed(first, job("a"))
    log = stored(first)
    feed(first, buried("a"), job("a", generation=1))
    log += [received(wire, 9) for wire in first.snapshot().states.values()]  # no cursor: killed
    second = restored(log)
    feed(second, buried("a"), job("a", generation=1))
    assert toy(second).seen == {"Job": [1]}

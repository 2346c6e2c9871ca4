"""The wire is a promise: bytes of yesterday are read tomorrow, and impossible values are refused."""

import json
from pathlib import Path
from typing import Any, get_args, get_origin

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lineside.contracts import (
    TOPICS,
    CloudEvent,
    ContractError,
    InvalidRecord,
    Mesh,
    MetricBatch,
    MicroBatchLimits,
    Series,
    StepBatch,
    TopicName,
    UndecodableRecord,
    columns,
    dead_letter,
    decode,
    encode,
    from_plain,
    pack,
    partition_of,
    to_plain,
)
from lineside.contracts.codec import job_of
from lineside.contracts.columns import column_specs
from lineside.contracts.document import markdown

from .examples import EXAMPLES, JOB, METRICS, SENDER, STEPS

GOLDEN = json.loads(Path(__file__).with_name("golden.json").read_text())
ROOT = Path(__file__).parents[2]


def wire(name: str) -> tuple[TopicName, Any, Any]:
    topic, record = EXAMPLES[name]
    if topic is TopicName.DETECTOR_STATE:
        return topic, record, encode(topic, record, 12, key="falcon/gpt", partition=3)
    return topic, record, encode(topic, record, 12)


@pytest.mark.parametrize("name", EXAMPLES)
def test_golden_bytes(name: str) -> None:
    topic, record, message = wire(name)
    golden = bytes.fromhex(GOLDEN[name])
    assert message.value == golden
    assert decode(topic, golden, dict(message.headers)) == record


def test_every_topic_has_golden_bytes_and_every_golden_is_an_example() -> None:
    covered = {topic for topic, _ in EXAMPLES.values()}
    assert covered == set(TopicName) - {TopicName.DEAD_LETTERS}
    assert set(GOLDEN) == set(EXAMPLES)


def extended(kind: Any) -> Any:
    """``kind`` as a later version would be: one more field at the end, with a default."""
    if get_origin(kind) is CloudEvent:
        return CloudEvent[extended(get_args(kind)[0])]  # type: ignore[misc]
    config = kind.__struct_config__
    return msgspec.defstruct(
        kind.__name__,
        [("added_later", int, 7)],
        bases=(kind,),
        frozen=True,
        kw_only=not config.array_like,
        array_like=config.array_like,
        tag=config.tag,
    )


@pytest.mark.parametrize("name", EXAMPLES)
def test_additive_change_is_read_both_ways(name: str) -> None:
    topic, record, message = wire(name)
    module = msgspec.msgpack if TOPICS[topic].content_type.endswith("msgpack") else msgspec.json
    newer = extended(TOPICS[topic].type)
    read_by_newer = module.decode(message.value, type=newer)
    inner = read_by_newer.data if isinstance(record, CloudEvent) else read_by_newer
    assert inner.added_later == 7  # new reader, old writer: the default
    assert decode(topic, module.encode(read_by_newer)) == record  # old reader, new writer: skipped


@pytest.mark.parametrize("name", EXAMPLES)
def test_plain_form_round_trips_through_json(name: str) -> None:
    topic, record, _ = wire(name)
    assert from_plain(topic, json.loads(json.dumps(to_plain(record)))) == record


@pytest.mark.parametrize("name", EXAMPLES)
def test_truncated_and_foreign_bytes_are_refused(name: str) -> None:
    topic, _, message = wire(name)
    for cut in range(0, len(message.value) - 1, 7):
        with pytest.raises(ContractError):
            decode(topic, message.value[:cut])
    for foreign in (b"", b"\xff\xfe", b"null", b"[]", b"{}", b"\xc0", b"hello", None):
        with pytest.raises(ContractError):
            decode(topic, foreign)
    with pytest.raises(UndecodableRecord, match=r"schema is 'steps\.9'"):
        decode(topic, message.value, {"schema": b"steps.9"})


@given(st.binary(max_size=200), st.sampled_from([t for t in TopicName if t != "dead-letters.v1"]))
def test_no_bytes_make_decode_crash(data: bytes, topic: TopicName) -> None:
    try:
        decode(topic, data)
    except ContractError:
        pass


def step_batch(**changed: Any) -> StepBatch:
    plain = to_plain(STEPS)
    return from_plain(TopicName.STEPS, plain | changed)  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"step_s": [-0.5, 0.5]}, "step_s holds -0.5, below 0"),
        ({"compute_s": [0.5, float("inf")]}, "compute_s holds an infinity"),
        ({"rank": [0]}, "step has 2 rows, rank has 1"),
        ({"rank": [-1, 0]}, "rank holds -1, below 0"),
        ({"tokens": [-2, 0]}, "tokens holds -2, below -1"),
        ({"phase": [300, 0]}, "300"),
        ({"rank": ["a", "b"]}, "invalid literal"),
    ],
)
def test_impossible_values_are_refused(changed: dict[str, Any], reason: str) -> None:
    with pytest.raises(InvalidRecord, match=reason):
        step_batch(**changed)


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"mesh": Mesh(["dp", "dp"], [2, 2])}, "names an axis twice"),
        ({"mesh": Mesh(["dp"], [1 << 40])}, "more than 1048576"),
        ({"mesh": Mesh(["dp"], [2, 2])}, "differ in length"),
        ({"micro_batch_limits": MicroBatchLimits(multiple=0)}, "micro_batch_limits are impossible"),
        ({"rebalance_units": [[0, 9]]}, "a replica twice, or one of"),
        ({"rebalance_units": [[0, 1], [1]]}, "a replica twice, or one of"),
    ],
)
def test_a_job_that_contradicts_itself_is_refused(changed: dict[str, Any], reason: str) -> None:
    job = msgspec.structs.replace(JOB, **changed)
    with pytest.raises(InvalidRecord, match=reason):
        decode(TopicName.JOBS, encode(TopicName.JOBS, job, 12).value)


def test_unknown_is_nan_and_allowed() -> None:
    batch = step_batch(step_s=[None, 0.5])
    assert np.isnan(columns(batch)["step_s"][0])


def test_a_metric_matrix_must_fill_its_rows() -> None:
    with pytest.raises(InvalidRecord, match="3 values do not fill rows of 2 series"):
        pack(
            MetricBatch,
            SENDER
            | {
                "start_ns": 0,
                "interval_s": 1.0,
                "series": [Series("a"), Series("b")],
                "values": [1.0, 2.0, 3.0],
            },
        )
    assert METRICS.matrix().shape == (2, 2)


@given(
    st.integers(0, 50).flatmap(
        lambda n: st.fixed_dictionaries(
            {
                name: st.lists(
                    st.just(float("nan")) | st.floats(0, 1e6, width=32)
                    if spec.dtype == "<f4"
                    else st.integers(0, 200),
                    min_size=n,
                    max_size=n,
                )
                for name, spec in column_specs(StepBatch).items()
            }
        )
    )
)
def test_any_valid_batch_round_trips(values: dict[str, Any]) -> None:
    batch = pack(StepBatch, SENDER | values)
    assert decode(TopicName.STEPS, encode(TopicName.STEPS, batch, 12).value) == batch
    assert from_plain(TopicName.STEPS, json.loads(json.dumps(to_plain(batch)))) == batch


@given(st.text(min_size=1), st.integers(1, 64))
def test_all_topics_of_a_job_share_a_partition(job: str, partitions: int) -> None:
    assert 0 <= partition_of(job, partitions) < partitions


def test_messages_go_to_their_jobs_partition() -> None:
    for name in EXAMPLES:
        topic, record, message = wire(name)
        if topic is not TopicName.DETECTOR_STATE:
            assert message.partition == partition_of(job_of(record), 12)
            assert message.key.startswith(b"gpt")


def test_a_dead_letter_keeps_bytes_partition_and_reason() -> None:
    letter = dead_letter(
        service="falcon",
        reason="why",
        topic="steps.v1",
        partition=3,
        offset=9,
        key=None,
        value=b"\x00",
    )
    assert (letter.partition, letter.value) == (3, b"\x00")
    assert dict(letter.headers) == {
        "service": b"falcon",
        "reason": b"why",
        "source-topic": b"steps.v1",
        "source-partition": b"3",
        "source-offset": b"9",
    }


def test_the_page_is_generated_from_the_types() -> None:
    assert (ROOT / "docs" / "contracts.md").read_text() == markdown(), "run `make docs`"

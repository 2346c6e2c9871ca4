"""Between typed records and bytes: encode, decode, and the plain form that people keep and read.

``decode`` is the only door for foreign bytes: it checks the schema header, the type and the values, and
raises a ``ContractError`` whose text can stand in a dead letter.
"""

import functools
from typing import Any

import msgspec

from lineside.contracts.columns import (
    TelemetryBatch,
    column_specs,
    invalid_reason,
    packed_column,
    plain_column,
    unpack,
)
from lineside.contracts.errors import InvalidRecord, UndecodableRecord
from lineside.contracts.faults import CloudEvent
from lineside.contracts.identity import partition_of
from lineside.contracts.machine_metrics import MetricBatch
from lineside.contracts.members import Member
from lineside.contracts.topics import MSGPACK, TOPICS, Topic, TopicName

Decoded = Any
"""One of the Struct types of the topics table."""


class WireMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A record ready to be sent; the topic has no prefix yet. A ``value`` of None deletes the key."""

    topic: TopicName
    partition: int
    key: bytes
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...]


@functools.cache
def _decoder(name: TopicName) -> Any:
    topic = TOPICS[name]
    module = msgspec.msgpack if topic.content_type == MSGPACK else msgspec.json
    return module.Decoder(topic.type)


_msgpack = msgspec.msgpack.Encoder()
_json = msgspec.json.Encoder()


def job_of(record: Decoded) -> str:
    """The job that ``record`` belongs to."""
    return record.subject if isinstance(record, CloudEvent) else record.job_id


def key_of(record: Decoded) -> str:
    """The record's key: its job, or longer where compaction needs it."""
    if isinstance(record, Member):
        return f"{record.job_id}/{record.machine_id}"
    return job_of(record)


def encode(
    name: TopicName,
    record: Decoded,
    partitions: int,
    *,
    key: str | None = None,
    partition: int | None = None,
) -> WireMessage:
    """``record`` as bytes for topic ``name``, on its job's partition out of ``partitions``.

    ``key`` and ``partition`` are given only where the record does not say its job itself (detector state).
    """
    topic = TOPICS[name]
    value = (_msgpack if topic.content_type == MSGPACK else _json).encode(record)
    return WireMessage(
        topic=name,
        partition=partition_of(job_of(record), partitions) if partition is None else partition,
        key=(key_of(record) if key is None else key).encode(),
        value=value,
        headers=headers_of(topic),
    )


def headers_of(topic: Topic) -> tuple[tuple[str, bytes], ...]:
    return (("content-type", topic.content_type.encode()), ("schema", topic.schema.encode()))


def decode(
    name: TopicName, value: bytes | None, headers: dict[str, bytes] | None = None
) -> Decoded:
    """The typed record in ``value``. Raises ``UndecodableRecord`` or ``InvalidRecord``.

    A missing schema header is accepted (people publish with plain tools); one of another type is not.
    """
    if value is None:
        raise UndecodableRecord("the record has no value")
    expected = TOPICS[name].schema.encode()
    if headers and headers.get("schema", expected) != expected:
        raise UndecodableRecord(
            f"schema is {headers['schema'].decode(errors='replace')!r}, "
            f"{name} carries {expected.decode()!r}"
        )
    try:
        record = _decoder(name).decode(value)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise UndecodableRecord(str(error)) from error
    checked = record.data if isinstance(record, CloudEvent) else record
    if reason := invalid_reason(checked):
        raise InvalidRecord(reason)
    return record


def to_plain(record: Decoded) -> dict[str, Any]:
    """The record by field names, columns as lists (None for NaN), metric values as rows.

    >>> from lineside.contracts import Series, pack
    >>> batch = pack(MetricBatch, dict(job_id="j", run_id="r", generation=0, machine_id="m",
    ...     incarnation="i", sequence=0, dropped=0, sent_ns=0, clock_offset_ns=-1, clock_error_ns=-1,
    ...     start_ns=0, interval_s=1.0, series=[Series("a"), Series("b")], values=[1, 2, float("nan"), 4]))
    >>> to_plain(batch)["values"]
    [[1.0, 2.0], [None, 4.0]]
    """
    if not isinstance(record, TelemetryBatch):
        return _by_name(record)  # type: ignore[no-any-return]
    specs = column_specs(type(record))
    plain = {}
    for name in record.__struct_fields__:
        value = getattr(record, name)
        if isinstance(record, MetricBatch) and name == "values":
            plain[name] = [plain_column(row) for row in record.matrix()]
        elif name in specs:
            plain[name] = plain_column(unpack(type(record), name, value))
        else:
            plain[name] = _by_name(value)
    return plain


def _by_name(value: Any) -> Any:
    """Array-like Structs as dictionaries, so that a recording can be read without this code."""
    if isinstance(value, msgspec.Struct):
        return {name: _by_name(getattr(value, name)) for name in value.__struct_fields__}
    if isinstance(value, list | tuple):
        return [_by_name(item) for item in value]
    return msgspec.to_builtins(value)


def from_plain(name: TopicName, plain: dict[str, Any]) -> Decoded:
    """The reverse of ``to_plain``. Raises ``UndecodableRecord`` or ``InvalidRecord``."""
    kind = TOPICS[name].type
    try:
        if TOPICS[name].content_type == MSGPACK:  # all of these are array-like
            record = _array_like_from_plain(kind, plain)
        else:
            record = msgspec.convert(plain, kind, strict=True)
    except (msgspec.ValidationError, TypeError, KeyError, AttributeError) as error:
        raise UndecodableRecord(str(error)) from error
    checked = record.data if isinstance(record, CloudEvent) else record
    if reason := invalid_reason(checked):
        raise InvalidRecord(reason)
    return record


def _array_like_from_plain(kind: type[msgspec.Struct], plain: dict[str, Any]) -> msgspec.Struct:
    """By field names back to wire order; trailing fields that are missing take their defaults."""
    specs = column_specs(kind)
    values: list[Any] = []
    required = len(kind.__struct_fields__) - len(kind.__struct_defaults__)
    for index, name in enumerate(kind.__struct_fields__):
        if name not in plain:
            if index < required:
                raise UndecodableRecord(f"field {name!r} is missing")
            break
        value = plain[name]
        if name in specs:
            if name == "values" and kind is MetricBatch:
                value = [cell for row in value for cell in row]
            value = packed_column(specs[name], value)
        values.append(_positional(kind, name, value))
    tag = kind.__struct_config__.tag  # every array-like type has one
    return msgspec.convert([tag, *values], kind)


def _positional(kind: type[msgspec.Struct], name: str, value: Any) -> Any:
    """Rows of array-like Structs back from dictionaries to wire order."""
    row_type = _row_type(kind, name)
    if row_type is None or not isinstance(value, list):
        return value
    return [[row[field] for field in row_type.__struct_fields__ if field in row] for row in value]


@functools.cache
def _row_type(kind: type[msgspec.Struct], name: str) -> Any:
    for field in msgspec.structs.fields(kind):
        if field.name == name:
            item = getattr(field.type, "__args__", (None,))[0]
            if isinstance(item, type) and issubclass(item, msgspec.Struct):
                return item if item.__struct_config__.array_like else None
    return None

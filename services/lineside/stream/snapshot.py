"""Snapshots as they stand on ``detector-state.v1``: one record per job, then the partition's cursor.

A state that is too large for one record (about 1 kB a rank for FALCON, so jobs of thousands of ranks) is
cut into parts, sent and acknowledged before the job's record, which says how many there are and their
checksum. The checksum is in the parts' keys, so no set is ever written over by another, be it half written
or by a worker that was overtaken; parts that no record speaks of any more are removed with the next snapshot.

The cursor is sent only after the states it speaks of are acknowledged. It lists their offsets, because a
worker that was overtaken (stopped for longer than its session, then woken) may still write a state that is
older than the one the cursor relies on; the reader then starts that much earlier instead of losing what
lies between.
"""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import msgspec

from lineside.bus import Message
from lineside.contracts import (
    TOPICS,
    ContractError,
    DetectorState,
    TopicName,
    WireMessage,
    decode,
    encode,
)

CURSOR = "cursor"
PART = "part"
RESERVED = (f"{CURSOR}/", f"{PART}/")
"""A job_id must not start so: these are keys of our own."""
PART_BYTES = TOPICS[TopicName.DETECTOR_STATE].max_bytes - 64 * 1024
"""A record's worth of state, with room for keys and headers."""
_WHOLE, _IN_PARTS = b"\x00", b"\x01"  # the first byte of a job record's ``state``


class _Relied(msgspec.Struct, frozen=True, array_like=True):
    """What a cursor's ``state`` holds: each job's offsets when it was written, and the jobs that ended."""

    jobs: dict[str, dict[str, int]]
    ended: list[str]


class _Parts(msgspec.Struct, frozen=True, array_like=True):
    """What a job's record holds instead of its state where that is in parts."""

    count: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Messages to send: by job, the ``parts`` of large states (a tombstone for those no longer needed), then
    ``states`` (a tombstone where the job is forgotten), then ``cursor``; each kind only after the one before
    is acknowledged."""

    partition: int
    states: dict[str, WireMessage]
    cursor: WireMessage
    parts: dict[str, list[WireMessage]] = field(default_factory=dict)

    def part_keys(self, job_id: str) -> set[bytes]:
        """Keys of the parts that this snapshot's record of ``job_id`` speaks of."""
        return {message.key for message in self.parts.get(job_id, ()) if message.value is not None}

    @property
    def size(self) -> int:
        """Bytes, without keys and headers."""
        parts = (message for messages in self.parts.values() for message in messages)
        messages = (*parts, *self.states.values(), self.cursor)
        return sum(len(message.value or b"") for message in messages)


@dataclass(frozen=True, slots=True)
class Stored:
    """What the state topic holds of one detector and partition."""

    jobs: dict[str, DetectorState]
    cursor: DetectorState
    relied: Mapping[str, Mapping[str, int]]
    ended: frozenset[str]
    troubles: list[str]
    parts: Mapping[str, set[bytes]]
    """Keys of all parts there are of a job's states, old ones too."""

    def start(self, topic: TopicName) -> int | None:
        """The first offset of ``topic`` to read again; None where nothing was ever saved."""
        start = self.cursor.offsets.get(topic)
        if start is None:
            return None
        for job_id, offsets in self.relied.items():
            state, relied = self.jobs.get(job_id), offsets.get(topic, 0)
            if state and state.offsets.get(topic, 0) < relied:
                start = min(start, state.offsets.get(topic, 0))
        return start


def read(name: str, partition: int, records: Iterable[Message]) -> Stored:
    """The newest state of each key of detector ``name`` among ``records``, oldest first.

    What cannot be read counts as absent and is told in ``troubles``: without its state a job starts anew,
    without the cursor the log is read from its start, which is slow but right.
    """
    mine = f"{name}/".encode()
    newest = {
        record.key[len(mine) :].decode(errors="replace"): record
        for record in records
        if record.key and record.key.startswith(mine)
    }
    states: dict[str, DetectorState] = {}
    parts: dict[str, set[bytes]] = {}
    troubles: list[str] = []
    cursor, relied = DetectorState(offsets={}), _Relied({}, [])
    for key, record in newest.items():
        if record.value is None:
            continue
        if key.startswith(f"{PART}/"):
            job_id = key.split("/", 3)[-1]
            parts.setdefault(job_id, set()).add(mine + key.encode())
            continue
        try:
            state: DetectorState = decode(record.topic, record.value, record.headers)
            if key == f"{CURSOR}/{partition}":
                relied = msgspec.msgpack.decode(state.state, type=_Relied)
                cursor = state
            elif state.state.startswith(_IN_PARTS):
                wanted = msgspec.msgpack.decode(state.state[1:], type=_Parts)
                whole = _joined(key, wanted, newest)
                states[key] = msgspec.structs.replace(state, state=whole)
            else:
                states[key] = msgspec.structs.replace(state, state=state.state[1:])
        except (ContractError, msgspec.MsgspecError) as error:
            troubles.append(f"the saved state {key!r} of {name} cannot be read: {error}")
    return Stored(states, cursor, relied.jobs, frozenset(relied.ended), troubles, parts)


def _joined(job_id: str, parts: _Parts, newest: Mapping[str, Message]) -> bytes:
    keys = [_part_key(job_id, parts.sha256, number) for number in range(parts.count)]
    records = (newest.get(key) for key in keys)
    whole = b"".join((record and record.value) or b"" for record in records)
    if hashlib.sha256(whole).hexdigest() != parts.sha256:
        raise ContractError(f"not all of its {parts.count} parts are there")
    return whole


def _part_key(job_id: str, sha256: str, number: int) -> str:
    return f"{PART}/{sha256[:16]}/{number}/{job_id}"


def in_parts(
    name: str, partition: int, job_id: str, state: bytes, part_bytes: int = PART_BYTES
) -> tuple[list[WireMessage], bytes]:
    """The parts to send before the job's record, and what stands in the record itself: where ``state`` is
    small, all of it, and there are no parts."""
    if len(state) < part_bytes:
        return [], _WHOLE + state
    sha256 = hashlib.sha256(state).hexdigest()
    pieces = [state[at : at + part_bytes] for at in range(0, len(state), part_bytes)]
    keys = [f"{name}/{_part_key(job_id, sha256, number)}".encode() for number in range(len(pieces))]
    messages = [_raw(partition, key, piece) for key, piece in zip(keys, pieces, strict=True)]
    return messages, _IN_PARTS + msgspec.msgpack.encode(_Parts(len(pieces), sha256))


def removals(partition: int, keys: Iterable[bytes]) -> list[WireMessage]:
    """Tombstones for parts that no record speaks of."""
    return [_raw(partition, key, None) for key in sorted(keys)]


def job_message(
    name: str,
    partition: int,
    job_id: str,
    offsets: Mapping[TopicName, int],
    now_ns: int,
    state: bytes,
) -> WireMessage:
    record = DetectorState(offsets=_plain(offsets), state=state, now_ns=now_ns)
    return _message(name, partition, job_id, record)


def tombstone(name: str, partition: int, job_id: str) -> WireMessage:
    """Forgets the state of ``job_id``."""
    return _raw(partition, f"{name}/{job_id}".encode(), None)


def cursor_message(
    name: str,
    partition: int,
    positions: Mapping[TopicName, int],
    now_ns: int,
    *,
    jobs: Mapping[str, Mapping[TopicName, int]],
    ended: list[str],
) -> WireMessage:
    relied = _Relied({job_id: _plain(offsets) for job_id, offsets in jobs.items()}, ended)
    record = DetectorState(
        offsets=_plain(positions), state=msgspec.msgpack.encode(relied), now_ns=now_ns
    )
    return _message(name, partition, f"{CURSOR}/{partition}", record)


def _plain(offsets: Mapping[TopicName, int]) -> dict[str, int]:
    return {topic.value: offset for topic, offset in offsets.items()}


def _message(name: str, partition: int, key: str, record: DetectorState) -> WireMessage:
    return encode(TopicName.DETECTOR_STATE, record, 0, key=f"{name}/{key}", partition=partition)


def _raw(partition: int, key: bytes, value: bytes | None) -> WireMessage:
    return WireMessage(
        topic=TopicName.DETECTOR_STATE, partition=partition, key=key, value=value, headers=()
    )

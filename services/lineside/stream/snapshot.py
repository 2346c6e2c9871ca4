"""Snapshots as they stand on ``detector-state.v1``: one record per job, then the partition's cursor.

The cursor is sent only after the states it speaks of are acknowledged. It lists their offsets, because a
worker that was overtaken (stopped for longer than its session, then woken) may still write a state that is
older than the one the cursor relies on; the reader then starts that much earlier instead of losing what
lies between.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import msgspec

from lineside.bus import Message
from lineside.contracts import (
    ContractError,
    DetectorState,
    TopicName,
    WireMessage,
    decode,
    encode,
)

CURSOR = "cursor"


class _Relied(msgspec.Struct, frozen=True, array_like=True):
    """What a cursor's ``state`` holds: each job's offsets when it was written, and the jobs that ended."""

    jobs: dict[str, dict[str, int]]
    ended: list[str]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Messages to send: ``states`` by job (a tombstone where the job is forgotten), then ``cursor``."""

    partition: int
    states: dict[str, WireMessage]
    cursor: WireMessage

    @property
    def size(self) -> int:
        """Bytes, without keys and headers."""
        return sum(len(m.value or b"") for m in (*self.states.values(), self.cursor))


@dataclass(frozen=True, slots=True)
class Stored:
    """What the state topic holds of one detector and partition."""

    jobs: dict[str, DetectorState]
    cursor: DetectorState
    relied: Mapping[str, Mapping[str, int]]
    ended: frozenset[str]
    troubles: list[str]

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
    troubles: list[str] = []
    cursor, relied = DetectorState(offsets={}), _Relied({}, [])
    for key, record in newest.items():
        if record.value is None:
            continue
        try:
            state = decode(record.topic, record.value, record.headers)
            if key == f"{CURSOR}/{partition}":
                relied = msgspec.msgpack.decode(state.state, type=_Relied)
                cursor = state
            else:
                states[key] = state
        except (ContractError, msgspec.MsgspecError) as error:
            troubles.append(f"the saved state {key!r} of {name} cannot be read: {error}")
    return Stored(states, cursor, relied.jobs, frozenset(relied.ended), troubles)


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
    return WireMessage(
        topic=TopicName.DETECTOR_STATE,
        partition=partition,
        key=f"{name}/{job_id}".encode(),
        value=None,
        headers=(),
    )


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

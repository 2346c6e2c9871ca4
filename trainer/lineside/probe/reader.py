"""Reading a rank's probe file from outside, while it is written, and without trusting it.

The file is read with ``pread``, never mapped: a rank that truncates its file would kill a mapping reader
with SIGBUS. No symbolic link is followed; owner, kind and every offset are checked before use. What was
torn or overwritten is told apart from what is there, and counted.
"""

import os
import stat
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from lineside.contracts import Declaration
from lineside.probe.layout import (
    COUNTERS,
    GROUP_BYTES,
    GROUP_FIELDS,
    HEADER,
    LIVE_BODY,
    LIVE_FIELDS,
    MAGIC,
    RECORD,
    RECORD_FIELDS,
    STATUS,
    VERSION,
    Layout,
)

_MAX_SIZE = 64 * 1024 * 1024
_COUNTERS = struct.Struct("<qqq")
_COUNTER = struct.Struct("<q")
_LIVE = struct.Struct(f"<{len(LIVE_FIELDS)}q")
RECORD_TYPE = np.dtype(list(RECORD_FIELDS))
GROUP_TYPE = np.dtype(
    [
        ("name_bytes", "<u2"),
        ("timing", "u1"),
        ("graph_captured", "u1"),
        ("unused", "<u4"),
        ("name", "S40"),
        ("begin", "<i8"),
        *[(name, "<i8") for name in GROUP_FIELDS],
        ("end", "<i8"),
    ]
)


class BadProbeFile(Exception):
    """A file that is no probe file of ours, or is broken."""


@dataclass(frozen=True, slots=True)
class Live:
    """What the rank is doing; see ``layout.LIVE_FIELDS``."""

    step: int
    kind: int
    phase: int
    phase_since_ns: int
    updated_ns: int
    revision: int
    steps: int


@dataclass(frozen=True, slots=True)
class Status:
    """What became of plans on this rank; revisions are -1 where there is none."""

    applied_revision: int
    applied_step: int
    applied_ns: int
    rejected_revision: int
    rejected_ns: int
    reason: str


class ProbeReader:
    """One open probe file. Raises ``BadProbeFile`` or FileNotFoundError when opened.

    All times are the writer's CLOCK_MONOTONIC.
    """

    def __init__(self, path: Path, owner: int | None = None) -> None:
        try:
            self._fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except FileNotFoundError:
            raise
        except OSError as error:
            raise BadProbeFile(f"{path.name}: {error.strerror}") from error
        self._next = 0
        self._declared: tuple[int, Declaration | None] = (0, None)
        try:
            self._check(path.name, os.getuid() if owner is None else owner)
        except BaseException:
            os.close(self._fd)
            raise

    def _check(self, name: str, owner: int) -> None:
        found = os.fstat(self._fd)
        if not stat.S_ISREG(found.st_mode):
            raise BadProbeFile(f"{name} is no regular file")
        if found.st_uid != owner:
            raise BadProbeFile(f"{name} belongs to user {found.st_uid}, not {owner}")
        if not HEADER.size <= found.st_size <= _MAX_SIZE:
            raise BadProbeFile(f"{name} has {found.st_size} bytes")
        magic, version, _, self.pid, self.rank, self.generation, self.created_ns, *shape = (
            HEADER.unpack(self._read(0, HEADER.size))
        )
        if magic != MAGIC or version != VERSION:
            raise BadProbeFile(f"{name} is no probe file of version {VERSION}")
        self._shape = Layout(*shape)
        if reason := _unusable(self._shape, found.st_size):
            raise BadProbeFile(f"{name}: {reason}")
        self.inode = found.st_ino

    def live(self) -> Live | None:
        """What the rank is doing now; None while it is being written (keep the one before)."""
        body = self._area(self._shape.live, LIVE_BODY)
        return Live(*_LIVE.unpack(body)) if body else None

    def status(self) -> Status | None:
        """What became of plans; None before the first word about one."""
        body = self._area(self._shape.status, STATUS.size)
        if not body:
            return None
        revision, step, at_ns, refused, refused_ns, length, text = STATUS.unpack(body)
        reason = text[: max(length, 0)].decode(errors="replace")
        return Status(revision, step, at_ns, refused, refused_ns, reason)

    def declaration(self) -> Declaration | None:
        """What the trainer declared. Raises ``BadProbeFile`` (once per text) where it breaks the contract."""
        at, capacity = self._shape.declaration, self._shape.declaration_bytes
        version = self._counter(at)
        if version != self._declared[0]:
            body = self._area(at, 8 + capacity)
            if body is None:
                return self._declared[1]
            self._declared = (version, None)
            length = min(max(_COUNTER.unpack_from(body)[0], 0), capacity)
            try:
                said = msgspec.json.decode(body[8 : 8 + length], type=Declaration)
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
                raise BadProbeFile(f"the declaration: {error}") from error
            self._declared = (version, said)
        return self._declared[1]

    def lost(self) -> int:
        """Records that the probe itself could not write, since its start."""
        return max(0, self._counters()[2])

    def steps(self) -> tuple[NDArray[Any], int]:
        """Records finished since the last call, in order, and how many were overwritten before."""
        slots, first = self._shape.ring_slots, self._next
        head = self._counters()[0]
        if head <= first:  # nothing new; a head that goes back is a broken file
            self._next = max(head, 0)
            return np.empty(0, RECORD_TYPE), 0
        start = max(first, head - slots)
        records = self._ring(start, head)
        oldest = self._counters()[0] - slots  # the slot of this one is being written again by now
        numbers = np.arange(start + 1, start + 1 + len(records))
        records = records[(records["seq"] == numbers) & (numbers > oldest + 1)]
        self._next = head
        return records, head - first - len(records)

    def groups(self) -> NDArray[Any]:
        """The progress of every group, as ``GROUP_TYPE``; one being written is left out this time."""
        used = min(max(self._counters()[1], 0), self._shape.group_slots)
        ends, bodies, begins = (self._table(used) for _ in range(3))
        rows = min(len(ends), len(bodies), len(begins))
        ends, bodies, begins = ends[:rows], bodies[:rows], begins[:rows]
        whole = (ends["end"] == begins["begin"]) & (bodies["name_bytes"] <= 40)
        return np.compress(whole, bodies)

    def close(self) -> None:
        os.close(self._fd)

    def _ring(self, start: int, stop: int) -> NDArray[Any]:
        slots, parts = self._shape.ring_slots, []
        while start < stop:
            slot = start % slots
            count = min(stop - start, slots - slot)
            parts.append(self._read(self._shape.ring + slot * RECORD.size, count * RECORD.size))
            start += count
        data = b"".join(parts)
        return np.frombuffer(data[: len(data) // RECORD.size * RECORD.size], RECORD_TYPE)

    def _table(self, used: int) -> NDArray[Any]:
        data = self._read(self._shape.groups, used * GROUP_BYTES)
        return np.frombuffer(data[: len(data) // GROUP_BYTES * GROUP_BYTES], GROUP_TYPE)

    def _area(self, at: int, size: int) -> bytes | None:
        """An area's body, or None where it was never written or is being written (three tries)."""
        for _ in range(3):
            end = self._counter(at + 8 + size)
            body = self._read(at + 8, size)
            if end > 0 and len(body) == size and self._counter(at) == end:
                return body
        return None

    def _counters(self) -> tuple[int, int, int]:
        data = self._read(COUNTERS, _COUNTERS.size)
        return _COUNTERS.unpack(data) if len(data) == _COUNTERS.size else (0, 0, 0)

    def _counter(self, at: int) -> int:
        data = self._read(at, 8)
        return int(_COUNTER.unpack(data)[0]) if len(data) == 8 else 0

    def _read(self, at: int, size: int) -> bytes:
        return os.pread(self._fd, size, at)


def _unusable(shape: Layout, size: int) -> str | None:
    """Why a header's layout cannot be used, or None."""
    if (shape.record_bytes, shape.group_bytes) != (RECORD.size, GROUP_BYTES):
        return "records or group slots have an unknown size"
    if shape.reason_bytes != 256 or not 1 <= shape.ring_slots <= 1 << 18:
        return "the ring or the plan status has an impossible size"
    ends = (
        (shape.live, 16 + LIVE_BODY),
        (shape.status, 16 + STATUS.size),
        (shape.declaration, 24 + shape.declaration_bytes),
        (shape.groups, shape.group_slots * shape.group_bytes),
        (shape.ring, shape.ring_slots * shape.record_bytes),
    )
    if any(at % 8 or at < COUNTERS or at + length > size for at, length in ends):
        return "an area lies outside the file"
    return None

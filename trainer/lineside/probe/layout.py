"""Where everything stands in a probe file, version 1. ``docs/probe-file.md`` says the same in words.

Little-endian throughout; times are CLOCK_MONOTONIC nanoseconds, which all processes of a machine share.

An *area* is ``begin counter | body | end counter``. The single writer raises begin, writes the body, then
sets end to the same value; a reader takes end first, then the body, then begin, and believes the body only
if both are equal. (``struct.pack_into`` zeroes its target first and so cannot write a counter: counters
are single aligned 8-byte stores through a memoryview.)
"""

import struct
from dataclasses import dataclass
from enum import IntEnum

from lineside.contracts import Op

MAGIC = b"LSPROBE\n"
VERSION = 1

HEADER = struct.Struct("<8sIIiIqqIIIIIIIIIIII")
"""magic, version, header bytes, pid, rank, generation, created_ns, then ``Layout`` in its order."""

COUNTERS = 256
"""Three i64: step records ever written, group slots in use, records the probe itself lost."""

PAGE = 4096


@dataclass(frozen=True, slots=True)
class Layout:
    """Offsets and sizes in bytes, counts where named ``slots``. ``size`` is the whole file's."""

    size: int
    live: int
    status: int
    declaration: int
    declaration_bytes: int
    groups: int
    group_bytes: int
    group_slots: int
    ring: int
    record_bytes: int
    ring_slots: int
    reason_bytes: int


class LivePhase(IntEnum):
    """What a rank is doing. From ``STEP`` on it is inside a step or in a named phase."""

    STARTUP = 0
    IDLE = 1
    STEP = 2
    DATA = 3
    COMPUTE = 4
    COMM = 5
    WAIT = 6
    CHECKPOINT = 7
    EVAL = 8
    COMPILE = 9


LIVE_FIELDS = ("step", "kind", "phase", "phase_since_ns", "updated_ns", "revision", "steps")
"""i64 each; ``kind`` is a contracts ``Phase``, ``phase`` a ``LivePhase``, ``steps`` a count."""
LIVE_BODY = 8 * len(LIVE_FIELDS)

STATUS = struct.Struct("<qqqqqq256s")
"""applied revision, step, at_ns; rejected revision, at_ns; reason's length; reason (UTF-8)."""

RECORD_FIELDS = (
    ("seq", "<i8"),
    ("step", "<i8"),
    ("start_ns", "<i8"),
    ("step_ns", "<i8"),
    ("compute_ns", "<i8"),
    ("comm_ns", "<i8"),
    ("exposed_comm_ns", "<i8"),
    ("wait_ns", "<i8"),
    ("data_ns", "<i8"),
    ("checkpoint_ns", "<i8"),
    ("other_ns", "<i8"),
    ("micro_batches", "<i4"),
    ("phase", "u1"),
    ("timing", "u1"),
    ("unused", "<u2"),
    ("tokens", "<i8"),
    ("loss", "<f8"),
    ("grad_norm", "<f8"),
    ("revision", "<i8"),
)
"""One finished step; ``seq`` counts from 1. Durations -1 and floats NaN are unknown."""
RECORD = struct.Struct("<11qiBBHqddq")

GROUP_NAME = struct.Struct("<HBBI40s")
"""Length of the name, timing (0 host), captured in a graph (0 no), unused, the group id (UTF-8)."""
GROUP_FIELDS = (
    "enqueued_seq",
    "started_seq",
    "completed_seq",
    "oldest_open_seq",
    "oldest_open_op",
    "oldest_open_bytes",
    "oldest_open_since_ns",
    "open_count",
    "completed_ops",
    "completed_bytes",
    "op_time_ns",
    "window",
    "window_max_ns",
    "before_max_ns",
    "last_started_ns",
    "last_completed_ns",
)
"""i64 each, an area after the name. Sequences count from 1, 0: none yet; sums run since the start.
``window`` is the monotonic second of the last completion, ``window_max_ns`` the longest operation in it,
``before_max_ns`` the longest one in the second before it."""
GROUP_BODY = struct.Struct(f"<{len(GROUP_FIELDS)}q")
GROUP_BYTES = GROUP_NAME.size + 8 + GROUP_BODY.size + 8

OPS = tuple(Op)
"""``oldest_open_op`` is an index into this."""
OP_CODES = {str(op): code for code, op in enumerate(OPS)}


def layout(ring_slots: int = 4096, group_slots: int = 256, declaration: int = 128 * 1024) -> Layout:
    """A layout as this code writes it: 4096 steps are 4 s of 1 ms steps, read at least once a second."""
    groups = _pages(PAGE + 24 + declaration)
    ring = _pages(groups + group_slots * GROUP_BYTES)
    return Layout(
        size=_pages(ring + ring_slots * RECORD.size),
        live=512,
        status=1024,
        declaration=PAGE,
        declaration_bytes=declaration,
        groups=groups,
        group_bytes=GROUP_BYTES,
        group_slots=group_slots,
        ring=ring,
        record_bytes=RECORD.size,
        ring_slots=ring_slots,
        reason_bytes=256,
    )


def _pages(size: int) -> int:
    return -(-size // PAGE) * PAGE

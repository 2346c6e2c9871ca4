"""How far this rank has come in each of its communication groups, as one slot per group in the file.

Operations of a group are numbered from 1 in the order they are enqueued, as every rank of the group
enqueues them. What matters to a diagnosis is the oldest operation that is still open.
"""

import time

from lineside.probe.file import ProbeFile
from lineside.probe.layout import COUNTERS, GROUP_BODY, GROUP_NAME, OP_CODES

_OTHER = OP_CODES["other"]
_MAX_OPEN = 1024
"""Open operations remembered per group; later ones are counted as lost, the oldest one stays known."""

_now = time.monotonic_ns


class Ticket:
    """One operation on its way; made by ``Probe.enqueue``, handed to ``started`` and ``completed``."""

    __slots__ = ("enqueued_ns", "failed", "group", "nbytes", "op", "seq", "started_ns")

    def __init__(self, group: "GroupProgress", seq: int, op: int, nbytes: int, now: int) -> None:
        self.group, self.seq, self.op, self.nbytes = group, seq, op, nbytes
        self.enqueued_ns, self.started_ns, self.failed = now, 0, False


class GroupProgress:
    """One group's slot. All its operations must be told by one thread."""

    __slots__ = (
        "_at",
        "_file",
        "_open",
        "before_max",
        "completed",
        "enqueued",
        "last_completed",
        "last_started",
        "nbytes",
        "ops",
        "started",
        "time_ns",
        "version",
        "window",
        "window_max",
    )

    def __init__(self, file: ProbeFile, at: int) -> None:
        self._file, self._at = file, at
        self._open: dict[int, Ticket] = {}
        self.version = self.enqueued = self.started = self.completed = 0
        self.ops = self.nbytes = self.time_ns = 0
        self.window = self.window_max = self.before_max = 0
        self.last_started = self.last_completed = -1

    def enqueue(self, op: str, nbytes: int, start: bool) -> Ticket | None:
        """A new operation, started at once if ``start``; None where too many are open."""
        self.enqueued += 1
        if len(self._open) >= _MAX_OPEN:
            self._file.count_lost()
            self.store()
            return None
        now = _now()
        ticket = Ticket(self, self.enqueued, OP_CODES.get(op, _OTHER), int(nbytes), now)
        self._open[ticket.seq] = ticket
        if start:
            ticket.started_ns = self.last_started = now
            self.started = ticket.seq
        self.store()
        return ticket

    def start(self, ticket: Ticket) -> None:
        ticket.started_ns = self.last_started = _now()
        self.started = max(self.started, ticket.seq)
        self.store()

    def complete(self, ticket: Ticket) -> None:
        """The operation is done; a second time changes nothing. Failed ones before it are forgotten."""
        if self._open.pop(ticket.seq, None) is None:
            return
        now = _now()
        took = now - (ticket.started_ns or ticket.enqueued_ns)
        self.completed = max(self.completed, ticket.seq)
        self.ops += 1
        self.nbytes += ticket.nbytes
        self.time_ns += took
        self.last_completed = now
        window = now // 1_000_000_000
        if window != self.window:
            self.before_max = self.window_max if window == self.window + 1 else 0
            self.window, self.window_max = window, took
        elif took > self.window_max:
            self.window_max = took
        for oldest in list(self._open.values()) if self._any_failed() else ():
            if not oldest.failed or oldest.seq > ticket.seq:
                break
            del self._open[oldest.seq]
        self.store()

    def _any_failed(self) -> bool:
        return bool(self._open) and next(iter(self._open.values())).failed

    def store(self) -> None:
        words, at = self._file.words, self._at
        oldest = next(iter(self._open.values())) if self._open else None
        self.version += 1
        words[at // 8] = self.version
        GROUP_BODY.pack_into(
            self._file.memory,
            at + 8,
            self.enqueued,
            self.started,
            self.completed,
            oldest.seq if oldest else -1,
            oldest.op if oldest else -1,
            oldest.nbytes if oldest else -1,
            (oldest.started_ns or oldest.enqueued_ns) if oldest else -1,
            len(self._open),
            self.ops,
            self.nbytes,
            self.time_ns,
            self.window,
            self.window_max,
            self.before_max,
            self.last_started,
            self.last_completed,
        )
        words[(at + 8 + GROUP_BODY.size) // 8] = self.version


class GroupTable:
    """Slots by group id, handed out in order of first use; with none left a group is not recorded."""

    def __init__(self, file: ProbeFile) -> None:
        self._file = file
        self._groups: dict[str, GroupProgress | None] = {}
        self._used = 0

    def get(self, group_id: str) -> GroupProgress | None:
        try:
            return self._groups[group_id]
        except KeyError:
            found = self._groups[group_id] = self._add(group_id)
            return found

    def _add(self, group_id: str) -> GroupProgress | None:
        shape, name = self._file.shape, group_id.encode()
        if self._used >= shape.group_slots or len(name) > 40:
            self._file.count_lost()
            return None
        at = shape.groups + self._used * shape.group_bytes
        GROUP_NAME.pack_into(self._file.memory, at, len(name), 0, 0, 0, name)
        group = GroupProgress(self._file, at + GROUP_NAME.size)
        group.store()
        self._used += 1
        self._file.words[COUNTERS // 8 + 1] = self._used
        return group

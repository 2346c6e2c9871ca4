"""Steps and phases as stores into the probe file: the hot path.

A step's time is charged to the innermost open phase; what no phase claims is ``other``. Waiting on peers
must be told apart from own work: in synchronous training every rank is otherwise equally slow.
"""

import time
from math import nan
from typing import Any

from lineside.contracts import Phase
from lineside.probe.file import ProbeFile
from lineside.probe.layout import COUNTERS, LIVE_BODY, RECORD, LivePhase

PHASES = {
    "data": LivePhase.DATA,
    "compute": LivePhase.COMPUTE,
    "comm": LivePhase.COMM,
    "wait": LivePhase.WAIT,
    "checkpoint": LivePhase.CHECKPOINT,
    "eval": LivePhase.EVAL,
    "compile": LivePhase.COMPILE,
}
_OUTER = {
    Phase.EVAL: LivePhase.EVAL,
    Phase.CHECKPOINT: LivePhase.CHECKPOINT,
    Phase.COMPILE: LivePhase.COMPILE,
}
_ZEROS = [0] * len(LivePhase)
_STEP, _DATA, _COMPUTE, _COMM, _WAIT, _CHECKPOINT, _EVAL, _COMPILE = map(int, list(LivePhase)[2:])
_IDLE = int(LivePhase.IDLE)

_now = time.monotonic_ns
_pack_record = RECORD.pack_into


class Recorder:
    """Writes live state and step records. Methods may raise; ``Probe`` is the guard around them."""

    def __init__(self, file: ProbeFile) -> None:
        self._file = file
        self._memory, self._words = file.memory, file.words
        self._ring, self._slots = file.shape.ring, file.shape.ring_slots
        self._head = COUNTERS // 8
        self._live = file.shape.live // 8
        self._live_end = (file.shape.live + 8 + LIVE_BODY) // 8
        self._version = 0
        self._written = 0
        self._spent = list(_ZEROS)
        self._seen = [False] * len(LivePhase)
        self._stack: list[int] = []
        self._phase, self._since = int(LivePhase.STARTUP), _now()
        self._step, self._kind, self._started, self._step_revision = -1, 0, 0, 0
        self.revision = 0
        self.in_step = False
        self._show(self._since)

    def begin(self, step: int, kind: Phase | None) -> None:
        """A step starts. Without ``kind`` the first one of the process is ``FIRST``, others ``TRAIN``."""
        if kind is None:
            kind = Phase.TRAIN if self._written else Phase.FIRST
        self._step, self._kind, self._step_revision = int(step), int(kind), self.revision
        self._spent[:] = _ZEROS
        self._stack.clear()
        self._phase = int(_OUTER.get(kind, _STEP))
        self._started = self._since = _now()
        self.in_step = True
        self._show(self._started)

    def end(self, micro_batches: int, tokens: int, loss: Any, grad_norm: Any) -> None:
        """The step is done: one record, then idle."""
        if not self.in_step:  # it was never begun
            return
        now = _now()
        spent, seen = self._spent, self._seen
        spent[self._phase] += now - self._since
        comm = spent[_COMM] if seen[_COMM] else -1
        wait = spent[_WAIT] if seen[_WAIT] else -1
        self._leave_step(now)
        written = self._written
        _pack_record(
            self._memory,
            self._ring + written % self._slots * RECORD.size,
            written + 1,
            self._step,
            self._started,
            now - self._started,
            spent[_COMPUTE] if seen[_COMPUTE] else -1,
            comm,
            comm if wait < 0 else max(comm, 0) + wait,
            wait,
            spent[_DATA] if seen[_DATA] else -1,
            spent[_CHECKPOINT],
            spent[_STEP] + spent[_EVAL] + spent[_COMPILE],
            int(micro_batches),
            self._kind,
            0,
            0,
            int(tokens),
            _number(loss),
            _number(grad_norm),
            self._step_revision,
        )
        self._written = self._words[self._head] = written + 1
        self._show(now)

    def abandon(self) -> None:
        """The step's body raised: no record, since it is no measure of a step."""
        now = _now()
        self._leave_step(now)
        self._show(now)

    def enter(self, phase: int) -> None:
        """From now on time is charged to ``phase`` (a ``LivePhase``)."""
        now = _now()
        self._spent[self._phase] += now - self._since
        self._stack.append(self._phase)
        self._seen[phase] = True
        self._phase, self._since = phase, now
        self._show(now)

    def leave(self) -> None:
        """Back to the phase around the innermost one. Ignored where a step's end closed it already."""
        if not self._stack:
            return
        now = _now()
        self._spent[self._phase] += now - self._since
        self._phase, self._since = self._stack.pop(), now
        self._show(now)

    def _leave_step(self, now: int) -> None:
        self._stack.clear()
        self._phase, self._since, self.in_step = _IDLE, now, False

    def _show(self, now: int) -> None:
        words, at = self._words, self._live
        self._version += 1
        words[at] = self._version
        words[at + 1] = self._step
        words[at + 2] = self._kind
        words[at + 3] = self._phase
        words[at + 4] = self._since
        words[at + 5] = now
        words[at + 6] = self.revision
        words[at + 7] = self._written
        words[self._live_end] = self._version


def _number(value: Any) -> float:
    """A float, NaN where there is none or where it cannot be one (a tensor is read here)."""
    if type(value) is float:
        return value
    if value is None:
        return nan
    try:
        return float(value)
    except Exception:
        return nan

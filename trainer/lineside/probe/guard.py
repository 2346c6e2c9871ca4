"""The wall between the recorder and the user's loop: nothing raised inside comes out.

What goes wrong is counted in the file and said once in the log. A guard without a file does nothing.
"""

import functools
import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Concatenate, ParamSpec, TypeVar

import msgspec

from lineside.contracts import Declaration, Phase, Plan
from lineside.probe.collectives import GroupTable, Ticket
from lineside.probe.file import ProbeFile
from lineside.probe.plans import PlanFile
from lineside.probe.recorder import Recorder

_log = logging.getLogger("lineside.probe")

P = ParamSpec("P")
T = TypeVar("T")
_Method = Callable[Concatenate["Guard", P], T]


def _guarded(method: _Method[P, T]) -> Callable[Concatenate["Guard", P], T | None]:
    @functools.wraps(method)
    def guard(self: "Guard", /, *args: P.args, **kwargs: P.kwargs) -> T | None:
        if not self.on:
            return None
        try:
            return method(self, *args, **kwargs)
        except Exception as error:
            self.trouble(error)
            return None

    return guard


class Guard:
    """Everything a probe does to its file, each call safe. ``on`` False: nothing is done."""

    def __init__(self, file: ProbeFile, folder: Path) -> None:
        self.on = True
        self._warned = False
        self._file = file
        self._recorder = Recorder(file)
        self._groups = GroupTable(file)
        self._plans = PlanFile(folder)
        self._applied, self._rejected, self._reason = (-1, -1, -1), (-1, -1), ""

    @property
    def in_step(self) -> bool:
        return self._recorder.in_step

    @property
    def revision(self) -> int:
        return self._recorder.revision

    @_guarded
    def begin(self, step: int, kind: Phase | None) -> None:
        self._recorder.begin(step, kind)

    @_guarded
    def end(self, micro_batches: int, tokens: int, loss: object, grad_norm: object) -> None:
        self._recorder.end(micro_batches, tokens, loss, grad_norm)

    @_guarded
    def abandon(self) -> None:
        self._recorder.abandon()

    @_guarded
    def enter(self, phase: int) -> None:
        self._recorder.enter(phase)

    @_guarded
    def leave(self) -> None:
        self._recorder.leave()

    @_guarded
    def enqueue(self, group_id: str, op: str, nbytes: int, *, start: bool) -> Ticket | None:
        group = self._groups.get(group_id)
        return group.enqueue(op, nbytes, start) if group else None

    @_guarded
    def start(self, ticket: Ticket) -> None:
        ticket.group.start(ticket)

    @_guarded
    def complete(self, ticket: Ticket) -> None:
        ticket.group.complete(ticket)

    @_guarded
    def declare(self, said: dict[str, object]) -> None:
        text = msgspec.json.encode(said)
        msgspec.json.decode(text, type=Declaration)  # only what the contract allows
        self._file.write_declaration(text)

    @_guarded
    def plan(self) -> Plan | None:
        return self._plans.newest()

    @_guarded
    def applied(self, revision: int, step: int) -> None:
        self._recorder.revision = int(revision)
        self._applied = (int(revision), int(step), time.monotonic_ns())
        self._file.write_status(self._applied, self._rejected, self._reason)

    @_guarded
    def rejected(self, revision: int, reason: str) -> None:
        self._rejected, self._reason = (int(revision), time.monotonic_ns()), str(reason)
        self._file.write_status(self._applied, self._rejected, self._reason)

    def trouble(self, error: Exception) -> None:
        self._file.count_lost()
        if not self._warned:
            self._warned = True
            _log.warning("Lineside's probe lost a record: %r (said once, counted)", error)

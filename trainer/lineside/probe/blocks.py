"""The ``with`` blocks that a training script sees. Made once and used again where that is possible."""

from types import TracebackType
from typing import Any, Self

from lineside.contracts import Phase
from lineside.probe.collectives import Ticket
from lineside.probe.guard import Guard


class Step:
    """The open step. ``loss``, ``grad_norm``, ``tokens`` and ``micro_batches`` may be set inside it; give
    numbers, for a tensor is read when the step ends."""

    __slots__ = ("_guard", "_kind", "_number", "grad_norm", "loss", "micro_batches", "tokens")

    def __init__(self, guard: Guard | None) -> None:
        self._guard = guard
        self.prepare(-1, -1, -1, None)

    def prepare(self, number: int, micro_batches: int, tokens: int, kind: Phase | None) -> Self:
        self._number, self._kind = number, kind
        self.micro_batches, self.tokens = micro_batches, tokens
        self.loss: Any = None
        self.grad_norm: Any = None
        return self

    def __enter__(self) -> Self:
        if self._guard is not None:
            self._guard.begin(self._number, self._kind)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        if self._guard is None:
            return
        if kind is None:
            self._guard.end(self.micro_batches, self.tokens, self.loss, self.grad_norm)
        else:
            self._guard.abandon()


class PhaseBlock:
    """Time inside is charged to one phase."""

    __slots__ = ("_guard", "_phase")

    def __init__(self, guard: Guard | None, phase: int) -> None:
        self._guard, self._phase = guard, phase

    def __enter__(self) -> None:
        if self._guard is not None:
            self._guard.enter(self._phase)

    def __exit__(self, *_: object) -> None:
        if self._guard is not None:
            self._guard.leave()


class CollectiveBlock:
    """One blocking operation of a group. Where it raises it stays open, as evidence, until a later one of
    its group completes."""

    __slots__ = ("_args", "_guard", "_ticket")

    def __init__(self, guard: Guard | None, group_id: str, op: str, nbytes: int) -> None:
        self._guard, self._args = guard, (group_id, op, nbytes)
        self._ticket: Ticket | None = None

    def __enter__(self) -> None:
        if self._guard is not None:
            self._ticket = self._guard.enqueue(*self._args, start=True)

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._guard is None or self._ticket is None:
            return
        if kind is None:
            self._guard.complete(self._ticket)
        else:
            self._ticket.failed = True

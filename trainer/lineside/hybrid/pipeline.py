"""One stage's forwards and backwards of a step, in 1F1B order, with its pipeline neighbours."""

from itertools import zip_longest
from typing import cast

import torch
from torch import Tensor

from lineside.hybrid.accelerator import Accelerator
from lineside.hybrid.data import Corpus
from lineside.hybrid.model import Stage
from lineside.hybrid.schedule import Action, Direction, one_forward_one_backward
from lineside.hybrid.wires import Inbox, Outbox
from lineside.probe import Probe

FORWARD_UNITS, BACKWARD_UNITS = 1, 2
"""A backward is twice a forward: gradients of inputs and of weights."""


class Pipeline:
    """``rank`` is a global rank; its neighbours in the pipeline are the ranks beside it."""

    def __init__(
        self,
        module: Stage,
        corpus: Corpus,
        accelerator: Accelerator,
        probe: Probe,
        *,
        rank: int,
        stage: int,
        stages: int,
        samples: int,
        activation: tuple[int, ...],
        dtype: torch.dtype,
    ) -> None:
        self._module = module
        self._corpus = corpus
        self._accelerator = accelerator
        self._probe = probe
        self._stage, self._stages = stage, stages
        self._samples = samples
        self._inboxes: dict[Direction, Inbox] = {}
        self._outboxes: dict[Direction, Outbox] = {}
        if not module.first:
            self._inboxes[Direction.FORWARD] = Inbox(rank - 1, rank, activation, dtype, probe)
            self._outboxes[Direction.BACKWARD] = Outbox(rank, rank - 1, probe)
        if not module.last:
            self._inboxes[Direction.BACKWARD] = Inbox(rank + 1, rank, activation, dtype, probe)
            self._outboxes[Direction.FORWARD] = Outbox(rank, rank + 1, probe)
        self._held: dict[int, tuple[Tensor, Tensor]] = {}

    def run(self, first_sample: int, micro_batches: int, tokens: int) -> float:
        """Add this share's gradients to the module's, each token's loss divided by ``tokens``, the number in
        the whole step. Returns the sum of the losses over the share, 0 on all but the last stage."""
        loss = 0.0
        actions = one_forward_one_backward(self._stage, self._stages, micro_batches)
        for action, after in zip_longest(actions, actions[1:]):
            inbox = self._inboxes.get(action.direction)
            received = inbox.take() if inbox else None
            if after and (next_inbox := self._inboxes.get(after.direction)):
                next_inbox.post()
            if action.direction is Direction.FORWARD:
                loss += self._forward(action, first_sample, received)
            else:
                self._backward(action, received, tokens)
        for outbox in self._outboxes.values():
            outbox.settle()
        return loss

    def _forward(self, action: Action, first_sample: int, received: Tensor | None) -> float:
        with self._probe.phase("data"):
            begin = first_sample + action.micro_batch * self._samples
            inputs, targets = self._corpus.batch(range(begin, begin + self._samples))
        x = inputs if received is None else received.requires_grad_()
        with self._probe.phase("compute"), self._accelerator.busy(FORWARD_UNITS):
            out: Tensor = self._module(x, targets)
        self._held[action.micro_batch] = x, out
        if outbox := self._outboxes.get(Direction.FORWARD):
            outbox.send(out.detach())
            return 0.0
        return out.item()

    def _backward(self, action: Action, gradient: Tensor | None, tokens: int) -> None:
        x, out = self._held.pop(action.micro_batch)
        with self._probe.phase("compute"), self._accelerator.busy(BACKWARD_UNITS):
            # A scalar whose gradient by ``out`` is ``gradient``: given a gradient as an argument, PyTorch
            # imports sympy to check its shape, seconds of CPU in every rank's first step.
            scalar = out / tokens if gradient is None else (out * gradient).sum()
            torch.autograd.backward(scalar)
        if outbox := self._outboxes.get(Direction.BACKWARD):
            outbox.send(cast(Tensor, x.grad))

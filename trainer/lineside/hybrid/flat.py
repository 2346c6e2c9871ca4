"""All parameters of a stage in one flat vector, their gradients in another.

One bucket means one all-reduce per step, and one tensor for the optimiser. ``torch.optim.adamw.adamw``, the
functional form of AdamW, is used rather than the class because the class imports ``torch._dynamo``: 3 s of
CPU in every rank before the first step, for nothing here.
"""

import torch
from torch import nn
from torch.optim.adamw import adamw


class FlatAdamW:
    """AdamW over the flat parameters of ``module``, whose parameters and gradients become views."""

    def __init__(self, module: nn.Module, learning_rate: float, weight_decay: float = 0.01) -> None:
        parameters = list(module.parameters())
        self.values = torch.cat([p.detach().flatten() for p in parameters])
        self.gradients = torch.zeros_like(self.values)
        self._first = torch.zeros_like(self.values)
        self._second = torch.zeros_like(self.values)
        self._steps = torch.zeros((), dtype=torch.float32)
        self._learning_rate = learning_rate
        self._weight_decay = weight_decay
        begin = 0
        for p in parameters:
            end = begin + p.numel()
            p.data = self.values[begin:end].view_as(p)
            p.grad = self.gradients[begin:end].view_as(p)
            begin = end

    def zero_gradients(self) -> None:
        self.gradients.zero_()

    @torch.no_grad()
    def step(self) -> None:
        adamw(
            [self.values],
            [self.gradients],
            [self._first],
            [self._second],
            [],
            [self._steps],
            fused=True,
            amsgrad=False,
            beta1=0.9,
            beta2=0.95,
            lr=self._learning_rate,
            weight_decay=self._weight_decay,
            eps=1e-8,
            maximize=False,
        )

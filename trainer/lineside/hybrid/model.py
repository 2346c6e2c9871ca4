"""A small GPT, cut into pipeline stages.

Pre-norm blocks, learned positions, untied embedding and head (so that no gradient has to cross from the
last stage to the first). Every layer is initialised from its own seed: the same model comes out however
many stages it is cut into.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lineside.hybrid.data import VOCABULARY


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelConfig:
    """Small by default: on two cores the real compute of eight ranks must stay below the emulated time."""

    layers: int = 2
    width: int = 32
    heads: int = 4
    sequence: int = 32


class Block(nn.Module):
    """Attention and MLP with residuals; [samples, sequence, width] to the same."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        width = config.width
        self.heads = config.heads
        self.attention_norm = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.attention_out = nn.Linear(width, width, bias=False)
        self.mlp_norm = nn.LayerNorm(width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, x: Tensor) -> Tensor:
        samples, length, width = x.shape
        qkv = self.qkv(self.attention_norm(x)).view(samples, length, 3, self.heads, -1)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.attention_out(mixed.transpose(1, 2).reshape(samples, length, width))
        mlp: Tensor = self.mlp(self.mlp_norm(x))
        return x + mlp


class Stage(nn.Module):
    """Stage ``index`` of ``stages``. Maps tokens (first stage) or activations to activations, or, on the
    last stage, to the *sum* of the token losses."""

    def __init__(self, config: ModelConfig, index: int, stages: int, seed: int) -> None:
        super().__init__()
        if config.layers % stages:
            raise ValueError(f"{config.layers} layers cannot be cut into {stages} equal stages")
        per_stage = config.layers // stages
        self.first, self.last = index == 0, index == stages - 1
        torch.manual_seed(seed)
        if self.first:
            self.tokens = nn.Embedding(VOCABULARY, config.width)
            self.positions = nn.Parameter(torch.randn(config.sequence, config.width) * 0.02)
        blocks = []
        for layer in range(index * per_stage, (index + 1) * per_stage):
            torch.manual_seed(seed + 1 + layer)
            blocks.append(Block(config))
        self.blocks = nn.ModuleList(blocks)
        if self.last:
            torch.manual_seed(seed + 1 + config.layers)
            self.norm = nn.LayerNorm(config.width)
            self.head = nn.Linear(config.width, VOCABULARY, bias=False)

    def forward(self, x: Tensor, targets: Tensor) -> Tensor:
        """``x``: int64 [samples, sequence] on the first stage, else activations. ``targets``, as the
        former, count on the last stage only."""
        if self.first:
            x = self.tokens(x) + self.positions
        for block in self.blocks:
            x = block(x)
        if not self.last:
            return x
        logits = self.head(self.norm(x))
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="sum")

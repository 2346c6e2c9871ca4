"""Cutting the model into stages changes nothing in it, nor does making it flat."""

import pytest
import torch

from lineside.hybrid.data import Corpus
from lineside.hybrid.flat import FlatAdamW
from lineside.hybrid.model import ModelConfig, Stage

CONFIG = ModelConfig(layers=4, width=16, heads=2, sequence=8)


def test_two_stages_are_the_whole_model_cut() -> None:
    x, targets = Corpus(CONFIG.sequence, 0).batch(range(3))
    whole = Stage(CONFIG, 0, 1, seed=5)(x, targets)
    halves = [Stage(CONFIG, index, 2, seed=5) for index in range(2)]
    assert torch.equal(whole, halves[1](halves[0](x, targets), targets))


def test_layers_that_cannot_be_cut_evenly() -> None:
    with pytest.raises(ValueError, match="4 layers cannot be cut into 3 equal stages"):
        Stage(CONFIG, 0, 3, seed=0)


def test_flat_adamw_is_adamw() -> None:
    """Against Loshchilov and Hutter's algorithm 2 (ICLR 2019), written out parameter by parameter."""
    x, targets = Corpus(CONFIG.sequence, 0).batch(range(3))
    ours, theirs = Stage(CONFIG, 0, 1, seed=5).double(), Stage(CONFIG, 0, 1, seed=5).double()
    flat = FlatAdamW(ours, 1e-2, weight_decay=0.1)
    moments = [(torch.zeros_like(p), torch.zeros_like(p)) for p in theirs.parameters()]
    for t in range(1, 5):
        flat.zero_gradients()
        torch.autograd.backward(ours(x, targets))
        flat.step()
        theirs.zero_grad()
        torch.autograd.backward(theirs(x, targets))
        with torch.no_grad():
            for p, (m, v) in zip(theirs.parameters(), moments, strict=True):
                assert p.grad is not None
                m.mul_(0.9).add_(0.1 * p.grad)
                v.mul_(0.95).add_(0.05 * p.grad**2)
                corrected = (m / (1 - 0.9**t)) / ((v / (1 - 0.95**t)).sqrt() + 1e-8)
                p -= 1e-2 * (corrected + 0.1 * p)
    for mine, its in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(mine, its)

"""The data order depends on the global sample id and the seed, and on nothing else."""

import torch

from lineside.hybrid.data import VOCABULARY, Corpus


def test_a_sample_is_the_same_whoever_asks_for_it_in_whatever_batch() -> None:
    together, _ = Corpus(16, seed=3).batch(range(40, 48))
    alone = [Corpus(16, seed=3).batch(range(k, k + 1))[0] for k in range(40, 48)]
    assert torch.equal(together, torch.cat(alone))


def test_targets_are_the_inputs_shifted_by_one() -> None:
    inputs, targets = Corpus(16, seed=3).batch(range(4))
    assert inputs.shape == targets.shape == (4, 16)
    assert torch.equal(inputs[:, 1:], targets[:, :-1])
    assert 0 <= int(inputs.min()) and int(inputs.max()) < VOCABULARY


def test_samples_differ_and_so_do_seeds() -> None:
    inputs, _ = Corpus(32, seed=0).batch(range(64))
    assert len({tuple(row.tolist()) for row in inputs}) > 50
    assert not torch.equal(inputs, Corpus(32, seed=1).batch(range(64))[0])

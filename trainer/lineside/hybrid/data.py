"""Training data: windows of a built-in text, chosen by the global sample id alone.

Which replica reads a sample, and in which micro-batch, therefore changes nothing in what a step trains on:
that is what makes a run with remedies comparable, number for number, with one without.
"""

from importlib.resources import files

import numpy as np
import torch
from torch import Tensor

VOCABULARY = 256
"""Bytes."""

_MASK = (1 << 64) - 1


def _mix(value: int) -> int:
    """splitmix64 (Steele, Lea, Flood, OOPSLA 2014): a well mixed 64-bit number from any integer."""
    value = (value + 0x9E3779B97F4A7C15) & _MASK
    value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9 & _MASK
    value = (value ^ (value >> 27)) * 0x94D049BB133111EB & _MASK
    return value ^ (value >> 31)


class Corpus:
    """The text as bytes; ``sequence`` is the length of a sample in tokens."""

    def __init__(self, sequence: int, seed: int) -> None:
        text = files("lineside.hybrid").joinpath("corpus.txt").read_bytes()
        self._bytes = np.frombuffer(text, np.uint8).astype(np.int64)
        self._sequence = sequence
        self._seed = seed

    def batch(self, samples: range) -> tuple[Tensor, Tensor]:
        """Inputs and targets, int64 [len(samples), sequence] each, of these global sample ids."""
        places = len(self._bytes) - self._sequence
        starts = np.array([_mix(_mix(self._seed) + sample) % places for sample in samples])
        windows = self._bytes[starts[:, None] + np.arange(self._sequence + 1)]
        return torch.from_numpy(windows[:, :-1]), torch.from_numpy(windows[:, 1:])

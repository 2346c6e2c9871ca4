"""What each rank's own work costs, against its peers, and what a replica's step is made of (FALCON, 4.2).

In synchronous training every rank's step takes equally long, so only a rank's *own* compute time tells who is
slow: seconds per micro-batch, scaled to the step's usual number of tokens where tokens are known.

Under one-forward-one-backward a replica's step is the longest path through any of its stages k: the
pipeline fills and drains through the stages before it, stage k works m micro-batches of u_k each, and waits
for the stages behind it as far as its own warm-up forwards (a third of u_k each: backward costs twice
forward) do not hide them. For equal stages that is the known (m + stages - 1) u; with one slow interior
stage the usual ``sum(u) + (m - 1) max(u)`` is 4 to 6 % too long. What a step takes beyond its slowest
replica (gradient exchange, optimiser, data) is common to all: ``rest``. Planners get the line ``fixed +
unit m`` that is exact at the present m, with the slope of the slowest stage.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lineside.falcon.assembly import DecidedStep
from lineside.falcon.robust import median
from lineside.falcon.topology import Indexes, Topology

Floats = NDArray[np.float64]

_FORWARD = 1 / 3  # of a micro-batch's work


def unit_costs(step: DecidedStep, training: NDArray[np.bool_]) -> Floats:
    """Own compute seconds per micro-batch of each series, (S,); NaN where it is unknown or not training.

    Where every training rank says its tokens, a micro-batch means one of this step's median token count.
    """
    measured = training & (step.compute_s > 0) & (step.micro_batches > 0)
    unit = np.full(len(training), np.nan)
    np.divide(step.compute_s, step.micro_batches, out=unit, where=measured)
    if measured.any() and (step.tokens[measured] > 0).all():
        size = step.tokens[measured] / step.micro_batches[measured]
        unit[measured] *= median(size) / size
    return unit


def excess_over_peers(cost: Floats, classes: Indexes) -> Floats:
    """``cost`` (S,) minus the median cost of the *other* known members of its class; NaN without any.

    >>> excess_over_peers(np.array([1.0, 2.0, 9.0, 5.0]), np.array([[0, 1, 2], [3, -1, -1]]))
    array([-4.5, -3. ,  7.5,  nan])
    """
    values = np.where(classes >= 0, cost[classes], np.nan)
    order = np.argsort(values, axis=1, kind="stable")
    ranked = np.take_along_axis(values, order, 1)
    place = np.empty_like(order)
    np.put_along_axis(place, order, np.arange(order.shape[1])[None, :], 1)
    others = np.count_nonzero(~np.isnan(values), axis=1)[:, None] - 1
    last = order.shape[1] - 1
    low, high = np.maximum(others - 1, 0) // 2 + 0 * place, others // 2 + 0 * place
    low, high = np.minimum(low + (low >= place), last), np.minimum(high + (high >= place), last)
    middle = (np.take_along_axis(ranked, low, 1) + np.take_along_axis(ranked, high, 1)) / 2
    excess = np.full(len(cost), np.nan)
    member = (classes >= 0) & (others >= 1)
    excess[classes[member]] = (values - middle)[member]
    return excess


def per_replica(values: Floats, topology: Topology) -> Floats:
    """The largest known value within each replica, (D,); NaN where none is known."""
    cells = values[topology.cells].reshape(len(topology.cells), -1)
    largest: Floats = np.fmax.reduce(cells, axis=1)
    return largest


@dataclass(frozen=True, slots=True)
class ReplicaModel:
    """Predicts a step's duration from the micro-batches of each replica; all in seconds, first axis (D,)."""

    unit_s: Floats
    fill_s: Floats
    rest_s: float = 0.0

    @classmethod
    def of_units(cls, unit: Floats, topology: Topology, micro_batches: Floats) -> "ReplicaModel":
        """From each rank's seconds per micro-batch (S,), near the split ``micro_batches`` (D,). A stage is as
        slow as its slowest (tensor-parallel) rank; one that nobody measured is taken to be like the median
        of its kind."""
        stages: Floats = np.fmax.reduce(unit[topology.cells], axis=2)
        usual = median(stages.T)[None, :]
        stages = np.where(np.isnan(stages), np.where(np.isnan(usual), 0.0, usual), stages)
        behind = stages.shape[1] - 1 - np.arange(stages.shape[1])
        ahead_s = np.cumsum(stages, axis=1) - stages
        behind_s = stages.sum(axis=1, keepdims=True) - ahead_s - stages
        idle = ahead_s + np.maximum(behind_s - behind * stages * _FORWARD, 0.0)
        slowest, many = stages.max(axis=1), np.nan_to_num(micro_batches)
        busy = (idle / topology.virtual_stages + many[:, None] * stages).max(axis=1)
        return cls(slowest, busy - many * slowest)

    def predict(self, micro_batches: Floats) -> Floats:
        """Seconds of a step in which replica d takes ``micro_batches[..., d]``."""
        busy: Floats = np.fmax.reduce(self.fill_s + self.unit_s * micro_batches, axis=-1)
        return busy + self.rest_s

    def calibrated(self, micro_batches: Floats, step_s: Floats) -> "ReplicaModel":
        """With ``rest_s`` such that the model meets the measured steps: (steps, D) and (steps,)."""
        rest = float(median(step_s - ReplicaModel(self.unit_s, self.fill_s).predict(micro_batches)))
        return ReplicaModel(self.unit_s, self.fill_s, max(rest, 0.0) if rest == rest else 0.0)

    @property
    def fixed_s(self) -> Floats:
        return self.fill_s + self.rest_s

"""One generation under watch: steps are assembled, costs profiled, ranks tracked, health kept."""

from collections.abc import Iterator
from dataclasses import dataclass
from math import exp
from typing import Any

import numpy as np
from msgspec.structs import replace

from lineside.contracts import Phase, StepBatch
from lineside.falcon.assembly import Assembler, AssemblyConfig, DecidedStep
from lineside.falcon.health import HealthConfig, HealthTrack
from lineside.falcon.history import WINDOW, History
from lineside.falcon.profile import (
    ReplicaModel,
    excess_over_peers,
    per_replica,
    unit_costs,
)
from lineside.falcon.robust import median
from lineside.falcon.topology import Topology, of_ranks
from lineside.falcon.tracking import Change, Slow, Tracker, TrackingConfig

_USUAL = 20  # columns that a healthy rank's usual cost is the median of


@dataclass(frozen=True, slots=True)
class Finding:
    """A change of one rank's state with the numbers behind it; seconds, None where unknown."""

    change: Change
    slow: Slow
    step: int
    unit_s: float
    peer_unit_s: float
    slow_steps: int
    model: ReplicaModel | None
    step_s: float | None
    baseline_s: float | None


class Watch:
    """Rows in, findings out. ``topology`` is fixed where it is meshed, else it grows with the ranks seen."""

    def __init__(
        self,
        topology: Topology,
        *,
        assembly: AssemblyConfig | None = None,
        tracking: TrackingConfig | None = None,
        health: HealthConfig | None = None,
    ) -> None:
        self.topology = topology
        self.health = HealthTrack(health)
        self.assembler = Assembler(topology.ranks, closed=topology.meshed, config=assembly)
        self.tracker = Tracker(topology.size, tracking)
        self.last_step = -1
        self._history = History(topology.size, len(topology.cells))
        self._reference = np.where(topology.lonely, np.nan, 0.0)
        self._micro_batches = np.full(len(topology.cells), np.nan)
        self._rest_s = 0.0

    def add(self, batch: StepBatch) -> tuple[bool, list[Finding]]:
        """Whether the batch held anything new, and what it led to."""
        fresh = self.assembler.add(batch)
        if len(self.assembler.ranks) > self.topology.size:
            self._grow()
        return fresh, [found for step in self.assembler.decided() for found in self._take(step)]

    def _take(self, step: DecidedStep) -> Iterator[Finding]:
        self.last_step = step.step
        training = step.reported & (step.phase == Phase.TRAIN)
        if not training.any():
            return
        cost = np.log(unit_costs(step, training))
        excess = excess_over_peers(cost - self._reference, self.topology.classes)
        said = per_replica(step.micro_batches, self.topology)
        self._micro_batches = np.where(said > 0, said, self._micro_batches)
        # A step in which any rank did something else (a save, an evaluation) made all the others wait
        whole = bool((step.phase[step.reported] == Phase.TRAIN).all())
        seconds = step.step_s[training]
        step_s = float(median(seconds[seconds > 0])) if whole else np.nan
        self._history.push(
            cost=cost,
            excess=excess,
            micro_batches=self._micro_batches,
            step_s=step_s,
            step=step.step,
            start_ns=int(np.sort(step.start_ns[training])[np.count_nonzero(training) // 2]),
        )
        self._refer()
        changes = self.tracker.advance(self._history, self.topology)
        if step_s == step_s:
            tokens = np.where(step.tokens > 0, step.tokens, np.nan)
            self.health.observe(
                step_s,
                self._micro_batches,
                float(per_replica(tokens, self.topology).sum()) if self.topology.meshed else np.nan,
                int(step.revision[training].max()),
                healthy=not self.tracker.slow,
            )
        for change, slow in changes:
            yield self._explain(change, slow)

    def _refer(self) -> None:
        """A lonely rank is compared by how far it has moved from its own first costs."""
        unknown = np.flatnonzero(np.isnan(self._reference))
        if len(unknown):
            settle = self.tracker.config.settle
            past = self._history.cost[unknown, -settle:]
            learned = ~np.isnan(past).any(axis=1) & ~np.isnan(
                self._history.cost[unknown, -settle - 5]
            )
            self._reference[unknown[learned]] = median(past[learned])

    def _explain(self, change: Change, slow: Slow) -> Finding:
        history, onset = self._history, slow.onset_column
        config = self.tracker.config
        steps = {Change.RELIEF: config.relief, Change.UPDATE: config.recent}.get(
            change, WINDOW - onset
        )
        since = np.exp(median(history.cost[slow.series, -steps:]))
        model = self._model(slow, change) if self.topology.meshed else None
        if change is not Change.UPDATE:
            self.health.forget_before(steps)
        if change is Change.ONSET and model is not None:
            self._assume(slow, model)
        standing = self.health.standing()
        return Finding(
            change=change,
            slow=replace(slow),
            step=self.last_step,
            unit_s=float(since),
            peer_unit_s=float(since) / exp(slow.level),
            slow_steps=max(int(history.step[-1]) - slow.onset_step + 1, 0),
            model=model,
            step_s=standing.step_s,
            baseline_s=standing.baseline_s,
        )

    def _model(self, slow: Slow, change: Change) -> ReplicaModel:
        """Replicas as they are now. What is common to all is measured on the steps before the onset: in the
        slow ones it hides behind the waiting."""
        history, onset, split = self._history, slow.onset_column, self._micro_batches
        now = history.recent_units(slice(-_USUAL, None))
        for (
            other
        ) in self.tracker.slow.values():  # these have less than _USUAL steps of their present cost
            first = max(other.onset_column, WINDOW - _USUAL)
            now[other.series] = np.exp(median(history.cost[other.series, first:]))
        if change is Change.RELIEF:
            healed = history.cost[slow.series, -self.tracker.config.relief :]
            now[slow.series] = np.exp(median(healed))
        if change is Change.ONSET:
            healthy = slice(max(onset - _USUAL, 0), onset)
            if np.count_nonzero(history.step_s[healthy] > 0) < 5 or slow.direct:
                healthy = slice(WINDOW - _USUAL, WINDOW)
            self._rest_s = (
                ReplicaModel.of_units(history.recent_units(healthy), self.topology, split)
                .calibrated(history.micro_batches[:, healthy].T, history.step_s[healthy])
                .rest_s
            )
        model = ReplicaModel.of_units(now, self.topology, split)
        return ReplicaModel(model.unit_s, model.fill_s, self._rest_s)

    def _assume(self, slow: Slow, model: ReplicaModel) -> None:
        """Where a job was slow from the start, healthy is what the model says without the slow ranks."""
        units = self._history.recent_units(slice(-_USUAL, None))
        for other in self.tracker.slow.values():
            units[other.series] /= exp(other.level)
        healthy = ReplicaModel.of_units(units, self.topology, self._micro_batches)
        predicted = healthy.predict(self._micro_batches) + model.rest_s
        if predicted > 0:
            self.health.assume(float(predicted))

    def _grow(self) -> None:
        self.topology = of_ranks(self.assembler.ranks.tolist())
        size = self.topology.size
        more = size - len(self._reference)
        self._history.grow(size, size)
        self.tracker.grow(size)
        self._reference = np.where(self.topology.lonely, np.nan, 0.0)
        self._micro_batches = np.concatenate([self._micro_batches, np.full(more, np.nan)])

    def state(self) -> dict[str, Any]:
        return {
            "assembler": self.assembler.state(),
            "history": self._history.state(),
            "tracker": self.tracker.state(),
            "health": self.health.state(),
            "last_step": self.last_step,
            "reference": self._reference,
            "micro_batches": self._micro_batches,
            "rest_s": self._rest_s,
        }

    def load(self, state: dict[str, Any]) -> None:
        self.assembler.load(state["assembler"])
        if not self.topology.meshed:
            self.topology = of_ranks(self.assembler.ranks.tolist())
        self._history.load(state["history"])
        self.tracker.load(state["tracker"])
        self.health.load(state["health"])
        self.last_step, self._rest_s = state["last_step"], state["rest_s"]
        self._reference, self._micro_batches = state["reference"], state["micro_batches"]

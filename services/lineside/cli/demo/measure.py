"""What the demo measures: step times before, during and after, from the run's own telemetry."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np

from lineside.contracts import Phase, StepBatch, columns
from lineside.remediation.plans.micro_batches import plan_micro_batches


@dataclass(frozen=True, slots=True)
class StepSeen:
    """One training step over all ranks: the median of the ranks' durations (they end together)."""

    step: int
    start_ns: int
    step_s: float
    revision: int


class Measurement:
    """Step rows of all ranks, kept until they are asked for. ``world_size`` rows make a step."""

    def __init__(self, world_size: int) -> None:
        self._world_size = world_size
        self._rows: dict[int, dict[int, tuple[int, float, float, int]]] = {}

    def add(self, batch: StepBatch) -> None:
        c = columns(batch)
        unit_s = c["compute_s"] / np.maximum(c["micro_batches"], 1)
        for i in np.flatnonzero(c["phase"] == Phase.TRAIN):
            row = (
                int(c["start_ns"][i]),
                float(c["step_s"][i]),
                float(unit_s[i]),
                int(c["revision"][i]),
            )
            self._rows.setdefault(int(c["step"][i]), {})[int(c["rank"][i])] = row

    def steps(
        self, from_ns: int = 0, to_ns: int | None = None, revision: int | None = None
    ) -> list[StepSeen]:
        """Whole steps that began in [from_ns, to_ns), and, if asked, under one plan revision only."""
        found = []
        for step, ranks in sorted(self._rows.items()):
            start_ns = min(row[0] for row in ranks.values())
            revisions = {row[3] for row in ranks.values()}
            if (
                len(ranks) == self._world_size
                and start_ns >= from_ns
                and (to_ns is None or start_ns < to_ns)
                and (revision is None or revisions == {revision})
            ):
                step_s = median(row[1] for row in ranks.values())
                found.append(StepSeen(step, start_ns, step_s, max(revisions)))
        return found

    def unit_s(self, rank: int, steps: Sequence[StepSeen]) -> float:
        """Median compute seconds per micro-batch of ``rank`` over ``steps``."""
        return median(self._rows[seen.step][rank][2] for seen in steps)


def median_step_s(steps: Sequence[StepSeen]) -> float:
    """Raises ``StatisticsError`` where there are none."""
    return median(seen.step_s for seen in steps)


def ideal_step_s(
    measurement: Measurement,
    healthy: Sequence[StepSeen],
    slowed: Sequence[StepSeen],
    *,
    victim_replica: int,
    victim: int,
    even: Sequence[int],
) -> float:
    """The step time that the best possible split would give under the fault as it was measured.

    A replica takes m times its slowest stage's unit for m micro-batches, one unit of each other stage to fill
    and drain the pipeline, and what a step costs besides (gradient reduction, optimiser), which the healthy
    steps tell.
    """
    healthy_unit_s = measurement.unit_s(victim, healthy)
    victim_unit_s = measurement.unit_s(victim, slowed)
    healthy_step_s = median(seen.step_s for seen in healthy)
    fixed_s = healthy_step_s - max(even) * healthy_unit_s
    unit_s = [healthy_unit_s] * len(even)
    unit_s[victim_replica] = victim_unit_s
    best = plan_micro_batches(
        unit_s=unit_s, fixed_s=[fixed_s] * len(even), total=sum(even), current=even
    )
    return best.step_s


def removed(healthy_s: float, faulty_s: float, healed_s: float) -> float:
    """Share of the slowdown that is gone, by step time.

    >>> removed(0.2, 0.6, 0.25)
    0.875
    """
    return round((faulty_s - healed_s) / (faulty_s - healthy_s), 6)

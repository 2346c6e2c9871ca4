"""The ladder of remedies and when its next rung is due.

Ski rental: the next remedy is taken once the illness has cost as much as the cure would, so that what is paid
is never more than about twice the cheaper of the two (Karlin et al., *Competitive snoopy caching*, 1988; for
slow ranks: FALCON, section 5). The illness costs the sum over slow steps of (t_slow - t_healthy).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from lineside.contracts import Fault, FaultKind, JobHealth, SuspectKind

SLOW_RATIO = 1.05
"""A step this much longer than a healthy one is slow; shorter than that is noise, whose positive half would
add up to an impact of its own."""


class Rung(StrEnum):
    WATCH = "watch"
    REBALANCE = "rebalance"


@dataclass(frozen=True, kw_only=True, slots=True)
class Costs:
    """What a remedy costs, in seconds of training."""

    rebalance_s: float = 15.0


def rungs(kind: FaultKind, faults: Sequence[Fault]) -> tuple[Rung, ...]:
    """The remedies for a trouble of ``kind``, cheapest first; to watch alone means that people are told."""
    slow_rank = kind is FaultKind.SLOW_COLLECTIVE and any(
        suspect.kind is SuspectKind.RANK for fault in faults for suspect in fault.suspects
    )
    if kind is FaultKind.SLOW_COMPUTE or slow_rank:
        return (Rung.WATCH, Rung.REBALANCE)
    return (Rung.WATCH,)


def due(ladder: Sequence[Rung], impact_s: float, costs: Costs) -> Rung:
    """The highest rung whose cost the impact has reached."""
    cost = {Rung.WATCH: 0.0, Rung.REBALANCE: costs.rebalance_s}
    return max((rung for rung in ladder if impact_s >= cost[rung]), key=lambda rung: cost[rung])


@dataclass(frozen=True, kw_only=True, slots=True)
class Tally:
    """The impact so far, and the step up to which it is counted (-1: nothing yet)."""

    impact_s: float = 0.0
    step: int = -1

    def add(
        self, samples: Sequence[JobHealth], healthy_step_s: float | None, from_ns: int
    ) -> "Tally":
        """With the steps in ``samples`` (in order of step) since ``from_ns``; those counted are not again.

        A sample stands for all steps since the one before it, so a gap in the samples loses no steps.
        """
        impact_s, last = self.impact_s, self.step
        for sample in samples:
            if sample.at_ns < from_ns or last < 0:
                last = max(last, sample.step)
                continue
            steps, last = max(0, sample.step - last), max(last, sample.step)
            if healthy_step_s and sample.step_s and sample.step_s >= SLOW_RATIO * healthy_step_s:
                impact_s += steps * (sample.step_s - healthy_step_s)
        return Tally(impact_s=impact_s, step=last)

"""From a job, a fault's evidence and the measured step time to a rebalancing plan, or the reason for none."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from lineside.contracts import Job, PlanKind
from lineside.remediation.plans.micro_batches import Infeasible, plan_micro_batches

MIN_GAIN = 0.05
"""A plan that is predicted to save less of the step time is not worth the switch."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Draft:
    """A plan before it has a revision: micro-batches per replica and the step time they should give."""

    kind: PlanKind
    counts: list[int]
    step_s: float | None
    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Refusal:
    """Why there is no plan: a stable ``code`` and a sentence."""

    code: str
    reason: str


def draft_rebalance(
    job: Job, current: Sequence[int], evidence: dict[str, Any], measured_step_s: float
) -> Draft | Refusal:
    """The best split given ``evidence`` (``replica_unit_s``, ``replica_fixed_s``).

    The evidence explains only part of a step (gradient reduction and optimiser are the same under any split),
    so what the measured step takes beyond the modelled one is added to the prediction.
    """
    if not job.capabilities.rebalance:
        return Refusal(
            code="no-capability", reason="the trainer does not declare that it can rebalance"
        )
    if job.micro_batches < 1:
        return Refusal(code="no-micro-batches", reason="the job does not say its micro-batches")
    unit = _times(evidence.get("replica_unit_s"), job.replicas)
    fixed = _times(evidence.get("replica_fixed_s", [0.0] * job.replicas), job.replicas)
    if unit is None or fixed is None:
        return Refusal(
            code="no-evidence",
            reason=f"no micro-batch times of all {job.replicas} replicas are known",
        )
    limits = job.micro_batch_limits
    try:
        best = plan_micro_batches(
            unit_s=unit,
            fixed_s=fixed,
            total=job.micro_batches,
            current=current,
            minimum=limits.min,
            maximum=limits.max,
            multiple=limits.multiple,
            units=job.rebalance_units,
        )
    except Infeasible as error:
        return Refusal(code="infeasible", reason=f"no split satisfies the limits: {error}")
    except ValueError as error:
        return Refusal(code="no-evidence", reason=f"the evidence cannot be used: {error}")
    modelled = max(f + u * n for f, u, n in zip(fixed, unit, current, strict=True))
    beyond = max(0.0, measured_step_s - modelled)
    now, then = modelled + beyond, best.step_s + beyond
    if (gain := 1 - then / now) < MIN_GAIN:
        return Refusal(
            code="small-gain",
            reason=f"the best split {best.counts} would save {gain:.1%} of the step time, "
            f"less than {MIN_GAIN:.0%}",
        )
    return Draft(
        kind=PlanKind.REBALANCE,
        counts=best.counts,
        step_s=then,
        reason=f"micro-batches {list(current)} to {best.counts}: {now:.3g} s a step to {then:.3g} s",
    )


def _times(values: Any, replicas: int) -> list[float] | None:
    """``values`` as seconds per replica; None unless there is a number for each."""
    if not isinstance(values, list) or len(values) != replicas:
        return None
    if not all(isinstance(v, int | float) and not isinstance(v, bool) for v in values):
        return None
    return [float(v) for v in values]

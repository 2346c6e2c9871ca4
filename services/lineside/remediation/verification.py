"""Did the remedy help? Step times before, under the fault and under the remedy, and what was gained."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from lineside.contracts import HealthState, JobHealth

RELATIVE_TOLERANCE = 0.05
STANDARD_ERRORS = 3.0
_MAD_TO_SIGMA = 1.4826
_MEDIAN_TO_MEAN_ERROR = 1.2533
"""The standard error of a median, over that of a mean, for normal noise."""

Effect = dict[str, float | None]


@dataclass(frozen=True, kw_only=True, slots=True)
class Measured:
    """The median of ``n`` samples of the step time, with its robust standard error."""

    step_s: float
    error_s: float
    n: int


def measure(step_times: Sequence[float]) -> Measured | None:
    """None for no samples.

    >>> measure([1.0, 1.1, 0.9]).step_s
    1.0
    """
    if not step_times:
        return None
    middle = median(step_times)
    spread = _MAD_TO_SIGMA * median(abs(t - middle) for t in step_times)
    error = _MEDIAN_TO_MEAN_ERROR * spread / len(step_times) ** 0.5
    return Measured(step_s=middle, error_s=error, n=len(step_times))


def healthy_step_s(samples: Sequence[JobHealth], onset_ns: int) -> float | None:
    """The median step time before onset, or the detector's baseline where too few samples are kept."""
    before = [
        s.step_s
        for s in samples
        if s.at_ns < onset_ns and s.step_s and s.state is not HealthState.SLOW
    ]
    if len(before) >= 5:
        return median(before)
    baselines = [s.baseline_s for s in samples if s.baseline_s]
    return baselines[-1] if baselines else None


def faulty_step_s(samples: Sequence[JobHealth], onset_ns: int) -> float | None:
    """The step time under the trouble. A sample is itself a median over recent steps, so the first ones after
    onset still hold healthy steps: the later half counts."""
    after = [s.step_s for s in samples if s.at_ns >= onset_ns and s.step_s]
    return median(after[len(after) // 2 :]) if after else None


def healed(
    samples: Sequence[JobHealth], revision: int, applied_step: int, steps: int
) -> Measured | None:
    """The step time under ``revision``, once ``steps`` steps were done with it; None until then.

    The first half of those steps is left out, for the same reason as above.
    """
    under = [s for s in samples if s.revision == revision and s.step > applied_step]
    if not under or under[-1].step - applied_step < steps:
        return None
    return measure([s.step_s for s in under if s.step_s and s.step >= applied_step + steps // 2])


def as_predicted(found: Measured, predicted_s: float) -> bool:
    """Within max(5 %, 3 robust standard errors) of the prediction; faster is as good."""
    tolerance = max(RELATIVE_TOLERANCE * predicted_s, STANDARD_ERRORS * found.error_s)
    return found.step_s <= predicted_s + tolerance


def effect_of(
    *,
    healthy_s: float | None,
    faulty_s: float | None,
    healed_s: float,
    predicted_s: float | None,
    steps: int,
) -> Effect:
    """What the remedy brought. ``slowdown_removed`` is the share of the added step time that is gone;
    ``seconds_saved`` compares ``steps`` steps with the same steps without remedy. None: not known."""
    effect: Effect = {
        "healthy_step_s": healthy_s,
        "faulty_step_s": faulty_s,
        "healed_step_s": healed_s,
        "predicted_step_s": predicted_s,
        "slowdown_before": faulty_s / healthy_s if faulty_s and healthy_s else None,
        "slowdown_after": healed_s / healthy_s if healthy_s else None,
        "slowdown_removed": None,
        "seconds_saved": (faulty_s - healed_s) * steps if faulty_s else None,
    }
    if faulty_s and healthy_s and faulty_s > healthy_s:
        effect["slowdown_removed"] = (faulty_s - healed_s) / (faulty_s - healthy_s)
    return effect

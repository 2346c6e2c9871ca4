"""What ``summary.json`` says, and whether the demo did what it promises."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from lineside.cli.demo.measure import StepSeen, median_step_s, removed
from lineside.contracts import Fault, SuspectKind
from lineside.remediation.policy import Mode

REQUIRED_REMOVED, REQUIRED_OF_IDEAL = 0.70, 0.85


def culprit(fault: Fault) -> int | None:
    """The rank that was named first."""
    ranks = [int(suspect.id) for suspect in fault.suspects if suspect.kind is SuspectKind.RANK]
    return ranks[0] if ranks else None


def step_times(
    healthy: Sequence[StepSeen],
    faulty: Sequence[StepSeen],
    healed: Sequence[StepSeen],
    ideal_s: float,
) -> dict[str, Any]:
    """Medians, and what became of the slowdown; nothing healed: null."""
    healthy_s, faulty_s = median_step_s(healthy), median_step_s(faulty)
    healed_s = median_step_s(healed) if healed else None
    share = None if healed_s is None else removed(healthy_s, faulty_s, healed_s)
    best = removed(healthy_s, faulty_s, ideal_s)
    return {
        "healthy_step_s": healthy_s,
        "faulty_step_s": faulty_s,
        "healed_step_s": healed_s,
        "ideal_step_s": ideal_s,
        "slowdown_removed": share,
        "of_ideal": None if share is None else round(share / best, 6),
        "steps": {"healthy": len(healthy), "faulty": len(faulty), "healed": len(healed)},
    }


def verdict(summary: dict[str, Any], mode: Mode, *, plans: int) -> dict[str, Any]:
    """Whether it passed, and why not."""
    if summary["culprit"] != summary["victim"]:
        text = f"named rank {summary['culprit']} where rank {summary['victim']} was slowed"
    elif summary["incidents"] != 1:
        text = f"{summary['incidents']} incidents for one fault"
    elif mode is Mode.OBSERVE:
        text = "" if plans == 0 else "a plan was published although the mode is observe"
    elif summary["slowdown_removed"] < REQUIRED_REMOVED:
        text = f"only {summary['slowdown_removed']:.0%} of the slowdown is gone"
    elif summary["of_ideal"] < REQUIRED_OF_IDEAL:
        text = f"only {summary['of_ideal']:.0%} of what the ideal split removes"
    else:
        text = ""
    return {"passed": not text, "verdict": text or "the right rank was found"}


def time_ns(time: str) -> int:
    """RFC 3339 as ns since the epoch, to the microsecond."""
    return round(datetime.fromisoformat(time).timestamp() * 1e6) * 1000

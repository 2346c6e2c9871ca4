"""What happens next with an incident: a pure function from everything known to at most one decision.

One handler per state stands in ``HANDLERS``, the map of the room. A decision moves the incident, remarks
something once, and may carry a plan; the shell writes it down and asks again until there is none. Since the
situation is read from SQL and a decision is written in the same transaction, a process may die anywhere
between two decisions.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from lineside.contracts import Fault, Job, JobHealth, PlanKind
from lineside.remediation import ladder, verification
from lineside.remediation.incident import POLICY, Incident, PlanRecord, Progress, State
from lineside.remediation.plans.rebalance import Draft, Refusal, draft_rebalance


class Mode(StrEnum):
    """How much Lineside may do by itself."""

    OBSERVE = "observe"
    AUTO = "auto"


@dataclass(frozen=True, kw_only=True, slots=True)
class PolicyConfig:
    """The rules of the house."""

    mode: Mode = Mode.OBSERVE
    costs: ladder.Costs = field(default_factory=ladder.Costs)
    verify_steps: int = 50
    verify_timeout_ns: int = 600 * 10**9
    """No verdict by then: a person should look."""
    undo_hold_ns: int = 600 * 10**9
    """How long a fault must be gone before its remedy is undone."""
    max_failures: int = 3
    """Plans in a row that come to nothing before a person is asked."""
    telemetry_max_age_ns: int = 10 * 10**9
    min_reporting: float = 0.95


@dataclass(frozen=True, kw_only=True, slots=True)
class Situation:
    """Everything that a decision may rest on.

    ``ended``: why the run is over, None while it lasts. ``faults``: the newest phase of each, newest last.
    ``samples``: the recent health of the generation that runs, in order of step, the newest received at
    ``heard_ns``. ``remedy``: the incident's newest rebalancing, ``undo``: the baseline issued after it.
    ``in_force``: the newest applied plan of the running generation. ``busy``: a plan of the run is issued and
    not settled, or another incident's is being verified. ``proposed``: a proposal is recorded since the
    incident (re)opened. ``shared``: another incident still needs the plan in force.
    """

    now_ns: int
    incident: Incident
    job: Job | None
    faults: Sequence[Fault]
    ended: str | None = None
    samples: Sequence[JobHealth] = ()
    heard_ns: int = -1
    remedy: PlanRecord | None = None
    undo: PlanRecord | None = None
    in_force: PlanRecord | None = None
    busy: bool = False
    proposed: bool = False
    shared: bool = False

    @property
    def remedy_in_force(self) -> bool:
        """Is it this incident's own remedy that the run trains under?"""
        return (
            self.remedy is not None
            and self.in_force is not None
            and self.remedy.revision == self.in_force.revision
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Decision:
    """``to`` may be the state that stands: then it is a remark, made once per ``note``.

    ``plan`` is issued, or only recorded where ``proposed``. None in ``failures`` and ``effect``: unchanged.
    """

    to: State
    reason: str
    note: str | None = None
    plan: Draft | None = None
    proposed: bool = False
    failures: int | None = None
    effect: verification.Effect | None = None
    faulty_step_s: float | None = None
    restart_impact: bool = False


def decide(s: Situation, config: PolicyConfig) -> Decision | None:
    """The next thing to do, or None: wait."""
    if s.ended is not None:
        return Decision(to=State.RESOLVED, reason=s.ended)
    if s.job and s.faults and all(fault.generation < s.job.generation for fault in s.faults):
        return Decision(
            to=State.RESOLVED,
            reason=f"generation {s.job.generation} began; the culprit would have to show itself anew",
        )
    return HANDLERS[s.incident.state](s, config)


def _open(s: Situation, config: PolicyConfig) -> Decision | None:
    if s.remedy_in_force and s.remedy:
        return Decision(
            to=State.VERIFYING,
            reason=f"revision {s.remedy.revision} was applied after all",
            restart_impact=True,
        )
    if s.incident.relieved_ns is not None:
        return Decision(to=State.RESOLVED, reason="the fault is over")
    steps = ladder.rungs(s.incident.kind, s.faults)
    if ladder.due(steps, s.incident.impact_s, config.costs) is ladder.Rung.WATCH:
        return None
    return _propose(s, config)


def _propose(s: Situation, config: PolicyConfig) -> Decision | None:
    if s.job is None or s.busy or (config.mode is Mode.OBSERVE and s.proposed):
        return None
    if reason := _blind(s, config):
        return _remark(s, "blind", reason)
    if s.in_force and s.in_force.actor != POLICY and s.in_force.issued_ns >= s.incident.onset_ns:
        return _remark(
            s,
            "person",
            f"{s.in_force.actor} set revision {s.in_force.revision} since onset; it is left alone",
        )
    measured = verification.faulty_step_s(s.samples, s.incident.onset_ns)
    if measured is None:
        return None
    current = s.in_force.counts if s.in_force else s.job.even_plan()
    evidence = next((f.evidence for f in reversed(s.faults) if "replica_unit_s" in f.evidence), {})
    found = draft_rebalance(s.job, current, evidence, measured)
    if isinstance(found, Refusal):
        return _remark(s, found.code, f"not rebalanced: {found.reason}")
    if config.mode is Mode.OBSERVE:
        return Decision(
            to=State.OPEN,
            note="proposed",
            reason=f"would have rebalanced to {found.counts} (mode observe)",
            plan=found,
            proposed=True,
            faulty_step_s=measured,
        )
    return Decision(to=State.MITIGATING, reason=found.reason, plan=found, faulty_step_s=measured)


def _blind(s: Situation, config: PolicyConfig) -> str | None:
    """Why the telemetry is no ground for a plan, or None."""
    newest = s.samples[-1] if s.samples else None
    if newest is None or s.now_ns - s.heard_ns > config.telemetry_max_age_ns:
        return "telemetry lags: no plan until the job's health is heard again"
    if newest.ranks_reporting < config.min_reporting * newest.ranks_expected:
        return f"only {newest.ranks_reporting} of {newest.ranks_expected} ranks report: no plan"
    return None


def _mitigating(s: Situation, config: PolicyConfig) -> Decision | None:
    if s.remedy is None or s.remedy.progress is Progress.ISSUED:
        return None
    if s.remedy.progress is Progress.APPLIED:
        return Decision(
            to=State.VERIFYING,
            reason=f"revision {s.remedy.revision} applied by all ranks at step {s.remedy.applied_step}",
            restart_impact=True,
        )
    return _came_to_nothing(s, s.remedy, State.OPEN, config)


def _came_to_nothing(
    s: Situation, plan: PlanRecord, back_to: State, config: PolicyConfig
) -> Decision:
    """After a failed plan: once more, a remedy after as much impact again; then a person is asked."""
    failures = s.incident.failures + 1
    undo = plan.kind is PlanKind.BASELINE
    reason = f"revision {plan.revision} {plan.progress}: {plan.detail}"
    if failures >= config.max_failures:
        return Decision(
            to=State.ESCALATED,
            note="stuck" if undo else None,
            reason=f"{reason}; {failures} plans in a row came to nothing",
            failures=failures,
        )
    return Decision(
        to=back_to,
        note="relieved" if undo else None,
        reason=reason,
        failures=failures,
        restart_impact=not undo,
    )


def _verifying(s: Situation, config: PolicyConfig) -> Decision | None:
    remedy = s.remedy
    if remedy is None or not s.remedy_in_force:
        newer = s.in_force.revision if s.in_force else 0
        return Decision(
            to=State.ESCALATED, reason=f"revision {newer} replaced the remedy before its verdict"
        )
    found = verification.healed(
        s.samples, remedy.revision, remedy.applied_step, config.verify_steps
    )
    if found is None:
        if s.now_ns - s.incident.since_ns < config.verify_timeout_ns:
            return None
        return Decision(
            to=State.ESCALATED,
            reason=f"fewer than {config.verify_steps} steps were reported under revision "
            f"{remedy.revision}: its effect cannot be told",
        )
    effect = _effect(s, found.step_s)
    predicted = found.step_s if remedy.step_s is None else remedy.step_s
    said = f"{found.step_s:.3g} s a step, predicted {predicted:.3g} s"
    if (removed := effect["slowdown_removed"]) is not None:
        said += f"; {removed:.0%} of the slowdown removed"
    if verification.as_predicted(found, predicted):
        return Decision(to=State.MITIGATED, reason=said, effect=effect, failures=0)
    worse = s.incident.faulty_step_s is not None and found.step_s > s.incident.faulty_step_s
    return Decision(
        to=State.ESCALATED,
        reason=f"{said}; there is no further remedy to try"
        + ("; this one made it worse and is undone" if worse else ""),
        effect=effect,
        plan=_baseline(s.job, "the remedy made it worse") if worse and s.job else None,
    )


def _effect(s: Situation, healed_s: float) -> verification.Effect:
    remedy, newest = s.remedy, s.samples[-1] if s.samples else None
    done = newest.step - remedy.applied_step if remedy and newest else 0
    return verification.effect_of(
        healthy_s=s.incident.healthy_step_s,
        faulty_s=s.incident.faulty_step_s,
        healed_s=healed_s,
        predicted_s=remedy.step_s if remedy else None,
        steps=max(0, done),
    )


def _remedied(s: Situation, config: PolicyConfig) -> Decision | None:
    """Mitigated or escalated: wait for relief, hold, undo. What is escalated is a person's: no new remedy."""
    state, relieved_ns, note = s.incident.state, s.incident.relieved_ns, s.incident.note
    undoing = s.undo.progress if s.undo else None
    if undoing is Progress.ISSUED:
        return None
    if relieved_ns is None:
        if undoing is Progress.APPLIED and state is State.MITIGATED:
            return Decision(
                to=State.OPEN,
                reason="the fault came back while its remedy was being undone",
                restart_impact=True,
            )
        over = note in _OVER
        return _remark(s, "back", "the fault is back; the remedy stays") if over else None
    if undoing is Progress.APPLIED and s.undo:
        return Decision(
            to=State.RESOLVED,
            reason=f"the fault is over and the remedy undone by revision {s.undo.revision}",
        )
    if not s.remedy_in_force:
        return Decision(
            to=State.RESOLVED, reason="the fault is over and no remedy of it is in force"
        )
    if note not in _OVER:
        hold_s = config.undo_hold_ns / 1e9
        return Decision(
            to=state,
            note="relieved",
            reason=f"the fault is over; unless it is back within {hold_s:g} s the remedy is undone",
            effect=_effect(s, s.incident.healed_step_s) if s.incident.healed_step_s else None,
        )
    if note == "undoing" and s.undo is not None:
        return _came_to_nothing(s, s.undo, state, config)
    if note == "stuck" or s.job is None or s.busy:
        return None
    if s.now_ns < relieved_ns + config.undo_hold_ns:
        return None
    if s.shared:
        return _remark(s, "shared", "another incident still needs the plan in force; it stays")
    undo = _baseline(s.job, "the fault is over: back to the even split")
    reason = f"the fault stayed away: back to the even split {undo.counts}"
    return Decision(to=state, note="undoing", reason=reason, plan=undo)


_OVER = ("relieved", "shared", "undoing", "stuck")
"""Notes that stand only while the fault is over."""


def _baseline(job: Job, reason: str) -> Draft:
    return Draft(kind=PlanKind.BASELINE, counts=job.even_plan(), step_s=None, reason=reason)


HANDLERS: dict[State, Callable[[Situation, PolicyConfig], Decision | None]] = {
    State.OPEN: _open,
    State.MITIGATING: _mitigating,
    State.VERIFYING: _verifying,
    State.MITIGATED: _remedied,
    State.ESCALATED: _remedied,
}
"""``resolved`` has none: only a fault that comes back leads out of it."""


def _remark(s: Situation, code: str, reason: str) -> Decision | None:
    """Said once, until something else is."""
    if s.incident.note == code:
        return None
    return Decision(to=s.incident.state, note=code, reason=reason)

"""Plans as the agent sees them: which one is for this run, whether it may be followed, and what became of it.

``Desk`` is pure: plans and ranks' answers in, statuses out; the agent hands an accepted plan to its ranks by
``write_plan``, which replaces the run folder's ``plan`` atomically.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from lineside.agent.spec import AgentSpec
from lineside.contracts import Capabilities, Declaration, Plan, PlanKind, PlanState, PlanStatus
from lineside.probe.reader import Status

_MOST_REFUSALS = 1000
"""Who floods the topic gets no answer to all of it."""


@dataclass(slots=True)
class Desk:
    """The plans of one generation. ``started_ns``: Unix time; ``stop``: a plan has ended the run."""

    spec: AgentSpec
    started_ns: int
    plan: Plan | None = None
    stop: bool = False
    _seen: dict[int, Plan] = field(default_factory=dict)
    _accepted_ns: dict[int, int] = field(default_factory=dict)
    _answered: set[tuple[int, int, PlanState]] = field(default_factory=set)
    _refused: set[tuple[int, str]] = field(default_factory=set)

    @property
    def pending(self) -> bool:
        """Whether some rank has not yet answered to the plan in hand."""
        if self.plan is None:
            return False
        answers = {(r, n) for r, n, _ in self._answered if n == self.plan.revision}
        return len(answers) < len(self.spec.ranks)

    def consider(self, plan: Plan, declared: Declaration | None, now_ns: int) -> PlanStatus | None:
        """What to answer to ``plan``; None where it is not for this run or nothing new.

        An accepted one is ``self.plan`` from now on.
        """
        spec = self.spec
        if plan.job_id != spec.job_id:
            return None
        if plan.run_id != spec.run_id:
            # The topic keeps plans of earlier runs of this name: only a fresh one is worth an answer.
            fresh = plan.issued_ns >= self.started_ns
            detail = f"this is run {spec.run_id}, not {plan.run_id}"
            return self._answer(plan, PlanState.STALE, now_ns, detail) if fresh else None
        if (known := self._seen.get(plan.revision)) is not None:
            if known == plan:
                return None
            detail = f"revision {plan.revision} was seen with other content"
            return self._answer(plan, PlanState.REJECTED, now_ns, detail)
        if reason := _stale(plan, spec.generation, self.plan, now_ns):
            return self._answer(plan, PlanState.STALE, now_ns, reason)
        self._seen[plan.revision] = plan
        if reason := _refusal(plan, spec.generation, declared):
            return self._answer(plan, PlanState.REJECTED, now_ns, reason)
        self.plan = plan
        self._accepted_ns[plan.revision] = now_ns
        self.stop = plan.kind is PlanKind.STOP
        return self._answer(plan, PlanState.ACCEPTED, now_ns, "")

    def refuse(self, plan: Plan, reason: str, now_ns: int) -> PlanStatus | None:
        """What to answer to a plan whose word does not count; None where it is not for this run or where
        that was said before. Of such a plan nothing is remembered that could stand in a real one's way."""
        if (plan.job_id, plan.run_id) != (self.spec.job_id, self.spec.run_id):
            return None
        key = (plan.revision, reason)
        if key in self._refused or len(self._refused) >= _MOST_REFUSALS:
            return None
        self._refused.add(key)
        return self._answer(plan, PlanState.REJECTED, now_ns, reason)

    def answers(self, ranks: Mapping[int, Status | None], offset_ns: int) -> list[PlanStatus]:
        """What ranks have newly said about plans. ``offset_ns`` turns their clock into Unix time."""
        said = []
        for rank, status in ranks.items():
            if status is None:
                continue
            applied, refused = status.applied_revision, status.rejected_revision
            if self._is_new(rank, applied, PlanState.APPLIED):
                at_ns = status.applied_ns + offset_ns
                said.append(
                    self._said(rank, applied, PlanState.APPLIED, status.applied_step, at_ns)
                )
            if self._is_new(rank, refused, PlanState.REJECTED):
                at_ns = status.rejected_ns + offset_ns
                said.append(self._said(rank, refused, PlanState.REJECTED, -1, at_ns, status.reason))
        return said

    def _is_new(self, rank: int, revision: int, state: PlanState) -> bool:
        """Only what ranks say of revisions that they were given counts."""
        key = (rank, revision, state)
        if revision not in self._accepted_ns or key in self._answered:
            return False
        self._answered.add(key)
        return True

    def _said(
        self, rank: int, revision: int, state: PlanState, step: int, at_ns: int, detail: str = ""
    ) -> PlanStatus:
        took_s = max(0, at_ns - self._accepted_ns[revision]) / 1e9
        return PlanStatus(
            job_id=self.spec.job_id,
            run_id=self.spec.run_id,
            revision=revision,
            machine_id=self.spec.machine_id,
            rank=rank,
            state=state,
            step=step,
            at_ns=at_ns,
            took_s=took_s,
            detail=detail,
        )

    def _answer(self, plan: Plan, state: PlanState, now_ns: int, detail: str) -> PlanStatus:
        return PlanStatus(
            job_id=plan.job_id,
            run_id=plan.run_id,
            revision=plan.revision,
            machine_id=self.spec.machine_id,
            rank=-1,
            state=state,
            step=-1,
            at_ns=now_ns,
            detail=detail,
        )


def _stale(plan: Plan, generation: int, newest: Plan | None, now_ns: int) -> str | None:
    if plan.base_generation != generation:
        return f"this is generation {generation}, the plan starts from {plan.base_generation}"
    if 0 < plan.valid_until_ns < now_ns:
        return f"it was valid until {(now_ns - plan.valid_until_ns) / 1e9:.1f} s ago"
    if newest is not None and plan.revision < newest.revision:
        return f"revision {newest.revision} is in hand already"
    return None


def _refusal(plan: Plan, generation: int, declared: Declaration | None) -> str | None:
    can = declared.capabilities if declared else Capabilities()
    match plan.kind:
        case PlanKind.RESTART:
            return "cannot restart yet"
        case PlanKind.REBALANCE if not can.rebalance:
            return "the trainer has not declared that it can rebalance"
        case PlanKind.REROUTE if not (can.ring_order or can.swap_roles):
            return "the trainer has not declared that it can reroute"
    if plan.generation != generation:
        return f"only a restart leads to generation {plan.generation}"
    return None


def write_plan(folder: Path, plan: Plan) -> None:
    """Replace the run folder's ``plan``; ranks see the old or the new one, never a part. Raises OSError."""
    draft = folder / "plan.new"
    with draft.open("wb") as file:
        file.write(msgspec.json.encode(plan))
        file.flush()
        os.fsync(file.fileno())
    draft.replace(folder / "plan")


def failed(answer: PlanStatus, detail: str) -> PlanStatus:
    """``answer`` where an accepted plan could not be handed over."""
    return msgspec.structs.replace(answer, state=PlanState.FAILED, detail=detail)

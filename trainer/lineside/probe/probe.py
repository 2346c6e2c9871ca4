"""``Probe``: what a training script sees. It never raises into the loop and never blocks.

Without a run folder (``LINESIDE_RUN_DIR``), or where its file cannot be made, a probe is a no-op with the
same methods, so that a script needs no ``if``.
"""

import logging
import os
from collections.abc import Sequence
from pathlib import Path

from lineside.contracts import (
    Capabilities,
    Group,
    Mesh,
    MicroBatchLimits,
    Phase,
    Plan,
)
from lineside.probe.blocks import CollectiveBlock, PhaseBlock, Step
from lineside.probe.collectives import Ticket
from lineside.probe.file import ProbeFile
from lineside.probe.guard import Guard
from lineside.probe.layout import LivePhase
from lineside.probe.plans import common_revision
from lineside.probe.recorder import PHASES

_log = logging.getLogger("lineside.probe")
_attached: "Probe | None" = None


class Probe:
    """One rank's recorder. ``enabled`` says whether anything is written.

    >>> probe = Probe(None)
    >>> with probe.step(0) as s, probe.phase("compute"):
    ...     s.loss = 0.5
    >>> probe.enabled, probe.plan()
    (False, None)
    """

    def __init__(self, guard: Guard | None) -> None:
        self._guard = guard
        self._step, self._inert = Step(guard), Step(None)
        self._phases = {name: PhaseBlock(guard, int(code)) for name, code in PHASES.items()}
        self._unnamed = PhaseBlock(guard, int(LivePhase.STEP))
        self._proposed: Plan | None = None
        self._refused = -1

    @classmethod
    def attach(cls) -> "Probe":
        """The probe of this process, from the environment its agent gave it; a no-op without one."""
        global _attached
        if _attached is None:
            _attached = cls(_guard_from_environment())
        return _attached

    @classmethod
    def create(cls, folder: Path, rank: int, generation: int = 0) -> "Probe":
        """A probe with a file of its own in ``folder``. Raises OSError where it cannot be made."""
        return cls(Guard(ProbeFile(folder, rank, generation), folder))

    @property
    def enabled(self) -> bool:
        return self._guard is not None and self._guard.on

    @property
    def revision(self) -> int:
        """The plan revision in force here; 0 is what the Job says."""
        return self._guard.revision if self._guard else 0

    def declare(
        self,
        *,
        mesh: Mesh | None = None,
        groups: Sequence[Group] = (),
        micro_batches: int = -1,
        micro_batch_limits: MicroBatchLimits | None = None,
        rebalance_units: Sequence[Sequence[int]] = (),
        capabilities: Capabilities | None = None,
    ) -> None:
        """Say what this trainer is and can do (contracts ``Declaration``). ``micro_batches`` is the global
        number per step; ``groups`` only the irregular ones."""
        if self._guard:
            self._guard.declare(
                {
                    "mesh": mesh,
                    "groups": groups,
                    "micro_batches": micro_batches,
                    "micro_batch_limits": micro_batch_limits or MicroBatchLimits(),
                    "rebalance_units": rebalance_units,
                    "capabilities": capabilities or Capabilities(),
                }
            )

    def step(
        self,
        step: int,
        *,
        micro_batches: int = -1,
        tokens: int = -1,
        phase: Phase | None = None,
    ) -> Step:
        """A training step as a ``with`` block. Without ``phase`` the first step of a process is recorded as
        ``FIRST`` and others as ``TRAIN``. A step inside a step is not recorded."""
        if self._guard is None or self._guard.in_step:
            return self._inert
        return self._step.prepare(step, micro_batches, tokens, phase)

    def phase(self, name: str) -> PhaseBlock:
        """A ``with`` block that time is charged to: data, compute, comm, wait, checkpoint (eval, compile).

        Nestable: time goes to the innermost block. Outside a step it only shows what the rank is doing.
        """
        return self._phases.get(name, self._unnamed)

    def enqueue(self, group_id: str, op: str, nbytes: int) -> Ticket | None:
        """The next operation of a group is handed over; ``op`` is a contracts ``Op``."""
        return self._guard.enqueue(group_id, op, nbytes, start=False) if self._guard else None

    def started(self, ticket: Ticket | None) -> None:
        """The operation really runs."""
        if self._guard and ticket:
            self._guard.start(ticket)

    def completed(self, ticket: Ticket | None) -> None:
        """The operation is done; a second time changes nothing."""
        if self._guard and ticket:
            self._guard.complete(ticket)

    def collective(self, group_id: str, op: str, nbytes: int) -> CollectiveBlock:
        """enqueue, started and completed around a blocking operation."""
        return CollectiveBlock(self._guard, group_id, op, nbytes)

    def plan(self) -> Plan | None:
        """The newest plan that the agent has handed over; one stat call where nothing changed."""
        return self._guard.plan() if self._guard else None

    def agreement(self, plan: Plan | None) -> tuple[float, float]:
        """This rank's part of a world-wide SUM (float64): the revision it would switch to, and its square.

        A plan that is not newer, or that this rank rejected, counts as the one in force.
        """
        revision, self._proposed = self.revision, None
        if plan is not None and plan.revision > revision and plan.revision != self._refused:
            revision, self._proposed = plan.revision, plan
        return float(revision), float(revision * revision)

    def agreed(self, sums: Sequence[float], world_size: int) -> Plan | None:
        """After the reduction: the plan to switch to now, on every rank or on none."""
        plan = self._proposed
        try:
            revision = common_revision(float(sums[0]), float(sums[1]), world_size)
        except (TypeError, ValueError, IndexError):
            return None
        return plan if plan is not None and plan.revision == revision else None

    def applied(self, revision: int, step: int) -> None:
        """The plan is in force from ``step`` on: steps begun from now on carry its revision."""
        if self._guard:
            self._guard.applied(revision, step)

    def rejected(self, revision: int, reason: str) -> None:
        """This rank will not switch to ``revision``; so nobody does."""
        self._refused = revision
        if self._guard:
            self._guard.rejected(revision, reason)


def _guard_from_environment() -> Guard | None:
    folder = os.environ.get("LINESIDE_RUN_DIR")
    if not folder:
        return None
    try:
        rank = int(os.environ.get("RANK") or os.environ.get("SLURM_PROCID") or 0)
        generation = int(os.environ.get("LINESIDE_GENERATION") or 0)
        guard = Guard(ProbeFile(Path(folder), rank, generation), Path(folder))
    except Exception as error:
        _log.warning("Lineside records nothing of this rank: %s", error)
        return None
    # A forked child (a data loader's worker) shares the mapping, and two writers would spoil it.
    os.register_at_fork(after_in_child=lambda: setattr(guard, "on", False))
    return guard

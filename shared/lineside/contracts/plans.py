"""``plans.v1``: what should be running. Desired state with revisions, never a command."""

from enum import StrEnum

import msgspec

from lineside.contracts.jobs import Mesh


class PlanKind(StrEnum):
    BASELINE = "baseline"
    REBALANCE = "rebalance"
    REROUTE = "reroute"
    RESTART = "restart"
    STOP = "stop"


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """A complete desired state: the reader needs no earlier revision. Applying it twice changes nothing.

    ``micro_batch_plan[d]`` is replica d's number of micro-batches per step; empty means the Job's even
    split. Revision 0 is what the Job says.
    """

    job_id: str
    run_id: str
    revision: int
    base_generation: int
    base_revision: int
    generation: int
    issued_ns: int
    valid_until_ns: int
    kind: PlanKind
    reason: str = ""
    incident_id: str | None = None
    micro_batch_plan: list[int] = []
    ring_orders: dict[str, list[int]] = {}
    mesh: Mesh | None = None
    placement: dict[str, str] = {}
    excluded_machines: list[str] = []
    resume_step: int = -1
    environment: dict[str, str] = {}

    def check(self) -> str | None:
        if self.revision < 0:
            return f"revision is {self.revision}"
        if any(count < 0 for count in self.micro_batch_plan):
            return f"micro_batch_plan holds {min(self.micro_batch_plan)}"
        return None

"""``members.v1``: one machine's agent, alive. Written on change and every 10 s."""

from enum import StrEnum

import msgspec

from lineside.contracts.jobs import Capabilities, Group, Mesh, MicroBatchLimits


class MemberState(StrEnum):
    JOINING = "joining"
    CHECKED = "checked"
    RUNNING = "running"
    DRAINING = "draining"
    GONE = "gone"


class Declaration(msgspec.Struct, frozen=True, kw_only=True):
    """What the trainer said of itself by ``probe.declare(...)``."""

    mesh: Mesh | None = None
    groups: list[Group] = []
    micro_batches: int = -1
    micro_batch_limits: MicroBatchLimits = MicroBatchLimits()
    rebalance_units: list[list[int]] = []
    capabilities: Capabilities = Capabilities()


class SavedCheckpoint(msgspec.Struct, frozen=True):
    step: int
    generation: int
    saved_ns: int
    save_s: float | None
    verified: bool


class Member(msgspec.Struct, frozen=True, kw_only=True):
    job_id: str
    run_id: str
    generation: int
    machine_id: str
    at_ns: int
    state: MemberState
    ranks: list[int] = []
    pids: list[int] = []
    agent_version: str = ""
    boot_id: str = ""
    checks: dict[str, str] = {}
    declared: Declaration | None = None
    checkpoints: list[SavedCheckpoint] = []

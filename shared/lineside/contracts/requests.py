"""``requests.v1``: evidence that is asked of agents, and ``replies.v1``: what they found.

Only remediation writes requests, on a person's word or because a fault wants evidence. ``kind`` is an open
string: an agent answers a kind that it does not know with ``ok=false`` and the reason.
"""

from enum import StrEnum
from typing import Any

import msgspec

_MOST_RANKS = 100_000


class RequestKind(StrEnum):
    """The kinds that this version knows."""

    DUMP_STACKS = "dump_stacks"
    DUMP_FLIGHT_RECORDER = "dump_flight_recorder"
    TRACE_FLOWS = "trace_flows"
    VALIDATE_COMPUTE = "validate_compute"
    VALIDATE_LINKS = "validate_links"
    CHECKPOINT_NOW = "checkpoint_now"


NOT_DISRUPTIVE = frozenset(
    {RequestKind.DUMP_STACKS, RequestKind.DUMP_FLIGHT_RECORDER, RequestKind.TRACE_FLOWS}
)
"""These cost a run next to nothing; all others (unknown ones too) may pause or slow it."""


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """``ranks``: whom it concerns; empty: every rank. ``fault_id`` is null where a person asked.

    ``max_pause_s``: for how long the run may be held up, null: not at all. After ``expires_ns`` it is not
    carried out any more.
    """

    request_id: str
    fault_id: str | None
    job_id: str
    run_id: str
    generation: int
    kind: str
    ranks: list[int] = []
    parameters: dict[str, Any] = {}
    max_pause_s: float | None = None
    expires_ns: int

    def check(self) -> str | None:
        if not self.request_id or not self.kind:
            return "request_id and kind must not be empty"
        if len(self.ranks) > _MOST_RANKS:
            return f"ranks holds {len(self.ranks)} entries"
        if any(rank < 0 for rank in self.ranks):
            return f"ranks holds {min(self.ranks)}"
        return None


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """One rank's answer, given by its agent. ``rank`` is -1 where the agent answers for all its ranks.

    ``result`` is what was found, by kind; where not ``ok``, ``detail`` is the reason.
    """

    request_id: str
    fault_id: str | None
    job_id: str
    run_id: str
    generation: int
    kind: str
    machine_id: str
    rank: int
    at_ns: int
    ok: bool
    result: dict[str, Any] = {}
    detail: str = ""

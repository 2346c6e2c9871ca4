"""``machine-events.v1``: what happened to a machine, as its kernel, its monitors or its agent tell it."""

from enum import StrEnum

import msgspec


class EventSource(StrEnum):
    """Who saw it."""

    KMSG = "kmsg"
    DCGM = "dcgm"
    IB = "ib"
    OOM = "oom"
    WORKER_EXIT = "worker_exit"
    MONITOR = "monitor"


class EventSeverity(StrEnum):
    INFO = "info"
    WARNING = "warning"
    CRITICAL = "critical"


class MachineEvent(msgspec.Struct, frozen=True, kw_only=True):
    """One record per job that has ranks or a spare on the machine.

    ``code``: an Xid's number for ``kmsg`` (or ``segfault``), ``SIGKILL`` or ``exit 1`` for ``worker_exit``.
    ``device``: as the Job names it, or as the source does (a PCI address); null: the whole machine.
    ``count``: how often it happened since the record before; ``text``: the source's own words.
    """

    job_id: str
    run_id: str
    generation: int
    machine_id: str
    device: str | None
    at_ns: int
    source: EventSource
    code: str
    severity: EventSeverity
    count: int = 1
    text: str = ""

    def check(self) -> str | None:
        return f"count is {self.count}" if self.count < 1 else None

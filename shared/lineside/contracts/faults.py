"""``faults.v1``: what a detector found, as CloudEvents."""

import uuid
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Generic, TypeVar

import msgspec

FAULT_TYPE = "io.lineside.fault.v1"
_NAMESPACE = uuid.UUID("6c1d9c0e-6f0b-5d0a-9d53-2f5b9a6f7a11")

T = TypeVar("T")


class CloudEvent(msgspec.Struct, Generic[T], frozen=True, kw_only=True):
    """The structured-mode envelope of CloudEvents 1.0."""

    specversion: str = "1.0"
    id: str
    source: str
    type: str
    subject: str
    time: str
    datacontenttype: str = "application/json"
    data: T


class FaultKind(StrEnum):
    FAULTY_MACHINE = "faulty_machine"
    HANG = "hang"
    SLOW_COLLECTIVE = "slow_collective"
    SLOW_COMPUTE = "slow_compute"
    SLOW_LINK = "slow_link"
    SOFTWARE_STALL = "software_stall"
    APPLICATION_ERROR = "application_error"
    CRASH = "crash"
    CANNOT_TELL = "cannot_tell"


class FaultPhase(StrEnum):
    ONSET = "onset"
    UPDATE = "update"
    RELIEF = "relief"


class SuspectKind(StrEnum):
    MACHINE = "machine"
    DEVICE = "device"
    RANK = "rank"
    LINK = "link"
    GROUP = "group"


class Suspect(msgspec.Struct, frozen=True, kw_only=True):
    """``peer`` is the other end of a link. Rank ids mean something within the fault's generation only,
    so machine and device come along where they are known."""

    kind: SuspectKind
    id: str
    peer: str | None = None
    machine_id: str | None = None
    device: str | None = None
    score: float | None = None


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    """A finding with its suspects (culprits), victims and the numbers behind it.

    ``fault_id`` stays the same over all phases; ``fault_sequence`` numbers them from 0.
    """

    fault_id: str
    fault_sequence: int
    job_id: str
    run_id: str
    generation: int
    detector: str
    kind: FaultKind
    phase: FaultPhase
    onset_ns: int
    detected_ns: int
    suspects: list[Suspect] = []
    victims: list[Suspect] = []
    confidence: float = 0.0
    slowdown: float | None = None
    summary: str = ""
    evidence: dict[str, Any] = {}
    wanted_evidence: list[str] = []


def fault_id(
    run_id: str, generation: int, detector: str, kind: str, first_suspect: str, onset_ns: int
) -> str:
    """The id of a fault as first announced: the same whenever the same records are read again."""
    name = "\x00".join((run_id, str(generation), detector, kind, first_suspect, str(onset_ns)))
    return str(uuid.uuid5(_NAMESPACE, name))


def event_time(ns: int) -> str:
    """RFC 3339 with microseconds, UTC.

    >>> event_time(1_500_000_000)
    '1970-01-01T00:00:01.500000Z'
    """
    moment = datetime.fromtimestamp(ns // 1_000_000_000, UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{ns % 1_000_000_000 // 1000:06d}Z"


def fault_event(fault: Fault) -> CloudEvent[Fault]:
    """The fault in its envelope; each phase is an event of its own, with an id that a replay repeats."""
    return CloudEvent(
        id=str(uuid.uuid5(uuid.UUID(fault.fault_id), f"{fault.phase}\x00{fault.fault_sequence}")),
        source=f"/detectors/{fault.detector}",
        type=FAULT_TYPE,
        subject=fault.job_id,
        time=event_time(fault.detected_ns),
        data=fault,
    )

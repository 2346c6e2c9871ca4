"""Which incident a fault belongs to: the same run, suspects that overlap, windows that touch.

A rank overlaps its machine and its device, a link its two ends. Two ranks of one machine, or two links of
one rank, are different culprits, hence different incidents.
"""

import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import msgspec

from lineside.contracts import Fault, FaultKind, Job, Suspect, SuspectKind

_NAMESPACE = uuid.UUID("0b6c0f0e-7f0c-5f6b-8a3c-5a4e8a7a3f52")
_SPECIFIC = (
    FaultKind.CANNOT_TELL,
    FaultKind.SLOW_COLLECTIVE,
    FaultKind.SOFTWARE_STALL,
    FaultKind.APPLICATION_ERROR,
    FaultKind.SLOW_COMPUTE,
    FaultKind.SLOW_LINK,
    FaultKind.FAULTY_MACHINE,
    FaultKind.HANG,
    FaultKind.CRASH,
)
"""An incident takes the kind of its fault that stands last here."""

Tag = tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Standing:
    """An incident as the correlation sees it: its faults, and until when it lasted (None: it still does)."""

    incident_id: str
    faults: Sequence[Fault]
    until_ns: int | None


def incident_id(first_fault_id: str) -> str:
    """The id of the incident that a fault opens: the same in every replay."""
    return str(uuid.uuid5(_NAMESPACE, first_fault_id))


def located(fault: Fault, job: Job | None) -> Fault:
    """``fault`` whose suspects carry machine and device where the Job knows them."""
    if job is None or job.generation != fault.generation:
        return fault
    return msgspec.structs.replace(fault, suspects=[_located(s, job) for s in fault.suspects])


def _located(suspect: Suspect, job: Job) -> Suspect:
    if suspect.kind is not SuspectKind.RANK or suspect.machine_id or not suspect.id.isdecimal():
        return suspect
    machine, device = job.machine_of(int(suspect.id))
    return msgspec.structs.replace(suspect, machine_id=machine, device=suspect.device or device)


def home_of(fault: Fault, incidents: Iterable[Standing], flap_ns: int) -> str | None:
    """The incident among ``incidents`` (all of the fault's run) that ``fault`` joins; None: it opens one.

    An incident that is over takes a fault that begins within ``flap_ns`` of its end; the latest one wins.
    """
    fitting = [
        standing
        for standing in incidents
        if (standing.until_ns is None or fault.onset_ns <= standing.until_ns + flap_ns)
        and any(same_culprit(fault, other) for other in standing.faults)
    ]
    if not fitting:
        return None
    last = max(fitting, key=lambda s: (s.until_ns is None, s.until_ns or 0, s.incident_id))
    return last.incident_id


def same_culprit(one: Fault, other: Fault) -> bool:
    """Do the suspects overlap? Without any suspect only the same kind of fault counts as the same."""
    if not one.suspects or not other.suspects:
        return not one.suspects and not other.suspects and one.kind is other.kind
    itself, around = _tags(one)
    other_itself, other_around = _tags(other)
    return bool(itself & other_itself or itself & other_around or around & other_itself)


def _tags(fault: Fault) -> tuple[frozenset[Tag], frozenset[Tag]]:
    """(what the suspects are, what they sit on or end at). Ranks mean something per generation only."""
    itself: set[Tag] = set()
    around: set[Tag] = set()
    generation = str(fault.generation)
    for suspect in fault.suspects:
        machine: set[Tag] = {("machine", suspect.machine_id)} if suspect.machine_id else set()
        match suspect.kind:
            case SuspectKind.RANK:
                itself.add(("rank", generation, suspect.id))
                if suspect.machine_id and suspect.device:
                    itself.add(("device", suspect.machine_id, suspect.device))
                around |= machine
            case SuspectKind.DEVICE:
                itself.add(("device", suspect.machine_id or "", suspect.device or suspect.id))
                around |= machine
            case SuspectKind.MACHINE:
                itself.add(("machine", suspect.id))
            case SuspectKind.LINK:
                ends = (suspect.id, suspect.peer or "")
                itself.add(("link", generation, *ends))
                around |= {("rank", generation, end) for end in ends}
                around |= {("machine", end) for end in ends} | machine
            case SuspectKind.GROUP:
                itself.add(("group", generation, suspect.id))
    return frozenset(itself), frozenset(around)


def kind_of(faults: Iterable[Fault]) -> FaultKind:
    """The most specific kind among the faults of one incident."""
    return max((fault.kind for fault in faults), key=_SPECIFIC.index)


def confidence_of(faults: Iterable[Fault]) -> float:
    """Detectors that agree raise confidence: one minus the chance that all of them are wrong.

    Several faults of one detector count once, by the most confident.
    """
    best: dict[str, float] = {}
    for fault in faults:
        best[fault.detector] = max(
            best.get(fault.detector, 0.0), min(max(fault.confidence, 0.0), 1.0)
        )
    doubt = 1.0
    for confidence in best.values():
        doubt *= 1.0 - confidence
    return 1.0 - doubt

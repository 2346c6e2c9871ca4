"""Words for people and numbers for planners: a finding about a rank as a ``Fault``."""

from dataclasses import dataclass
from math import exp, isfinite
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from lineside.contracts import Fault, FaultKind, FaultPhase, Job, Suspect, SuspectKind
from lineside.falcon.topology import Topology
from lineside.falcon.tracking import Change
from lineside.falcon.watch import Finding

DETECTOR = "falcon"
_MOST_VICTIMS = 64
_EVIDENCE_BYTES = 16 * 1024


@dataclass(frozen=True, slots=True)
class Place:
    """Where a rank runs, as far as it is known."""

    rank: int
    machine_id: str | None
    device: str | None

    def __str__(self) -> str:
        where = ", ".join(part for part in (self.machine_id, self.device) if part)
        return f"Rank {self.rank}" + (f" ({where})" if where else "")


def place_of(rank: int, reporter: str, job: Job | None) -> Place:
    """``reporter``: the machine whose agent sent the rank's rows; that is where it runs."""
    machine_id, device = job.machine_of(rank) if job else (None, None)
    if reporter and machine_id != reporter:
        return Place(rank, reporter, None)
    return Place(rank, machine_id, device)


def onset(
    finding: Finding, place: Place, topology: Topology, identity: dict[str, Any], fault_id: str
) -> Fault:
    """The first announcement. ``identity``: job_id, run_id, generation and detected_ns."""
    slow = finding.slow
    ratio = exp(slow.level)
    peers = len(topology.peers(slow.series))
    since = "from its first steps" if slow.direct else f"since step {slow.onset_step}"
    effect = _slowdown(finding)
    costs = f"; every step takes {effect:.2f}x as long" if effect and effect >= 1.05 else ""
    return Fault(
        fault_id=fault_id,
        fault_sequence=0,
        detector=DETECTOR,
        kind=FaultKind.SLOW_COMPUTE,
        phase=FaultPhase.ONSET,
        onset_ns=slow.onset_ns,
        suspects=[_suspect(place, ratio)],
        victims=_victims(slow.series, topology),
        confidence=_confidence(slow.score),
        slowdown=effect,
        summary=f"{place} computes {ratio:.2f}x slower per micro-batch than its {peers} peer"
        f"{'s' * (peers != 1)} {since}{costs}.",
        evidence=_evidence(finding, topology),
        **identity,
    )


def later(first: Fault, finding: Finding, topology: Topology, sequence: int, now_ns: int) -> Fault:
    """An update or the relief of ``first``."""
    ratio = exp(finding.slow.level)
    suspect = msgspec.structs.replace(first.suspects[0], score=_rounded(ratio))
    who = str(Place(int(suspect.id), suspect.machine_id, suspect.device))
    if finding.change is Change.RELIEF:
        phase, summary = FaultPhase.RELIEF, f"{who} computes as fast as its peers again."
    else:
        phase = FaultPhase.UPDATE
        summary = f"{who} now computes {ratio:.2f}x slower per micro-batch than its peers."
    return msgspec.structs.replace(
        first,
        fault_sequence=sequence,
        phase=phase,
        detected_ns=now_ns,
        suspects=[suspect],
        slowdown=_slowdown(finding),
        summary=summary,
        evidence=_evidence(finding, topology),
    )


def ended(last: Fault, sequence: int, now_ns: int, reason: str) -> Fault:
    """The relief of a fault whose generation is over: nothing is known to have healed."""
    return msgspec.structs.replace(
        last,
        fault_sequence=sequence,
        phase=FaultPhase.RELIEF,
        detected_ns=now_ns,
        summary=f"Rank {last.suspects[0].id} is watched no longer: {reason}.",
    )


def _suspect(place: Place, ratio: float) -> Suspect:
    return Suspect(
        kind=SuspectKind.RANK,
        id=str(place.rank),
        machine_id=place.machine_id,
        device=place.device,
        score=_rounded(ratio),
    )


def _victims(series: int, topology: Topology) -> list[Suspect]:
    """Who waits: in synchronous training every other rank. The rank's peers first, at most 64."""
    peers = topology.peers(series).tolist()
    rest = set(range(topology.size)) - {series, *peers}
    named = [*peers, *sorted(rest)][:_MOST_VICTIMS]
    return [Suspect(kind=SuspectKind.RANK, id=str(int(topology.ranks[s]))) for s in named]


def _confidence(score: float) -> float:
    """0.95 at the six standard errors that a finding needs, towards 0.99."""
    return min(round(1 - exp(-score / 2), 3), 0.99)


def _slowdown(finding: Finding) -> float | None:
    if finding.step_s is None or finding.baseline_s is None:
        return None
    return _rounded(finding.step_s / finding.baseline_s)


def _evidence(finding: Finding, topology: Topology) -> dict[str, Any]:
    evidence: dict[str, Any] = {
        "step": finding.step,
        "onset_step": finding.slow.onset_step,
        "slow_steps": finding.slow_steps,
        "unit_s": _rounded(finding.unit_s),
        "peer_unit_s": _rounded(finding.peer_unit_s),
        "ratio": _rounded(exp(finding.slow.level)),
        "noise": _rounded(finding.slow.noise),
        "victims": topology.size - 1,
        "baseline_step_s": _rounded(finding.baseline_s),
        "slow_step_s": _rounded(finding.step_s),
    }
    if finding.model is None:
        return evidence
    for digits in (6, 5, 4, 3):  # a very wide job gets fewer digits, then no list at all
        lists = {
            "replica_unit_s": _shortened(finding.model.unit_s, digits),
            "replica_fixed_s": _shortened(finding.model.fixed_s, digits),
        }
        if len(msgspec.json.encode(evidence | lists)) <= _EVIDENCE_BYTES:
            return evidence | lists
    return evidence


def _rounded(value: float | None) -> float | None:
    return None if value is None or not isfinite(value) else float(f"{value:.6g}")


def _shortened(values: NDArray[np.float64], digits: int) -> list[float]:
    return [float(f"{value:.{digits}g}") for value in values]

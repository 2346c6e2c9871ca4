"""The evidence that faults want: asked for at once where it disturbs nobody, else in mode auto only.

Each fault gets each kind once: the request's id follows from both. What may not be asked is written down with
its reason, so that an incident shows it.
"""

import uuid

from sqlalchemy import select

from lineside.contracts import NOT_DISRUPTIVE, Fault, Job, RequestKind, Suspect, SuspectKind
from lineside.contracts.jobs import ENDED
from lineside.remediation.history import Turn
from lineside.remediation.incident import POLICY
from lineside.remediation.records import fault_of, job_of
from lineside.remediation.requests import ask, refusal_of
from lineside.remediation.store import FaultRow, JobRow, RequestRow

_FRESH_NS = 60 * 10**9
"""What a fault wanted longer ago it got, or nobody was there to give it."""


def ask_for_wanted(turn: Turn) -> None:
    """Write the requests that fresh faults want and that do not stand yet."""
    fresh = turn.session.execute(
        select(FaultRow, JobRow)
        .join(JobRow, JobRow.run_id == FaultRow.run_id)
        .where(
            FaultRow.relieved_ns.is_(None),
            FaultRow.updated_ns > turn.now_ns - _FRESH_NS,
            FaultRow.generation == JobRow.generation,
            JobRow.state.not_in(ENDED),
        )
        .order_by(FaultRow.onset_ns, FaultRow.fault_id)
    ).all()
    for row, job_row in fresh:
        fault, job = fault_of(row), job_of(job_row)
        for kind in dict.fromkeys(fault.wanted_evidence):
            _ask(turn, job, fault, kind)


def request_id(fault_id: str, kind: str) -> str:
    """The same in every replay."""
    return str(uuid.uuid5(_NAMESPACE, f"{fault_id}\x00{kind}"))


def _ask(turn: Turn, job: Job, fault: Fault, kind: str) -> None:
    wanted = request_id(fault.fault_id, kind)
    if turn.session.get(RequestRow, wanted) is not None:
        return
    refused = refusal_of(turn.session, job, kind, turn.now_ns)
    refusal = refused.reason if refused else None
    if refused is None and kind not in NOT_DISRUPTIVE and turn.settings.mode != "auto":
        refusal = f"{kind} may disturb the run, and the mode is {turn.settings.mode}"
    ask(
        turn.session,
        job,
        kind=kind[:64],
        ranks=whom(fault, job, kind),
        actor=POLICY,
        reason=fault.summary or f"{fault.kind} found by {fault.detector}",
        now_ns=turn.now_ns,
        partitions=turn.settings.partitions,
        max_pause_s=None if kind in NOT_DISRUPTIVE else MAX_PAUSE_S,
        fault_id=fault.fault_id,
        request_id=wanted,
        refusal=refusal,
    )


MAX_PAUSE_S = 5.0


def whom(fault: Fault, job: Job, kind: str) -> list[int]:
    """The ranks to ask: the suspects' own; all of them (an empty list) where nobody in particular is
    suspected, and for stacks, which say most side by side with the victims'."""
    if kind == RequestKind.DUMP_STACKS:
        return []
    return sorted({rank for suspect in fault.suspects for rank in _ranks_of(suspect, job)})


def _ranks_of(suspect: Suspect, job: Job) -> list[int]:
    match suspect.kind:
        case SuspectKind.RANK:
            return [int(suspect.id)] if suspect.id.isdecimal() else []
        case SuspectKind.LINK:
            return [int(end) for end in (suspect.id, suspect.peer or "") if end.isdecimal()]
        case SuspectKind.MACHINE | SuspectKind.DEVICE:
            return [
                device.rank
                for machine in job.machines
                for device in machine.devices
                if suspect.id in (machine.machine_id, device.device_id)
            ]
    return []


_NAMESPACE = uuid.UUID("3f2c9a54-90a1-5d7e-8d0b-6c1f3f0d7b21")

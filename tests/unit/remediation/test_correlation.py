"""Which faults belong together."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scene import S, fault, job

from lineside.contracts import FaultKind, Suspect, SuspectKind
from lineside.remediation import correlation
from lineside.remediation.correlation import Standing, home_of, incident_id, same_culprit


def rank(number, machine=None, device=None):
    return Suspect(kind=SuspectKind.RANK, id=str(number), machine_id=machine, device=device)


def machine(name):
    return Suspect(kind=SuspectKind.MACHINE, id=name)


def device(name, at):
    return Suspect(kind=SuspectKind.DEVICE, id=name, device=name, machine_id=at)


def link(a, b, at=None):
    return Suspect(kind=SuspectKind.LINK, id=a, peer=b, machine_id=at)


def accusing(*suspects, **changes):
    return msgspec.structs.replace(fault(), suspects=list(suspects), **changes)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (rank(3), rank(3), True),
        (rank(3), rank(4), False),
        (rank(3, "m1"), machine("m1"), True),
        (rank(3, "m1"), machine("m2"), False),
        (rank(3, "m1"), rank(4, "m1"), False),
        (rank(3, "m1", "gpu0"), device("gpu0", "m1"), True),
        (rank(3, "m1", "gpu0"), device("gpu0", "m2"), False),
        (device("gpu0", "m1"), machine("m1"), True),
        (device("gpu0", "m1"), device("gpu1", "m1"), False),
        (link("3", "4"), rank(3), True),
        (link("3", "4"), rank(4), True),
        (link("3", "4"), rank(5), False),
        (link("m1", "m2"), machine("m2"), True),
        (link("3", "4"), link("3", "5"), False),
        (link("3", "4"), link("3", "4"), True),
    ],
)
def test_suspects_overlap(one, other, same):
    assert same_culprit(accusing(one), accusing(other)) is same
    assert same_culprit(accusing(other), accusing(one)) is same


def test_ranks_of_different_generations_are_told_by_their_machine():
    before, after = accusing(rank(3, "m1", "gpu0")), accusing(rank(3, "m9", "gpu0"), generation=1)
    assert not same_culprit(before, after)
    moved = accusing(rank(0, "m1", "gpu0"), generation=1)
    assert same_culprit(before, moved)


def test_without_suspects_only_the_same_kind_is_the_same():
    one = accusing(kind=FaultKind.CANNOT_TELL)
    assert same_culprit(one, accusing(kind=FaultKind.CANNOT_TELL))
    assert not same_culprit(one, accusing(kind=FaultKind.SOFTWARE_STALL))
    assert not same_culprit(one, accusing(rank(0), kind=FaultKind.CANNOT_TELL))


def test_machines_come_from_the_job():
    [suspect] = correlation.located(fault(2), job()).suspects
    assert (suspect.machine_id, suspect.device) == ("machine-2", "gpu0")
    [unknown] = correlation.located(fault(2), job(generation=1)).suspects
    assert unknown.machine_id is None


def test_windows_must_touch():
    over = Standing(incident_id="a", faults=[fault()], until_ns=100 * S)
    assert home_of(fault(onset_ns=700 * S), [over], 600 * S) == "a"
    assert home_of(fault(onset_ns=701 * S), [over], 600 * S) is None
    lasting = Standing(incident_id="b", faults=[fault()], until_ns=None)
    assert home_of(fault(onset_ns=10**6 * S), [over, lasting], 600 * S) == "b"


def test_the_incident_id_is_the_first_faults():
    assert incident_id(fault().fault_id) == incident_id(fault().fault_id)
    assert incident_id(fault(0).fault_id) != incident_id(fault(1).fault_id)


@given(st.lists(st.tuples(st.sampled_from(["falcon", "minder"]), st.floats(0, 1)), min_size=1))
def test_agreement_never_lowers_confidence(said):
    faults = [accusing(rank(0), detector=name, confidence=c) for name, c in said]
    together = correlation.confidence_of(faults)
    assert max(c for _, c in said) - 1e-12 <= together <= 1


def test_the_most_specific_kind_names_the_incident():
    kinds = [FaultKind.SLOW_COLLECTIVE, FaultKind.SLOW_COMPUTE, FaultKind.CANNOT_TELL]
    assert correlation.kind_of([accusing(kind=kind) for kind in kinds]) is FaultKind.SLOW_COMPUTE

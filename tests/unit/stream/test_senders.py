"""What never came of a sender's batches is counted."""

import msgspec
from tests.contract.examples import STEPS

from lineside.stream.senders import Senders


def batch(sequence: int, incarnation: str = "a", dropped: int = 0):
    return msgspec.structs.replace(
        STEPS, machine_id="m", sequence=sequence, incarnation=incarnation, dropped=dropped
    )


def test_counts_batches_and_says_what_is_missing() -> None:
    senders = Senders()
    for sequence in (4, 5, 8):
        senders.count(batch(sequence, dropped=1))
    sender = senders.by_machine["m"]
    assert (sender.batches, sender.missing, sender.dropped) == (3, 2, 3)


def test_a_restarted_agent_counts_from_its_first_batch() -> None:
    senders = Senders()
    senders.count(batch(7))
    senders.count(batch(0, incarnation="b"))
    assert senders.by_machine["m"].missing == 0

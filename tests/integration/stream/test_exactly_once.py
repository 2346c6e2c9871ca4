"""Real worker processes on a real Kafka are stopped, killed and joined under load; nothing may be missing.

What is compared is the state as saved: for every job and topic the number of records, their sum and their
order are exactly those of what was sent. Faults may come twice (their ids are the same), never not at all.
"""

import random
import signal

import pytest

from lineside.bus.kafka import KafkaBus
from lineside.contracts import TopicName, decode

from .counting import EVERY, expected_fault
from .harness import Feed, Saved, Starter, saved, wait_for

RATE = 240
"""Records a second, over all jobs and both topics."""


def _fault_ids(bus: KafkaBus) -> set[str]:
    tail, ids = bus.tail([TopicName.FAULTS]), set()
    while messages := tail.receive(500, 1.0):
        ids |= {decode(m.topic, m.value, m.headers).data.fault_id for m in messages}
    tail.close()
    return ids


def _one_ended(
    bus: KafkaBus, state: Saved, feed: Feed, start: Starter, name: str, how: int
) -> None:
    """A worker alone: caught up, working a while, then ended by ``how``."""
    worker = start(bus, name)
    sent = feed.count.total()
    wait_for(lambda: state.counts().total() >= sent, 180, f"{name} caught up, see {worker.log}")
    version = state.version
    wait_for(lambda: state.read() is not None and state.version > version, 60, "another snapshot")
    code = worker.end(signal.Signals(how))
    assert code == (0 if how == signal.SIGTERM else -signal.SIGKILL), worker.log.read_text()


def _second_joins(bus: KafkaBus, state: Saved, feed: Feed, start: Starter, name: str) -> None:
    """A second worker joins and leaves while the first goes on."""
    worker = start(bus, name)
    wait_for(lambda: worker.said("seated"), 180, f"{name} got partitions")
    sent = feed.count.total()
    wait_for(lambda: state.counts().total() >= sent, 180, f"caught up with {name}")
    worker.end(random.choice((signal.SIGTERM, signal.SIGKILL)))


def _exactly_once(bus: KafkaBus, start: Starter, rounds: int) -> None:
    with saved(bus) as state:
        with Feed(bus, RATE) as feed:
            for n in range(rounds):
                _one_ended(bus, state, feed, start, f"killed-{n}", signal.SIGKILL)
                if n < rounds - 1:  # the last one stopped is "first", below
                    _one_ended(bus, state, feed, start, f"stopped-{n}", signal.SIGTERM)
            first = start(bus, "first")
            sent = feed.count.total()
            wait_for(lambda: state.counts().total() >= sent, 180, "the first caught up")
            for n in range(rounds):
                _second_joins(bus, state, feed, start, f"second-{n}")
        wait_for(lambda: state.counts() == feed.count, 180, "every record applied")
        assert first.end(signal.SIGTERM) == 0, first.log.read_text()
        tallies = state.read()
    for (job_id, kind), total in feed.total.items():
        assert tallies[job_id]["count"][kind] == feed.count[job_id, kind]
        assert tallies[job_id]["total"][kind] == total
        assert tallies[job_id]["disorder"] == 0
    assert _fault_ids(bus) == {
        expected_fault(job_id, kind, n)
        for (job_id, kind), count in feed.count.items()
        for n in range(EVERY, count + 1, EVERY)
    }


@pytest.mark.timeout(900)  # a minute on a quiet machine; what it waits for has its own deadlines
def test_every_record_counts_once_over_stops_kills_and_joins(bus: KafkaBus, start: Starter) -> None:
    _exactly_once(bus, start, rounds=2)


@pytest.mark.kill
@pytest.mark.timeout(1800)
def test_every_record_counts_once_over_ten_of_each(bus: KafkaBus, start: Starter) -> None:
    _exactly_once(bus, start, rounds=10)

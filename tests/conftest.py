"""What all tests share: one real Kafka for the session, and a bus of one's own on it."""

import itertools
import os
from collections.abc import Iterator

import pytest

from lineside.bus.kafka import KafkaBus
from lineside.bus.local import LocalKafka
from lineside.contracts import TOPICS

PARTITIONS = 4
_numbers = itertools.count()


@pytest.fixture(scope="session")
def kafka() -> Iterator[LocalKafka]:
    """A running broker; ``kafka.bootstrap`` is its address. Share it: do not stop it."""
    with LocalKafka() as broker:
        yield broker


@pytest.fixture
def bus(kafka: LocalKafka) -> KafkaBus:
    """A bus with a topic prefix of its own, all topics created."""
    prefix = f"test-{os.getpid()}-{next(_numbers)}."
    bus = KafkaBus(kafka.bootstrap, prefix=prefix, partitions=PARTITIONS)
    bus.admin().ensure_topics(tuple(TOPICS.values()))
    return bus

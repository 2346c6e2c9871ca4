"""The bus in memory keeps the promises of the suite, and plays a broker that goes away."""

from collections.abc import Callable

import pytest

from lineside.bus.memory import MemoryBus
from lineside.contracts import TopicName

from .suite import BusSuite, record, values


@pytest.fixture
def bus() -> MemoryBus:
    return MemoryBus(partitions=4)


@pytest.fixture
def bare() -> MemoryBus:
    return MemoryBus(partitions=4, topics=())


@pytest.fixture
def resized(bus: MemoryBus) -> Callable[[int], MemoryBus]:
    def make(partitions: int) -> MemoryBus:
        other = MemoryBus(partitions=partitions, topics=())
        other.logs = bus.logs
        return other

    return make


@pytest.fixture
def away() -> MemoryBus:
    bus = MemoryBus(partitions=4, queue_records=10)
    bus.away = True
    return bus


class TestMemoryBus(BusSuite):
    pass


def test_records_wait_while_the_bus_is_away(bus: MemoryBus) -> None:
    tail, publisher = bus.tail([TopicName.JOBS]), bus.publisher()
    bus.away = True
    publisher.publish(record(b"early"))
    assert tail.receive(10, 0.0) == []
    bus.away = False
    publisher.poll()
    assert values(tail.receive(10, 0.0)) == [b"early"]


def test_the_clock_is_the_brokers(bus: MemoryBus) -> None:
    bus.now_ms = lambda: 42
    bus.publisher().publish(record())
    assert bus.tail([TopicName.JOBS]).receive(1, 0.0)[0].timestamp_ms == 42

"""Seats come up, hand over, go and come back; run on an event loop against the bus in memory."""

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import Any

from lineside.bus.memory import MemoryBus
from lineside.contracts import TopicName, WireMessage
from lineside.stream import attendant as room
from lineside.stream.attendant import Attendant
from lineside.stream.outbox import OutputLost
from lineside.stream.readiness import Readiness
from lineside.stream.worker import Worker

from .toy import PROCESSOR, Toy, metric, steps

room._RETRY_S = 0.01


async def until(condition: Callable[[], Any]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.005)


def live(attendant: Attendant) -> bool:
    return bool(attendant.seats) and all(seat.live for seat in attendant.seats.values())


def send(bus: MemoryBus, *wires: WireMessage) -> None:
    publisher = bus.publisher()
    for wire in wires:
        publisher.publish(wire)


def seen(attendant: Attendant) -> list[int]:
    partition = attendant.seats[0].partition
    detector = partition.detector("a") if partition else None
    return detector.seen.get("StepBatch", []) if isinstance(detector, Toy) else []


def deliver(attendant: Attendant, bus: MemoryBus, *offsets: int) -> None:
    for offset in offsets:
        attendant.deliver(bus.logs[TopicName.STEPS, 0][offset])


Scene = Callable[[MemoryBus, Attendant], Coroutine[Any, Any, None]]


def play(scene: Scene, records: int = 3) -> None:
    """Three records in the log, the partition assigned; then ``scene``."""

    async def whole() -> None:
        bus = MemoryBus(partitions=1)
        send(bus, *(steps("a", n) for n in range(records)))
        attendant = Attendant(Worker(PROCESSOR, bus))
        attendant.assign([0])
        try:
            await until(lambda: live(attendant))
            await scene(bus, attendant)
        finally:
            await attendant.close(5.0)

    asyncio.run(whole())


def test_a_seat_comes_up_from_the_log_and_takes_what_is_delivered() -> None:
    async def scene(bus: MemoryBus, attendant: Attendant) -> None:
        send(bus, steps("a", 3))
        deliver(attendant, bus, 1, 2, 3)
        assert seen(attendant) == [0, 1, 2, 3]

    play(scene)


def test_a_gap_is_read_from_the_log() -> None:
    async def scene(bus: MemoryBus, attendant: Attendant) -> None:
        send(bus, *(steps("a", n) for n in range(3, 7)))
        deliver(attendant, bus, 5)
        deliver(attendant, bus, 6)
        await until(lambda: live(attendant))
        assert seen(attendant) == list(range(7))

    play(scene)


def test_what_is_never_delivered_is_found_by_looking() -> None:
    async def scene(bus: MemoryBus, attendant: Attendant) -> None:
        await attendant.look()
        send(bus, steps("a", 3))
        await attendant.look()
        await until(lambda: live(attendant) and seen(attendant) == [0, 1, 2, 3])

    play(scene)


def test_looking_at_a_seat_that_moves_on_meanwhile_disturbs_nothing() -> None:
    async def scene(bus: MemoryBus, attendant: Attendant) -> None:
        looking = asyncio.create_task(attendant.look())
        await asyncio.sleep(0)
        send(bus, steps("a", 3))
        deliver(attendant, bus, 3)
        partition = attendant.seats[0].partition
        await looking
        assert attendant.seats[0].partition is partition and live(attendant)

    play(scene)


def test_nothing_is_applied_between_revocation_and_assignment() -> None:
    async def scene(bus: MemoryBus, attendant: Attendant) -> None:
        attendant.suspend()
        assert await attendant.save(5.0)
        send(bus, steps("a", 3))
        deliver(attendant, bus, 3)
        await attendant.look()
        assert seen(attendant) == [0, 1, 2]
        attendant.assign([0])
        await until(lambda: live(attendant))
        assert seen(attendant) == [0, 1, 2, 3]

    play(scene)


def test_what_is_saved_goes_on_with_the_next_owner() -> None:
    async def scene(bus: MemoryBus, attendant: Attendant) -> None:
        assert await attendant.save(5.0)
        attendant.assign([])
        other = Attendant(Worker(PROCESSOR, bus))
        other.assign([0])
        await until(lambda: live(other))
        assert seen(other) == [0, 1, 2] and not attendant.seats
        await other.close(5.0)

    play(scene)


def test_outputs_that_were_given_up_are_made_again_from_the_last_snapshot() -> None:
    async def scene(bus: MemoryBus, attendant: Attendant) -> None:
        settle, lost = attendant.worker.outbox.settle, [OutputLost("1 record")]

        def losing(timeout_s: float) -> bool:
            if lost:
                bus.logs[TopicName.FAULTS, 0].clear()
                raise lost.pop()
            return settle(timeout_s)

        attendant.worker.outbox.settle = losing  # type: ignore[method-assign]
        assert not await attendant.save(5.0)
        await until(lambda: live(attendant) and bus.logs[TopicName.FAULTS, 0])
        assert await attendant.save(5.0)

    play(scene)


def test_without_a_broker_a_seat_waits_and_readiness_says_so() -> None:
    async def scene(bus: MemoryBus, attendant: Attendant) -> None:
        ready = Readiness()
        assert ready() == (False, {"reasons": ["starting"]})
        ready.attendant = attendant
        await attendant.look()
        assert ready()[0]
        bus.away = True
        attendant.assign([])
        assert ready()[1]["reasons"] == ["no partitions assigned yet"]
        attendant.assign([0])
        await until(lambda: not attendant.reachable)
        assert ready()[1]["reasons"] == ["Kafka is away", "catching up on partitions [0]"]
        bus.away = False
        await until(lambda: live(attendant))
        assert ready()[0] and seen(attendant) == [0, 1, 2]

    play(scene)


def test_a_long_replay_ends_in_the_records_that_came_meanwhile() -> None:
    async def scene(bus: MemoryBus, attendant: Attendant) -> None:
        attendant.assign([])
        attendant.assign([0])
        send(bus, *(steps("a", n) for n in range(900, 903)), metric("a", 0))
        deliver(attendant, bus, 900, 901, 902)
        await until(lambda: live(attendant))
        assert seen(attendant) == list(range(903))

    play(scene, records=900)

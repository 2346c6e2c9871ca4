"""Messages on their way out: none lost, none out of order, whoever moves them on."""

import threading
import time

from lineside.bus import QueueFull
from lineside.bus.memory import MemoryBus, MemoryPublisher
from lineside.contracts import TopicName, WireMessage
from lineside.stream.outbox import Outbox

from .toy import steps


class Moody(MemoryPublisher):
    """Has room for every third record only."""

    asked = 0

    def publish(self, message: WireMessage) -> None:
        self.asked += 1
        if self.asked % 3:
            raise QueueFull("no room")
        time.sleep(0.0002)  # long enough for another thread to come between
        super().publish(message)


def test_two_threads_move_on_what_waits_without_loss_or_disorder() -> None:
    bus = MemoryBus(partitions=1)
    outbox, done = Outbox(Moody(bus)), threading.Event()

    def poll() -> None:
        while not done.is_set():
            outbox.poll()

    poller = threading.Thread(target=poll)
    poller.start()
    wires = [steps("a", n) for n in range(100)]
    for wire in wires:
        outbox.put(wire)
    while not outbox.settle(0.1):
        pass
    done.set()
    poller.join()
    assert [m.value for m in bus.logs[TopicName.STEPS, 0]] == [wire.value for wire in wires]


def test_it_is_full_before_it_eats_the_memory() -> None:
    bus = MemoryBus(partitions=1, queue_records=0)
    outbox = Outbox(bus.publisher())
    for n in range(1000):
        assert not outbox.full
        outbox.put(steps("a", n))
    assert outbox.full

"""Whatever is delivered, saved, killed or overtaken in whatever order: each record counts exactly once."""

from collections.abc import Callable

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from lineside.bus.memory import MemoryBus
from lineside.contracts import TopicName, WireMessage, decode, fault_id
from lineside.stream.partition import Partition, Verdict
from lineside.stream.snapshot import PART_BYTES
from lineside.stream.worker import Worker

from .toy import INPUTS, PROCESSOR, Toy, job, metric, steps

JOBS = ("a", "b", "c")
MAKE: dict[TopicName, Callable[[str, int], WireMessage]] = {
    TopicName.JOBS: lambda job_id, n: job(job_id, generation=n),
    TopicName.STEPS: steps,
    TopicName.MACHINE_METRICS: metric,
}
KIND = {
    TopicName.JOBS: "Job",
    TopicName.STEPS: "StepBatch",
    TopicName.MACHINE_METRICS: "MetricBatch",
}

a_job = st.sampled_from(JOBS)
a_topic = st.sampled_from(INPUTS)
an_owner = st.sampled_from((0, 1))


class Owner:
    """A worker that believes to own the partition; ``at`` is where its group would deliver next."""

    def __init__(self, bus: MemoryBus, part_bytes: int) -> None:
        self.worker = Worker(PROCESSOR, bus, part_bytes)
        self.partition: Partition = self.worker.open(0)
        self.at = dict.fromkeys(INPUTS, 0)

    def catch_up(self) -> None:
        for _ in self.worker.catch_up(self.partition):
            pass

    def toy(self, job_id: str) -> Toy:
        detector = self.partition.detector(job_id)
        return detector if isinstance(detector, Toy) else Toy(job_id)


class Interleavings(RuleBasedStateMachine):
    """Two workers on one partition, each of which may be the overtaken one."""

    part_bytes = PART_BYTES

    @initialize()
    def start(self) -> None:
        self.clock_ms = 0
        self.bus = MemoryBus(partitions=1, now_ms=self.tick)
        self.publisher = self.bus.publisher()
        self.sent: dict[tuple[str, TopicName], int] = {}
        self.poison: set[tuple[TopicName, int]] = set()
        self.owners = [Owner(self.bus, self.part_bytes), Owner(self.bus, self.part_bytes)]

    def tick(self) -> int:
        self.clock_ms += 1
        return self.clock_ms

    @rule(job_id=a_job, topic=a_topic, count=st.integers(1, 5))
    def records_are_sent(self, job_id: str, topic: TopicName, count: int) -> None:
        for _ in range(count):
            sequence = self.sent.get((job_id, topic), 0)
            self.publisher.publish(MAKE[topic](job_id, sequence))
            self.sent[job_id, topic] = sequence + 1

    @rule(topic=a_topic)
    def poison_is_sent(self, topic: TopicName) -> None:
        self.poison.add((topic, len(self.bus.logs[topic, 0])))
        self.publisher.publish(
            WireMessage(topic=topic, partition=0, key=b"a", value=b"\xc1", headers=())
        )

    @rule(owner=an_owner, topic=a_topic, count=st.integers(1, 8))
    def records_are_delivered(self, owner: int, topic: TopicName, count: int) -> None:
        it = self.owners[owner]
        for message in self.bus.logs[topic, 0][it.at[topic] : it.at[topic] + count]:
            it.at[topic] = message.offset + 1
            if it.worker.offer(it.partition, message) is Verdict.BEHIND:
                it.catch_up()

    @rule(owner=an_owner, topic=a_topic, jump=st.integers(-6, 6))
    def delivery_jumps(self, owner: int, topic: TopicName, jump: int) -> None:
        at = self.owners[owner].at
        at[topic] = max(0, at[topic] + jump)

    @rule(owner=an_owner)
    def it_saves(self, owner: int) -> None:
        it = self.owners[owner]
        snapshot = it.partition.snapshot()
        assert it.worker.commit([snapshot], 1.0) == [True]
        it.partition.saved(snapshot)

    @rule(owner=an_owner, written=st.integers(0, 12))
    def it_is_killed_while_saving(self, owner: int, written: int) -> None:
        snapshot = self.owners[owner].partition.snapshot()
        parts = [part for parts in snapshot.parts.values() for part in parts]
        for wire in [*parts, *snapshot.states.values()][:written]:
            self.publisher.publish(wire)
        self.owners[owner] = Owner(self.bus, self.part_bytes)

    @rule(owner=an_owner)
    def it_cannot_reach_the_broker(self, owner: int) -> None:
        it = self.owners[owner]
        snapshot = it.partition.snapshot()
        self.bus.away = True
        assert it.worker.commit([snapshot], 0.0) == [False]
        self.bus.away = False
        it.partition.not_saved(snapshot)

    @rule(owner=an_owner)
    def it_catches_up(self, owner: int) -> None:
        self.owners[owner].catch_up()

    @invariant()
    def nothing_is_counted_twice_or_out_of_order(self) -> None:
        for owner in getattr(self, "owners", ()):
            for (job_id, topic), count in self.sent.items():
                seen = owner.toy(job_id).seen.get(KIND[topic], [])
                assert seen == list(range(len(seen))) and len(seen) <= count

    def teardown(self) -> None:
        if not hasattr(self, "owners"):
            return
        last = Owner(self.bus, self.part_bytes)
        last.catch_up()
        for (job_id, topic), count in self.sent.items():
            assert last.toy(job_id).seen.get(KIND[topic], []) == list(range(count))
        assert self.found() == self.expected()
        assert self.letters() == self.poison

    def found(self) -> set[str]:
        log = self.bus.logs[TopicName.FAULTS, 0]
        return {decode(m.topic, m.value, m.headers).data.fault_id for m in log}

    def expected(self) -> set[str]:
        return {
            fault_id("r", 0, "toy", KIND[topic], job_id, n)
            for (job_id, topic), count in self.sent.items()
            for n in range(3, count + 1, 3)
            if topic is not TopicName.JOBS
        }

    def letters(self) -> set[tuple[TopicName, int]]:
        headers = [m.headers for m in self.bus.logs[TopicName.DEAD_LETTERS, 0]]
        return {(TopicName(h["source-topic"].decode()), int(h["source-offset"])) for h in headers}


class InterleavingsInParts(Interleavings):
    """The same with states that fit into no single record."""

    part_bytes = 12


TestInterleavings = Interleavings.TestCase
TestInterleavings.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
TestInterleavingsInParts = InterleavingsInParts.TestCase
TestInterleavingsInParts.settings = TestInterleavings.settings

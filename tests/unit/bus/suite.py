"""What every bus does, whichever it is: run against the one in memory and against a real Kafka.

A module that runs it gives these fixtures:

* ``bus``: a bus of four partitions with all topics, empty;
* ``bare``: one on a cluster that has none of its topics yet;
* ``resized``: a function from a number of partitions to a bus on the topics of ``bus``;
* ``away``: one that cannot be reached, and lets ten records wait.
"""

import time
from collections import defaultdict
from collections.abc import Callable, Sequence

import pytest

from lineside.bus import (
    Admin,
    Bus,
    BusMisuse,
    BusUnavailable,
    LogReader,
    Message,
    Publisher,
    QueueFull,
    Subscriber,
)
from lineside.contracts import TOPICS, TopicName, WireMessage, partition_of

JOBS, STEPS = TopicName.JOBS, TopicName.STEPS
DEADLINE_S = 30.0


def record(
    value: bytes | None = b"v",
    *,
    topic: TopicName = JOBS,
    partition: int = 0,
    key: bytes = b"k",
    headers: tuple[tuple[str, bytes], ...] = (),
) -> WireMessage:
    return WireMessage(topic=topic, partition=partition, key=key, value=value, headers=headers)


def publish(bus: Bus, records: Sequence[WireMessage]) -> None:
    publisher = bus.publisher()
    for one in records:
        publisher.publish(one)
    assert publisher.flush(DEADLINE_S) == 0
    assert publisher.failed() == 0
    publisher.close()


def receive(subscriber: Subscriber, count: int) -> list[Message]:
    """At least ``count`` records, then whatever else comes at once."""
    messages: list[Message] = []
    deadline = time.monotonic() + DEADLINE_S
    while len(messages) < count:
        assert time.monotonic() < deadline, f"only {len(messages)} of {count} records came"
        messages += subscriber.receive(100, 0.2)
    return messages + subscriber.receive(100, 0.0)


def values(messages: Sequence[Message]) -> list[bytes | None]:
    return [message.value for message in messages]


def numbers(count: int, partitions: int = 1) -> list[WireMessage]:
    return [record(b"%d" % i, partition=i % partitions) for i in range(count)]


class BusSuite:
    def test_it_opens_the_ports(self, bus: Bus) -> None:
        ports = {
            Publisher: bus.publisher(),
            Subscriber: bus.subscriber([JOBS], "ports"),
            LogReader: bus.reader(),
            Admin: bus.admin(),
        }
        assert isinstance(bus, Bus)
        assert isinstance(bus.tail([JOBS]), Subscriber)
        for port, opened in ports.items():
            assert isinstance(opened, port)
            opened.close()

    def test_records_of_a_partition_keep_their_order(self, bus: Bus) -> None:
        publish(bus, numbers(200, partitions=4))
        tail = bus.tail([JOBS])
        got = defaultdict(list)
        for message in receive(tail, 200):
            got[message.partition].append((message.offset, message.value))
        tail.close()
        for partition in range(4):
            sent = [b"%d" % i for i in range(partition, 200, 4)]
            assert got[partition] == list(enumerate(sent))

    def test_a_record_arrives_whole(self, bus: Bus) -> None:
        before = time.time_ns() // 1_000_000
        headers = (("schema", b"jobs.1"), ("empty", b""))
        publish(bus, [record(b"\x00\xff", partition=2, key=b"job", headers=headers)])
        tail = bus.tail([JOBS, STEPS])
        (message,) = receive(tail, 1)
        tail.close()
        assert before - 1000 <= message.timestamp_ms <= time.time_ns() // 1_000_000 + 1000
        assert message == Message(
            topic=JOBS,
            partition=2,
            offset=0,
            timestamp_ms=message.timestamp_ms,
            key=b"job",
            value=b"\x00\xff",
            headers=dict(headers),
        )
        assert isinstance(message.topic, TopicName)

    def test_a_tombstone_has_no_value_but_an_empty_value_stays(self, bus: Bus) -> None:
        publish(bus, [record(b""), record(None)])
        tail = bus.tail([JOBS])
        assert values(receive(tail, 2)) == [b"", None]
        tail.close()

    def test_a_group_goes_on_where_it_committed(self, bus: Bus) -> None:
        publish(bus, numbers(6))
        first = bus.subscriber([JOBS], "g")
        assert len(receive(first, 6)) == 6
        first.commit()
        first.close()
        publish(bus, [record(b"later")])
        second = bus.subscriber([JOBS], "g")
        assert values(receive(second, 1)) == [b"later"]
        second.close()

    def test_what_was_not_committed_comes_again(self, bus: Bus) -> None:
        publish(bus, numbers(3))
        first = bus.subscriber([JOBS], "g")
        receive(first, 3)
        first.commit()
        publish(bus, [record(b"a"), record(b"b")])
        receive(first, 2)
        first.close()
        second = bus.subscriber([JOBS], "g")
        assert values(receive(second, 2)) == [b"a", b"b"]
        second.close()

    def test_members_share_the_partitions_and_take_over(self, bus: Bus) -> None:
        first, second = bus.subscriber([JOBS], "g"), bus.subscriber([JOBS], "g")
        sent: set[bytes | None] = set()
        got: tuple[list[Message], list[Message]] = ([], [])
        deadline = time.monotonic() + DEADLINE_S
        while not (got[0] and got[1]):
            assert time.monotonic() < deadline, "one member never got a record"
            fresh = [record(b"%d-%d" % (len(sent), p), partition=p) for p in range(4)]
            publish(bus, fresh)
            sent |= {one.value for one in fresh}
            got[0].extend(first.receive(100, 0.1))
            got[1].extend(second.receive(100, 0.1))
            first.commit()  # the second never does
        second.close()
        while not sent <= set(values(got[0])):  # what the second had not committed comes again
            assert time.monotonic() < deadline, "records of the leaving member were lost"
            got[0].extend(first.receive(100, 0.1))
        first.close()

    def test_groups_do_not_share_with_each_other(self, bus: Bus) -> None:
        publish(bus, numbers(5))
        for group in ("a", "b"):
            member = bus.subscriber([JOBS], group)
            assert len(receive(member, 5)) == 5
            member.commit()
            member.close()

    def test_a_groups_lag_is_what_is_not_committed(self, bus: Bus) -> None:
        publish(bus, numbers(7, partitions=4))
        member = bus.subscriber([JOBS], "g")
        receive(member, 7)
        assert member.lag() == 7
        member.commit()
        assert member.lag() == 0
        member.close()

    def test_a_tail_reads_from_the_start_and_knows_when_it_is_through(self, bus: Bus) -> None:
        publish(bus, numbers(5))
        tail = bus.tail([JOBS, STEPS])
        assert values(receive(tail, 5)) == [b"%d" % i for i in range(5)]
        deadline = time.monotonic() + DEADLINE_S
        while tail.lag() != 0:  # unknown until each partition was asked once
            assert time.monotonic() < deadline
            assert tail.receive(10, 0.1) == []
        publish(bus, [record(b"new")])
        assert values(receive(tail, 1)) == [b"new"]
        tail.commit()
        tail.close()

    def test_a_jobs_tail_reads_its_partition_only(self, bus: Bus) -> None:
        mine = partition_of("gpt", bus.partitions)
        publish(bus, [record(b"mine", partition=mine)])
        publish(bus, [record(b"other", partition=(mine + 1) % bus.partitions)])
        tail = bus.tail([JOBS, STEPS], job_id="gpt")
        publish(bus, [record(b"steps", topic=STEPS, partition=mine)])
        assert sorted(map(str, values(receive(tail, 2)))) == ["b'mine'", "b'steps'"]
        tail.close()

    def test_receive_returns_as_soon_as_there_is_something(self, bus: Bus) -> None:
        publish(bus, numbers(9))
        tail = bus.tail([JOBS])
        assert 1 <= len(tail.receive(2, DEADLINE_S)) <= 2
        tail.close()

    def test_a_reader_reads_any_range(self, bus: Bus) -> None:
        publish(bus, numbers(10))
        reader = bus.reader()
        assert reader.bounds(JOBS, 0) == (0, 10)
        assert reader.bounds(JOBS, 1) == (0, 0)

        def offsets(start: int, stop: int | None = None) -> list[int]:
            return [message.offset for message in reader.read(JOBS, 0, start, stop)]

        assert offsets(0) == list(range(10))
        assert offsets(-5, 2) == [0, 1]
        assert offsets(4, 6) == [4, 5]
        assert offsets(8, 50) == [8, 9]
        assert offsets(10) == offsets(50) == offsets(6, 4) == []
        assert list(reader.read(JOBS, 1, 0)) == []
        reader.close()

    def test_a_readers_end_is_that_of_the_call(self, bus: Bus) -> None:
        publish(bus, numbers(2))
        reader = bus.reader()
        running, other = reader.read(JOBS, 0, 0), reader.read(JOBS, 0, 1)
        assert next(running).value == b"0"
        publish(bus, numbers(2))
        assert values(list(other)) == [b"1"]
        assert values(list(running)) == [b"1"]
        reader.close()

    def test_a_reader_needs_the_topic(self, bare: Bus) -> None:
        with pytest.raises(BusMisuse, match="partition 0"):
            bare.reader().bounds(JOBS, 0)

    def test_topics_are_made_once(self, bare: Bus) -> None:
        admin = bare.admin()
        assert admin.partitions(JOBS) == 0
        assert sorted(admin.ensure_topics([TOPICS[JOBS], TOPICS[STEPS]])) == [JOBS, STEPS]
        assert admin.ensure_topics([TOPICS[JOBS], TOPICS[STEPS]]) == []
        assert admin.partitions(JOBS) == 4
        admin.close()

    def test_topics_of_another_size_are_refused(
        self, bus: Bus, resized: Callable[[int], Bus]
    ) -> None:
        with pytest.raises(BusMisuse, match=r"should have 5 partitions, but .* has 4"):
            resized(5).admin().ensure_topics([TOPICS[JOBS]])

    def test_a_reader_of_missing_topics_gets_the_records_once_they_are_made(
        self, bare: Bus
    ) -> None:
        member, tail = bare.subscriber([JOBS], "early"), bare.tail([JOBS])
        assert member.receive(10, 0.1) == tail.receive(10, 0.1) == []
        bare.admin().ensure_topics([TOPICS[JOBS]])
        publish(bare, [record(b"first")])
        assert values(receive(member, 1)) == values(receive(tail, 1)) == [b"first"]
        member.close()
        tail.close()

    def test_a_record_for_a_missing_topic_is_counted_or_refused(self, bare: Bus) -> None:
        publisher = bare.publisher()
        try:
            publisher.publish(record())
        except BusMisuse:
            return
        assert publisher.flush(DEADLINE_S) == 0
        assert publisher.failed() == 1

    def test_too_large_a_record_is_refused_at_once(self, bus: Bus) -> None:
        publisher = bus.publisher()
        with pytest.raises(BusMisuse, match="split the batch"):
            publisher.publish(record(b"x" * TOPICS[JOBS].max_bytes))

    def test_the_largest_record_passes(self, bus: Bus) -> None:
        size = TOPICS[JOBS].max_bytes - 4096
        incompressible = b"".join(n.to_bytes(4, "big") for n in range(size // 4))
        publish(bus, [record(incompressible)])
        (message,) = bus.reader().read(JOBS, 0, 0)
        assert message.value == incompressible

    def test_a_partition_that_is_not_there_is_refused(self, bus: Bus) -> None:
        with pytest.raises(BusMisuse, match="no partition 4"):
            bus.publisher().publish(record(partition=4))

    def test_a_full_queue_pushes_back_and_flush_counts_what_is_left(self, away: Bus) -> None:
        publisher = away.publisher()
        for _ in range(10):
            publisher.publish(record())
        with pytest.raises(QueueFull):
            publisher.publish(record())
        publisher.poll()
        assert publisher.flush(0.05) == 10
        assert publisher.failed() == 0
        publisher.close()

    def test_an_unreachable_bus_is_said_so_by_those_who_need_an_answer(self, away: Bus) -> None:
        with pytest.raises(BusUnavailable):
            away.admin().ensure_topics([TOPICS[JOBS]])
        with pytest.raises(BusUnavailable):
            away.reader().bounds(JOBS, 0)
        assert away.tail([JOBS]).receive(1, 0.05) == []

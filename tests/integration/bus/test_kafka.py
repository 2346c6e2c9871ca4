"""KafkaBus against a real Kafka: the suite of every bus, and what only a broker can do to a client."""

import logging
import time
import uuid
from collections.abc import Callable

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from tests.unit.bus.suite import BusSuite, numbers, publish, receive, record

from lineside.bus.kafka import KafkaBus
from lineside.bus.local import LocalKafka
from lineside.contracts import TopicName, partition_of

# So that what is missing is noticed within the test's patience.
_HASTY = {"topic.metadata.refresh.interval.ms": 500, "topic.metadata.propagation.max.ms": 500}


@pytest.fixture
def bare(kafka: LocalKafka) -> KafkaBus:
    return KafkaBus(kafka.bootstrap, prefix=f"bare-{uuid.uuid4()}.", partitions=4, settings=_HASTY)


@pytest.fixture
def resized(bus: KafkaBus) -> Callable[[int], KafkaBus]:
    return lambda partitions: KafkaBus(bus.bootstrap, prefix=bus.prefix, partitions=partitions)


@pytest.fixture
def away() -> KafkaBus:
    return KafkaBus("127.0.0.1:9", partitions=4, queue_records=10, answer_s=0.5)


class TestKafkaBus(BusSuite):
    pass


def test_our_partition_is_the_one_that_librdkafka_and_java_choose(bus: KafkaBus) -> None:
    jobs = ["", "a", "gpt", "job-17", "日本語", *(f"{uuid.uuid4()}"[:n] for n in range(1, 36))]
    chosen: dict[str, int] = {}
    producer = Producer({"bootstrap.servers": bus.bootstrap, "partitioner": "murmur2"})
    for job in jobs:
        producer.produce(
            f"{bus.prefix}{TopicName.JOBS}",
            key=job.encode(),
            on_delivery=lambda _, sent, job=job: chosen.update({job: sent.partition()}),
        )
    assert producer.flush(30) == 0
    assert chosen == {job: partition_of(job, 4) for job in jobs}
    assert len(set(chosen.values())) == 4


def test_records_beyond_retention_are_passed_with_a_warning(
    bus: KafkaBus, caplog: pytest.LogCaptureFixture
) -> None:
    steps = TopicName.STEPS
    publish(bus, [record(b"%d" % i, topic=steps) for i in range(10)])
    first = bus.subscriber([steps], "g")
    receive(first, 10)
    first.close()
    early = bus.subscriber([steps], "g")
    assert len(early.receive(2, 30)) == 2
    early.commit()
    early.close()
    gone = TopicPartition(f"{bus.prefix}{steps}", 0, 6)
    admin = AdminClient({"bootstrap.servers": bus.bootstrap})
    for future in admin.delete_records([gone]).values():
        future.result(30)

    late = bus.subscriber([steps], "g")
    assert [message.offset for message in receive(late, 4)] == [6, 7, 8, 9]
    late.close()
    assert "out of range" in caplog.text
    reader = bus.reader()
    assert reader.bounds(steps, 0) == (6, 10)
    assert [message.offset for message in reader.read(steps, 0, 0)] == [6, 7, 8, 9]
    reader.close()


def test_topics_of_others_do_no_harm(bus: KafkaBus) -> None:
    client = AdminClient({"bootstrap.servers": bus.bootstrap})
    names = [f"{bus.prefix}of-others", f"others-{uuid.uuid4()}"]
    for future in client.create_topics([NewTopic(name, 1, 1) for name in names]).values():
        future.result(30)
    assert bus.admin().partitions(TopicName.JOBS) == 4
    publish(bus, numbers(1))
    tail = bus.tail([TopicName.JOBS])
    receive(tail, 1)
    tail.close()


def test_an_absent_broker_is_mentioned_once(
    away: KafkaBus, caplog: pytest.LogCaptureFixture
) -> None:
    tail, publisher = away.tail([TopicName.JOBS]), away.publisher()
    publisher.publish(record())
    deadline = time.monotonic() + 2.5
    while time.monotonic() < deadline:
        tail.receive(10, 0.1)
        publisher.poll()
    said = [(entry.levelno, entry.getMessage()) for entry in caplog.records]
    assert sorted(said) == [
        (logging.WARNING, f"{who}: Kafka at 127.0.0.1:9 is away; waiting for it")
        for who in ("publisher", "tail")
    ]
    tail.close()
    publisher.close()

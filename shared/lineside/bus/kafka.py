"""The bus on Apache Kafka, through librdkafka (confluent-kafka); only this room names it.

A record's partition is always explicit (``contracts.partition_of``), so librdkafka's own partitioner never
decides.
"""

import time
from collections.abc import Mapping, Sequence

from confluent_kafka import KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from lineside.bus.kafka_clients import LATEST, Cluster, Voice, is_given_up, log, said
from lineside.bus.kafka_consumers import KafkaReader, KafkaSubscriber
from lineside.bus.port import BusError, BusMisuse, QueueFull, reject_unsendable
from lineside.contracts import Topic, TopicName, WireMessage, partition_of


class KafkaBus:
    """Opens the ports against one cluster. Creating it opens no connection.

    ``settings`` go to librdkafka as they are (``security.protocol``, ``sasl.username``, ...).
    ``queue_records`` is how many records may wait to be sent before ``QueueFull``, ``answer_s`` how long a
    broker may take to answer a question before ``BusUnavailable``.

    >>> bus = KafkaBus(bootstrap="127.0.0.1:9092", prefix="lineside.", partitions=12)
    >>> publisher = bus.publisher()
    """

    def __init__(
        self,
        bootstrap: str,
        prefix: str = "lineside.",
        partitions: int = 12,
        replication: int = 1,
        *,
        settings: Mapping[str, str | int] | None = None,
        queue_records: int = 100_000,
        answer_s: float = 5.0,
    ) -> None:
        self.partitions = partitions
        self.bootstrap, self.prefix = bootstrap, prefix
        self._cluster = Cluster(
            bootstrap=bootstrap, prefix=prefix, settings=settings or {}, answer_s=answer_s
        )
        self._replication = replication
        self._queue_records = queue_records

    def publisher(self) -> "KafkaPublisher":
        return KafkaPublisher(self._cluster, self.partitions, self._queue_records)

    def subscriber(self, topics: Sequence[TopicName], group: str) -> KafkaSubscriber:
        return KafkaSubscriber(self._cluster, topics, group=group)

    def tail(self, topics: Sequence[TopicName], job_id: str | None = None) -> KafkaSubscriber:
        one = None if job_id is None else partition_of(job_id, self.partitions)
        partitions = range(self.partitions) if one is None else (one,)
        return KafkaSubscriber(self._cluster, topics, partitions=partitions)

    def reader(self) -> KafkaReader:
        return KafkaReader(self._cluster)

    def admin(self) -> "KafkaAdmin":
        return KafkaAdmin(self._cluster, self.partitions, self._replication)


class KafkaPublisher:
    """Sends; idempotent, so a broker's restart neither loses nor repeats a record."""

    def __init__(self, cluster: Cluster, partitions: int, queue_records: int) -> None:
        self._cluster = cluster
        self._partitions = partitions
        self._voice = Voice(cluster, "publisher")
        self._failed = 0
        self._reason: int | None = None
        config = cluster.producer(self._voice, queue_records)
        self._producer = Producer(config | {"on_delivery": self._delivered})

    def publish(self, message: WireMessage) -> None:
        reject_unsendable(message, self._partitions)
        try:
            self._producer.produce(
                self._cluster.full(message.topic),
                message.value,
                message.key,
                message.partition,
                headers=list(message.headers),
            )
        except BufferError:
            raise QueueFull(f"{len(self._producer)} records wait to be sent") from None
        except KafkaException as error:
            raise BusMisuse(f"{message.topic}: {said(error)}") from error

    def poll(self) -> None:
        self._producer.poll(0)

    def flush(self, timeout_s: float) -> int:
        return int(self._producer.flush(timeout_s))

    def failed(self) -> int:
        return self._failed

    def close(self) -> None:
        """Records that are still queued are given up: ``flush`` first."""
        if waiting := len(self._producer):
            log.warning("publisher: closed with %d records not delivered", waiting)
        self._producer.purge()
        self._producer.flush(0)

    def _delivered(self, error: KafkaError | None, message: object) -> None:
        if error is None:
            self._reason = None
            self._voice.back()
            return
        self._failed += 1
        if error.code() != self._reason and not is_given_up(error):
            self._reason = error.code()
            log.warning("publisher: records are given up: %s", said(error))


class KafkaAdmin:
    """Topics as they should be."""

    def __init__(self, cluster: Cluster, partitions: int, replication: int) -> None:
        self._cluster = cluster
        self._partitions = partitions
        self._replication = replication
        self._client = AdminClient(cluster.admin())

    def ensure_topics(self, topics: Sequence[Topic]) -> list[str]:
        found = self._existing()
        self._reject_mismatch(topics, found)
        created = self._create(topics, found)
        if len(created) < len(topics):  # another starter may have been faster, with other settings
            self._reject_mismatch(topics, self._existing())
        self._await_leaders(created)
        return created

    def partitions(self, topic: TopicName) -> int:
        return self._existing().get(self._cluster.full(topic), 0)

    def close(self) -> None:
        """Nothing to give back: librdkafka's handle goes with the object."""

    def _existing(self) -> dict[str, int]:
        """Partitions by the cluster's topic names."""
        try:
            topics = self._client.list_topics(timeout=self._cluster.answer_s).topics
            return {name: len(topic.partitions) for name, topic in topics.items()}
        except KafkaException as error:
            raise self._cluster.unavailable(error) from error

    def _reject_mismatch(self, topics: Sequence[Topic], found: dict[str, int]) -> None:
        names = [self._cluster.full(topic.name) for topic in topics]
        other = [
            f"{name} has {found[name]}"
            for name in names
            if name in found and found[name] != self._partitions
        ]
        if other:
            raise BusMisuse(
                f"topics should have {self._partitions} partitions, but {', '.join(other)}: the number is "
                "fixed when the topics are created. Set LINESIDE_PARTITIONS to theirs, or use another "
                "LINESIDE_TOPIC_PREFIX"
            )

    def _create(self, topics: Sequence[Topic], found: dict[str, int]) -> list[str]:
        missing = {self._cluster.full(topic.name): topic for topic in topics}
        missing = {full: topic for full, topic in missing.items() if full not in found}
        if not missing:
            return []
        durable = {"min.insync.replicas": "2"} if self._replication >= 3 else {}
        wanted = [
            NewTopic(
                full,
                num_partitions=self._partitions,
                replication_factor=self._replication,
                config=topic.kafka_config | durable,
            )
            for full, topic in missing.items()
        ]
        created = []
        for full, future in self._client.create_topics(
            wanted, operation_timeout=self._cluster.answer_s
        ).items():
            try:
                future.result()
                created.append(str(missing[full].name))
            except KafkaException as error:
                if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                    raise self._refused(full, error) from error
        return created

    def _await_leaders(self, created: Sequence[str]) -> None:
        """A new topic is in the metadata before its partitions take records: wait for all of them."""
        waiting = [
            TopicPartition(f"{self._cluster.prefix}{name}", partition)
            for name in created
            for partition in range(self._partitions)
        ]
        deadline = time.monotonic() + self._cluster.answer_s
        while waiting and time.monotonic() < deadline:
            asked = self._client.list_offsets(dict.fromkeys(waiting, LATEST), request_timeout=0.5)
            waiting = [at for at, future in asked.items() if future.exception() is not None]
            if waiting:
                time.sleep(0.02)
                self._existing()  # else librdkafka remembers that there was no leader

    def _refused(self, name: str, error: KafkaException) -> BusError:
        if error.args[0].code() == KafkaError.INVALID_REPLICATION_FACTOR:
            return BusMisuse(
                f"cannot keep {self._replication} copies of {name}: {said(error)}. Set "
                "LINESIDE_REPLICATION to at most the number of brokers"
            )
        return self._cluster.translated(error)

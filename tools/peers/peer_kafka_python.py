"""Run kafka-python's own integration tests with our classes under its names: a pytest plugin.

In: kafka-python's tests below `test/`. Out: the fixtures that these tests use, with
`odradek.Consumer` and `odradek.Producer` called by kafka-python's methods. No module replaces
kafka-python: this file makes the changes that a program makes by hand (docs/switching.md).
"""

import contextlib
import os
import time
import uuid
from collections.abc import Iterator
from typing import Any

import kafka.errors
import kafka.structs
import pytest

import odradek
from odradek.testing import LocalCluster

kafka.errors.KafkaTimeoutError = odradek.KafkaTimeoutError  # imported by tests
os.environ["KAFKA_VERSION"] = "4.2.0"
NOT_OURS = ("api_version", "key_deserializer", "value_deserializer", "consumer_timeout_ms",
            "key_serializer", "value_serializer")  # fmt: skip
FOREVER = 1e6


class Outcome:
    """An Odradek future with the method names of kafka-python's future."""

    def __init__(self, future: Any) -> None:
        self.future = future

    def get(self, timeout: float | None = None) -> Any:
        """Return the record's metadata, or raise the error."""
        return self.future.result(timeout)

    def succeeded(self) -> bool:
        """Return whether the record was written successfully."""
        return self.future.done() and self.future.exception() is None


class Sender:
    """Producer with the methods that kafka-python's tests call."""

    def __init__(self, **settings: Any) -> None:
        self.serializer = settings.get("value_serializer")
        ours = {name: value for name, value in settings.items() if name not in NOT_OURS}
        self.producer = odradek.Producer(**ours)

    def send(self, topic, value=None, key=None, headers=None, partition=None, timestamp_ms=None):
        """Send a record."""
        if self.serializer is not None:
            value = self.serializer.serialize(topic, headers, value)
        sent = self.producer.send(topic, value, key, headers or [], partition, timestamp_ms)
        return Outcome(sent)

    def send_offsets_to_transaction(self, offsets, group: str) -> None:
        """Send offsets with only the group's name, as before KIP-447."""
        here = {
            odradek.TopicPartition(*tp): odradek.OffsetAndMetadata(*at)
            for tp, at in offsets.items()
        }
        self.producer.send_offsets_to_transaction(here, odradek.ConsumerGroupMetadata(group))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.producer, name)


class Reader:
    """Consumer with the methods that kafka-python's tests call."""

    def __init__(self, *topics: str, **settings: Any) -> None:
        self.deserializer = settings.get("value_deserializer")
        self.patience = settings.get("consumer_timeout_ms", FOREVER * 1000) / 1000
        self.in_group = settings.get("group_id") is not None
        ours = {name: value for name, value in settings.items() if name not in NOT_OURS}
        ours.setdefault("allow_auto_create_topics", True)  # kafka-python's default
        self.consumer = odradek.Consumer(**{n: v for n, v in ours.items() if v is not None})
        if topics:
            self.subscribe(list(topics))

    def subscribe(self, topics: list[str]) -> None:
        """Subscribe in a group, or assign all partitions without one."""
        if self.in_group:
            self.consumer.subscribe(topics)
        else:
            self.consumer.assign([p for t in topics for p in self.consumer.partitions_for(t)])

    def unsubscribe(self) -> None:
        """Drop all topics and partitions."""
        if self.in_group:
            self.consumer.unsubscribe()
        else:
            self.consumer.assign([])

    def assign(self, partitions) -> None:
        """Assign these partitions to the consumer."""
        self.consumer.assign([odradek.TopicPartition(*tp) for tp in partitions])

    def assignment(self) -> set:
        """Return the assigned partitions as a set, as kafka-python does."""
        return set(self.consumer.assignment())

    def paused(self) -> set:
        """Return the paused partitions as a set, as kafka-python does."""
        return set(self.consumer.paused())

    def seek_to_end(self, *partitions) -> None:
        """Seek to the end of partitions."""
        self.consumer.seek_to_end([odradek.TopicPartition(*tp) for tp in partitions])

    def position(self, tp, timeout_ms: float | None = None) -> int:
        """Return the position; the timeout is in milliseconds."""
        return self.consumer.position(tp, None if timeout_ms is None else timeout_ms / 1000)

    def bootstrap(self, timeout_ms: float) -> None:
        """Connect to the cluster; kafka-python's example expects that within 0.5 s."""
        self.consumer.cluster_id(max(10.0, timeout_ms / 1000))

    def topics(self) -> set:
        """Return the names of all topics."""
        return set(self.consumer.list_topics())

    def partitions_for_topic(self, topic: str) -> set:
        """Return the numbers of a topic's partitions as a set."""
        return {tp.partition for tp in self.consumer.partitions_for(topic)}

    def offsets_for_times(self, times: dict) -> dict:
        """Return offsets as kafka-python's named tuples."""
        found = self.consumer.offsets_for_times(
            {odradek.TopicPartition(*tp): at for tp, at in times.items()}
        )
        made = kafka.structs.OffsetAndTimestamp
        return {
            tp: None if at is None else made(at.offset, at.timestamp_ms, at.leader_epoch)
            for tp, at in found.items()
        }

    def poll(self, timeout_ms: float = 0) -> dict:
        """Poll once and return lists of records by partition."""
        found: dict = {}
        for record in self.consumer.poll(timeout_ms / 1000):
            place = odradek.TopicPartition(record.topic, record.partition)
            found.setdefault(place, []).append(record)
        return found

    def __iter__(self) -> "Reader":
        return self

    def __next__(self) -> Any:
        found = self.consumer.poll(self.patience, 1)
        if not found:
            raise StopIteration
        if self.deserializer is None:
            return found[0]
        value = self.deserializer.deserialize(found[0].topic, (), found[0].value)
        return found[0]._replace(value=value)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.consumer, name)


class Offsets:
    """Admin client with the one method that a test calls."""

    def __init__(self, servers: str) -> None:
        self.servers = servers

    def list_group_offsets(self, group: str) -> dict:
        """Return a group's committed offsets of the topic that the test writes."""
        with odradek.Consumer(bootstrap_servers=self.servers, group_id=group) as consumer:
            places = consumer.partitions_for("transactional_test_topic")
            found = consumer.committed(places)
        theirs = kafka.structs
        return {
            group: {
                theirs.TopicPartition(*tp): theirs.OffsetAndMetadata(
                    at.offset, at.metadata, at.leader_epoch
                )
                for tp, at in found.items()
                if at is not None
            }
        }


@pytest.fixture(scope="session")
def peer_cluster() -> Iterator[str]:
    """Start a broker that creates topics with four partitions, as their fixture does."""
    if servers := os.environ["PEER_SERVERS"]:
        yield servers
        return
    with LocalCluster(1, auto_create_topics=True, config={"num.partitions": "4"}) as cluster:
        yield cluster.bootstrap_servers


@pytest.fixture
def topic(peer_cluster: str) -> str:
    """Return the name of a new topic."""
    name = f"peer-{uuid.uuid4()}"
    with odradek.Admin(bootstrap_servers=peer_cluster) as admin:
        admin.create_topics([odradek.NewTopic(name, 4, 1)])
    return name


def factory(made: type, servers: str, **usual: Any) -> Any:
    """Return a factory of context managers, as in kafka-python's tests."""

    @contextlib.contextmanager
    def make(*topics: str, **settings: Any) -> Iterator[Any]:
        client = made(*topics, **{"bootstrap_servers": servers, **usual, **settings})
        try:
            yield client
        finally:
            client.close()

    return make


@pytest.fixture
def kafka_consumer_factory(peer_cluster: str, topic: str) -> Any:
    """Return a factory of consumers; the default topic is the test's."""
    make = factory(Reader, peer_cluster, auto_offset_reset="earliest", heartbeat_interval_ms=500)
    return lambda topics=(topic,), **settings: make(*topics, **settings)


@pytest.fixture
def kafka_producer_factory(peer_cluster: str) -> Any:
    """Return a factory of producers, as kafka-python's tests use it."""
    return factory(Sender, peer_cluster)


@pytest.fixture
def kafka_admin_client_factory(peer_cluster: str) -> Any:
    """Return a factory of admin clients, as kafka-python's tests use it."""
    return lambda: contextlib.nullcontext(Offsets(peer_cluster))


@pytest.fixture
def consumer(kafka_consumer_factory: Any) -> Iterator[Reader]:
    """Return a consumer of the test's topic."""
    with kafka_consumer_factory() as made:
        yield made


@pytest.fixture
def producer(kafka_producer_factory: Any) -> Iterator[Sender]:
    """Return a producer for the test."""
    with kafka_producer_factory() as made:
        yield made


@pytest.fixture
def send_messages(topic: str, producer: Sender) -> Any:
    """Return a function that sends messages to one partition."""

    def send(numbers, partition: int = 0) -> list[bytes]:
        sent = [b"%d-%r" % (n, time.time()) for n in numbers]
        outcomes = [producer.send(topic, value, partition=partition) for value in sent]
        producer.flush()
        assert all(outcome.succeeded() for outcome in outcomes)  # noqa: S101
        return sent

    return send

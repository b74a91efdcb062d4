"""Clients on real brokers that die, freeze, move, swap and are replaced by strangers.

Nothing is lost, doubled or out of order. Transactions, groups and rolling restarts are in
test_secure_recovery.py.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any, Self

import pytest
from confluent_kafka.admin import AdminClient
from tests.interop.other_client import place_topic, read_all
from tests.interop.our_client import read
from tests.own_time import ends_at

from odradek.api.consumer import Consumer
from odradek.api.producer import Producer
from odradek.clients.consumer.records import LogTruncationError
from odradek.common.errors import ClusterIdMismatchError, NoBrokerAvailableError
from odradek.common.types import TopicPartition
from odradek.runtime.hosts.record_future import RecordFuture
from odradek.testing import LocalCluster
from odradek.testing.brokers.shared_clusters import SharedClusters

PARTITIONS = 3
PATIENCE = 60.0


class Stream:
    """A thread that sends numbered records, thirty a second, until it is told to stop.

    A hundred would take most of a processor of three brokers as long as one of them starts.
    """

    def __init__(self, producer: Producer, topic: str) -> None:
        self.futures: list[RecordFuture] = []
        self._producer, self._topic = producer, topic
        self._stop = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="stream")

    def __enter__(self) -> Self:
        self._thread.start()
        self.wait_for_more(30)
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(PATIENCE)

    def _run(self) -> None:
        try:
            while not self._stop.wait(0.1):
                for _ in range(3):
                    n = len(self.futures)
                    self.futures.append(
                        self._producer.send(self._topic, b"%d" % n, partition=n % PARTITIONS)
                    )
        except BaseException as error:  # the test's own thread raises it
            self._failure = error

    def wait_for_more(self, count: int = 60) -> None:
        """Until `count` records more than now were sent, and those sent till now are there."""
        before = len(self.futures)
        deadline = time.monotonic() + PATIENCE
        while len(self.futures) < before + count:
            if self._failure is not None:
                raise self._failure
            assert time.monotonic() < deadline, "send() hangs"
            time.sleep(0.01)
        for future in self.futures[max(0, before - PARTITIONS) : before]:
            future.result(timeout=max(0.0, deadline - time.monotonic()))

    def check(self, config: dict[str, str]) -> None:
        """Every record is there once, in order, at the offset that its future says."""
        if self._failure is not None:
            raise self._failure
        self._producer.flush(timeout=PATIENCE)
        rows = read_all(config, self._topic, PARTITIONS)
        for partition in range(PARTITIONS):
            sent = self.futures[partition::PARTITIONS]
            expected = list(range(partition, len(self.futures), PARTITIONS))
            assert [int(r.value or b"") for r in rows[partition]] == expected
            offsets = [future.result(timeout=0).offset for future in sent]
            # -1: it was written, the answer was lost, and the broker forgot where (KIP-98).
            assert all(o in (-1, r.offset) for o, r in zip(offsets, rows[partition], strict=True))


class Reader:
    """Reads and keeps what came; every record must be the next one of its partition."""

    def __init__(self, client: Consumer) -> None:
        self.client = client
        self.values: dict[int, list[int]] = defaultdict(list)

    def read(
        self,
        count: int,
        limit: float,
        most: int | None = None,
        moving: Callable[[], bool] = lambda: False,
    ) -> None:
        """Read `count` records in all; the limit begins when the cluster has moved."""
        end = time.monotonic() + limit
        while sum(map(len, self.values.values())) < count:
            for r in self.client.poll(0.5, most):
                assert r.offset == len(self.values[r.partition])
                self.values[r.partition].append(int(r.value or b""))
            if moving():
                end = time.monotonic() + limit
            assert time.monotonic() < end, str(self.client.explain())


def consumer(cluster: LocalCluster, topic: str, **config: Any) -> Consumer:
    config = {"auto_offset_reset": "earliest", **config}
    client = Consumer(cluster.client_config(), **config)
    client.assign([TopicPartition(topic, p) for p in range(PARTITIONS)])
    return client


def leader(cluster: LocalCluster, topic: str) -> int:
    """Who leads partition 0, by another client."""
    settings: dict[str, Any] = {**cluster.librdkafka_config(), "log_level": 0}
    found: int = (
        AdminClient(settings).list_topics(topic, timeout=60).topics[topic].partitions[0].leader
    )
    return found


@pytest.fixture
def made(mortal_cluster: LocalCluster, topic: str) -> LocalCluster:
    """The cluster, with the test's topic."""
    mortal_cluster.create_topic(topic, partitions=PARTITIONS)
    return mortal_cluster


def compare(stream: Stream, reader: Reader, cluster: LocalCluster) -> None:
    """What was sent is in the log, and what is there was read."""
    stream.check(cluster.librdkafka_config())
    reader.read(len(stream.futures), PATIENCE)
    for partition, values in reader.values.items():
        assert values == list(range(partition, len(stream.futures), PARTITIONS))


@pytest.fixture(params=[1, pytest.param(3, marks=pytest.mark.long)])
def whole(request: pytest.FixtureRequest, clusters: SharedClusters) -> Iterator[LocalCluster]:
    """A cluster that moves: one of three takes three times as much of a machine."""
    running = clusters.shared({"brokers": request.param})
    yield running
    clusters.put_right(running)


def test_the_whole_cluster_moves_away(whole: LocalCluster, topic: str) -> None:
    """Clients without rebootstrap stay where they were, and say so; the others lose nothing."""
    made = whole
    made.create_topic(topic, partitions=PARTITIONS)
    stayed = f"{topic}-stayed"
    made.create_topic(stayed)
    settings = made.client_config()
    strategy: Any = {"metadata_recovery_strategy": "none"}
    with (
        Producer(settings, compression_type="zstd") as producer,
        consumer(made, topic) as client,
        Producer(settings, **strategy) as other,
        consumer(made, topic, metadata_unavailable_timeout_ms=3000, **strategy) as left,
    ):
        other.send(stayed, b"before").result(timeout=60)
        old, door, own_id = made.broker_addresses, made.bootstrap_servers, made.cluster_id
        reader = Reader(client)
        with Stream(producer, topic) as stream:
            stream.wait_for_more(150)
            Reader(left).read(150, 20)
            reader.read(60, 20, most=20)
            mover = threading.Thread(target=made.move)
            mover.start()
            try:
                reader.read(150, 60, most=20, moving=mover.is_alive)
            finally:
                mover.join()
            stream.wait_for_more()
        assert (made.bootstrap_servers, made.cluster_id) == (door, own_id)
        assert set(old).isdisjoint(made.broker_addresses)
        compare(stream, reader, made)
        for one in (producer, client):
            counts = one._engine.events.counts
            assert counts["rebootstrap"] == counts["rebootstrapped"] == 1
        assert client._engine.events.counts["first_record"] >= 2
        producer_stays(other, stayed, old)
        consumer_stays(left, topic, old)
    assert [r.value for r in read_all(made.librdkafka_config(), stayed, 1)[0]] == [b"before"]


def producer_stays(producer: Producer, topic: str, old: tuple[str, ...]) -> None:
    future = producer.send(topic, b"behind")
    with pytest.raises(NoBrokerAvailableError) as caught:
        future.result(timeout=3)
    text = str(caught.value)
    assert "metadata.recovery.strategy=none" in text
    assert "rebootstrap would try bootstrap.servers again" in text
    failed = {str(a.address) for a in caught.value.attempts}
    assert failed
    assert failed <= {*old}
    assert "rebootstrap" not in producer._engine.events.counts
    with pytest.raises(NoBrokerAvailableError):
        producer.close(timeout=0.1)


def consumer_stays(client: Consumer, topic: str, old: tuple[str, ...]) -> None:
    begin = time.monotonic()
    with pytest.raises(NoBrokerAvailableError, match="strategy=none") as caught:
        while time.monotonic() < begin + 30:
            client.poll(2.0)  # there may be records that had come before
    assert set(old) <= {str(a.address) for a in caught.value.attempts}
    with ends_at(1.5, soonest=0.0), pytest.raises(NoBrokerAvailableError):
        client.end_offsets([TopicPartition(topic, 0)], timeout=1.5)
    assert client._engine.events.counts.get("rebootstrap", 0) == 0


def test_a_leader_is_killed_and_comes_back(made: LocalCluster, topic: str) -> None:
    with Producer(made.client_config()) as producer, consumer(made, topic) as client:
        reader = Reader(client)
        with Stream(producer, topic) as stream:
            reader.read(20, 20, most=20)
            victim = leader(made, topic)
            made.kill(victim)
            stream.wait_for_more()
            reader.read(len(stream.futures) - 60, PATIENCE)
            made.start(victim)
            stream.wait_for_more()
        compare(stream, reader, made)
        # The others hold acks=all until the controller gives it up: no reason to start again.
        assert "rebootstrap" not in producer._engine.events.counts


def test_a_leader_freezes_for_some_seconds(made: LocalCluster, topic: str) -> None:
    with Producer(made.client_config()) as producer:
        with Stream(producer, topic) as stream:
            victim = leader(made, topic)
            made.pause(victim)
            try:
                time.sleep(4.0)  # it loses its leaderships meanwhile (session: 3 s)
            finally:
                made.resume(victim)
            stream.wait_for_more()
        stream.check(made.librdkafka_config())
        # The others hold acks=all until the controller gives it up: no reason to start again.
        assert "rebootstrap" not in producer._engine.events.counts


@pytest.fixture
def lone_cluster(clusters: SharedClusters) -> Iterator[LocalCluster]:
    """One broker is enough for a cluster that is replaced as a whole."""
    running = clusters.shared({"brokers": 1})
    yield running
    clusters.put_right(running)


@pytest.mark.long  # shorter: spark/test_outages.py, simulation/test_consumer.py, test_producer.py
def test_dead_and_foreign_brokers(lone_cluster: LocalCluster, topic: str) -> None:
    cluster = lone_cluster
    cluster.create_topic(topic, partitions=PARTITIONS)
    with Producer(cluster.client_config()) as producer, consumer(cluster, topic) as client:
        producer.send(topic, b"0", partition=0).result(timeout=60)
        Reader(client).read(1, 20)
        first_id = cluster.cluster_id
        future = all_dead(cluster, producer, topic)
        foreign_id = cluster.replace_with_foreign()
        cluster.create_topic(topic)
        with pytest.raises(ClusterIdMismatchError) as sent:
            future.result(timeout=60)
        with pytest.raises(ClusterIdMismatchError) as read:
            for _ in range(60):
                assert client.poll(1.0) == []
        for caught in (sent, read):
            assert (caught.value.expected, caught.value.found) == (first_id, foreign_id)
            assert foreign_id in str(caught.value)
        with pytest.raises(ClusterIdMismatchError):
            producer.send(topic, b"nor this")
        assert read_all(cluster.librdkafka_config(), topic, 1) == {0: []}
        cluster.restore()
        assert cluster.cluster_id == first_id
        rows = read_all(cluster.librdkafka_config(), topic, PARTITIONS)
        assert [row.value for row in rows[0]] == [b"0"]
        with pytest.raises(ClusterIdMismatchError):
            client.end_offsets([TopicPartition(topic, 0)])


def all_dead(cluster: LocalCluster, producer: Producer, topic: str) -> RecordFuture:
    """Calls end at their timeout, with each address and why it failed."""
    (broker,) = cluster.broker_addresses
    cluster.kill(0)
    time.sleep(0.5)
    future = producer.send(topic, b"to nobody")
    for call in (future.result, producer.flush):
        with ends_at(2.0), pytest.raises(NoBrokerAvailableError) as caught:
            call(timeout=2.0)
        failed = {str(a.address): a.error for a in caught.value.attempts}
        assert failed.keys() == {broker, cluster.bootstrap_servers}
        assert "refused" in failed[broker]
        assert all(address in str(caught.value) for address in failed)
    with Producer(cluster.client_config()) as another:
        expected = pytest.raises(NoBrokerAvailableError, match=cluster.bootstrap_servers)
        with ends_at(2.0), expected:
            another.partitions_for(topic, timeout=2.0)
    return future


@pytest.mark.long  # shorter: simulation/test_truncation.py
def test_records_that_an_unclean_election_took_away(
    mortal_cluster: LocalCluster, topic: str
) -> None:
    """KIP-320: other records are where the position is, and nobody takes them for the next."""
    first, second = sorted(mortal_cluster.running)[:2]
    config = {"unclean.leader.election.enable": "true", "min.insync.replicas": "1"}
    place_topic(mortal_cluster.librdkafka_config(), topic, [[first, second]], config)
    tp = TopicPartition(topic, 0)
    settings = mortal_cluster.client_config()
    with (
        Producer(settings) as producer,
        Consumer(settings, auto_offset_reset="earliest") as trusting,
        Consumer(settings, auto_offset_reset="none") as strict,
    ):

        def add(numbers: range) -> None:
            for n in numbers:
                producer.send(topic, b"%d" % n, partition=0)
            producer.flush(timeout=60)

        def places(client: Consumer, count: int) -> list[tuple[int, bytes | None]]:
            return [(r.offset, r.value) for r in read(client, count)]

        for client in (trusting, strict):
            client.assign([tp])
            client.seek(tp, 0)
        add(range(10))
        mortal_cluster.stop(second)
        add(range(10, 20))  # only the leader has them
        assert len(places(trusting, 20)) == len(places(strict, 20)) == 20
        mortal_cluster.kill(first)
        mortal_cluster.start(second)
        try:
            add(range(20, 35))
            others = [(offset, b"%d" % (offset + 10)) for offset in range(10, 25)]
            assert places(trusting, 15) == others
            with pytest.raises(LogTruncationError) as caught:
                read(strict)
            assert (caught.value.position, caught.value.divergent_offset) == (20, 10)
            strict.seek(tp, 10)
            assert places(strict, 15) == others
        finally:
            mortal_cluster.start(first)

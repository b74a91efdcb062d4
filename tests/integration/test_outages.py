"""Test clients on real brokers that are killed, frozen, moved, swapped or replaced.

No record is lost, duplicated or out of order. Transactions, groups and rolling restarts are in
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
    """Thread that sends thirty numbered records a second until it is stopped.

    A hundred a second would slow down the start of a broker on a small machine.
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
        except BaseException as error:  # the test's own thread raises the error
            self._failure = error

    def wait_for_more(self, count: int = 60) -> None:
        """Wait until `count` more records were sent and all earlier ones are acknowledged."""
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
        """Check that every record is in the log once, in order, at the offset of its future."""
        if self._failure is not None:
            raise self._failure
        self._producer.flush(timeout=PATIENCE)
        rows = read_all(config, self._topic, PARTITIONS)
        for partition in range(PARTITIONS):
            sent = self.futures[partition::PARTITIONS]
            expected = list(range(partition, len(self.futures), PARTITIONS))
            assert [int(r.value or b"") for r in rows[partition]] == expected
            offsets = [future.result(timeout=0).offset for future in sent]
            # -1: the record was written, the response was lost, and the broker forgot its offset
            # (KIP-98).
            assert all(o in (-1, r.offset) for o, r in zip(offsets, rows[partition], strict=True))


class Reader:
    """Consumer that checks the order of records and keeps their values."""

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
        """Read until `count` records; the time limit starts when the cluster has moved."""
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
    """Return the leader of partition 0, as another client reports it."""
    settings: dict[str, Any] = {**cluster.librdkafka_config(), "log_level": 0}
    found: int = (
        AdminClient(settings).list_topics(topic, timeout=60).topics[topic].partitions[0].leader
    )
    return found


@pytest.fixture
def prepared(mortal_cluster: LocalCluster, topic: str) -> LocalCluster:
    """Return the cluster, with the test's topic."""
    mortal_cluster.create_topic(topic, partitions=PARTITIONS)
    return mortal_cluster


def compare(stream: Stream, reader: Reader, cluster: LocalCluster) -> None:
    """Check that every sent record is in the log and was read."""
    stream.check(cluster.librdkafka_config())
    reader.read(len(stream.futures), PATIENCE)
    for partition, values in reader.values.items():
        assert values == list(range(partition, len(stream.futures), PARTITIONS))


@pytest.fixture(params=[1, pytest.param(3, marks=pytest.mark.long)])
def movable(request: pytest.FixtureRequest, clusters: SharedClusters) -> Iterator[LocalCluster]:
    """Return a cluster that moves; moving three brokers takes three times the processor time."""
    running = clusters.shared({"brokers": request.param})
    yield running
    clusters.put_right(running)


def test_clients_recover_after_the_whole_cluster_moved(movable: LocalCluster, topic: str) -> None:
    """Move the cluster: clients without rebootstrap fail and say why; the others lose no record."""
    prepared = movable
    prepared.create_topic(topic, partitions=PARTITIONS)
    stayed = f"{topic}-stayed"
    prepared.create_topic(stayed)
    settings = prepared.client_config()
    strategy: Any = {"metadata_recovery_strategy": "none"}
    with (
        Producer(settings, compression_type="zstd") as producer,
        consumer(prepared, topic) as client,
        Producer(settings, **strategy) as other,
        consumer(prepared, topic, metadata_unavailable_timeout_ms=3000, **strategy) as left,
    ):
        other.send(stayed, b"before").result(timeout=60)
        old, door, own_id = (
            prepared.broker_addresses,
            prepared.bootstrap_servers,
            prepared.cluster_id,
        )
        reader = Reader(client)
        with Stream(producer, topic) as stream:
            stream.wait_for_more(150)
            Reader(left).read(150, 20)
            reader.read(60, 20, most=20)
            mover = threading.Thread(target=prepared.move)
            mover.start()
            try:
                reader.read(150, 60, most=20, moving=mover.is_alive)
            finally:
                mover.join()
            stream.wait_for_more()
        assert (prepared.bootstrap_servers, prepared.cluster_id) == (
            door,
            own_id,
        )
        assert set(old).isdisjoint(prepared.broker_addresses)
        compare(stream, reader, prepared)
        for one in (producer, client):
            counts = one._engine.events.counts
            assert counts["rebootstrap"] == counts["rebootstrapped"] == 1
        assert client._engine.events.counts["first_record"] >= 2
        producer_without_rebootstrap_fails(other, stayed, old)
        consumer_without_rebootstrap_fails(left, topic, old)
    assert [r.value for r in read_all(prepared.librdkafka_config(), stayed, 1)[0]] == [b"before"]


def producer_without_rebootstrap_fails(
    producer: Producer, topic: str, old: tuple[str, ...]
) -> None:
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


def consumer_without_rebootstrap_fails(client: Consumer, topic: str, old: tuple[str, ...]) -> None:
    begin = time.monotonic()
    with pytest.raises(NoBrokerAvailableError, match="strategy=none") as caught:
        while time.monotonic() < begin + 30:
            client.poll(2.0)  # records that arrived before the move may be returned
    assert set(old) <= {str(a.address) for a in caught.value.attempts}
    with ends_at(1.5, soonest=0.0), pytest.raises(NoBrokerAvailableError):
        client.end_offsets([TopicPartition(topic, 0)], timeout=1.5)
    assert client._engine.events.counts.get("rebootstrap", 0) == 0


def test_clients_recover_after_a_leader_was_killed(prepared: LocalCluster, topic: str) -> None:
    with (
        Producer(prepared.client_config()) as producer,
        consumer(prepared, topic) as client,
    ):
        reader = Reader(client)
        with Stream(producer, topic) as stream:
            reader.read(20, 20, most=20)
            victim = leader(prepared, topic)
            prepared.kill(victim)
            stream.wait_for_more()
            reader.read(len(stream.futures) - 60, PATIENCE)
            prepared.start(victim)
            stream.wait_for_more()
        compare(stream, reader, prepared)
        # The other brokers don't acknowledge acks=all until the controller fences the leader: no
        # reason to rebootstrap.
        assert "rebootstrap" not in producer._engine.events.counts


def test_clients_recover_after_a_leader_was_frozen(prepared: LocalCluster, topic: str) -> None:
    with Producer(prepared.client_config()) as producer:
        with Stream(producer, topic) as stream:
            victim = leader(prepared, topic)
            prepared.pause(victim)
            try:
                time.sleep(4.0)  # the frozen broker loses its leaderships (session: 3 s)
            finally:
                prepared.resume(victim)
            stream.wait_for_more()
        stream.check(prepared.librdkafka_config())
        # The other brokers don't acknowledge acks=all until the controller fences the leader: no
        # reason to rebootstrap.
        assert "rebootstrap" not in producer._engine.events.counts


@pytest.fixture
def lone_cluster(clusters: SharedClusters) -> Iterator[LocalCluster]:
    """Return a cluster of one broker, which is enough if the whole cluster is replaced."""
    running = clusters.shared({"brokers": 1})
    yield running
    clusters.put_right(running)


@pytest.mark.long  # shorter tests: spark/test_outages.py, simulation/test_consumer.py
def test_calls_time_out_without_brokers_and_raise_on_a_different_cluster(
    lone_cluster: LocalCluster, topic: str
) -> None:
    cluster = lone_cluster
    cluster.create_topic(topic, partitions=PARTITIONS)
    with Producer(cluster.client_config()) as producer, consumer(cluster, topic) as client:
        producer.send(topic, b"0", partition=0).result(timeout=60)
        Reader(client).read(1, 20)
        first_id = cluster.cluster_id
        future = calls_without_brokers(cluster, producer, topic)
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


def calls_without_brokers(cluster: LocalCluster, producer: Producer, topic: str) -> RecordFuture:
    """Check that calls end at their timeout, with each address and the reason why it failed."""
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


@pytest.mark.long  # shorter tests: simulation/test_truncation.py
def test_consumers_notice_records_that_an_unclean_election_removed(
    mortal_cluster: LocalCluster, topic: str
) -> None:
    """Check KIP-320: other records at the position aren't read as the next ones."""
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
        add(range(10, 20))  # only the leader has the records
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

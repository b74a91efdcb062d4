"""The producer on real brokers that die, freeze and move: nothing lost, doubled or out of order.

Transactions, groups and rolling restarts: test_soak.py.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, Self

import pytest
from confluent_kafka.admin import AdminClient
from tests.interop.other_client import read_all
from tests.own_time import ends_at

from odradek.api.producer import Producer
from odradek.api.record_future import RecordFuture
from odradek.common.errors import ClusterIdMismatchError, NoBrokerAvailableError
from odradek.testing import LocalCluster

PARTITIONS = 3
PATIENCE = 60.0


class Stream:
    """A thread that sends numbered records, some hundred a second, until it is told to stop."""

    def __init__(self, producer: Producer, topic: str) -> None:
        self.futures: list[RecordFuture] = []
        self._producer, self._topic = producer, topic
        self._stop = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="stream")

    def __enter__(self) -> Self:
        self._thread.start()
        self.wait_for_more(100)
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(PATIENCE)

    def _run(self) -> None:
        try:
            while not self._stop.wait(0.005):
                for _ in range(3):
                    n = len(self.futures)
                    self.futures.append(
                        self._producer.send(self._topic, b"%d" % n, partition=n % PARTITIONS)
                    )
        except BaseException as error:  # the test's own thread raises it
            self._failure = error

    def wait_for_more(self, count: int = 60) -> None:
        """Until so many records more than now were sent, and those sent till now are there."""
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


def leader(cluster: LocalCluster, topic: str) -> int:
    """Who leads partition 0, by another client."""
    settings: dict[str, Any] = {**cluster.librdkafka_config(), "log_level": 0}
    found: int = (
        AdminClient(settings).list_topics(topic, timeout=10).topics[topic].partitions[0].leader
    )
    return found


def survive(
    cluster: LocalCluster, topic: str, blow: Callable[[Stream], None], **config: Any
) -> Producer:
    """Send while `blow` falls, then compare the log with what was sent."""
    cluster.create_topic(topic, partitions=PARTITIONS)
    with Producer({**cluster.client_config(), **config}) as producer:
        stream = Stream(producer, topic)
        with stream:
            blow(stream)
            stream.wait_for_more()
        stream.check(cluster.librdkafka_config())
    return producer


def test_the_whole_cluster_moves_away(mortal_cluster: LocalCluster, topic: str) -> None:
    """And a producer without rebootstrap stays behind: a move costs too much for two tests."""
    stayed = f"{topic}-stayed"
    mortal_cluster.create_topic(stayed)
    settings = mortal_cluster.client_config()
    with Producer(settings, metadata_recovery_strategy="none") as other:
        other.send(stayed, b"before").result(timeout=10)
        old = mortal_cluster.broker_addresses

        def blow(stream: Stream) -> None:
            mortal_cluster.move()

        producer = survive(mortal_cluster, topic, blow, **{"compression.type": "zstd"})
        counts = producer._engine.events.counts
        assert counts["rebootstrap"] == counts["rebootstrapped"] == 1

        future = other.send(stayed, b"behind")
        with pytest.raises(NoBrokerAvailableError) as caught:
            future.result(timeout=3)
        text = str(caught.value)
        assert "metadata.recovery.strategy=none" in text
        assert "rebootstrap would start again from bootstrap.servers" in text
        failed = {str(a.address) for a in caught.value.attempts}
        assert failed
        assert failed <= {*old}
        assert "rebootstrap" not in other._engine.events.counts
        with pytest.raises(NoBrokerAvailableError):
            other.close(timeout=0.1)
    assert [r.value for r in read_all(mortal_cluster.librdkafka_config(), stayed, 1)[0]] == [
        b"before"
    ]


def test_a_leader_is_killed_and_comes_back(mortal_cluster: LocalCluster, topic: str) -> None:
    def blow(stream: Stream) -> None:
        victim = leader(mortal_cluster, topic)
        mortal_cluster.kill(victim)
        stream.wait_for_more()
        mortal_cluster.start(victim)

    producer = survive(mortal_cluster, topic, blow)
    # The others hold acks=all until the controller gives it up: no reason to start again.
    assert "rebootstrap" not in producer._engine.events.counts


def test_a_leader_freezes_for_some_seconds(mortal_cluster: LocalCluster, topic: str) -> None:
    def blow(stream: Stream) -> None:
        victim = leader(mortal_cluster, topic)
        mortal_cluster.pause(victim)
        try:
            time.sleep(4.0)  # it loses its leaderships meanwhile (session: 3 s)
        finally:
            mortal_cluster.resume(victim)

    producer = survive(mortal_cluster, topic, blow)
    # The others hold acks=all until the controller gives it up: no reason to start again.
    assert "rebootstrap" not in producer._engine.events.counts


@pytest.fixture
def lone_cluster() -> Iterator[LocalCluster]:
    """One broker is enough for a cluster that isn't used again."""
    with LocalCluster(brokers=1) as running:
        yield running


def test_dead_and_foreign_brokers(lone_cluster: LocalCluster, topic: str) -> None:
    cluster = lone_cluster
    cluster.create_topic(topic)
    with Producer(cluster.client_config()) as producer:
        producer.send(topic, b"ours").result(timeout=10)
        first_id = cluster.cluster_id
        future = all_dead(cluster, producer, topic)
        foreign_id = cluster.replace_with_foreign()
        cluster.create_topic(topic)
        with pytest.raises(ClusterIdMismatchError) as caught:
            future.result(timeout=20)
        assert (caught.value.expected, caught.value.found) == (first_id, foreign_id)
        assert foreign_id in str(caught.value)
        with pytest.raises(ClusterIdMismatchError):
            producer.send(topic, b"nor this")
    assert read_all(cluster.librdkafka_config(), topic, 1) == {0: []}


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

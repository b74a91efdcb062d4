"""The consumer on real brokers that die, move and are replaced by strangers.

Groups: test_soak.py.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from typing import Any

import pytest
from tests.interop.other_client import Row, write_all
from tests.own_time import ends_at

from odradek.api.admin import Admin
from odradek.api.consumer import Consumer
from odradek.api.producer import Producer
from odradek.clients.admin.admin_engine import NewTopic
from odradek.clients.consumer.records import LogTruncationError
from odradek.common.errors import ClusterIdMismatchError, NoBrokerAvailableError
from odradek.common.events import Event
from odradek.common.types import TopicPartition
from odradek.testing import LocalCluster

PARTITIONS = 3


@pytest.fixture
def filled(mortal_cluster: LocalCluster, topic: str) -> LocalCluster:
    with Admin(mortal_cluster.client_config()) as admin:
        admin.create_topics([NewTopic(topic, PARTITIONS, 3)], timeout=30)
    write(mortal_cluster, topic, range(300))
    return mortal_cluster


def write(cluster: LocalCluster, topic: str, numbers: range) -> None:
    rows = [Row(None, b"%d" % n) for n in numbers]
    write_all(cluster.librdkafka_config(), topic, rows, list(range(PARTITIONS)))


def consumer(cluster: LocalCluster, topic: str, **config: Any) -> Consumer:
    config = {"auto_offset_reset": "earliest", **config}
    client = Consumer(cluster.client_config(), **config)
    client.assign([TopicPartition(topic, p) for p in range(PARTITIONS)])
    return client


class Reader:
    """Reads and keeps what came; every record must be the next one of its partition."""

    def __init__(self, client: Consumer) -> None:
        self.client = client
        self.values: dict[int, list[int]] = defaultdict(list)

    def read(self, count: int, limit: float, most: int | None = None) -> None:
        end = time.monotonic() + limit
        while sum(map(len, self.values.values())) < count:
            for r in self.client.poll(0.5, most):
                assert r.offset == len(self.values[r.partition])
                self.values[r.partition].append(int(r.value or b""))
            assert time.monotonic() < end, str(self.client.explain())


def test_a_killed_leader_stops_nothing(filled: LocalCluster, topic: str) -> None:
    with consumer(filled, topic) as client:
        reader = Reader(client)
        reader.read(20, 20, most=20)
        leader = client.describe([topic])[topic].partitions[0].leader
        assert leader is not None
        filled.kill(leader)
        reader.read(300, 40)
        write(filled, topic, range(300, 330))
        reader.read(330, 40)
        filled.start(leader)
    for partition, values in reader.values.items():
        assert values == list(range(partition, 330, PARTITIONS))


def test_records_that_an_unclean_election_took_away(
    mortal_cluster: LocalCluster, topic: str
) -> None:
    """KIP-320: other records stand where the position is, and nobody takes them for the next."""
    first, second = sorted(mortal_cluster.running)[:2]
    mortal_cluster.run_tool(
        "org.apache.kafka.tools.TopicCommand",
        ["--bootstrap-server", mortal_cluster.inner_servers, "--create", "--topic", topic,
         "--replica-assignment", f"{first}:{second}",
         "--config", "unclean.leader.election.enable=true", "--config", "min.insync.replicas=1"],
    )  # fmt: skip
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

        def read(client: Consumer, count: int) -> list[tuple[int, bytes | None]]:
            found: list[tuple[int, bytes | None]] = []
            end = time.monotonic() + 30
            while len(found) < count and time.monotonic() < end:
                found += [(r.offset, r.value) for r in client.poll(1.0)]
            return found

        for client in (trusting, strict):
            client.assign([tp])
            client.seek(tp, 0)
        add(range(10))
        mortal_cluster.stop(second)
        add(range(10, 20))  # only the leader has them
        assert len(read(trusting, 20)) == len(read(strict, 20)) == 20
        mortal_cluster.kill(first)
        mortal_cluster.start(second)
        try:
            add(range(20, 35))
            others = [(offset, b"%d" % (offset + 10)) for offset in range(10, 25)]
            assert read(trusting, 15) == others
            with pytest.raises(LogTruncationError) as caught:
                read(strict, 1)
            assert (caught.value.position, caught.value.divergent_offset) == (20, 10)
            strict.seek(tp, 10)
            assert read(strict, 15) == others
        finally:
            mortal_cluster.start(first)


def test_the_whole_cluster_moves_while_it_is_read(filled: LocalCluster, topic: str) -> None:
    with consumer(filled, topic) as client:
        reader = Reader(client)
        reader.read(150, 20, most=50)
        mover = threading.Thread(target=filled.move)
        mover.start()
        try:
            reader.read(300, 60, most=50)
        finally:
            mover.join()
        write(filled, topic, range(300, 330))
        reader.read(330, 60)
        counts = client._engine.events.counts
        assert counts["rebootstrap"] == counts["rebootstrapped"] == 1
        assert counts["first_record"] >= 2
    for partition, values in reader.values.items():
        assert values == list(range(partition, 330, PARTITIONS))


def test_without_the_strategy_a_move_is_the_end_and_says_why(
    filled: LocalCluster, topic: str
) -> None:
    config = {"metadata_recovery_strategy": "none", "metadata_unavailable_timeout_ms": 3000}
    with consumer(filled, topic, **config) as client:
        Reader(client).read(300, 20)
        known = filled.broker_addresses
        filled.move()
        begin = time.monotonic()
        with pytest.raises(NoBrokerAvailableError, match="strategy=none") as caught:
            while time.monotonic() < begin + 30:
                client.poll(2.0)
        assert set(known) <= {str(a.address) for a in caught.value.attempts}
        with ends_at(1.5, soonest=0.0), pytest.raises(NoBrokerAvailableError):
            client.end_offsets([TopicPartition(topic, 0)], timeout=1.5)
        assert client._engine.events.counts.get("rebootstrap", 0) == 0


def test_a_foreign_cluster_is_refused(filled: LocalCluster, topic: str) -> None:
    own = filled.cluster_id
    with consumer(filled, topic) as client:
        reader = Reader(client)
        reader.read(300, 20)
        foreign = filled.replace_with_foreign()
        try:
            with pytest.raises(ClusterIdMismatchError) as caught:
                for _ in range(60):
                    assert client.poll(1.0) == []
        finally:
            filled.restore()
        assert (caught.value.expected, caught.value.found) == (own, foreign)
        with pytest.raises(ClusterIdMismatchError):
            client.end_offsets([TopicPartition(topic, 0)])


def test_brokers_that_swap_addresses_say_so_and_are_found_again(
    mortal_cluster: LocalCluster, topic: str
) -> None:
    """KIP-1242, on real brokers from 4.4 on: old metadata leads to another broker than is meant.

    Without it a Fetch at the wrong broker says so only by NOT_LEADER; what can't (a heartbeat, a
    Produce of older versions) would be somebody else's.
    """
    mortal_cluster.run_tool(
        "org.apache.kafka.tools.TopicCommand",
        ["--bootstrap-server", mortal_cluster.inner_servers, "--create", "--topic", topic,
         "--replica-assignment", "0,1,2"],
    )  # fmt: skip
    partitions = [TopicPartition(topic, n) for n in range(3)]
    events: list[Event] = []
    with (
        Producer(mortal_cluster.client_config()) as producer,
        Consumer(mortal_cluster.client_config(), auto_offset_reset="earliest") as client,
    ):
        producer.listen(events.append)
        client.listen(events.append)
        client.assign(partitions)

        def write_and_read(numbers: range) -> None:
            for n in numbers:
                producer.send(topic, b"%d" % n, partition=n % 3)
            producer.flush(timeout=60)
            found: list[int] = []
            end = time.monotonic() + 60
            while len(found) < len(numbers):
                found += [int(record.value or b"") for record in client.poll(1.0)]
                assert time.monotonic() < end, str(client.explain())
            assert sorted(found) == list(numbers)

        def told() -> list[str]:
            errors = (str(event.fields.get("error")) for event in events)
            return [text for text in errors if "another one" in text]

        write_and_read(range(30))
        for swap in range(1, 5):  # a client may happen to look at the metadata first
            mortal_cluster.swap(0, 1)  # nobody polls or sends: what the clients know is old
            write_and_read(range(30 * swap, 30 * swap + 30))
            if told():
                break
    assert told(), [(event.kind, event.fields) for event in events]
    assert "RebootstrapRequiredError" in told()[0]
    assert "rebootstrap" in [event.kind for event in events]

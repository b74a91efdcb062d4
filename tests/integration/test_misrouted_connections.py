"""Test KIP-1242 on real brokers (4.4): an address leads to the wrong broker or cluster."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from tests.interop.other_client import place_topic, read_all

from odradek.api.consumer import Consumer
from odradek.api.producer import Producer
from odradek.common.config import parse_address
from odradek.common.events import Event
from odradek.common.types import TopicPartition
from odradek.testing import FrontDoor, LocalCluster
from odradek.testing.brokers.shared_clusters import SharedClusters

PATIENCE = 60.0
WRONG = 1
"""Broker whose address leads to the wrong cluster."""


@pytest.fixture(scope="module")
def foreign(clusters: SharedClusters) -> LocalCluster:
    return clusters.shared({"brokers": 1})


@contextmanager
def leading_to_the_wrong_cluster(
    cluster: LocalCluster, i: int, foreign: LocalCluster
) -> Iterator[FrontDoor]:
    """Kill a broker, and let its address lead to the wrong cluster until it restarts."""
    address = parse_address("", cluster.broker_addresses[i])
    cluster.kill(i)
    door = FrontDoor(address.host, address.port)
    door.start()
    door.lead_to([parse_address("", foreign.broker_addresses[0])])
    try:
        yield door
    finally:
        door.close()
        cluster.start(i)


class Traffic:
    """Numbers that were written to all partitions, and numbers that were read."""

    def __init__(self, cluster: LocalCluster, topic: str, producer: Producer, consumer: Consumer):
        self.topic, self.producer, self.consumer = topic, producer, consumer
        self.events: list[Event] = []
        producer.listen(self.events.append)
        consumer.listen(self.events.append)
        consumer.assign([TopicPartition(topic, n) for n in range(3)])
        self.found: list[int] = []

    def send(self, numbers: range) -> None:
        for n in numbers:
            self.producer.send(self.topic, b"%d" % n, partition=n % 3)

    def read(self, numbers: list[int]) -> None:
        end = time.monotonic() + PATIENCE
        while len(self.found) < len(numbers):
            assert time.monotonic() < end, str(self.consumer.explain())
            self.found += [int(record.value or b"") for record in self.consumer.poll(0.5)]
        assert sorted(self.found) == numbers

    def misrouted_errors(self) -> list[str]:
        """Return the errors of requests that reached the wrong broker."""
        errors = (str(event.fields.get("error")) for event in self.events)
        return [text for text in errors if "another one" in text]

    def count(self, kind: str) -> int:
        return sum(event.kind == kind for event in self.events)


@contextmanager
def traffic(
    cluster: LocalCluster, topic: str, foreign: LocalCluster | None = None
) -> Iterator[Traffic]:
    """Start clients that write and read; check at the end that the wrong cluster got no record.

    Each partition has one replica, so no other broker can lead the partition of broker i.
    """
    place_topic(cluster.librdkafka_config(), topic, [[0], [1], [2]])
    if foreign is not None:
        foreign.create_topic(topic, partitions=3)
    with (
        Producer(cluster.client_config()) as producer,
        Consumer(cluster.client_config(), auto_offset_reset="earliest") as consumer,
    ):
        flow = Traffic(cluster, topic, producer, consumer)
        flow.send(range(30))
        flow.read(list(range(30)))
        yield flow
    if foreign is not None:
        assert read_all(foreign.librdkafka_config(), topic, 3) == {0: [], 1: [], 2: []}


@pytest.mark.long  # shorter tests: the test below, simulation/test_misrouted_connections.py
def test_clients_recover_after_a_brokers_address_led_to_the_wrong_cluster(
    mortal_cluster: LocalCluster, foreign: LocalCluster, topic: str
) -> None:
    with traffic(mortal_cluster, topic, foreign) as flow:
        with leading_to_the_wrong_cluster(mortal_cluster, WRONG, foreign) as door:
            flow.send(range(30, 90))
            others = [n for n in range(90) if n < 30 or n % 3 != WRONG]
            flow.read(others)  # the two other brokers continue undisturbed
            end = time.monotonic() + PATIENCE
            while not flow.misrouted_errors():
                assert time.monotonic() < end, str(flow.producer.explain())
                flow.consumer.poll(0.2)
            assert door.accepted
        flow.producer.flush(timeout=PATIENCE)
        flow.read(list(range(90)))
        assert flow.consumer.poll(1.0) == []
        assert 1 <= flow.count("rebootstrap") < 60, str(flow.producer.explain())
        assert "RebootstrapRequiredError" in flow.misrouted_errors()[0]
    ours = read_all(mortal_cluster.librdkafka_config(), topic, 3)
    assert {partition: len(rows) for partition, rows in ours.items()} == {0: 30, 1: 30, 2: 30}


def test_clients_continue_if_the_bootstrap_address_leads_to_the_wrong_cluster(
    mortal_cluster: LocalCluster, foreign: LocalCluster, topic: str
) -> None:
    """Check that connected clients are undisturbed, and recover once the address is right."""
    with traffic(mortal_cluster, topic, foreign) as flow:
        mortal_cluster.front_door.lead_to([parse_address("", foreign.broker_addresses[0])])
        mortal_cluster.front_door.drop_connections()
        flow.send(range(30, 60))
        flow.producer.flush(timeout=PATIENCE)
        flow.read(list(range(60)))
        ours = [parse_address("", address) for address in mortal_cluster.broker_addresses]
        mortal_cluster.front_door.lead_to(ours)
        mortal_cluster.front_door.drop_connections()
        flow.send(range(60, 90))
        flow.producer.flush(timeout=PATIENCE)
        flow.read(list(range(90)))


@pytest.mark.long  # shorter tests: simulation/test_misrouted_connections.py
def test_clients_recover_after_brokers_swap_addresses(
    mortal_cluster: LocalCluster, topic: str
) -> None:
    """Swap the addresses of two brokers, so that old metadata leads to the wrong one.

    Before 4.4 only a Fetch response (NOT_LEADER) reveals the wrong broker, which would process
    other requests (a heartbeat, a Produce of older versions).
    """
    with traffic(mortal_cluster, topic) as flow:
        for end in range(60, 180, 30):  # a client may happen to refresh its metadata first
            mortal_cluster.swap(0, 1)  # no client polls or sends, so their metadata is old
            flow.send(range(end - 30, end))
            flow.producer.flush(timeout=PATIENCE)
            flow.read(list(range(end)))
            if flow.misrouted_errors():
                break
    assert flow.misrouted_errors(), [(event.kind, event.fields) for event in flow.events]
    assert "RebootstrapRequiredError" in flow.misrouted_errors()[0]
    assert flow.count("rebootstrap")

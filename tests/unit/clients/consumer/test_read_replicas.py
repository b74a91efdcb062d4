"""Test which broker a partition is fetched from (KIP-392)."""

from __future__ import annotations

import random

import pytest

from odradek.clients.consumer.consumer_engine import ConsumerEngine
from odradek.clients.consumer.fetching.read_replicas import LEADERS_ONLY, ReadReplicas
from odradek.clients.consumer.partition_state import PartitionState
from odradek.common.config import CONSUMER, Config
from odradek.common.types import Address, TopicPartition
from odradek.metadata.cluster import NO_ID, Broker, Cluster, Topic
from odradek.metadata.partitions import Partition
from odradek.metadata.topic_map import TopicMap

TP = TopicPartition("t", 0)
BROKERS = {n: Broker(n, Address("127.0.0.1", 9000 + n), f"rack-{n}") for n in (1, 2, 3)}
LED_BY_1 = Partition(0, 1, 5, (1, 2, 3), (1, 2, 3))


def cluster(partition: Partition = LED_BY_1, *, without: int = 0) -> Cluster:
    brokers = {n: b for n, b in BROKERS.items() if n != without}
    return Cluster("c", brokers, 1, TopicMap({"t": Topic("t", NO_ID, (partition,))}))


def make() -> tuple[ReadReplicas, PartitionState]:
    config = Config(CONSUMER, {"bootstrap.servers": "h:1", "client.rack": "rack-2"})
    engine = ConsumerEngine(config, random.Random(1), wall_clock=lambda: 0.0)
    engine.metadata.snapshot = cluster()
    engine.subscription.assign([TP], {})
    subscription = engine.subscription
    replicas = ReadReplicas(config, engine.network, engine.metadata, subscription)
    return replicas, subscription.get(TP)


def leaders_only(replicas: ReadReplicas, now: float) -> bool:
    return now < replicas.leaders_until


def advised(
    replicas: ReadReplicas, state: PartitionState, node: int, *, by: int = 1, unasked: bool = False
) -> bool:
    return replicas.prefer(state, node, BROKERS[by].address, unasked, 10.0)


def source(replicas: ReadReplicas, state: PartitionState, seen: Cluster, now: float) -> int:
    found = replicas.source(state, seen, seen.topics["t"].partitions[0], now)
    return -1 if found is None else found.id


def test_the_preferred_replica_is_used_until_the_preference_expires() -> None:
    replicas, state = make()
    assert source(replicas, state, cluster(), 10.0) == 1
    assert advised(replicas, state, 2)
    assert source(replicas, state, cluster(), 309.9) == 2
    assert source(replicas, state, cluster(), 310.0) == 1
    assert source(replicas, state, cluster(), 10.0) == 1  # expired preferences remain expired


@pytest.mark.parametrize(
    ("seen", "asked"),
    [
        (cluster(LED_BY_1._replace(leader=3, leader_epoch=6)), 3),
        (cluster(LED_BY_1._replace(leader_epoch=6)), 1),
        (cluster(LED_BY_1._replace(offline=(2,))), 1),
        (cluster(without=2), 1),
        (cluster(LED_BY_1._replace(leader=-1)), -1),
    ],
)
def test_a_preferred_replica_is_no_longer_used_after_the_partitions_metadata_changed(
    seen: Cluster, asked: int
) -> None:
    replicas, state = make()
    assert advised(replicas, state, 2)
    assert source(replicas, state, seen, 11.0) == asked
    assert source(replicas, state, cluster(), 11.0) == 1


@pytest.mark.parametrize("node", [1, 9])
def test_after_an_unusable_preferred_replica_no_rack_is_sent_for_a_while(node: int) -> None:
    replicas, state = make()
    assert (replicas.rack, leaders_only(replicas, 10.0)) == ("rack-2", False)
    assert advised(replicas, state, node)
    assert source(replicas, state, cluster(), 10.0) == 1
    assert leaders_only(replicas, 10.0)
    assert not leaders_only(replicas, 10.0 + LEADERS_ONLY)


def test_giving_up_preferred_replicas_returns_whether_the_partitions_had_any() -> None:
    replicas, state = make()
    assert not replicas.give_up((state,), 10.0)
    assert (replicas.rack, leaders_only(replicas, 10.0)) == ("rack-2", False)
    assert advised(replicas, state, 2)
    assert replicas.give_up((state,), 10.0)
    assert leaders_only(replicas, 10.0)


def test_a_preferred_replica_is_ignored_if_the_request_contained_no_rack() -> None:
    replicas, state = make()
    assert not advised(replicas, state, 2, unasked=True)
    assert not advised(replicas, state, 9, unasked=True)
    assert source(replicas, state, cluster(), 10.0) == 1
    assert not leaders_only(replicas, 10.0)  # the next request contains the rack


@pytest.mark.parametrize("node", [1, 2, 3, 9])
def test_a_preferred_replica_that_names_another_replica_is_no_longer_used(node: int) -> None:
    replicas, state = make()
    assert advised(replicas, state, 2)
    assert not advised(replicas, state, node, by=2)
    assert source(replicas, state, cluster(), 10.0) == 1
    assert leaders_only(replicas, 10.0)

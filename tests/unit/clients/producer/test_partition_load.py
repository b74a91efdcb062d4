"""Test partition weights by queue length, and excluded brokers (KIP-794)."""

from __future__ import annotations

from typing import Any

from odradek.clients.producer.batch import ProducerBatch
from odradek.clients.producer.partition_load import LOOKS_PER_CHOICE, PartitionLoad
from odradek.clients.producer.partition_queue import PartitionQueue
from odradek.common.config import PRODUCER, Config
from odradek.common.types import Address, TopicPartition
from odradek.metadata.cluster import NO_ID, Broker, Topic
from odradek.metadata.partitions import Partition
from odradek.record import BatchBuilder

BROKERS = {n: Broker(n, Address(f"b{n}", 9092), None) for n in range(4)}


def topic(*leaders: int) -> Topic:
    return Topic("t", NO_ID, tuple(Partition(n, leader, 0) for n, leader in enumerate(leaders)))


def queues(*lengths: int, since: float = 0.0) -> dict[TopicPartition, PartitionQueue]:
    found = {}
    for n, length in enumerate(lengths):
        place = TopicPartition("t", n)
        queue = found[place] = PartitionQueue()
        for _ in range(length):
            queue.waiting.append(ProducerBatch(place, BatchBuilder(100, None), since, 120.0))
    return found


def load(
    waiting: dict[TopicPartition, PartitionQueue],
    sent_at: dict[Address, float] | None = None,
    **options: Any,
) -> PartitionLoad:
    config = Config(PRODUCER, {"bootstrap.servers": "b:9092", **options})
    return PartitionLoad(config, waiting, sent_at or {})


def test_partitions_with_equally_long_queues_get_no_weights() -> None:
    assert load(queues(2, 2, 2)).table(topic(0, 1, 2), BROKERS, 0.0) == ([0, 1, 2], None)
    assert load({}).table(topic(0, -1, 2), BROKERS, 0.0) == ([0, 2], None)
    assert load({}).table(topic(-1, -1), BROKERS, 0.0) == ([0, 1], None)


def test_shorter_queues_get_higher_weights_as_in_kip_794() -> None:
    """Queues of 0, 3 and 1 batches have weights of 4, 1 and 3 (cumulative: 4, 5, 8)."""
    assert load(queues(0, 3, 1)).table(topic(0, 1, 2), BROKERS, 0.0) == ([0, 1, 2], [4, 5, 8])
    # a partition without a leader isn't chosen, and its queue doesn't count
    assert load(queues(0, 9, 1)).table(topic(0, -1, 2), BROKERS, 0.0) == ([0, 2], [2, 3])


def test_all_partitions_of_an_unresponsive_broker_are_excluded() -> None:
    found = load(
        queues(0, 2, 0, since=5.0),
        {Address("b1", 9092): 6.0},
        **{"partitioner.availability.timeout.ms": 2000, "linger.ms": 0},
    )
    shared = topic(0, 1, 1)
    assert found.table(shared, BROKERS, 7.9) == ([0, 1, 2], [3, 4, 7])
    assert found.table(topic(0, 1, 1), BROKERS, 8.1) == ([0], None)
    assert found.table(topic(1, 1, 1), BROKERS, 8.1)[0] == [
        0,
        1,
        2,
    ]  # all partitions have the unresponsive leader
    off = load(queues(0, 2, 0, since=5.0), {Address("b1", 9092): 6.0})
    assert off.table(topic(0, 1, 1), BROKERS, 99.0)[0] == [0, 1, 2]


def test_choosing_a_partition_does_not_examine_all_partitions_of_a_large_topic() -> None:
    waiting = queues(*[0] * 100)
    found, large = load(waiting), topic(*[0] * 100)
    assert found.table(large, BROKERS, 0.0)[1] is None
    waiting.update(queues(5))
    looks = 1
    while found.table(large, BROKERS, 0.0)[1] is None:
        looks += 1
    assert looks == 1 + 100 // LOOKS_PER_CHOICE

"""The cost of a send depends on the partitions in use, not on formerly used partitions."""

from __future__ import annotations

from functools import partial
from itertools import pairwise

import pytest
from tests.simulation.scene import Stage
from tests.simulation.test_step_work import lines_run

from odradek.api.producer import Producer
from odradek.clients.producer import partition_queue
from odradek.simulation import SimulatedCluster, World


def make(topics: int, partitions: int) -> tuple[World, SimulatedCluster, Producer]:
    stage = Stage(partitions=0)
    for n in range(topics):
        stage.cluster.create_topic(f"t{n}", partitions=partitions)
    return stage.world, stage.cluster, stage.producer(linger_ms=0)


def sends(producer: Producer) -> None:
    producer.send("t0", b"x", partition=0).result(timeout=5)
    producer.flush(timeout=5)


@pytest.mark.parametrize(("topics", "partitions"), [(1, 600), (150, 2)])
def test_idle_partitions_do_not_slow_down_a_send(topics: int, partitions: int) -> None:
    _, _, few = make(1, 2)
    _, _, many = make(topics, partitions)
    counts = []
    for producer, used in ((few, (1, 2)), (many, (topics, partitions))):
        for topic in range(used[0]):
            for partition in range(used[1]):
                producer.send(f"t{topic}", b"x", partition=partition)
        producer.flush(timeout=60)
        producer.send("t0", b"x", partition=0).result(timeout=5)
        counts.append(lines_run(partial(sends, producer), "api", "clients", "network", "metadata"))
        producer.close()
    assert counts[1] < 1.2 * counts[0], counts


def test_sequences_continue_after_a_partition_was_idle() -> None:
    world, cluster, producer = make(1, 3)
    for n in range(5):
        producer.send("t0", b"%d" % n, partition=0).result(timeout=5)
        producer.send("t0", b"%d" % n, partition=1).result(timeout=5)
        world.advance(10.0)
        assert not producer._engine.sender.queues
    headers = [batch.header for batch in cluster.log("t0", 0).batches]
    assert [(h.producer_epoch, h.base_sequence) for h in headers] == [(0, n) for n in range(5)]


def test_the_epoch_is_bumped_if_too_many_partitions_are_idle(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Sequences can't restart within an epoch: a leader would refuse them."""
    monkeypatch.setattr(partition_queue, "MOST_RESTING", 20)
    _, cluster, producer = make(1, 100)
    for _ in range(3):
        for partition in range(100):
            producer.send("t0", b"x", partition=partition).result(timeout=5)
    assert len(producer._engine.sender._partitions) <= 21
    assert producer._engine.sender.identity.bumps == 0
    asked = sum(b.requests["InitProducerId"] for b in cluster.brokers.values())
    assert asked == 1
    for partition in range(100):
        headers = [batch.header for batch in cluster.log("t0", partition).batches]
        assert len(headers) == 3
        epochs = [h.producer_epoch for h in headers]
        assert epochs == sorted(epochs)
        for before, after in pairwise(headers):
            same = before.producer_epoch == after.producer_epoch
            assert after.base_sequence == (before.base_sequence + 1 if same else 0)

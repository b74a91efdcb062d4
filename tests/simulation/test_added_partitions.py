"""Records for partitions that were added after the producer fetched metadata of their topic."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from tests.simulation.produce_script import make

from odradek.api.producer import Producer
from odradek.common.errors import ConfigurationError, KafkaTimeoutError
from odradek.record import InvalidRowError
from odradek.simulation import SimulatedCluster, World


def made(**config: Any) -> tuple[World, SimulatedCluster, Producer]:
    world, cluster, producer = make(1, **{"linger.ms": 0, **config})
    producer.send("t", b"0", partition=0).result(timeout=5)
    return world, cluster, producer


def refreshes(producer: Producer) -> int:
    return producer._engine.events.counts["metadata_request"]


def test_the_first_record_for_a_new_partition_refreshes_metadata() -> None:
    world, cluster, producer = made()
    world.advance(2)
    cluster.add_partitions("t", 7)
    began, asked = world.now, refreshes(producer)
    assert producer.send("t", b"1", partition=6).result(timeout=5).partition == 6
    assert world.now - began < 0.5
    assert refreshes(producer) - asked == 1


def test_send_waits_for_a_partition_that_is_added_later() -> None:
    world, cluster, producer = made()
    world.after(20.0, lambda: cluster.add_partitions("t", 7))
    assert producer.send("t", b"1", partition=6).result(timeout=25).partition == 6
    assert 20.0 <= world.now < 22.0


def test_a_partition_that_is_never_added_is_an_error_after_max_block_ms() -> None:
    world, _, producer = made(**{"max.block.ms": 5000})
    began, asked = world.now, refreshes(producer)
    text = r"timed out waiting for partition 99 of topic t, which has partitions 0 to 2"
    with pytest.raises(KafkaTimeoutError, match=text):
        producer.send("t", b"1", partition=99).result(timeout=30)
    assert 5.0 <= world.now - began <= 5.1
    assert 5 <= refreshes(producer) - asked <= 12  # each backoff is longer than the one before
    producer.send("t", b"1", partition=0).result(timeout=5)


def test_a_negative_partition_is_an_error_immediately() -> None:
    world, _, producer = made()
    began = world.now
    with pytest.raises(
        ConfigurationError, match=r"topic t has no partition -1 \(it has partitions 0 to 2\)"
    ):
        producer.send("t", b"1", partition=-1)
    assert world.now == began


def rows(*partitions: int) -> pa.RecordBatch:
    return pa.record_batch({"value": [b"x"] * len(partitions), "partition": list(partitions)})


def test_send_arrow_finds_a_new_partition() -> None:
    world, cluster, producer = made()
    world.advance(2)
    cluster.add_partitions("t", 7)
    producer.send_arrow("t", rows(0, 6)).result(timeout=5)
    assert len(cluster.records("t", 6)) == 1


def test_send_arrow_checks_a_missing_partition_with_one_metadata_request() -> None:
    world, _, producer = made()
    world.advance(2)
    began, asked = world.now, refreshes(producer)
    with pytest.raises(InvalidRowError, match="row 1: .*partitions 0 to 2, not 9"):
        producer.send_arrow("t", rows(0, 9))
    assert refreshes(producer) - asked == 1
    assert world.now - began < 0.5

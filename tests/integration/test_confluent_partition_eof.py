"""Test confluent-kafka's `enable.partition.eof` with odradek's module."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

import odradek
from odradek.compat.confluent_kafka import Consumer, KafkaError, TopicPartition
from odradek.testing import FakeCluster

PATIENCE = 60.0


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    with FakeCluster(1, topics=["ends"]) as running:
        yield running


def write(cluster: FakeCluster, count: int) -> None:
    with odradek.Producer({"bootstrap.servers": cluster.bootstrap_servers}) as producer:
        for _ in range(count):
            producer.send("ends", value=b"x")


def to_the_end(consumer: Consumer) -> tuple[list[int | None], int | None]:
    """Return the offsets before the end of the partition is reported, and the end's offset."""
    found: list[int | None] = []
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        message = consumer.poll(0.5)
        if message is None:
            continue
        error = message.error()
        if error is None:
            found.append(message.offset())
            continue
        assert error.code() == KafkaError._PARTITION_EOF
        return found, message.offset()
    raise AssertionError(f"no end after {found}")


def test_a_seek_discards_an_end_of_partition_that_was_not_yet_reported(
    cluster: FakeCluster,
) -> None:
    write(cluster, 5)
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": "readers",
            "enable.partition.eof": True,
            "auto.offset.reset": "latest",
        }
    )
    try:
        consumer.assign([TopicPartition("ends", 0, 0)])
        assert to_the_end(consumer) == ([0, 1, 2, 3, 4], 5)
        write(cluster, 5)
        consumer.seek(TopicPartition("ends", 0, 5))
        assert to_the_end(consumer) == ([5, 6, 7, 8, 9], 10)
        consumer.seek(TopicPartition("ends", 0, 10))  # no record: an empty response
        assert to_the_end(consumer) == ([], 10)
        consumer.seek(TopicPartition("ends", 0, 1000))  # out of range, so the offset is reset
        assert to_the_end(consumer) == ([], 10)
    finally:
        consumer.close()

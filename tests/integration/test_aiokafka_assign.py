"""Test `assign()` directly after `unsubscribe()` with odradek.compat.aiokafka."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

import odradek
from odradek.compat.aiokafka import AIOKafkaConsumer, TopicPartition
from odradek.testing import FakeCluster

HERE = TopicPartition("t", 0)


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    with FakeCluster(1, topics=["t"]) as running:
        with odradek.Producer({"bootstrap.servers": running.bootstrap_servers}) as producer:
            for _ in range(10):
                producer.send("t", value=b"x")
        yield running


def test_calls_that_need_positions_wait_for_the_assignment(cluster: FakeCluster) -> None:
    asyncio.run(_asked(cluster.bootstrap_servers))


async def _asked(servers: str) -> None:
    consumer = AIOKafkaConsumer(
        bootstrap_servers=servers,
        group_id="readers",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )
    await consumer.start()

    async def read_and_assigned() -> None:
        """Read ten records of a subscription, then assign the partition itself."""
        consumer.unsubscribe()
        consumer.subscribe(["t"])
        while not await consumer.getmany(timeout_ms=500):
            pass
        consumer.unsubscribe()
        consumer.assign([HERE])

    try:
        consumer.assign([HERE])
        consumer.unsubscribe()
        consumer.assign([HERE])
        assert await consumer.position(HERE) == 0
        await read_and_assigned()
        assert await consumer.position(HERE) == 0
        await read_and_assigned()
        assert await consumer.seek_to_end(HERE)
        assert await consumer.position(HERE) == 10
        await read_and_assigned()
        await consumer.commit()  # commits no position: no record was returned yet
        assert await consumer.committed(HERE) in (None, 0)
        await read_and_assigned()
        assert await consumer.seek_to_beginning()
        found = await consumer.getmany(HERE, timeout_ms=5000)
        assert [record.offset for record in found[HERE]] == list(range(10))
    finally:
        await consumer.stop()

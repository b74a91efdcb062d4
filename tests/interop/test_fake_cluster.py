"""Test `FakeCluster` with other clients, which produce, consume and join groups.

The clients are librdkafka (confluent-kafka), aiokafka, Kafka's Java client and its console tools;
no real broker takes part (the real cluster only provides the JVM settings of the tools).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from tests.interop.group_members import GroupScenario, Jvm
from tests.interop.other_client import Row, read_all, write_all

from odradek.testing import FakeCluster, LocalCluster

ROWS = 300
PARTITIONS = 3


@pytest.fixture(scope="module")
def fake() -> Iterator[FakeCluster]:
    with FakeCluster(brokers=3) as running:
        yield running


@pytest.fixture
def tool(cluster: LocalCluster, fake: FakeCluster) -> Any:
    """Run one of Kafka's console tools with the fake cluster."""

    def run(main: str, *words: str, given: bytes | None = None) -> str:
        servers = ["--bootstrap-server", fake.bootstrap_servers]
        return cluster.run_tool(f"org.apache.kafka.tools.{main}", [*servers, *words], given=given)

    return run


def confluent_writes(fake: FakeCluster, topic: str, values: list[bytes], _: Any) -> None:
    rows = [Row(None, value) for value in values]
    write_all(fake.bootstrap_servers, topic, rows, range(PARTITIONS))


def aiokafka_writes(fake: FakeCluster, topic: str, values: list[bytes], _: Any) -> None:
    async def write() -> None:
        async with AIOKafkaProducer(
            bootstrap_servers=fake.bootstrap_servers, enable_idempotence=True
        ) as producer:
            sent = [
                await producer.send(topic, value, partition=n % PARTITIONS)
                for n, value in enumerate(values)
            ]
            await asyncio.gather(*sent)

    asyncio.run(write())


def java_writes(fake: FakeCluster, topic: str, values: list[bytes], tool: Any) -> None:
    tool("ConsoleProducer", "--topic", topic, given=b"\n".join(values) + b"\n")


def confluent_reads(fake: FakeCluster, topic: str, _: Any) -> list[bytes]:
    found = read_all(fake.bootstrap_servers, topic, PARTITIONS)
    return [row.value or b"" for rows in found.values() for row in rows]


def aiokafka_reads(fake: FakeCluster, topic: str, _: Any) -> list[bytes]:
    """Read in a group, and commit its offsets."""

    async def read() -> list[bytes]:
        async with AIOKafkaConsumer(
            topic,
            bootstrap_servers=fake.bootstrap_servers,
            group_id=f"aiokafka-{topic}",
            auto_offset_reset="earliest",
        ) as consumer:
            found: list[bytes] = []
            while len(found) < ROWS:
                batches = await consumer.getmany(timeout_ms=30_000)
                assert batches
                found += [record.value for records in batches.values() for record in records]
            await consumer.commit()
            offsets = [await consumer.committed(p) for p in consumer.assignment()]
            assert sum(offset or 0 for offset in offsets) == ROWS
            return found

    return asyncio.run(read())


def java_reads(fake: FakeCluster, topic: str, tool: Any) -> list[bytes]:
    """Read in a KIP-848 group; the test of three clients in a group uses both protocols."""
    words = ["--topic", topic, "--from-beginning", "--max-messages", str(ROWS)]
    text = tool("consumer.ConsoleConsumer", *words, "--group", f"java-{topic}",
                "--command-property", "group.protocol=consumer")  # fmt: skip
    return [line.encode() for line in text.splitlines()]


def test_all_clients_read_the_records_of_each_other(
    fake: FakeCluster, topic: str, tool: Any
) -> None:
    """Use one topic for all three clients, because starting Java's tools takes most of the time."""
    fake.create_topic(topic, PARTITIONS)
    values = [b"value %d" % n for n in range(ROWS)]
    third = ROWS // 3
    for n, writes in enumerate((confluent_writes, aiokafka_writes, java_writes)):
        writes(fake, topic, values[n * third : (n + 1) * third], tool)
    stored = [row[4] for p in range(PARTITIONS) for row in fake.records(topic, p)]
    assert sorted(stored) == sorted(values)  # type: ignore[type-var]
    for reads in (confluent_reads, aiokafka_reads, java_reads):
        assert sorted(reads(fake, topic, tool)) == sorted(values)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_three_clients_share_a_group_on_simulated_brokers(
    fake: FakeCluster, jvm: Jvm, topic: str, protocol: str
) -> None:
    def config(kind: str, _: str) -> dict[str, Any]:
        if protocol == "consumer":
            return {"group.protocol": protocol, "group.remote.assignor": "uniform"}
        range_assignor = "org.apache.kafka.clients.consumer.RangeAssignor"
        return {
            "session.timeout.ms": 30_000,  # members leave in order; a busy machine may be late
            "heartbeat.interval.ms": 200,
            "partition.assignment.strategy": range_assignor if kind == "java" else "range",
        }

    story = GroupScenario(fake, jvm, topic, config)
    story.join("ours1")
    story.join("java1", "confluent1")
    story.leave("ours1")
    story.join("java2")
    story.leave("java1", "confluent1")
    story.leave("java2")
    story.check()


def test_other_clients_recover_after_brokers_are_killed(fake: FakeCluster, topic: str) -> None:
    fake.create_topic(topic, PARTITIONS)
    values = [b"value %d" % n for n in range(ROWS)]
    confluent_writes(fake, topic, values[:100], None)
    fake.kill(fake.leader(topic, 0))
    aiokafka_writes(fake, topic, values[100:200], None)
    fake.heal()
    for i in fake.broker_ids:
        fake.move(i)
    confluent_writes(fake, topic, values[200:], None)
    assert sorted(aiokafka_reads(fake, topic, None)) == sorted(values)

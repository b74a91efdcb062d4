"""Test tasks with a real cluster in this process, without Spark."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from pyspark.sql.types import BinaryType, LongType, StructType

from odradek.common.events import Event
from odradek.spark.driver.source import KafkaDataSource
from odradek.spark.tasks.worker_clients import process_clients
from odradek.testing import LocalCluster

from .conftest import Topics, numbered, spark_options

SCHEMA = StructType().add("value", BinaryType()).add("offset", LongType())


class Tasks:
    """Plan of one batch query, and its tasks one by one."""

    def __init__(self, cluster: LocalCluster, topic: str, **options: str) -> None:
        given = {**spark_options(cluster.client_config()), "subscribe": topic, **options}
        self._reader = KafkaDataSource(given).reader(SCHEMA)
        self.partitions: Sequence[Any] = self._reader.partitions()

    def batches(self, number: int) -> Any:
        return self._reader.read(self.partitions[number])

    def offsets(self) -> list[list[int]]:
        return [
            [o for batch in self.batches(n) for o in batch.column("offset").to_pylist()]
            for n in range(len(self.partitions))
        ]


def sockets() -> set[str]:
    """Return this process's established TCP connections by inode."""
    mine = set()
    for link in Path("/proc/self/fd").iterdir():
        try:
            mine.update(re.findall(r"socket:\[(\d+)\]", str(link.readlink())))
        except OSError:  # closed in the meantime
            continue
    lines = Path("/proc/self/net/tcp").read_text().splitlines()[1:]
    return {f[9] for f in map(str.split, lines) if f[9] in mine and f[3] == "01"}


@pytest.fixture(autouse=True)
def no_clients() -> None:
    """Start without clients, as a new worker does."""
    cache = process_clients()
    for client in [*cache._used.values(), *(idle.client for idle in cache._idle.values())]:
        cache.drop(client)


def test_a_worker_connects_to_each_leader_and_sends_no_metadata_requests(
    cluster: LocalCluster, topics: Topics
) -> None:
    topic = topics.create(4)
    topics.fill(topic, numbered(0, 400), 4)
    plan = Tasks(cluster, topic, groupIdPrefix="connections", minPartitions="8")
    leaders = {leader for leader, _ in plan.partitions[0].hint["topics"][topic]["partitions"]}
    assert len(plan.partitions) == 8
    before = sockets()
    assert sorted(o for part in plan.offsets() for o in part) == sorted([*range(100)] * 4)
    opened = sockets() - before  # other clients in this process may close connections meanwhile
    assert len(opened) == len(leaders) == 2
    # The client stays connected until the next task, and sends only fetches.
    client: Any = next(reversed(process_clients()._idle.values())).client
    events: list[Event] = []
    client.listen(events.append)
    assert [len(part) for part in plan.offsets()] == [50] * 8
    assert events == []
    assert opened <= sockets()  # no new connections
    process_clients().drop(client)


def test_large_records_are_read_in_several_batches_and_a_limit_leaves_the_client_usable(
    cluster: LocalCluster, topics: Topics
) -> None:
    topic = topics.create(1, max_message_bytes=str(64 << 20))
    producer = Producer({**cluster.librdkafka_config(), "message.max.bytes": 64 << 20})
    sizes = [20 << 20, 1, 33 << 20, 1, 20 << 20]
    for size in sizes:
        producer.produce(topic, b"x" * size)
        assert producer.flush(60) == 0
    plan = Tasks(cluster, topic)
    batches = plan.batches(0)
    assert next(batches).column("offset").to_pylist()[0] == 0
    batches.close()  # as Spark does for a query with LIMIT
    found = list(plan.batches(0))
    lengths = [len(v.as_buffer()) for batch in found for v in batch.column("value")]
    assert lengths == sizes
    assert all(batch.num_rows == 1 or batch.nbytes <= 33 << 20 for batch in found)
    ends = Tasks(cluster, topic, endingOffsets=f'{{"{topic}":{{"0":0}}}}')
    assert [partition.wanted for partition in ends.partitions] == [None]  # planned by a later run
    assert list(ends.batches(0)) == []

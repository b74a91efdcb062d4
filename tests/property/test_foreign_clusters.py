"""R-RB-5 with many seeds: no record is written to or read from a wrong cluster.

All brokers are replaced by another cluster with topics of the same names and the same bootstrap
address, at new or at the same addresses. With current brokers topic ids separate records; older
brokers know topics by name only.
"""

from __future__ import annotations

from typing import Any

import pytest
from tests.volume import part

from odradek.api.base import on_host
from odradek.api.consumer import Consumer
from odradek.api.producer import Producer
from odradek.common.errors import ClusterIdMismatchError, KafkaError
from odradek.common.types import TopicPartition
from odradek.simulation import SimulatedCluster, World

OF_TODAY: dict[int, tuple[int, int]] = {}
BEFORE_4_4 = {18: (0, 4)}
"""Brokers don't report another cluster id (KIP-1242), so the client has to ask for it."""
BY_NAME = {0: (3, 12), 1: (4, 12), **BEFORE_4_4}
BEFORE_2_8 = {0: (3, 8), 1: (4, 11), 60: (0, -1), **BEFORE_4_4}
"""DescribeCluster is missing: the cluster id must be requested with Metadata."""
WITHOUT_IDS = {3: (0, 9), **BEFORE_4_4}
"""Metadata contains no topic ids, so requests contain names."""
VERSIONS = pytest.mark.parametrize(
    "versions",
    [OF_TODAY, BY_NAME, BEFORE_2_8, WITHOUT_IDS],
    ids=["topic ids", "topic names", "before 2.8", "no ids in the metadata"],
)
RECYCLED = pytest.mark.parametrize(
    "recycled", [True, False], ids=["same addresses", "new addresses"]
)
PARTITIONS = 3


def clusters(seed: int, versions: dict[int, tuple[int, int]]) -> tuple[World, SimulatedCluster]:
    world = World(seed=seed)
    cluster = SimulatedCluster(world, brokers=3, versions=versions)
    cluster.create_topic("t", PARTITIONS)
    return world, cluster


def replace(cluster: SimulatedCluster, seed: int, *, recycled: bool) -> SimulatedCluster:
    after = 0.05 + 0.1 * (seed % 7)
    foreign = cluster.replace_with_foreign(after=after, recycle_addresses=recycled)
    foreign.versions.update(cluster.versions)
    return foreign


def client(world: World, kind: Any, cluster: SimulatedCluster, **options: Any) -> Any:
    host = world.host(kind.__name__.lower())
    return on_host(host, kind, bootstrap_servers=cluster.bootstrap_servers, **options)


def check_untouched(foreign: SimulatedCluster, when: str) -> None:
    found = [row for p in range(PARTITIONS) for row in foreign.records("t", p)]
    assert not found, f"{when}: {found}"


@RECYCLED
@VERSIONS
def test_no_record_is_written_to_another_cluster(
    versions: dict[int, tuple[int, int]], recycled: bool
) -> None:
    for seed in range(part(25, 3)):
        world, cluster = clusters(seed, versions)
        producer = client(world, Producer, cluster, linger_ms=0)
        for n in range(6):
            producer.send("t", b"%d" % n, partition=n % PARTITIONS)
        producer.flush(timeout=5)
        foreign = replace(cluster, seed, recycled=recycled)
        try:
            for n in range(200):
                producer.send("t", b"later %d" % n, partition=n % PARTITIONS)
                world.advance(0.02)
        except ClusterIdMismatchError:
            pass
        world.advance(10)
        check_untouched(foreign, f"seed {seed}")
        assert isinstance(producer._engine.ended, ClusterIdMismatchError), f"seed {seed}"


@VERSIONS
def test_no_record_is_written_to_an_address_that_now_belongs_to_another_cluster(
    versions: dict[int, tuple[int, int]],
) -> None:
    """Let another cluster take over the address of a broker before the first record is sent."""
    for seed in range(part(25, 3)):
        world, cluster = clusters(seed, versions)
        producer = client(world, Producer, cluster, linger_ms=0)
        producer.partitions_for("t", timeout=5)
        world.advance(5 + seed)
        foreign = cluster.replace_with_foreign(recycle_addresses=True)
        foreign.versions.update(cluster.versions)
        for p in range(PARTITIONS):
            try:
                producer.send("t", b"first", partition=p)
            except ClusterIdMismatchError:
                break
        world.advance(10)
        check_untouched(foreign, f"seed {seed}")


@RECYCLED
@VERSIONS
def test_no_record_is_read_from_another_cluster(
    versions: dict[int, tuple[int, int]], recycled: bool
) -> None:
    for seed in range(part(25, 3)):
        world, cluster = clusters(seed, versions)
        consumer = client(world, Consumer, cluster, auto_offset_reset="earliest")
        consumer.assign([TopicPartition("t", p) for p in range(PARTITIONS)])
        consumer.poll(timeout=1)
        foreign = replace(cluster, seed, recycled=recycled)
        world.advance(1)
        other = client(world, Producer, foreign)
        for p in range(PARTITIONS):
            other.send("t", b"theirs", partition=p).result(timeout=10)
        with pytest.raises(KafkaError):
            for _ in range(30):
                assert not consumer.poll(timeout=1), f"seed {seed}: read from another cluster"
        assert isinstance(consumer._engine.ended, ClusterIdMismatchError), f"seed {seed}"

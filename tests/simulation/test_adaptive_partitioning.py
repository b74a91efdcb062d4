"""KIP-794: leaders that are slow or silent get fewer of the records without a key."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
from tests.simulation.produce_script import leader_of, make


@cache
def run(trouble: str, **config: Any) -> tuple[dict[int, int], int]:
    """Send 1,500 records; return their count by partition, and the faulty leader's partition."""
    world, cluster, producer = make(11, replicas=1, **{"batch.size": 1000, **config})
    cluster.session_timeout = 1000.0  # no other replica can become the leader
    producer.partitions_for("t", timeout=5)
    leader = leader_of(cluster, 1)
    if trouble == "slow":
        cluster.throttle(leader.id, 1.0)
    elif trouble == "silent":
        cluster.go_silent(leader.id)
    counts = dict.fromkeys(range(3), 0)
    for _ in range(1500):
        future = producer.send("t", b"x" * 100)
        counts[future._batch.partition.partition] += 1
        world.advance(0.01)
    cluster.repair(leader.id)
    producer.flush(timeout=100)
    for partition in range(3):
        assert len(cluster.records("t", partition)) == counts[partition]
    producer.close()
    return counts, 1


@pytest.mark.parametrize("trouble", ["slow", "silent"])
def test_a_slow_leader_gets_fewer_records(trouble: str) -> None:
    counts, behind = run(trouble)
    others = [n for p, n in counts.items() if p != behind]
    assert counts[behind] < 0.5 * min(others)
    assert max(others) < 1.5 * min(others)


def test_healthy_leaders_get_nearly_equal_numbers_of_records() -> None:
    counts, _ = run("none")
    assert max(counts.values()) < 1.25 * min(counts.values())


def test_adaptive_partitioning_can_be_disabled() -> None:
    counts, behind = run("slow", **{"partitioner.adaptive.partitioning.enable": False})
    assert counts[behind] > 0.8 * max(counts.values())


def test_a_silent_leader_gets_fewer_records_with_an_availability_timeout() -> None:
    with_timeout, behind = run("silent", **{"partitioner.availability.timeout.ms": 500})
    without, _ = run("silent")
    assert with_timeout[behind] < 0.5 * without[behind]

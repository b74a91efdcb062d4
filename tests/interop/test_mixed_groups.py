"""Test our consumer in a classic group with librdkafka's and Java's; members join and leave.

Every record is read exactly once, in order within a partition, with any leader: each client commits
before another one owns its partitions. Java's cooperative member is the exception: it commits as it
rejoins, continues to read while it waits for the others, and gives up partitions without another
commit, so that on a busy machine some records are read again.
"""

from __future__ import annotations

import time
from typing import Any

import pytest
from tests.interop.group_members import PARTITIONS, GroupScenario, Jvm

from odradek.api.consumer import Consumer
from odradek.common.errors.kafka import FencedInstanceIdError
from odradek.testing import LocalCluster

JAVA_NAMES = {
    "range": "RangeAssignor",
    "roundrobin": "RoundRobinAssignor",
    "sticky": "StickyAssignor",
    "cooperative-sticky": "CooperativeStickyAssignor",
}


def story_of(
    cluster: LocalCluster, jvm: Jvm, topic: str, strategy: str, *, static: bool = False
) -> GroupScenario:
    """Return a classic group's scenario with the assignor configured for each client."""

    def config(kind: str, name: str) -> dict[str, Any]:
        java = f"org.apache.kafka.clients.consumer.{JAVA_NAMES[strategy]}"
        return {
            **({"group.instance.id": name} if static else {}),
            "session.timeout.ms": 30_000,  # members leave in order; a busy machine may be late
            "heartbeat.interval.ms": 200,
            "partition.assignment.strategy": java if kind == "java" else strategy,
        }

    careless = "java" if strategy == "cooperative-sticky" else ""
    return GroupScenario(cluster, jvm, topic, config, careless)


@pytest.mark.parametrize(
    "strategy",
    [
        pytest.param("range", marks=pytest.mark.long),  # shorter tests: test_oldest_release.py
        pytest.param("roundrobin", marks=pytest.mark.long),
        "cooperative-sticky",
    ],
)
def test_with_librdkafka_and_java(
    cluster: LocalCluster, jvm: Jvm, topic: str, strategy: str
) -> None:
    story = story_of(cluster, jvm, topic, strategy)
    story.join("ours1")
    story.join("java1")  # Odradek's member is the group's leader
    story.join("confluent1", "ours2")
    story.leave("ours1")  # another client's member leads from now on
    story.leave("java1")
    story.join("java2")
    story.leave("ours2")
    story.join("ours3")  # joins a group that another client leads
    story.leave("confluent1", "java2")
    story.leave("ours3")
    story.check()


def test_a_group_with_java_uses_the_sticky_assignor(
    cluster: LocalCluster, jvm: Jvm, topic: str
) -> None:
    """Test without librdkafka, which has no eager sticky assignor."""
    story = story_of(cluster, jvm, topic, "sticky")
    story.join("java1")
    story.join("ours1", "ours2")
    story.leave("java1")
    story.join("java2")
    story.leave("ours1")
    story.leave("ours2", "java2")
    story.check()


def test_static_members_restart_without_a_rebalance(
    cluster: LocalCluster, jvm: Jvm, topic: str
) -> None:
    """Check KIP-345 and KIP-814, also with a restarted leader of each client."""
    story = story_of(cluster, jvm, topic, "range", static=True)
    story.join("ours1")
    story.join("java1", "confluent1")
    for name in ("ours1", "java1", "ours1"):
        story.restart(name)
    story.leave("ours1", "java1", "confluent1")
    story.check()
    config = {
        "bootstrap.servers": cluster.bootstrap_servers,
        "group.id": f"fence-{topic}",
        "group.instance.id": "i",
        "heartbeat.interval.ms": 200,
    }
    with Consumer(config) as old, Consumer(config) as new:
        for consumer in (old, new):
            consumer.subscribe([topic])
            deadline = time.monotonic() + 20
            while not consumer.assignment() and time.monotonic() < deadline:
                consumer.poll(0.1)
            assert len(consumer.assignment()) == PARTITIONS
        with pytest.raises(FencedInstanceIdError):
            old.poll(10.0)

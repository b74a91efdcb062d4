"""Our consumer in one classic group with librdkafka's and Java's: members come and go.

Every record is read exactly once, in order within a partition, whoever leads and divides: each
client gives back what it committed before another goes on there. Java's cooperative member is the
exception: it commits as it rejoins, reads on while it waits for the others, and gives back without
another commit, so that on a busy machine what it read meanwhile is read again.
"""

from __future__ import annotations

import time
from typing import Any

import pytest
from tests.interop.group_members import PARTITIONS, Jvm, Story

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
) -> Story:
    """A classic group in which each client is told the assignor in its own words."""

    def config(kind: str, name: str) -> dict[str, Any]:
        java = f"org.apache.kafka.clients.consumer.{JAVA_NAMES[strategy]}"
        return {
            **({"group.instance.id": name} if static else {}),
            "session.timeout.ms": 30_000,  # members leave in order; a busy machine may be late
            "heartbeat.interval.ms": 200,
            "partition.assignment.strategy": java if kind == "java" else strategy,
        }

    careless = "java" if strategy == "cooperative-sticky" else ""
    return Story(cluster, jvm, topic, config, careless)


@pytest.mark.parametrize(
    "strategy",
    [
        pytest.param("range", marks=pytest.mark.long),  # shorter: test_oldest_release.py
        pytest.param("roundrobin", marks=pytest.mark.long),
        "cooperative-sticky",
    ],
)
def test_with_librdkafka_and_java(
    cluster: LocalCluster, jvm: Jvm, topic: str, strategy: str
) -> None:
    story = story_of(cluster, jvm, topic, strategy)
    story.join("ours1")
    story.join("java1")  # ours leads
    story.join("confluent1", "ours2")
    story.leave("ours1")  # one of the others leads from now on
    story.leave("java1")
    story.join("java2")
    story.leave("ours2")
    story.join("ours3")  # follows whoever leads
    story.leave("confluent1", "java2")
    story.leave("ours3")
    story.check()


def test_the_sticky_assignor_with_java(cluster: LocalCluster, jvm: Jvm, topic: str) -> None:
    """librdkafka knows no eager sticky assignor."""
    story = story_of(cluster, jvm, topic, "sticky")
    story.join("java1")
    story.join("ours1", "ours2")
    story.leave("java1")
    story.join("java2")
    story.leave("ours1")
    story.leave("ours2", "java2")
    story.check()


def test_static_members_come_back_unnoticed(cluster: LocalCluster, jvm: Jvm, topic: str) -> None:
    """KIP-345, KIP-814: also the leader, whichever client it is."""
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

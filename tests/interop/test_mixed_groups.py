"""Our consumer in one classic group with librdkafka's and Java's: members come and go.

Every record is read exactly once, in order within a partition, whoever leads and divides: each
client gives back what it committed before another goes on there.
"""

from __future__ import annotations

from typing import Any

import pytest
from tests.interop.group_members import Jvm, Story

from odradek.testing import LocalCluster

JAVA_NAMES = {
    "range": "RangeAssignor",
    "roundrobin": "RoundRobinAssignor",
    "sticky": "StickyAssignor",
    "cooperative-sticky": "CooperativeStickyAssignor",
}


def story_of(cluster: LocalCluster, jvm: Jvm, topic: str, strategy: str) -> Story:
    """A classic group in which each client is told the assignor in its own words."""

    def config(kind: str, _: str) -> dict[str, Any]:
        java = f"org.apache.kafka.clients.consumer.{JAVA_NAMES[strategy]}"
        return {
            "session.timeout.ms": 6000,
            "heartbeat.interval.ms": 200,
            "partition.assignment.strategy": java if kind == "java" else strategy,
        }

    return Story(cluster, jvm, topic, config)


@pytest.mark.parametrize("strategy", ["range", "roundrobin", "cooperative-sticky"])
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

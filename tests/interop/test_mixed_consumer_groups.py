"""Test our consumer in a KIP-848 group with librdkafka's and Java's; members join and leave.

Every record is read exactly once, in order within a partition: each client commits before the
coordinator assigns its partitions to another member.
"""

from __future__ import annotations

import time
from typing import Any

import pytest
from tests.interop.group_members import GroupScenario, Jvm

from odradek.api.consumer import Consumer
from odradek.common.errors.kafka import InvalidRegularExpressionError
from odradek.testing import LocalCluster


def story_of(cluster: LocalCluster, jvm: Jvm, topic: str, assignor: str) -> GroupScenario:
    def config(kind: str, _: str) -> dict[str, Any]:
        return {"group.protocol": "consumer", "group.remote.assignor": assignor}

    return GroupScenario(cluster, jvm, topic, config)


def test_three_clients_read_each_record_once(cluster: LocalCluster, jvm: Jvm, topic: str) -> None:
    story = story_of(cluster, jvm, topic, "uniform")
    story.join("ours1")
    story.join("java1", "confluent1")
    story.join("ours2")
    story.leave("ours1", "java1")
    story.join("java2")
    story.leave("ours2", "confluent1", "java2")
    story.check()


def test_a_group_with_java_uses_the_brokers_range_assignor(
    cluster: LocalCluster, jvm: Jvm, topic: str
) -> None:
    story = story_of(cluster, jvm, topic, "range")
    story.join("ours1", "ours2")
    story.join("java1")
    story.leave("ours1", "ours2", "java1")
    story.check()


def test_a_classic_group_is_upgraded_in_place(cluster: LocalCluster, jvm: Jvm, topic: str) -> None:
    """Check a group with members of both protocols.

    A downgrade isn't tested: when the last member of the new protocol leaves, the broker removes
    the others (ILLEGAL_GENERATION, Java's too), so they lose uncommitted progress.
    """

    def config(kind: str, name: str) -> dict[str, Any]:
        if name.endswith("8"):
            return {"group.protocol": "consumer"}
        java = "org.apache.kafka.clients.consumer.CooperativeStickyAssignor"
        return {
            "group.protocol": "classic",
            "session.timeout.ms": 30_000,  # members leave in order; a busy machine may be late
            "heartbeat.interval.ms": 200,
            "partition.assignment.strategy": java if kind == "java" else "cooperative-sticky",
        }

    story = GroupScenario(cluster, jvm, topic, config)
    # If librdkafka leads, its assignments have user data, and then brokers don't upgrade the group.
    story.join("ours1")
    story.join("confluent1")
    story.join("ours8")
    story.leave("ours1")
    story.join("java1", "java8")
    story.leave("confluent1", "java1")
    story.leave("ours8", "java8")
    story.check()


def test_the_coordinator_checks_patterns_and_instance_ids(
    cluster: LocalCluster, topic: str
) -> None:
    for name in (f"{topic}-a", f"{topic}-b", f"other-{topic}"):
        cluster.create_topic(name, partitions=2)
    settings = {
        "bootstrap.servers": cluster.bootstrap_servers,
        "group.id": f"group-of-{topic}",
        "group.protocol": "consumer",
        "group.instance.id": "i1",
    }
    owned: list[set[str]] = []
    for _ in range(2):
        with Consumer(settings) as consumer:
            consumer.subscribe(pattern=f"{topic}-[ab]")
            deadline = time.monotonic() + 20.0
            while len(consumer.assignment()) < 4:
                assert time.monotonic() < deadline, consumer.assignment()
                consumer.poll(0.1)
            owned.append({str(p) for p in consumer.assignment()})
            member = consumer.group_metadata()
            assert (member.group_instance_id, member.generation_id > 0) == ("i1", True)
            if len(owned) == 1:
                # The same instance id again, while it is in use, is rejected only after a minute.
                with Consumer(settings) as twin:
                    twin.subscribe(pattern=f"{topic}-[ab]")
                    assert twin.poll(1.0) == []
                    assert twin.assignment() == []
    assert owned == [{f"{topic}-{t}-{n}" for t in "ab" for n in range(2)}] * 2
    with Consumer({**settings, "group.instance.id": "i2"}) as consumer:
        consumer.subscribe(pattern="unclosed(")
        with pytest.raises(InvalidRegularExpressionError, match="unclosed"):
            consumer.poll(20.0)

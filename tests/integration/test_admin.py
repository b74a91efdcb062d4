"""Test the admin client on real brokers."""

from __future__ import annotations

import pytest

from odradek.api.admin import Admin
from odradek.clients.admin.admin_arguments import NewTopic
from odradek.common.errors.kafka import (
    InvalidConfigError,
    InvalidReplicationFactorError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
)
from odradek.testing import LocalCluster


@pytest.fixture
def cluster(mortal_cluster: LocalCluster) -> LocalCluster:
    """Return a cluster of three brokers, for replicas."""
    return mortal_cluster


def test_topics_are_created_described_and_deleted(cluster: LocalCluster, topic: str) -> None:
    with Admin({"bootstrap.servers": cluster.bootstrap_servers}) as admin:
        new = NewTopic(topic, 4, 3, {"cleanup.policy": "compact", "min.insync.replicas": "2"})
        assert admin.create_topics([new], validate_only=True) == {}
        made = admin.create_topics([new], timeout=30)[topic]
        assert [len(p.replicas) for p in made.partitions] == [3] * 4
        assert made.leaderless == 0
        assert made.topic_id is not None
        assert topic in admin.list_topics(timeout=60)
        described = admin.describe_topics([topic], timeout=60)[topic]
        assert (described.topic_id, described.name) == (made.topic_id, topic)
        with pytest.raises(TopicAlreadyExistsError, match=topic):
            admin.create_topics([new], timeout=60)
        with pytest.raises(InvalidReplicationFactorError, match="too-wide"):
            admin.create_topics([NewTopic("too-wide", 1, 7)], timeout=60)
        with pytest.raises(InvalidConfigError, match="odd"):
            admin.create_topics([NewTopic("odd", 1, 1, {"no.such": "1"})], timeout=60)
        admin.delete_topics([topic], timeout=30)
        with pytest.raises(UnknownTopicOrPartitionError, match=topic):
            admin.delete_topics([topic], timeout=60)
        default = admin.create_topics([NewTopic(f"{topic}-default")], timeout=30)
        assert len(default[f"{topic}-default"].partitions) >= 1


def test_describe_cluster_returns_id_brokers_and_controller(cluster: LocalCluster) -> None:
    with Admin({"bootstrap.servers": cluster.bootstrap_servers}) as admin:
        found = admin.describe_cluster(timeout=60)
    assert found.cluster_id == cluster.cluster_id
    assert {f"{b.host}:{b.port}" for b in found.brokers} == set(cluster.broker_addresses)
    assert found.controller in {b.id for b in found.brokers}

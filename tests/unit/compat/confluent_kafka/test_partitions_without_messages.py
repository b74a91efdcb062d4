"""Test commits of partitions without messages, if the compat module commits the offsets."""

from __future__ import annotations

from typing import Any

import pytest

from odradek import Admin, TopicPartition
from odradek.compat import confluent_kafka
from odradek.testing import FakeCluster


@pytest.mark.parametrize("given", [{"enable.auto.offset.store": False}, {"on_commit": print}])
def test_the_start_offset_of_a_partition_without_messages_is_committed(
    given: dict[str, Any],
) -> None:
    """R-GR-6: the offset comes from `auto.offset.reset`; each setting lets the module commit."""
    part = TopicPartition("t", 0)
    with FakeCluster(brokers=1) as cluster:
        cluster.create_topic("t", partitions=1)
        servers = {"bootstrap.servers": cluster.bootstrap_servers}
        consumer = confluent_kafka.Consumer(
            {**servers, "group.id": "g", "auto.offset.reset": "latest", **given}
        )
        consumer.subscribe(["t"])
        found = None
        with Admin(servers) as admin:
            for _ in range(300):
                assert consumer.poll(0.1) is None
                found = admin.list_group_offsets(["g"])["g"].get(part)
                if found is not None:
                    break
        consumer.close()
    assert found is not None
    assert found.offset == 0

"""Arguments and results of the admin client: new topics, descriptions of topics and the cluster.

In: values, or Odradek's descriptions. Out: confluent-kafka's objects. Must not: check what brokers
check.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import total_ordering
from typing import Any

import odradek
from odradek.compat.confluent_kafka.admin.enumerations import (
    AclOperation,
    operations,
    operations_of,
)
from odradek.compat.confluent_kafka.model import Node, TopicPartitionInfo
from odradek.compat.confluent_kafka.uuid import Uuid, uuid_from


@total_ordering
class NewTopic:
    """Topic to create; -1 means the broker's default. `config` uses Kafka's option names.

    `replica_assignment`, instead of a replication factor, lists the brokers of each partition.
    """

    def __init__(
        self,
        topic: str,
        num_partitions: int = -1,
        replication_factor: int = -1,
        replica_assignment: list[list[int]] | None = None,
        config: dict[str, str] | None = None,
    ) -> None:
        if not isinstance(topic, str):
            raise TypeError(f"topic must be a str, not {type(topic).__name__}")
        if config is not None and not isinstance(config, dict):
            raise TypeError("config must be a dict of strings")
        self.topic = topic
        self.num_partitions = num_partitions
        self.replication_factor = replication_factor
        self.replica_assignment = replica_assignment
        self.config = config

    def __str__(self) -> str:
        count = "" if self.num_partitions < 0 else f",num_partitions={self.num_partitions}"
        return f"NewTopic(topic={self.topic}{count})"

    __repr__ = __str__

    def __hash__(self) -> int:
        return hash(self.topic)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, NewTopic):
            return NotImplemented
        return (self.topic, self.num_partitions) == (other.topic, other.num_partitions)

    def __lt__(self, other: NewTopic) -> bool:
        return (self.topic, self.num_partitions) < (other.topic, other.num_partitions)


@total_ordering
class NewPartitions:
    """New total number of partitions of a topic.

    `replica_assignment` lists the brokers of each new partition.
    """

    def __init__(
        self, topic: str, new_total_count: int, replica_assignment: list[list[int]] | None = None
    ) -> None:
        if not isinstance(topic, str):
            raise TypeError(f"topic must be a str, not {type(topic).__name__}")
        self.topic = topic
        self.new_total_count = new_total_count
        self.replica_assignment = replica_assignment

    def __str__(self) -> str:
        return f"NewPartitions(topic={self.topic},new_total_count={self.new_total_count})"

    __repr__ = __str__

    def __hash__(self) -> int:
        return hash(self.topic) ^ self.new_total_count

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, NewPartitions):
            return NotImplemented
        return (self.topic, self.new_total_count) == (other.topic, other.new_total_count)

    def __lt__(self, other: NewPartitions) -> bool:
        return (self.topic, self.new_total_count) < (other.topic, other.new_total_count)


class TopicDescription:
    """Topic: its id, whether it is internal, and its partitions."""

    def __init__(
        self,
        name: str,
        topic_id: Uuid | None,
        is_internal: bool,
        partitions: list[TopicPartitionInfo],
        authorized_operations: list[AclOperation | str | int] | None = None,
    ) -> None:
        self.name = name
        self.topic_id = topic_id
        self.is_internal = is_internal
        self.partitions = partitions
        self.authorized_operations = operations(authorized_operations)


class DescribeClusterResult:
    """Cluster: its id, its controller (None for none) and its brokers."""

    def __init__(
        self,
        controller: Node | None,
        nodes: list[Node],
        cluster_id: str | None = None,
        authorized_operations: list[AclOperation | str | int] | None = None,
    ) -> None:
        self.cluster_id = cluster_id
        self.controller = controller
        self.nodes = nodes
        self.authorized_operations = operations(authorized_operations)


MOST_PARTITIONS = 100_000
_ASSIGNED = "replica_assignment must be a list of int lists with an outer size of "


def our_topic(topic: NewTopic) -> odradek.NewTopic:
    """Convert a topic to create for Odradek's admin client; raises `ValueError`."""
    count, assigned, config = topic.num_partitions, topic.replica_assignment, topic.config or {}
    if assigned is None:
        return odradek.NewTopic(topic.topic, count, topic.replication_factor, config)
    if topic.replication_factor != -1:
        raise ValueError("replication_factor and replica_assignment are mutually exclusive")
    brokers = _assignment(assigned, "num_partitions")
    if count not in (-1, len(brokers)):
        raise ValueError(f"{_ASSIGNED}num_partitions")
    return odradek.NewTopic(
        topic.topic, configs=config, replica_assignment=dict(enumerate(brokers))
    )


def our_partitions(more: NewPartitions) -> odradek.admin.NewPartitions:
    """Convert partitions to add for Odradek's admin client; raises `ValueError`."""
    if not 1 <= more.new_total_count <= MOST_PARTITIONS:
        raise ValueError(
            f"Invalid NewPartitions({more.topic}): new_total_count out of expected range "
            f"1..{MOST_PARTITIONS}"
        )
    if more.replica_assignment is None:
        return odradek.admin.NewPartitions(more.new_total_count)
    brokers = _assignment(more.replica_assignment, "the number of new partitions")
    return odradek.admin.NewPartitions(more.new_total_count, brokers)


def _assignment(given: Any, size: str) -> list[list[int]]:
    if not isinstance(given, list) or not all(
        isinstance(ids, list) and all(isinstance(n, int) for n in ids) for ids in given
    ):
        raise ValueError(f"{_ASSIGNED}{size}")
    return given


def nodes_of(described: odradek.admin.ClusterDescription) -> dict[int, Node]:
    """Return the brokers by id."""
    return {b.id: Node(b.id, b.host, b.port, b.rack) for b in described.brokers}


def cluster_result(described: odradek.admin.ClusterDescription) -> DescribeClusterResult:
    """Convert Odradek's description of the cluster to confluent-kafka's."""
    nodes = nodes_of(described)
    controller = None if described.controller is None else nodes.get(described.controller)
    allowed: list[Any] | None = operations_of(described.authorized_operations)
    return DescribeClusterResult(controller, list(nodes.values()), described.cluster_id, allowed)


def topic_result(
    described: odradek.admin.TopicDescription, nodes: Mapping[int, Node]
) -> TopicDescription:
    """Convert Odradek's description of a topic; unknown brokers have no host."""

    def node(number: int) -> Node:
        return nodes.get(number) or Node(number, "", -1)

    partitions = [
        TopicPartitionInfo(
            p.partition,
            None if p.leader is None else node(p.leader),
            [node(n) for n in p.replicas],
            [node(n) for n in p.isr],
        )
        for p in described.partitions
    ]
    topic_id = None if described.topic_id is None else uuid_from(described.topic_id)
    allowed: list[Any] | None = operations_of(described.authorized_operations)
    return TopicDescription(described.name, topic_id, described.internal, partitions, allowed)

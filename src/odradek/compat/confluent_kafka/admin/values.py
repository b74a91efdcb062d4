"""What the admin client takes and gives: topics to make, descriptions of topics and the cluster.

In: parts, or descriptions of ours. Out: confluent-kafka's objects. Must not: check what brokers do.
"""

from __future__ import annotations

from collections.abc import Mapping

import odradek
from odradek.compat.confluent_kafka.model import Node, TopicPartitionInfo
from odradek.compat.confluent_kafka.uuid import Uuid, uuid_from


class NewTopic:
    """A topic to make; -1 is the broker's default. `config` has Kafka's names."""

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


class TopicDescription:
    """A topic: its id, whether it is internal, and its partitions."""

    def __init__(
        self,
        name: str,
        topic_id: Uuid | None,
        is_internal: bool,
        partitions: list[TopicPartitionInfo],
        authorized_operations: list[object] | None = None,
    ) -> None:
        self.name = name
        self.topic_id = topic_id
        self.is_internal = is_internal
        self.partitions = partitions
        self.authorized_operations = authorized_operations or None


class DescribeClusterResult:
    """The cluster: its id, its controller (None for none) and its brokers."""

    def __init__(
        self,
        controller: Node | None,
        nodes: list[Node],
        cluster_id: str | None = None,
        authorized_operations: list[object] | None = None,
    ) -> None:
        self.cluster_id = cluster_id
        self.controller = controller
        self.nodes = nodes
        self.authorized_operations = authorized_operations or None


def our_topic(topic: NewTopic) -> odradek.NewTopic:
    """A topic to make as our admin client takes it."""
    return odradek.NewTopic(
        topic.topic, topic.num_partitions, topic.replication_factor, topic.config or {}
    )


def nodes_of(described: odradek.ClusterDescription) -> dict[int, Node]:
    """The brokers by their ids."""
    return {b.id: Node(b.id, b.host, b.port, b.rack) for b in described.brokers}


def cluster_result(described: odradek.ClusterDescription) -> DescribeClusterResult:
    """A cluster as they describe it."""
    nodes = nodes_of(described)
    controller = None if described.controller is None else nodes.get(described.controller)
    return DescribeClusterResult(controller, list(nodes.values()), described.cluster_id)


def topic_result(
    described: odradek.TopicDescription, nodes: Mapping[int, Node]
) -> TopicDescription:
    """A topic as they describe it; a broker that isn't known has no host."""

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
    return TopicDescription(described.name, topic_id, described.internal, partitions)

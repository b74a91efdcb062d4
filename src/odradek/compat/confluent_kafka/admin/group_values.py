"""confluent-kafka's groups and members.

In: values, or Odradek's descriptions. Out: confluent-kafka's objects. Must not: send requests.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import odradek
from odradek.compat.confluent_kafka.admin.enumerations import (
    AclOperation,
    as_member,
    operations,
    operations_of,
)
from odradek.compat.confluent_kafka.cluster_metadata import BrokerMetadata
from odradek.compat.confluent_kafka.kafka_error import KafkaError, KafkaException
from odradek.compat.confluent_kafka.model import ConsumerGroupState, ConsumerGroupType, Node
from odradek.compat.confluent_kafka.topic_partition import TopicPartition, theirs

STATES = {
    ConsumerGroupState.PREPARING_REBALANCING: "PreparingRebalance",
    ConsumerGroupState.COMPLETING_REBALANCING: "CompletingRebalance",
    ConsumerGroupState.STABLE: "Stable",
    ConsumerGroupState.DEAD: "Dead",
    ConsumerGroupState.EMPTY: "Empty",
}
"""Kafka's names of group states; UNKNOWN represents all other states."""
TYPES = {ConsumerGroupType.CONSUMER: "Consumer", ConsumerGroupType.CLASSIC: "Classic"}
_STATE_OF = {word: state for state, word in STATES.items()}
_TYPE_OF = {word: kind for kind, word in TYPES.items()}


class ConsumerGroupListing:
    """Consumer group in a list; a simple group has no members and only stores offsets."""

    def __init__(
        self,
        group_id: str,
        is_simple_consumer_group: bool,
        state: ConsumerGroupState | str | int | None = None,
        type: ConsumerGroupType | str | int | None = None,
    ) -> None:
        self.group_id = group_id
        self.is_simple_consumer_group = is_simple_consumer_group
        if state is not None:
            self.state = as_member(state, ConsumerGroupState)
        if type is not None:
            self.type = as_member(type, ConsumerGroupType)


class ListConsumerGroupsResult:
    """Listed groups, and the errors of brokers that didn't list their groups."""

    def __init__(
        self,
        valid: list[ConsumerGroupListing] | None = None,
        errors: list[KafkaException] | None = None,
    ) -> None:
        self.valid = valid
        self.errors = errors


class MemberAssignment:
    """Partitions assigned to a member."""

    def __init__(self, topic_partitions: list[TopicPartition] | None) -> None:
        self.topic_partitions = topic_partitions or []


class MemberDescription:
    """Member of a group; `target_assignment` is the intended assignment (KIP-848)."""

    def __init__(
        self,
        member_id: str,
        client_id: str,
        host: str,
        assignment: MemberAssignment,
        group_instance_id: str | None = None,
        target_assignment: MemberAssignment | None = None,
    ) -> None:
        self.member_id = member_id
        self.client_id = client_id
        self.host = host
        self.assignment = assignment
        self.target_assignment = target_assignment
        self.group_instance_id = group_instance_id


class ConsumerGroupDescription:
    """Group with its members and its coordinator, which is a broker."""

    def __init__(
        self,
        group_id: str,
        is_simple_consumer_group: bool,
        members: list[MemberDescription],
        partition_assignor: str,
        state: ConsumerGroupState | str | int | None,
        coordinator: Node,
        authorized_operations: list[AclOperation | str | int] | None = None,
        type: ConsumerGroupType | str | int = ConsumerGroupType.UNKNOWN,
    ) -> None:
        self.group_id = group_id
        self.is_simple_consumer_group = is_simple_consumer_group
        self.members = members
        self.authorized_operations = operations(authorized_operations)
        self.partition_assignor = partition_assignor
        if state is not None:
            self.state = as_member(state, ConsumerGroupState)
        if type is not None:
            self.type = as_member(type, ConsumerGroupType)
        self.coordinator = coordinator


class GroupMember:
    """Member as `list_groups()` returns it; `metadata` and `assignment` are None."""

    def __init__(self) -> None:
        self.id: str | None = None
        self.client_id: str | None = None
        self.client_host: str | None = None
        self.metadata: bytes | None = None
        self.assignment: bytes | None = None


class GroupMetadata:
    """Group as `list_groups()` returns it."""

    def __init__(self) -> None:
        self.broker: BrokerMetadata | None = None
        self.id: str | None = None
        self.error: KafkaError | None = None
        self.state: str | None = None
        self.protocol_type: str | None = None
        self.protocol: str | None = None
        self.members: list[GroupMember] = []

    def __repr__(self) -> str:
        return f"GroupMetadata({self.id}{'' if self.error is None else f', {self.error}'})"

    def __str__(self) -> str:
        return str(self.id)


def listed(found: Iterable[odradek.admin.GroupListing]) -> list[ConsumerGroupListing]:
    """Convert Odradek's list of groups to confluent-kafka's."""
    return [
        ConsumerGroupListing(
            g.group_id,
            not g.protocol_type,
            _STATE_OF.get(g.state, ConsumerGroupState.UNKNOWN),
            _TYPE_OF.get(g.type, ConsumerGroupType.UNKNOWN),
        )
        for g in found
    ]


def description(
    found: odradek.admin.GroupDescription, nodes: Mapping[int, Node]
) -> ConsumerGroupDescription:
    """Convert the description of a group; an unknown coordinator has no host."""
    coordinator = -1 if found.coordinator is None else found.coordinator
    allowed: list[Any] | None = operations_of(found.authorized_operations)
    return ConsumerGroupDescription(
        found.group_id,
        not found.protocol_type,
        [_member(m) for m in found.members],
        found.assignor,
        _STATE_OF.get(found.state, ConsumerGroupState.UNKNOWN),
        nodes.get(coordinator) or Node(coordinator, "", -1),
        allowed,
        _TYPE_OF.get(found.type, ConsumerGroupType.UNKNOWN),
    )


def _member(m: odradek.admin.GroupMember) -> MemberDescription:
    target = None if m.target_assignment is None else MemberAssignment(theirs(m.target_assignment))
    assignment = MemberAssignment(theirs(m.assignment))
    return MemberDescription(m.member_id, m.client_id, m.host, assignment, m.instance_id, target)


def group_metadata(
    found: odradek.admin.GroupDescription, brokers: Mapping[int, BrokerMetadata]
) -> GroupMetadata:
    """Convert the description of a group to the result of `list_groups()`."""
    made = GroupMetadata()
    if found.coordinator is not None:
        made.broker = brokers.get(found.coordinator)
    made.id, made.state = found.group_id, found.state
    made.protocol_type, made.protocol = found.protocol_type, found.assignor
    for m in found.members:
        member = GroupMember()
        member.id, member.client_id, member.client_host = m.member_id, m.client_id, m.host
        made.members.append(member)
    return made

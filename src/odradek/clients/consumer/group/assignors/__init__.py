"""Assignors for classic groups: Kafka's built-in ones, and how a group's leader runs one.

In: an assignor, the subscriptions of all members, metadata. Out: each member's partitions. The
result is checked, because an assignor may be a user's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from odradek.clients.consumer.group.assignors.assignor import (
    COOPERATIVE,
    EAGER,
    Assignments,
    Assignor,
    MemberSubscription,
    PartitionRacks,
    RebalanceProtocol,
)
from odradek.clients.consumer.group.assignors.range_assignor import RangeAssignor
from odradek.clients.consumer.group.assignors.round_robin_assignor import RoundRobinAssignor
from odradek.clients.consumer.group.assignors.sticky_assignor import (
    CooperativeStickyAssignor,
    StickyAssignor,
)
from odradek.common.errors import ConfigurationError, KafkaError
from odradek.common.types import TopicPartition
from odradek.metadata.cluster import Cluster

__all__ = [
    "BUILT_IN",
    "COOPERATIVE",
    "EAGER",
    "Assignments",
    "Assignor",
    "AssignorError",
    "MemberSubscription",
    "RebalanceProtocol",
    "assign_group",
    "find",
    "rebalance_protocol",
    "user_data",
]

BUILT_IN: Mapping[str, Callable[[], Assignor]] = {
    "range": RangeAssignor,
    "roundrobin": RoundRobinAssignor,
    "sticky": StickyAssignor,
    "cooperative-sticky": CooperativeStickyAssignor,
}
"""Assignors by their names in `partition.assignment.strategy`; one object for each consumer."""


class AssignorError(KafkaError, ValueError):
    """An assignor raised an exception (the cause), or returned an invalid assignment."""


def find(items: Iterable[str | Assignor]) -> list[Assignor]:
    """Return the assignors of `partition.assignment.strategy`: built-in names or user objects."""
    found: list[Assignor] = []
    for item in items:
        if isinstance(item, str):
            if item not in BUILT_IN:
                known = ", ".join(BUILT_IN)
                raise ConfigurationError(f"unknown assignor {item!r}: use one of {known}")
            found.append(BUILT_IN[item]())
            continue
        missing = [a for a in ("name", "protocol", "assign") if not hasattr(item, a)]
        if missing:
            raise ConfigurationError(f"{item!r} isn't an assignor: it lacks {', '.join(missing)}")
        found.append(item)
    names = [assignor.name for assignor in found]
    if twice := next((n for n in names if names.count(n) > 1), None):
        raise ConfigurationError(f"partition.assignment.strategy names {twice!r} twice")
    return found


def rebalance_protocol(assignors: Sequence[Assignor]) -> RebalanceProtocol:
    """Return the best protocol that all of a member's assignors support."""
    return min((a.protocol for a in assignors), default=EAGER)


def user_data(assignor: Assignor, last: Sequence[TopicPartition], generation: int) -> bytes | None:
    """Return the assignor's data for the leader; `last` is the member's last assignment."""
    ask = getattr(assignor, "user_data", None)
    if ask is None:
        return None
    try:
        found = ask(last, generation)
    except Exception as error:
        text = f"the assignor {assignor.name!r} raised {type(error).__name__}: {error}"
        raise AssignorError(text) from error
    if found is not None and not isinstance(found, bytes):
        raise AssignorError(
            f"user_data() of assignor {assignor.name!r} returned {type(found).__name__}, not bytes"
        )
    return found


def assign_group(
    assignor: Assignor, members: Mapping[str, MemberSubscription], cluster: Cluster
) -> Assignments:
    """Run an assignor over the topics that the members subscribe to and that exist."""
    topics: dict[str, int] = {}
    for name in dict.fromkeys(t for s in members.values() for t in s.topics):
        topic = cluster.topic(name)
        if topic is not None and topic.partitions:
            topics[name] = len(topic.partitions)
    if hasattr(assignor, "partition_racks"):
        wanted = any(s.rack for s in members.values())
        assignor.partition_racks = _partition_racks(cluster, topics) if wanted else {}
    try:
        given = assignor.assign(members, topics)
    except Exception as error:
        text = f"the assignor {assignor.name!r} raised {type(error).__name__}: {error}"
        raise AssignorError(text) from error
    return _checked(assignor.name, given, members, topics)


def _partition_racks(cluster: Cluster, topics: Mapping[str, int]) -> PartitionRacks:
    racks = {b.id: b.rack for b in cluster.brokers.values() if b.rack}
    if not racks:
        return {}
    return {
        TopicPartition(name, p.partition): frozenset(racks[r] for r in p.replicas if r in racks)
        for name in topics
        for p in cluster.topics[name].partitions
    }


def _checked(
    name: str,
    given: Mapping[str, Sequence[TopicPartition]],
    members: Mapping[str, MemberSubscription],
    topics: Mapping[str, int],
) -> Assignments:
    """Check an assignment.

    Raise if a partition is assigned twice, or to a member without its topic.
    """
    owner: dict[TopicPartition, str] = {}
    checked: Assignments = {member: [] for member in members}
    if strange := next((m for m in given if m not in members), None):
        raise AssignorError(
            f"the assignor {name!r} assigned partitions to {strange!r}, which isn't a member"
        )
    for member, partitions in given.items():
        subscribed = set(members[member].topics)
        for item in partitions:
            partition = TopicPartition(*item)
            if not 0 <= partition.partition < topics.get(partition.topic, 0):
                raise AssignorError(
                    f"the assignor {name!r} assigned {partition}, which doesn't exist"
                )
            if partition.topic not in subscribed:
                raise AssignorError(
                    f"the assignor {name!r} assigned {partition} to {member!r}, "
                    "which doesn't subscribe to that topic"
                )
            if (other := owner.setdefault(partition, member)) != member:
                raise AssignorError(
                    f"the assignor {name!r} assigned {partition} to both {other!r} and {member!r}"
                )
            checked[member].append(partition)
    return checked

"""Implement `roundrobin`: assign all partitions of all topics to the members in turn.

In: members and partition counts. Out: numbers of partitions that differ by at most one if all
members subscribe to the same topics; a member that doesn't subscribe to a topic is skipped.
"""

from __future__ import annotations

from collections.abc import Mapping

from odradek.clients.consumer.group.assignors.assignor import (
    EAGER,
    Assignments,
    MemberSubscription,
    in_member_order,
    java_order,
)
from odradek.common.types import TopicPartition


class RoundRobinAssignor:
    """Kafka's assignor `roundrobin`."""

    name = "roundrobin"
    protocol = EAGER

    def assign(
        self, members: Mapping[str, MemberSubscription], topics: Mapping[str, int]
    ) -> Assignments:
        """Assign partitions in turn, topic by topic."""
        assignments: Assignments = {member: [] for member in members}
        order = in_member_order(members)
        subscribed = {member: frozenset(members[member].topics) for member in order}
        at = 0
        for topic in sorted(frozenset[str]().union(*subscribed.values()), key=java_order):
            for number in range(topics.get(topic, 0)):
                while topic not in subscribed[order[at]]:
                    at = (at + 1) % len(order)
                assignments[order[at]].append(TopicPartition(topic, number))
                at = (at + 1) % len(order)
        return assignments

"""Implement `range`: divide each topic into ranges of partitions, one for each subscriber.

In: members and partition counts, racks if there are any. Out: for topics with equal counts and
equal subscribers the same partition numbers for each member, so that the topics can be joined; with
racks (KIP-881) also replicas in the members' racks, as far as these guarantees allow that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from odradek.clients.consumer.group.assignors.assignor import (
    EAGER,
    Assignments,
    MemberSubscription,
    PartitionRacks,
    in_member_order,
    java_order,
    racks_matter,
)
from odradek.common.types import TopicPartition


class RangeAssignor:
    """Kafka's assignor `range`."""

    name = "range"
    protocol = EAGER

    def __init__(self) -> None:
        self.partition_racks: PartitionRacks = {}

    def assign(
        self, members: Mapping[str, MemberSubscription], topics: Mapping[str, int]
    ) -> Assignments:
        """Assign each member its range of every topic that it subscribes to."""
        assignments: Assignments = {member: [] for member in members}
        subscribers: dict[str, list[str]] = {}
        for member in in_member_order(members):
            for topic in dict.fromkeys(members[member].topics):
                subscribers.setdefault(topic, []).append(member)
        member_racks = {m: s.rack for m, s in members.items() if s.rack}
        shares = []
        for topic in sorted(subscribers, key=java_order):
            if topics.get(topic, 0) > 0:
                found = _racks_of(topic, topics[topic], self.partition_racks)
                racks = {m: member_racks[m] for m in subscribers[topic] if m in member_racks}
                shares.append(_TopicShares(topic, topics[topic], subscribers[topic], racks, found))
        if any(share.racks_matter for share in shares):
            _match_racks(shares, assignments)
        for share in shares:
            for member in share.members:
                share.give(member, share.free_for(member, near=False), assignments)
        for partitions in assignments.values():
            partitions.sort()
        return assignments


def _racks_of(topic: str, count: int, racks: PartitionRacks) -> PartitionRacks:
    if not racks:
        return {}
    nowhere: frozenset[str] = frozenset()
    return {p: racks.get(p, nowhere) for p in (TopicPartition(topic, n) for n in range(count))}


class _TopicShares:
    """A topic's unassigned partitions, and how many more each of its members may get."""

    def __init__(
        self,
        topic: str,
        count: int,
        members: Sequence[str],
        member_racks: Mapping[str, str],
        racks: PartitionRacks,
    ) -> None:
        self.topic = topic
        self.count = count
        self.members = members
        self.racks_matter = racks_matter(frozenset(member_racks.values()), racks)
        self.member_racks = member_racks
        self.racks = racks
        # A dict as an ordered set: partitions are removed in any order.
        self.left = dict.fromkeys(TopicPartition(topic, n) for n in range(count))
        self._given = dict.fromkeys(members, 0)
        self._each, self._one_more = divmod(count, len(members))

    def near(self, member: str, partition: TopicPartition) -> bool:
        """Return whether a replica is in the member's rack, or the member has no rack."""
        rack = self.member_racks.get(member)
        return rack is None or rack in self.racks.get(partition, ())

    def room(self, member: str) -> int:
        """Return the number of partitions that the member may still get."""
        return max(0, self._each + (self._one_more > 0) - self._given[member])

    def free_for(self, member: str, *, near: bool) -> list[TopicPartition]:
        """Return the first unassigned partitions, as many as the member may get."""
        found: list[TopicPartition] = []
        room = self.room(member)
        for partition in self.left:
            if len(found) == room:
                break
            if not near or self.near(member, partition):
                found.append(partition)
        return found

    def give(
        self, member: str, partitions: Sequence[TopicPartition], assignments: Assignments
    ) -> None:
        """Assign unassigned partitions to a member."""
        assignments[member] += partitions
        self._given[member] += len(partitions)
        if partitions and self._given[member] > self._each:
            self._one_more -= 1
        for partition in partitions:
            del self.left[partition]


def _match_racks(shares: Sequence[_TopicShares], assignments: Assignments) -> None:
    """Assign partitions to members in a replica's rack, in equal topics in the same way."""
    alike: dict[tuple[tuple[str, ...], int], list[_TopicShares]] = {}
    for share in shares:
        # Topics with unknown racks get the count 0, so that none of their partitions is matched.
        known = share.count if share.racks and share.member_racks else 0
        alike.setdefault((tuple(share.members), known), []).append(share)
    for (_, count), group in alike.items():
        if len(group) > 1:
            _match_racks_alike(count, group, assignments)
        elif group[0].racks_matter:
            share = group[0]
            for member in share.members:
                share.give(member, share.free_for(member, near=True), assignments)


def _match_racks_alike(count: int, group: Sequence[_TopicShares], assignments: Assignments) -> None:
    """Assign each partition number to the first member near it in all topics of `group`."""
    remaining = list(group[0].members)
    for number in range(count):
        for member in remaining:
            if all(
                share.room(member) > 0 and share.near(member, TopicPartition(share.topic, number))
                for share in group
            ):
                for share in group:
                    share.give(member, [TopicPartition(share.topic, number)], assignments)
                if not any(share.room(member) > 0 for share in group):
                    remaining.remove(member)
                break

"""Assign by racks (KIP-881): balance comes first, then racks, then claims.

In: the racks of members and of replicas, valid claims (partitions that members had before). Out:
each member's partitions if all subscribe to the same topics, and `Nearness` if they don't. As in
Java, a claim on a partition without a replica in its member's rack is ignored while a member in a
replica's rack has capacity for it. Unlike in Java, other such claims are applied before free
partitions are assigned, so a partition that has no member in a replica's rack doesn't move.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping, Sequence

from odradek.clients.consumer.group.assignors.assignor import (
    Assignments,
    MemberSubscription,
    PartitionRacks,
    java_order,
    racks_matter,
)
from odradek.common.types import TopicPartition


class Nearness:
    """Racks of a group: a member is near a partition if a replica is in its rack."""

    def __init__(self, member_racks: Mapping[str, str], racks: PartitionRacks) -> None:
        self._member_racks = member_racks
        self._racks = racks
        self._members = Counter(member_racks.values())

    def near(self, member: str, partition: TopicPartition) -> bool:
        """Return whether a replica is in the member's rack."""
        rack = self._member_racks.get(member)
        return rack is not None and rack in self._racks[partition]

    def far(self, member: str, partition: TopicPartition) -> bool:
        """Return whether the member has a rack, and no replica is in it."""
        return member in self._member_racks and not self.near(member, partition)

    def count(self, given: Assignments) -> int:
        """Return the number of partitions that are assigned to a member near them."""
        return sum(self.near(member, p) for member, found in given.items() for p in found)

    def neighbours(self, partition: TopicPartition) -> int:
        """Return the number of members near a partition; partitions with few are assigned first."""
        return sum(self._members[rack] for rack in self._racks[partition])

    def first(self, partition: TopicPartition, members: Sequence[str], start: int) -> int:
        """Return the index of the first member from `start` on in a replica's rack; -1 if none."""
        for n in range(len(members)):
            at = (start + n) % len(members)
            if self.near(members[at], partition):
                return at
        return -1


def nearness(
    members: Mapping[str, MemberSubscription], topics: Mapping[str, int], racks: PartitionRacks
) -> Nearness | None:
    """Return this group's racks; None if they make no difference."""
    member_racks = {m: s.rack for m, s in members.items() if s.rack}
    if not member_racks or not racks:
        return None
    nowhere: frozenset[str] = frozenset()
    every = (TopicPartition(t, n) for t, count in topics.items() for n in range(count))
    known = {p: racks.get(p, nowhere) for p in every}
    if not racks_matter(frozenset(member_racks.values()), known):
        return None
    return Nearness(member_racks, known)


class _Quotas:
    """Limits of members: each may get `each` partitions, and some of them one more."""

    def __init__(self, members: Sequence[str], count: int) -> None:
        self.each, self._one_more = divmod(count, len(members))
        self.most = self.each + (self._one_more > 0)
        self.under: list[str] = []
        self.even: list[str] = []
        """Members with exactly `each` partitions, which may get one more."""
        self.given: Assignments = {}

    def begin(self, member: str, mine: Sequence[TopicPartition]) -> None:
        """Add a member, which keeps as many of the partitions `mine` as it may have."""
        room = self.most if len(mine) >= self.most and self._one_more else self.each
        self.given[member] = list(mine[:room])
        if len(self.given[member]) < self.each:
            self.under.append(member)
        elif room == self.each:
            if self._one_more:
                self.even.append(member)
        else:
            self._one_more_given()

    def give(self, line: list[str], at: int, partition: TopicPartition) -> bool:
        """Assign a partition to `line[at]`; return whether that member may get more."""
        member = line[at]
        self.given[member].append(partition)
        count = len(self.given[member])
        if line is self.even:
            del line[at]
            self._one_more_given()
            return False
        if count < self.each:
            return True
        del line[at]
        if count < self.most and self._one_more:
            self.even.append(member)
        return False

    def _one_more_given(self) -> None:
        self._one_more -= 1
        if not self._one_more:
            self.even.clear()


def share_alike_near(
    members: Sequence[str], topics: Mapping[str, int], kept: Assignments, racks: Nearness
) -> Assignments:
    """Share the topics by racks among members that all subscribe to all of these topics."""
    quotas = _Quotas(members, sum(topics.values()))
    for member in members:
        mine = [p for p in kept[member] if not racks.far(member, p)]
        quotas.begin(member, sorted(mine, key=lambda p: (p.partition, java_order(p.topic))))
    taken = set().union(*quotas.given.values())
    free = [
        partition
        for topic in sorted(topics, key=java_order)
        for partition in (TopicPartition(topic, n) for n in range(topics[topic]))
        if partition not in taken
    ]
    rest = _give_near(sorted(free, key=racks.neighbours), quotas, racks)
    owners = {p: member for member, partitions in kept.items() for p in partitions}
    rest = _give_back(rest, quotas, owners)
    turns = deque(quotas.under)
    for partition in rest:
        if turns:
            member = turns.popleft()
            quotas.given[member].append(partition)
            if len(quotas.given[member]) < quotas.each:
                turns.append(member)
            else:
                quotas.even.append(member)
        else:
            quotas.given[quotas.even.pop(0)].append(partition)
    return quotas.given


def _give_near(
    free: Sequence[TopicPartition], quotas: _Quotas, racks: Nearness
) -> list[TopicPartition]:
    """Assign partitions round-robin to members in the same rack and return the rest."""
    rest, turn = [], 0
    for partition in free:
        at = racks.first(partition, quotas.under, turn)
        if at >= 0:
            turn = at + quotas.give(quotas.under, at, partition)
            turn = turn % len(quotas.under) if quotas.under else 0
            continue
        at = racks.first(partition, quotas.even, 0)
        if at >= 0:
            quotas.give(quotas.even, at, partition)
        else:
            rest.append(partition)
    return rest


def _give_back(
    free: Sequence[TopicPartition], quotas: _Quotas, owners: Mapping[TopicPartition, str]
) -> list[TopicPartition]:
    """Return free partitions to former owners with capacity; return the partitions left."""
    rest = []
    for partition in free:
        owner = owners.get(partition)
        line = quotas.under if owner in quotas.under else quotas.even
        if owner in line:
            quotas.give(line, line.index(owner), partition)
        else:
            rest.append(partition)
    return rest

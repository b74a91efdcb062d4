"""The books of one simulated group: who owns what, what was handed out, what is committed.

In: what members' callbacks are told and the records that they get, the coordinator's state. Out:
nothing, or a `Violation`. It holds for both protocols. Must not: change what it looks at.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Protocol

from odradek.common.errors import BrokerError
from odradek.common.types import TopicPartition
from odradek.simulation.brokers.cluster import SimulatedCluster
from odradek.simulation.brokers.topics import NO_LEADER
from odradek.simulation.checkers.invariants import Violation
from odradek.simulation.coordinators.group_coordinator import GROUP_TOPIC, GroupShard


class MemberView(Protocol):
    """What the books see of a member."""

    @property
    def name(self) -> str:
        """Its name in the schedule."""

    @property
    def identity(self) -> tuple[str, int]:
        """Member id and generation (or epoch) as the client has them now."""

    @property
    def static(self) -> bool:
        """Whether it has an instance id (KIP-345)."""

    def lost(self, partition: TopicPartition) -> bool:
        """Whether its client knows that the partition is lost, and its application doesn't yet."""


@dataclass(slots=True)
class Stint:
    """One member's time with one partition."""

    member_id: str
    next_offset: int | None = None


@dataclass(slots=True)
class GroupLedger:
    """What happened in one group. Members are known by their names."""

    group_id: str
    cluster: SimulatedCluster
    members: dict[str, MemberView] = field(default_factory=dict)
    stints: dict[str, dict[TopicPartition, Stint]] = field(default_factory=dict)
    ends: dict[TopicPartition, int] = field(default_factory=dict)
    """Behind the last offset that anybody was handed."""
    values: dict[tuple[TopicPartition, int], bytes | None] = field(default_factory=dict)
    in_hand: dict[str, dict[TopicPartition, int]] = field(default_factory=dict)
    """What members work on that let their client commit: the first offset by partition."""
    hands: dict[str, dict[TopicPartition, int]] = field(default_factory=dict)
    """How often these had been handed out by then, this time included."""
    owed: list[tuple[TopicPartition, int, int]] = field(default_factory=list)
    """What dead members had worked on: somebody must be handed it once more."""
    times: Counter[tuple[TopicPartition, int]] = field(default_factory=Counter)
    """How often each record was handed out."""
    handed: int = 0
    again: int = 0
    """Records that were handed out before: what at-least-once allows."""

    # What members are told

    def assigned(self, member: MemberView, partitions: list[TopicPartition]) -> None:
        """on_assigned was called."""
        self.members[member.name] = member
        mine = self.stints.setdefault(member.name, {})
        for partition in partitions:
            if partition in mine:
                raise self._wrong(member, f"is assigned {partition}, which it has")
            for other, theirs in self.stints.items():
                if other != member.name and partition in theirs:
                    self._check_shared(member, self.members[other], theirs[partition], partition)
            mine[partition] = Stint(member.identity[0])

    def _check_shared(
        self, member: MemberView, other: MemberView, stint: Stint, partition: TopicPartition
    ) -> None:
        """Another member hasn't been told that it lost the partition: only if nobody could."""
        if member.identity[1] < 0:
            raise self._wrong(member, f"is assigned {partition}, though it isn't a member")
        if other.lost(partition):
            return
        if other.static and other.identity[1] < member.identity[1]:
            return  # a static member that doesn't come in time keeps its place without having a say
        if other.identity[1] == member.identity[1]:
            raise self._wrong(
                member, f"is assigned {partition}, which {other.name} has in this generation"
            )
        shard = self.shard()
        group = shard.groups.get(self.group_id) if shard is not None else None
        if group is None or member.identity[0] not in group.members:
            return  # it was stopped itself, and will hear that it is none
        if group.members.keys() & {stint.member_id, other.identity[0]}:
            raise self._wrong(
                member, f"is assigned {partition}, which {other.name} has, a member like it"
            )

    def revoked(self, member: MemberView, partitions: list[TopicPartition]) -> None:
        """on_revoked or on_lost has ended."""
        mine = self.stints.setdefault(member.name, {})
        for partition in partitions:
            if mine.pop(partition, None) is None:
                raise self._wrong(member, f"gives back {partition}, which it doesn't have")

    def gone(self, member: MemberView) -> None:
        """The member has left, or died."""
        self.stints.pop(member.name, None)
        self.members.pop(member.name, None)
        hands = self.hands.pop(member.name, {})
        for partition, offset in self.in_hand.pop(member.name, {}).items():
            self.owed.append((partition, offset, hands[partition]))

    def works_on(self, member: MemberView, first: dict[TopicPartition, int]) -> None:
        """The application has these records in hand, until it asks for more."""
        self.in_hand[member.name] = first
        self.hands[member.name] = {p: self.times[p, offset] for p, offset in first.items()}

    def record(
        self, member: MemberView, partition: TopicPartition, offset: int, value: bytes | None
    ) -> None:
        """A record was handed out."""
        stint = self.stints.get(member.name, {}).get(partition)
        if stint is None:
            raise self._wrong(member, f"gets {partition} at {offset}, which it doesn't have")
        end = self.ends.get(partition, 0)
        if stint.next_offset is not None and offset != stint.next_offset:
            raise self._wrong(
                member, f"gets {partition} at {offset}, though {stint.next_offset} was next"
            )
        if offset > end:
            raise self._wrong(member, f"gets {partition} at {offset}: {end} was never handed out")
        stint.next_offset = offset + 1
        self.times[partition, offset] += 1
        self.handed += 1
        self.again += offset < end
        self.ends[partition] = max(end, offset + 1)
        self.values[partition, offset] = value

    def sought(self, member: MemberView, partition: TopicPartition) -> None:
        """The application goes on elsewhere, by its own will."""
        stint = self.stints.get(member.name, {}).get(partition)
        if stint is not None:
            stint.next_offset = None

    def _wrong(self, member: MemberView, text: str) -> Violation:
        now = self.cluster.environment.time.now
        return Violation(f"{now}: {member.name} {member.identity} {text}")

    # The coordinator's side

    def shard(self) -> GroupShard | None:
        """The coordinator's state, if somebody coordinates now."""
        groups = self.cluster.groups
        topic = self.cluster.topics.get(GROUP_TOPIC)
        if topic is None:
            return None
        index = groups.index(self.group_id)
        leader = topic.partitions[index].leader
        if leader == NO_LEADER:
            return None
        try:
            return groups.shard_at(self.cluster.brokers[leader], index)
        except BrokerError:
            return None

    def look(self) -> None:
        """No offset is committed behind what was handed out."""
        shard = self.shard()
        if shard is None:
            return
        for partition, committed in shard.committed(self.group_id).stable.items():
            if committed.offset > self.ends.get(partition, 0):
                raise Violation(
                    f"{self.cluster.environment.time.now}: {partition} is committed at "
                    f"{committed.offset}, but {self.ends.get(partition, 0)} is the end of what "
                    "was handed out"
                )
            self._check_in_hand(partition, committed.offset, shard)

    def _check_in_hand(self, partition: TopicPartition, committed: int, shard: GroupShard) -> None:
        """What an application works on isn't committed for it (R-GR-1): it may die meanwhile."""
        owners = [name for name, stints in self.stints.items() if partition in stints]
        group = shard.groups.get(self.group_id)
        if len(owners) != 1 or group is None:
            return  # another one may have read on
        first = self.in_hand.get(owners[0], {}).get(partition)
        owner, member_id = self.members[owners[0]], self.stints[owners[0]][partition].member_id
        excused = owner.lost(partition) or member_id not in group.members
        if first is not None and committed > first and not excused:
            raise self._wrong(owner, f"works on {partition} at {first}; {committed} is committed")

    # When all is quiet

    def settled(self, topic: str) -> str:
        """What is missing until every partition has one owner and is read to its end."""
        for index, partition in enumerate(self.cluster.topics[topic].partitions):
            place = TopicPartition(topic, index)
            owners = [name for name, stints in self.stints.items() if place in stints]
            if len(owners) != 1:
                return f"{place} has the owners {owners}"
            end = partition.log.high_watermark
            if self.ends.get(place, 0) != end:
                return f"{place} is read up to {self.ends.get(place, 0)} of {end}"
            stint = self.stints[owners[0]][place]
            if stint.next_offset not in (None, end):
                return f"{place} is read up to {stint.next_offset} of {end} by {owners[0]}"
        for place, offset, before in self.owed:
            if self.times[place, offset] <= before:
                return f"{place} at {offset} wasn't handed out again: who worked on it died"
        return ""

    def verify(self, topic: str) -> None:
        """Every record of the log was handed to somebody, as it is."""
        for index in range(len(self.cluster.topics[topic].partitions)):
            place = TopicPartition(topic, index)
            for row in self.cluster.records(topic, index):
                if (place, row[0]) not in self.values:
                    raise Violation(f"{place} at {row[0]} was handed to nobody")
                if self.values[place, row[0]] != row[4]:
                    raise Violation(f"{place} at {row[0]}: {self.values[place, row[0]]!r}")

    def committed(self, topic: str) -> dict[int, int]:
        """Committed offsets by partition; empty while nobody coordinates."""
        shard = self.shard()
        stable = shard.committed(self.group_id).stable if shard is not None else {}
        return {p.partition: c.offset for p, c in stable.items() if p.topic == topic}

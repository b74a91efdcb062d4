"""The books of one simulated group: who owns what, what was handed out, what is committed.

In: what members' callbacks are told and the records that they get, the coordinator's state. Out:
nothing, or a `Violation`. It holds for both protocols. Must not: change what it looks at.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from odradek.clients.consumer.group.group_commits import RENEW_AFTER
from odradek.common.errors import BrokerError
from odradek.common.types import TopicPartition
from odradek.simulation.brokers.cluster import SimulatedCluster
from odradek.simulation.brokers.zombie_leader import committed_to_zombies
from odradek.simulation.checkers.invariants import Violation
from odradek.simulation.coordinators.classic_members import ClassicState
from odradek.simulation.coordinators.committed_offsets import Committed
from odradek.simulation.coordinators.consumer_protocol_group import ConsumerProtocolGroup
from odradek.simulation.coordinators.group_coordinator import GROUP_TOPIC, GroupShard
from odradek.simulation.logs.topics import NO_LEADER, SimulatedTopic

RENEWED_WITHIN = 120.0
"""Seconds by which faults may delay the renewal of a committed offset."""


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

    @property
    def auto_commits(self) -> bool:
        """Whether its client commits by itself."""

    def position(self, partition: TopicPartition) -> int | None:
        """Its client's position; None where it has none."""


@dataclass(slots=True)
class Stint:
    """One member's time with one partition, from on_assigned to on_revoked or on_lost."""

    member_id: str
    next_offset: int | None = None
    since: float = 0.0
    life: str = ""
    """The name of the topic's life (`GroupLedger.life`) that it reads."""
    born: str = ""
    """The life in which the member was told that it owns it."""
    floor: int | None = None
    """The group's committed offset when the member was assigned the partition: the member may not
    begin before it. None: there was none, or the application has sought another offset."""


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
    by_id: bool = False
    """The group assigns topics by their ids (KIP-848): one that was created again is assigned
    without a wait for the owners of the deleted one."""
    latest: bool = False
    """The members have auto.offset.reset=latest."""
    births: dict[bytes, TopicPartition] = field(default_factory=dict)
    """In which partition of which life a value was written; values are unique."""
    processes: dict[str, str] = field(default_factory=dict)
    """The name of the member that has had a member id."""
    taken: dict[TopicPartition, tuple[int, str | None]] = field(default_factory=dict)
    """The last committed offset that the coordinator took, and the member id that sent it; None
    where it came with a transaction."""
    committers: dict[TopicPartition, dict[str, float]] = field(default_factory=dict)
    """When each member id last committed."""
    born: dict[tuple[str, TopicPartition], str] = field(default_factory=dict)
    """The life of the topic in which a member was last told that it owns a partition."""
    set_back: dict[TopicPartition, int] = field(default_factory=dict)
    """Partitions whose committed offset a late commit has set back, with the offset before. Until a
    commit reaches that again, the records between are handed out twice, and none is lost:
    the client takes its later commit, which was acknowledged, for the last one."""
    owed_from: dict[TopicPartition, int] = field(default_factory=dict)
    """With `latest`: the first offset that the group has committed. From there on every record must
    be handed out; a position that was lost before it was committed is looked up again."""
    hits: Counter[str] = field(default_factory=Counter)
    violations: list[Violation] = field(default_factory=list)
    gentle: bool = False
    """No fault refuses commits, or makes the group forget a member that lives."""
    warnings: Callable[[], int] = lambda: 0
    """How often clients have warned that records will be read again."""
    kept: dict[TopicPartition, float] = field(default_factory=dict)
    """When a member with auto-commit last owned a partition, as far as its coordinator knew."""
    _known_lives: dict[str, str] = field(default_factory=dict)

    # Topics that are deleted and created again

    def life(self, topic: str) -> str:
        """Return a name for the topic as it exists now: its own, or with a number after it was
        deleted and created again. All books are kept by life, since offsets begin at 0 in each.
        """
        before = sum(old.name == topic for old in self.cluster.deleted)
        return f"{topic}#{before + 1}" if before else topic

    def lives(self, topic: str) -> dict[str, SimulatedTopic]:
        """Return a topic by the names of its lives, the present one last."""
        found = [old for old in self.cluster.deleted if old.name == topic]
        if topic in self.cluster.topics:
            found.append(self.cluster.topics[topic])
        return {f"{topic}#{n}" if n > 1 else topic: one for n, one in enumerate(found, 1)}

    def start(self, place: TopicPartition) -> int:
        """Return where the log begins; records before that were deleted (DeleteRecords)."""
        topic = self.lives(place.topic.partition("#")[0]).get(place.topic)
        if topic is None or place.partition >= len(topic.partitions):
            return 0
        return topic.partitions[place.partition].log.start_offset

    def place(self, partition: TopicPartition, value: bytes | None = None) -> TopicPartition:
        """Return the partition with the name of the life that a value was written in, or of now."""
        born = self.births.get(value) if value is not None else None
        return born or TopicPartition(self.life(partition.topic), partition.partition)

    # What members are told

    def assigned(self, member: MemberView, partitions: list[TopicPartition]) -> None:
        """on_assigned was called."""
        self.members[member.name] = member
        self.processes[member.identity[0]] = member.name
        mine = self.stints.setdefault(member.name, {})
        for partition in partitions:
            if partition in mine:
                raise self._wrong(member, f"is assigned {partition}, which it has")
            life = self._assigned_life(member, partition)
            present = life == self.life(partition.topic)
            for other, theirs in self.stints.items():
                if other != member.name and partition in theirs and present:
                    self._check_shared(member, self.members[other], theirs[partition], partition)
            self.born[member.name, partition] = life
            mine[partition] = Stint(
                member.identity[0],
                since=self.now,
                life=life,
                born=life,
                floor=self._committed(partition) if present else None,
            )

    def _assigned_life(self, member: MemberView, partition: TopicPartition) -> str:
        """Return the life of the topic that a member is told it owns. With KIP-848 that may be a
        deleted topic: the application hears of its assignment later than the coordinator decides.
        """
        shard = self.shard() if self.by_id else None
        group = shard.groups.get(self.group_id) if shard is not None else None
        if isinstance(group, ConsumerProtocolGroup):
            known = group.members.get(member.identity[0])
            places = known.assigned | known.revoking if known is not None else ()
            for life, topic in reversed(self.lives(partition.topic).items()):
                if (topic.id, partition.partition) in places:
                    return life
        return self.life(partition.topic)

    def _check_shared(
        self, member: MemberView, other: MemberView, stint: Stint, partition: TopicPartition
    ) -> None:
        """Another member hasn't been told that it lost the partition: only if nobody could."""
        if member.identity[1] < 0:
            raise self._wrong(member, f"is assigned {partition}, though it isn't a member")
        if other.lost(partition):
            return
        if self.by_id and stint.born != self.life(partition.topic):
            return  # what it has is the deleted topic's: it hears so with its next heartbeat
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
                raise self._wrong(member, f"returns {partition}, which it doesn't have")

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
        place = self.place(partition, value)
        if place.topic != stint.life:
            self._check_next_life(member, stint, place)
        end = self.ends.get(place, 0)
        start = self.start(place)
        if stint.next_offset is None and stint.floor is not None:
            floor = min(stint.floor, self._committed(partition) or 0)  # a late commit moves it back
            # A member that was removed may hold records from before the new owner's commits.
            if offset < floor and self.is_member(member.identity[0]):
                raise self._wrong(member, f"begins {place} at {offset}; {floor} is committed")
        deleted = stint.next_offset is not None and stint.next_offset < offset <= start
        if stint.next_offset not in (None, offset) and not deleted:
            raise self._wrong(
                member, f"gets {place} at {offset}, though {stint.next_offset} was next"
            )
        if offset > max(end, start):
            self._check_begins(member, stint, place, offset)
        stint.next_offset = offset + 1
        self.times[place, offset] += 1
        self.handed += 1
        self.again += offset < end
        self.ends[place] = max(end, offset + 1)
        self.values[place, offset] = value

    def _check_next_life(self, member: MemberView, stint: Stint, place: TopicPartition) -> None:
        """After records of a topic come those of the topic that was created in its place."""
        if _number(place.topic) < _number(stint.life) and stint.next_offset is not None:
            raise self._wrong(member, f"gets {place} after records of {stint.life}")
        stint.life, stint.next_offset, stint.floor = place.topic, None, None

    def _check_begins(
        self, member: MemberView, stint: Stint, place: TopicPartition, offset: int
    ) -> None:
        """Refuse a record beyond all that was handed out, but with `latest`, where nothing is owed.

        A member that was removed while it was stopped, and has not heard of it, may find the end of
        the log later than the new owner, which is handed what comes before.
        """
        owed = self.owed_from.get(place)
        removed = not self.is_member(member.identity[0])
        begins = self.latest and stint.next_offset is None
        if not begins or (owed is not None and offset > owed and not removed):
            end = self.ends.get(place, 0)
            raise self._wrong(
                member, f"gets {place} at {offset}: {end} was never returned to a caller"
            )

    def sought(self, member: MemberView, partition: TopicPartition) -> None:
        """The application goes on elsewhere, by its own will."""
        stint = self.stints.get(member.name, {}).get(partition)
        if stint is not None:
            stint.next_offset = stint.floor = None

    def broken(self, member: MemberView, partition: TopicPartition) -> str | None:
        """Return the member that has committed for a partition since this member was told that
        it owns it. The ownership that was announced to the member has ended then (R-ID-1).
        """
        stint = self.stints.get(member.name, {}).get(partition)
        if stint is None or (self.by_id and stint.born != self.life(partition.topic)):
            return None
        place = TopicPartition(stint.life, partition.partition)
        for member_id, at in self.committers.get(place, {}).items():
            if at > stint.since and self.process(member_id) not in (None, member.name):
                return member_id
        return None

    def process(self, member_id: str) -> str | None:
        """Return the name of the member that has or had this member id, None if it isn't known."""
        for name, member in self.members.items():
            if member.identity[0] == member_id:
                self.processes[member_id] = name
        return self.processes.get(member_id)

    @property
    def now(self) -> float:
        """Virtual seconds."""
        return self.cluster.environment.time.now

    def _committed(self, partition: TopicPartition) -> int | None:
        """Return the lowest offset that a coordinator may answer, None if any has none with an
        epoch (an older leader can judge that). A zombie has what was committed by its time.
        """
        shard = self.shard()
        if shard is None:
            return None
        answers = [shard.committed(self.group_id)]
        answers += committed_to_zombies(self.cluster, self.group_id)
        known = [a.stable.get(partition) for a in answers]
        here = [c for c in known if c is not None and self._of_this_life(partition, c)]
        found = [c.offset for c in here if c.leader_epoch >= 0]
        return min(found) if len(found) == len(answers) else None

    def _wrong(self, member: MemberView, text: str) -> Violation:
        now = self.cluster.environment.time.now
        return Violation(f"{now}: {member.name} {member.identity} {text}")

    # The coordinator's side

    def commits(
        self, group_id: str, member_id: str | None, offsets: Mapping[TopicPartition, Committed]
    ) -> None:
        """The coordinator takes over committed offsets. They never go back in one life of a topic.

        Exempt is the plain commit of the member that committed last: requests of its earlier
        connections may arrive late, and Kafka has no fence against them.
        """
        for partition, committed in offsets.items() if group_id == self.group_id else ():
            if not self._of_this_life(partition, committed):
                continue
            place = self.place(partition)
            self._check_read(place, committed.offset)
            before, last = self.taken.get(place, (0, None))
            if committed.offset >= self.set_back.get(place, 0):
                self.set_back.pop(place, None)
            if committed.offset < before and member_id is not None and last == member_id:
                self.hits["committed offset set back by a late commit of the same owner"] += 1
                self.set_back[place] = max(before, self.set_back.get(place, 0))
            elif committed.offset < before:
                who = "a transaction" if member_id is None else self.process(member_id)
                self.violations.append(
                    Violation(
                        f"{self.now}: {place} was committed at {before} by "
                        f"{'a transaction' if last is None else self.process(last)}, and goes back "
                        f"to {committed.offset} by a commit of {who} ({member_id})"
                    )
                )
            self.taken[place] = committed.offset, member_id
            if member_id is not None:
                self.committers.setdefault(place, {})[member_id] = self.now
            self.owed_from.setdefault(place, committed.offset)

    def reached(self, place: TopicPartition) -> int:
        """Return the highest committed offset, before late commits have set it back."""
        return max(self.taken.get(place, (0, None))[0], self.set_back.get(place, 0))

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

    def is_member(self, member_id: str) -> bool:
        """Whether the coordinator counts it as a member, as far as that can be asked now."""
        shard = self.shard()
        group = shard.groups.get(self.group_id) if shard is not None else None
        return group is None or member_id in group.members

    def note_lives(self) -> None:
        """Count the topics that were created again before all was committed that was read of the
        deleted one.
        """
        for topic in {old.name for old in self.cluster.deleted} & self.cluster.topics.keys():
            life = self.life(topic)
            if self._known_lives.get(topic) != life:
                self._known_lives[topic] = life
                self.hits["topic created again"] += 1
                pending = any(
                    end > self.taken.get(place, (0, None))[0]
                    for place, end in self.ends.items()
                    if place.topic.partition("#")[0] == topic and place.topic != life
                )
                self.hits["topic created again with offsets of the deleted one pending"] += pending

    def look(self) -> None:
        """No offset is committed beyond the records that were handed out, and none goes back."""
        if self.violations:
            raise self.violations[0]
        self.note_lives()
        shard = self.shard()
        if shard is None:
            return
        self._check_kept(shard)
        for partition, committed in shard.committed(self.group_id).stable.items():
            if not self._of_this_life(partition, committed):
                continue  # its topic was deleted, and its offsets are about to be
            place = self.place(partition)
            if place.topic != partition.topic and place not in self.taken:
                continue  # of the deleted topic: that is being replicated
            self._check_read(place, committed.offset)
            self._check_in_hand(partition, committed.offset, shard)
        if self.violations:
            raise self.violations[0]

    def _check_kept(self, shard: GroupShard) -> None:
        """No committed offset expires while a member with auto-commit owns its partition, nor soon
        after that (R-GR-3): the age of the offset is at most that of its last renewal.
        """
        retention = shard.settings.offsets_retention
        if retention == math.inf:
            return
        for name, stints in self.stints.items():
            member = self.members[name]
            if member.auto_commits and self.is_member(member.identity[0]):
                self.kept |= {self.place(p): self.now for p in stints if not member.lost(p)}
        stored = shard.committed(self.group_id).stable
        for topic in self.cluster.topics:
            life = self.life(topic)
            for index in range(len(self.cluster.topics[topic].partitions)):
                place, partition = TopicPartition(life, index), TopicPartition(topic, index)
                gone = place in self.taken and partition not in stored
                since = self.now - self.kept.get(place, -math.inf)
                if gone and since < retention - RENEW_AFTER - RENEWED_WITHIN:
                    text = f"{place} has expired {since:.0f} s after its last owner"
                    self.violations.append(Violation(f"{self.now}: the committed offset of {text}"))

    def _check_read(self, place: TopicPartition, offset: int) -> None:
        """Nothing is committed that wasn't read of this life of the topic (R-ID-3)."""
        end = max(self.ends.get(place, 0), self.start(place))
        if offset > end and not self.latest:
            text = f"{place} is committed at {offset}, but returned records end at {end}"
            self.violations.append(Violation(f"{self.now}: {text}"))

    def _check_in_hand(self, partition: TopicPartition, committed: int, shard: GroupShard) -> None:
        """What an application works on isn't committed for it (R-GR-1): it may die meanwhile."""
        owners = [name for name, stints in self.stints.items() if partition in stints]
        group = shard.groups.get(self.group_id)
        if len(owners) != 1 or group is None:
            return  # another one may have read on
        first = self.in_hand.get(owners[0], {}).get(self.place(partition))
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
            stint = self.stints[owners[0]][place]
            end, place = partition.log.high_watermark, self.place(place)
            if self.latest:
                position = self.members[owners[0]].position(TopicPartition(topic, index))
                if position != end:
                    return f"{place} is read up to {position} of {end} by {owners[0]}"
                continue
            start = partition.log.start_offset
            if max(self.ends.get(place, 0), start) != end:
                return f"{place} is read up to {self.ends.get(place, 0)} of {end}"
            behind = max(stint.next_offset or end, start) != end
            if behind and stint.life == place.topic:
                return f"{place} is read up to {stint.next_offset} of {end} by {owners[0]}"
        lives = {self.life(name) for name in self.cluster.topics}
        for place, offset, before in self.owed:
            there = place.topic in lives and offset >= self.start(place)
            if self.latest:
                there = there and offset >= self.owed_from.get(place, offset + 1)
            if self.times[place, offset] <= before and there:
                return (
                    f"{place} at {offset} wasn't returned again: the member that processed it died"
                )
        return ""

    def orphans(self, topics: Iterable[str]) -> dict[TopicPartition, int]:
        """Return the partitions without an owner, with the generation of the stable group."""
        shard = self.shard()
        group = shard.groups.get(self.group_id) if shard is not None else None
        if group is None or not group.members:
            return {}
        if isinstance(group, ConsumerProtocolGroup):
            generation = group.epoch
        elif group.state is ClassicState.STABLE:
            generation = group.generation
        else:
            return {}
        owned = {p for stints in self.stints.values() for p in stints}
        there = self.cluster.topics
        places = [TopicPartition(t, n) for t in topics for n in range(len(there[t].partitions))]
        return dict.fromkeys((p for p in places if p not in owned), generation)

    def verify(self, topic: str) -> None:
        """Every record of the log was handed to somebody, as it is."""
        for index in range(len(self.cluster.topics[topic].partitions)):
            place = self.place(TopicPartition(topic, index))
            for row in self.cluster.records(topic, index):
                if row[0] < self.start(place):
                    continue
                if self.latest and row[0] < self.owed_from.get(place, row[0] + 1):
                    continue
                if (place, row[0]) not in self.values:
                    raise Violation(f"{place} at {row[0]} was returned to no member")
                if self.values[place, row[0]] != row[4]:
                    raise Violation(f"{place} at {row[0]}: {self.values[place, row[0]]!r}")

    def committed(self, topic: str) -> dict[int, int]:
        """Committed offsets by partition; empty while nobody coordinates."""
        shard = self.shard()
        stable = shard.committed(self.group_id).stable if shard is not None else {}
        return {
            p.partition: c.offset
            for p, c in stable.items()
            if p.topic == topic and self._of_this_life(p, c)
        }

    def _of_this_life(self, partition: TopicPartition, committed: Committed) -> bool:
        """Return whether an offset is returned to who asks for the topic of now by its id."""
        topic = self.cluster.topics.get(partition.topic)
        return topic is not None and committed.belongs_to(topic.id)


def _number(life: str) -> int:
    return int(life.partition("#")[2] or 1)

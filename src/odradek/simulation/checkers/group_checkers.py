"""Check a simulated group: owners of partitions, returned records and committed offsets.

In: the calls of members' callbacks and the records that they get, the coordinator's state. Out:
nothing, or a `Violation`. The checks hold for both protocols. Must not change the observed objects.
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
from odradek.simulation.brokers.broker_faults import disturbed
from odradek.simulation.brokers.cluster import SimulatedCluster
from odradek.simulation.brokers.zombie_leader import committed_to_zombies, led_by_zombie
from odradek.simulation.checkers.invariants import Violation, wrong_epoch
from odradek.simulation.coordinators.classic_members import ClassicState
from odradek.simulation.coordinators.committed_offsets import Committed
from odradek.simulation.coordinators.consumer_protocol_group import ConsumerProtocolGroup
from odradek.simulation.coordinators.group_coordinator import GROUP_TOPIC, GroupShard
from odradek.simulation.logs.partition_log import PartitionLog
from odradek.simulation.logs.topics import NO_LEADER, SimulatedTopic

SENT_BEFORE = 10.0
"""Maximum time in seconds from the sending of a commit until the coordinator handles it. The sender
may learn meanwhile that the topic was recreated."""
RENEWED_WITHIN = 120.0
"""Maximum time in seconds by which faults may delay the renewal of a committed offset."""


class MemberView(Protocol):
    """The part of a group member that the checker reads."""

    @property
    def name(self) -> str:
        """Name of the member in the schedule."""

    @property
    def identity(self) -> tuple[str, int]:
        """Current member id and generation (or epoch) of the client."""

    @property
    def static(self) -> bool:
        """Whether the member has a group instance id (KIP-345)."""

    def lost(self, partition: TopicPartition) -> bool:
        """Return whether the client lost the partition but the application doesn't know it yet."""

    @property
    def auto_commits(self) -> bool:
        """Whether the member's client commits by itself (`enable.auto.commit`)."""

    def position(self, partition: TopicPartition) -> int | None:
        """Return the client's position in a partition; None if it has no position."""

    def topic_id(self, topic: str) -> bytes:
        """Return the topic's id in the client's metadata, or `NO_ID`."""

    def former_id(self, partition: TopicPartition) -> bytes:
        """Return the id that the topic had for the client before it was recreated, or `NO_ID`."""


@dataclass(slots=True)
class Stint:
    """One member's ownership of one partition, from on_assigned to on_revoked or on_lost."""

    member_id: str
    next_offset: int | None = None
    since: float = 0.0
    life: str = ""
    """Name (`GroupLedger.life`) of the topic's incarnation that the member reads."""
    born: str = ""
    """The topic's incarnation at the time of on_assigned."""
    floor: int | None = None
    """The group's committed offset when the partition was assigned: the member may not begin before
    it. None: the group had no offset, or the application has sought another one."""


@dataclass(slots=True)
class GroupLedger:
    """History of one group, with its checks. Members are identified by name."""

    group_id: str
    cluster: SimulatedCluster
    members: dict[str, MemberView] = field(default_factory=dict)
    stints: dict[str, dict[TopicPartition, Stint]] = field(default_factory=dict)
    ends: dict[TopicPartition, int] = field(default_factory=dict)
    """The offset after the last record that any member returned, by partition."""
    values: dict[tuple[TopicPartition, int], bytes | None] = field(default_factory=dict)
    in_hand: dict[str, dict[TopicPartition, int]] = field(default_factory=dict)
    """First offset, by member and partition, of the records that the application processes and that
    the client must not commit before the next poll."""
    hands: dict[str, dict[TopicPartition, int]] = field(default_factory=dict)
    """How often the records in `in_hand` had been returned when their processing began."""
    owed: list[tuple[TopicPartition, int, int]] = field(default_factory=list)
    """Partition, offset and number of returns of records that members were processing when they
    died: another member must return the records again."""
    times: Counter[tuple[TopicPartition, int]] = field(default_factory=Counter)
    """How often each record was returned."""
    handed: int = 0
    again: int = 0
    """Number of repeatedly returned records, which at-least-once delivery allows."""
    by_id: bool = False
    """Whether the group identifies topics by ids (KIP-848): then a recreated topic is assigned
    without waiting for the owners of the deleted one."""
    latest: bool = False
    """Whether the members have auto.offset.reset=latest."""
    births: dict[bytes, TopicPartition] = field(default_factory=dict)
    """Partition and incarnation of the topic to which a value was written; values are unique."""
    processes: dict[str, str] = field(default_factory=dict)
    """Name of the member by member id."""
    taken: dict[TopicPartition, tuple[int, str | None]] = field(default_factory=dict)
    """The last offset that the coordinator committed, and the committing member's id (None for a
    transaction)."""
    committers: dict[TopicPartition, dict[str, float]] = field(default_factory=dict)
    """Time of the last commit of a partition, by member id."""
    given_back: dict[tuple[str, TopicPartition], float] = field(default_factory=dict)
    """Time when a member last lost or revoked a partition, by member name and partition."""
    born: dict[tuple[str, TopicPartition], str] = field(default_factory=dict)
    """The topic's incarnation when a member was last assigned a partition."""
    set_back: dict[TopicPartition, int] = field(default_factory=dict)
    """Partitions whose committed offset a late commit has set back, with the offset from before.
    Until a commit reaches that offset again, the records in between may be returned twice, and none
    is lost: the client's later commit was acknowledged, so the client considers it the last one."""
    owed_from: dict[TopicPartition, int] = field(default_factory=dict)
    """With `latest`: the first offset that the group has committed in a partition. Every record
    from there on must be returned; before the first commit, a member that has lost its position
    starts at the end again."""
    hits: Counter[str] = field(default_factory=Counter)
    violations: list[Violation] = field(default_factory=list)
    gentle: bool = False
    """Whether no fault refuses commits, or makes the group forget a live member."""
    warnings: Callable[[], int] = lambda: 0
    """How often clients have warned that records will be read again."""
    kept: dict[TopicPartition, float] = field(default_factory=dict)
    """Last time when a member with auto-commit owned a partition, according to the coordinator."""
    expired: set[TopicPartition] = field(default_factory=set)
    """Partitions whose committed offset has expired, without a member that had to renew it."""
    by_name: bool = False
    """Whether no broker knows topic ids in OffsetCommit requests (before version 10)."""
    misnamed: set[TopicPartition] = field(default_factory=set)
    """Partitions for which an offset of a deleted topic was committed by the topic's name.

    A client that doesn't know yet that the topic was recreated sends it, and no broker can refuse
    it (before OffsetCommit 10). The group then skips or repeats records, whatever clients do."""
    knows: dict[tuple[str | None, bytes], float] = field(default_factory=dict)
    """When the metadata of a member had a topic's present id for the first time."""
    _known_lives: dict[str, str] = field(default_factory=dict)

    # Topics that are deleted and recreated

    def life(self, topic: str) -> str:
        """Return a name for the topic's current incarnation, with a number if it was recreated.

        All accounting is by incarnation, because the offsets of each one begin at 0.
        """
        before = sum(old.name == topic for old in self.cluster.deleted)
        return f"{topic}#{before + 1}" if before else topic

    def lives(self, topic: str) -> dict[str, SimulatedTopic]:
        """Return all incarnations of a topic by name, the present one last."""
        found = [old for old in self.cluster.deleted if old.name == topic]
        if topic in self.cluster.topics:
            found.append(self.cluster.topics[topic])
        return {f"{topic}#{n}" if n > 1 else topic: one for n, one in enumerate(found, 1)}

    def start(self, place: TopicPartition) -> int:
        """Return the offset of the first record; earlier ones were deleted (DeleteRecords)."""
        log = self._log(place)
        return 0 if log is None else log.after_markers(log.start_offset)

    def _log(self, place: TopicPartition) -> PartitionLog | None:
        """Return the log that a partition had in one incarnation of its topic."""
        topic = self.lives(place.topic.partition("#")[0]).get(place.topic)
        if topic is None or place.partition >= len(topic.partitions):
            return None
        return topic.partitions[place.partition].log

    def place(self, partition: TopicPartition, value: bytes | None = None) -> TopicPartition:
        """Return the partition in its topic's last incarnation, or in the one with this value."""
        born = self.births.get(value) if value is not None else None
        return born or TopicPartition(self.life(partition.topic), partition.partition)

    def _read_up_to(self, place: TopicPartition) -> int:
        """Return the offset after all returned records and the markers that follow them."""
        return self._after_markers(place, self.ends.get(place, 0))

    def _after_markers(self, place: TopicPartition, offset: int) -> int:
        log = self._log(place)
        return offset if log is None else log.after_markers(offset)

    # Callbacks of members

    def assigned(self, member: MemberView, partitions: list[TopicPartition]) -> None:
        """Check that the partitions that on_assigned gets may be assigned to this member."""
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
                floor=self._floor(member, partition) if present else None,
            )

    def _floor(self, member: MemberView, partition: TopicPartition) -> int | None:
        """Return the offset before which a member may not begin; None if there is no such offset.

        There is none if the member itself has committed since its last ownership was revoked: its
        client may have looked up its position before that commit.
        """
        if self.place(partition) in self.misnamed:
            return None
        mine = self.committers.get(self.place(partition), {}).get(member.identity[0], -math.inf)
        revoked = self.given_back.get((member.name, partition), math.inf)
        return None if mine > revoked else self._committed(partition)

    def _assigned_life(self, member: MemberView, partition: TopicPartition) -> str:
        """Return the incarnation of the topic that is assigned to a member.

        With KIP-848 that may be a deleted topic: the application is notified of its assignment
        after the coordinator has decided.
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
        """Check that another owner can't know yet that it has lost the partition."""
        if member.identity[1] < 0:
            raise self._wrong(member, f"is assigned {partition}, though it isn't a member")
        if other.lost(partition):
            return
        if self.by_id and stint.born != self.life(partition.topic):
            return  # the other member's next heartbeat reports that the topic was recreated
        if other.static and other.identity[1] < member.identity[1]:
            return  # a static member whose process was stopped keeps its assignment
        if other.identity[1] == member.identity[1]:
            raise self._wrong(
                member, f"is assigned {partition}, which {other.name} has in this generation"
            )
        shard = self.shard()
        group = shard.groups.get(self.group_id) if shard is not None else None
        if group is None or member.identity[0] not in group.members:
            return  # a removed member learns of its removal with its next response
        if group.members.keys() & {stint.member_id, other.identity[0]}:
            raise self._wrong(
                member, f"is assigned {partition}, which {other.name} has, a member like it"
            )

    def revoked(self, member: MemberView, partitions: list[TopicPartition]) -> None:
        """Check that the member owned the partitions that on_revoked or on_lost gets."""
        mine = self.stints.setdefault(member.name, {})
        for partition in partitions:
            if mine.pop(partition, None) is None:
                raise self._wrong(member, f"returns {partition}, which it doesn't have")
            self.given_back[member.name, partition] = self.now

    def gone(self, member: MemberView) -> None:
        """Forget a member that has left or died."""
        self.stints.pop(member.name, None)
        self.members.pop(member.name, None)
        hands = self.hands.pop(member.name, {})
        for partition, offset in self.in_hand.pop(member.name, {}).items():
            self.owed.append((partition, offset, hands[partition]))

    def works_on(self, member: MemberView, first: dict[TopicPartition, int]) -> None:
        """Note the records that the application processes until its next poll."""
        self.in_hand[member.name] = first
        self.hands[member.name] = {p: self.times[p, offset] for p, offset in first.items()}

    def record(
        self, member: MemberView, partition: TopicPartition, offset: int, value: bytes | None
    ) -> None:
        """Check a record that was returned to the application."""
        stint = self.stints.get(member.name, {}).get(partition)
        if stint is None:
            raise self._wrong(member, f"gets {partition} at {offset}, which it doesn't have")
        self._check_expiry(partition)
        place = self.place(partition, value)
        if place.topic != stint.life:
            self._check_next_life(member, stint, place)
        end = self._read_up_to(place)
        start = self.start(place)
        if stint.next_offset is None and stint.floor is not None:
            floor = min(stint.floor, self._committed(partition) or 0)  # set back by late commits
            # A member that was removed may have records from before the new owner's commits.
            if offset < floor and self.is_member(member.identity[0]):
                raise self._wrong(member, f"begins {place} at {offset}; {floor} is committed")
        wanted = stint.next_offset
        if wanted is not None:
            wanted = self._after_markers(place, wanted)
        deleted = wanted is not None and wanted < offset <= start
        if wanted not in (None, offset) and not deleted:
            raise self._wrong(member, f"gets {place} at {offset}, though {wanted} was next")
        if offset > max(end, start):
            self._check_begins(member, stint, place, offset)
        stint.next_offset = offset + 1
        self.times[place, offset] += 1
        self.handed += 1
        self.again += offset < end and place not in self.expired
        self.ends[place] = max(end, offset + 1)
        self.values[place, offset] = value

    def _check_next_life(self, member: MemberView, stint: Stint, place: TopicPartition) -> None:
        """Check that records of a deleted topic don't follow records of the recreated topic."""
        if _number(place.topic) < _number(stint.life) and stint.next_offset is not None:
            raise self._wrong(member, f"gets {place} after records of {stint.life}")
        stint.life, stint.next_offset, stint.floor = place.topic, None, None

    def _check_begins(
        self, member: MemberView, stint: Stint, place: TopicPartition, offset: int
    ) -> None:
        """Check that no unread record was skipped; with `latest`, a member may begin at the end.

        A member that was removed while its process was stopped, and doesn't know that yet, may look
        up the end of the log later than the new owner, which returns the records before that end.
        """
        if place in self.misnamed:
            return
        owed = self.owed_from.get(place)
        removed = not self.is_member(member.identity[0])
        begins = self.latest and stint.next_offset is None
        if owed is not None:
            owed = self._after_markers(place, owed)
        if not begins or (owed is not None and offset > owed and not removed):
            end = self._read_up_to(place)
            raise self._wrong(
                member, f"gets {place} at {offset}: {end} was never returned to a caller"
            )

    def sought(self, member: MemberView, partition: TopicPartition) -> None:
        """Note that the application has sought another offset."""
        stint = self.stints.get(member.name, {}).get(partition)
        if stint is not None:
            stint.next_offset = stint.floor = None

    def broken(self, member: MemberView, partition: TopicPartition) -> str | None:
        """Return the id of another member that has committed for a partition since `on_assigned`.

        That commit means that this member's ownership has ended (R-ID-1).
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
        """Return the name of the member that has or had this member id; None if it is unknown."""
        for name, member in self.members.items():
            if member.identity[0] == member_id:
                self.processes[member_id] = name
        return self.processes.get(member_id)

    @property
    def now(self) -> float:
        """The virtual time in seconds."""
        return self.cluster.environment.time.now

    def _committed(self, partition: TopicPartition) -> int | None:
        """Return the lowest committed offset that a coordinator may return; None if unknown.

        It is unknown if a possible offset has no leader epoch, or if a coordinator has no offset. A
        zombie has the offsets that were committed before it was cut off.
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

    # State of the coordinator

    def commits(
        self, group_id: str, member_id: str | None, offsets: Mapping[TopicPartition, Committed]
    ) -> None:
        """Check offsets that the coordinator commits: they don't go back in one topic incarnation.

        Only the member that committed last may set them back with a plain commit: requests of its
        earlier connections may arrive late, and Kafka can't fence them. Or a member has read from a
        zombie leader, and the group's offset has no leader epoch: it can't know that the zombie's
        log is too short (KIP-320), and begins where `auto.offset.reset` says.
        """
        for partition, committed in offsets.items() if group_id == self.group_id else ():
            if not self._of_this_life(partition, committed):
                continue
            self._check_expiry(partition)
            place = self.place(partition)
            if self._is_misnamed(place, committed, member_id):
                self.misnamed.add(place)
                self.hits["offset of a deleted topic committed by name"] += 1
            if place in self.misnamed:
                continue
            self._check_read(place, committed.offset)
            self._check_epoch(partition, committed)
            before, last = self.taken.get(place, (0, None))
            if committed.offset >= self.set_back.get(place, 0):
                self.set_back.pop(place, None)
            excuse = self._excuse(partition, member_id, last) if committed.offset < before else ""
            if excuse:
                self.hits[excuse] += 1
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

    def _is_misnamed(
        self, place: TopicPartition, committed: Committed, member_id: str | None
    ) -> bool:
        """Return whether an offset of a deleted topic was committed by its name.

        That is a client's fault if it had the new topic's id when it sent the commit.
        """
        lives = self.lives(place.topic.partition("#")[0])
        topic = lives.pop(place.topic, None)
        if not self.by_name or not lives or topic is None:
            return False
        known = self.knows.get((self.process(member_id or ""), topic.id), self.now)
        logs = [self._log(TopicPartition(life, place.partition)) for life in lives]
        former = max((log.high_watermark for log in logs if log is not None), default=0)
        if committed.offset > former or self.now - known > SENT_BEFORE:
            return False
        unread = committed.offset > max(self._read_up_to(place), self.start(place))
        return unread or committed.leader_epoch > topic.partitions[place.partition].leader_epoch

    def _excuse(self, partition: TopicPartition, member_id: str | None, last: str | None) -> str:
        """Return why a commit may set the committed offset back; empty if it may not.

        `last` is the id of the member that has committed last.
        """
        if member_id is None:
            return ""
        if last == member_id:
            return "committed offset set back by a late commit of the same owner"
        shard = self.shard()
        stored = None if shard is None else shard.committed(self.group_id).stable.get(partition)
        if stored is None or stored.leader_epoch >= 0:
            return ""
        led = led_by_zombie(self.cluster, *partition)
        return "committed offset without an epoch set back by a zombie leader" if led else ""

    def reached(self, place: TopicPartition) -> int:
        """Return the highest committed offset, ignoring late commits that have set it back."""
        return max(self.taken.get(place, (0, None))[0], self.set_back.get(place, 0))

    def shard(self) -> GroupShard | None:
        """Return the group's shard at its coordinator; None if the group has no coordinator now."""
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
        """Return whether the group has this member; True if it has no coordinator now."""
        shard = self.shard()
        group = shard.groups.get(self.group_id) if shard is not None else None
        return group is None or member_id in group.members

    def note_lives(self) -> None:
        """Count recreated topics, and how many of the deleted topics had uncommitted offsets."""
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
        """Check that no offset is committed beyond the returned records, or goes back."""
        if self.violations:
            raise self.violations[0]
        self.note_lives()
        if self.by_name:
            for member in self.members.values():
                for name, topic in self.cluster.topics.items():
                    if member.topic_id(name) == topic.id:
                        self.knows.setdefault((member.name, topic.id), self.now)
        shard = self.shard()
        if shard is None:
            return
        self._check_kept()
        for partition, committed in shard.committed(self.group_id).stable.items():
            if not self._of_this_life(partition, committed):
                continue  # the topic was deleted, and the offset will be deleted, too
            place = self.place(partition)
            if place.topic != partition.topic and place not in self.taken:
                continue  # a commit of the deleted topic is still being replicated
            if place in self.misnamed:
                continue
            self._check_read(place, committed.offset)
            self._check_in_hand(partition, committed.offset, shard)
        if self.violations:
            raise self.violations[0]

    def _check_epoch(self, partition: TopicPartition, committed: Committed) -> None:
        """Check that a committed leader epoch is that of the records around it (KIP-320)."""
        log = self._log(self.place(partition))
        if log is None or disturbed(self.cluster, *partition):
            return
        if wrong := wrong_epoch(log, committed.leader_epoch, committed.offset):
            text = f"{committed.offset} of {partition} was committed with {wrong}"
            self.violations.append(Violation(f"{self.now}: {text}"))

    def _check_kept(self) -> None:
        """Check that no committed offset expires while an auto-committing member owns it."""
        if self.cluster.group_settings.offsets_retention == math.inf:
            return
        for topic, there in self.cluster.topics.items():
            for index in range(len(there.partitions)):
                self._check_expiry(TopicPartition(topic, index))
        for name, stints in self.stints.items():
            member = self.members[name]
            if member.auto_commits and self.is_member(member.identity[0]):
                self.kept |= {self.place(p): self.now for p in stints if not member.lost(p)}

    def _check_expiry(self, partition: TopicPartition) -> None:
        """Check that no recently renewed offset of an auto-committing member has expired.

        An offset may only expire a retention time after its last renewal (R-GR-3). Applications
        that commit explicitly must renew their commits themselves; otherwise the committed offset
        expires, and the group begins again where `auto.offset.reset` says.
        """
        retention = self.cluster.group_settings.offsets_retention
        shard = self.shard() if retention < math.inf else None
        place = self.place(partition)
        if shard is None or place not in self.taken:
            return
        if partition in shard.committed(self.group_id).stable:
            return
        since = self.now - self.kept.get(place, -math.inf)
        if since < retention - RENEW_AFTER - RENEWED_WITHIN:
            text = f"{place} has expired {since:.0f} s after its last owner"
            self.violations.append(Violation(f"{self.now}: the committed offset of {text}"))
            return
        self.hits["committed offset that no client renews expired"] += 1
        self.expired.add(place)
        del self.taken[place]
        self.owed_from.pop(place, None)
        self.set_back.pop(place, None)

    def _check_read(self, place: TopicPartition, offset: int) -> None:
        """Check that a commit doesn't exceed the records read from this incarnation (R-ID-3)."""
        end = max(self._read_up_to(place), self.start(place))
        if offset > end and not self.latest:
            text = f"{place} is committed at {offset}, but returned records end at {end}"
            self.violations.append(Violation(f"{self.now}: {text}"))

    def _check_in_hand(self, partition: TopicPartition, committed: int, shard: GroupShard) -> None:
        """Check that no record is committed while the application processes it (R-GR-1)."""
        owners = [name for name, stints in self.stints.items() if partition in stints]
        group = shard.groups.get(self.group_id)
        if len(owners) != 1 or group is None:
            return  # another owner may have read and committed later records
        first = self.in_hand.get(owners[0], {}).get(self.place(partition))
        owner, member_id = self.members[owners[0]], self.stints[owners[0]][partition].member_id
        excused = owner.lost(partition) or member_id not in group.members
        if first is not None and committed > first and not excused:
            raise self._wrong(owner, f"works on {partition} at {first}; {committed} is committed")

    # When all faults have ended

    def settled(self, topic: str) -> str:
        """Return which partition lacks one owner, or has unread or owed records; "" if none."""
        for index, partition in enumerate(self.cluster.topics[topic].partitions):
            place = TopicPartition(topic, index)
            owners = [name for name, stints in self.stints.items() if place in stints]
            if len(owners) != 1:
                return f"{place} has the owners {owners}"
            stint = self.stints[owners[0]][place]
            end, place = partition.log.high_watermark, self.place(place)
            if self.latest or place in self.misnamed:
                position = self.members[owners[0]].position(TopicPartition(topic, index))
                if position != end:
                    return f"{place} is read up to {position} of {end} by {owners[0]}"
                continue
            start = partition.log.after_markers(partition.log.start_offset)
            read = self._read_up_to(place)
            if max(read, start) != end:
                return f"{place} is read up to {read} of {end}"
            behind = max(self._after_markers(place, stint.next_offset or end), start) != end
            if behind and stint.life == place.topic:
                return f"{place} is read up to {stint.next_offset} of {end} by {owners[0]}"
        lives = {self.life(name) for name in self.cluster.topics}
        for place, offset, before in self.owed:
            there = place.topic in lives and offset >= self.start(place)
            there = there and place not in self.misnamed
            if self.latest:
                there = there and offset >= self.owed_from.get(place, offset + 1)
            if self.times[place, offset] <= before and there:
                return (
                    f"{place} at {offset} wasn't returned again: the member that processed it died"
                )
        return ""

    def orphans(self, topics: Iterable[str]) -> dict[TopicPartition, int]:
        """Return the partitions that no member owns, with the stable group's generation."""
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
        """Check that every record in the topic's log was returned with the right value."""
        for index in range(len(self.cluster.topics[topic].partitions)):
            place = self.place(TopicPartition(topic, index))
            if place in self.misnamed:
                continue
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
        """Return the group's committed offsets by partition; empty without a coordinator."""
        shard = self.shard()
        stable = shard.committed(self.group_id).stable if shard is not None else {}
        return {
            p.partition: c.offset
            for p, c in stable.items()
            if p.topic == topic and self._of_this_life(p, c)
        }

    def _of_this_life(self, partition: TopicPartition, committed: Committed) -> bool:
        """Return whether OffsetFetch with the present topic's id would return this offset."""
        topic = self.cluster.topics.get(partition.topic)
        return topic is not None and committed.belongs_to(topic.id)


def _number(life: str) -> int:
    return int(life.partition("#")[2] or 1)

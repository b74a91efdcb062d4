"""Coordinate the groups of one `__consumer_offsets` partition, and store their offsets.

In: requests of `group_handlers` and transactions, and the entries of earlier coordinators. Out: the
groups, each with the protocol of its members, and offsets that survive a fail-over once they are
acknowledged. Simplified: a group changes its protocol only while it is empty (as with
`group.consumer.migration.policy=disabled`). Must not know versions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from odradek.common.errors import BrokerError
from odradek.common.errors import kafka as errors
from odradek.common.types import TopicPartition
from odradek.simulation.coordinators.classic_group import ClassicGroup
from odradek.simulation.coordinators.classic_members import ClassicState, StoredGroup
from odradek.simulation.coordinators.committed_offsets import Committed, StoredGroupOffsets
from odradek.simulation.coordinators.consumer_protocol_group import (
    ConsumerProtocolGroup,
    StoredConsumerGroup,
)
from odradek.simulation.coordinators.shards import (
    CoordinatedCluster,
    CoordinatorTopic,
    Entry,
    Key,
    Leadership,
    ShardTimer,
)

if TYPE_CHECKING:
    from odradek.simulation.logs.topics import SimulatedTopic

GROUP_TOPIC = "__consumer_offsets"
Settled = Callable[[BrokerError | None], None]
MemberWords = tuple[str, int, str | None]
"""Identity in a commit: member id, generation or member epoch, group instance id."""
Observer = Callable[[str, str | None, Mapping[TopicPartition, Committed]], None]
"""Callback of a checker: group id, member id (None for a transaction's commit), offsets."""


@dataclass(slots=True)
class GroupSettings:
    """Settings of the brokers for groups; durations are in seconds."""

    initial_rebalance_delay: float = 0.0
    """`group.initial.rebalance.delay.ms` in seconds; Kafka's default is 3 s."""
    min_session_timeout: float = 6.0
    max_session_timeout: float = 1800.0
    consumer_session_timeout: float = 45.0
    consumer_heartbeat_interval: float = 5.0
    strict_epochs: bool = False
    """Whether only commits with the member's present epoch are accepted, as before KIP-1251."""
    offsets_retention: float = math.inf
    """`offsets.retention.minutes` in seconds; Kafka's default is 7 days."""
    offsets_check_interval: float = 600.0
    """`offsets.retention.check.interval.ms` in seconds."""
    observers: list[Observer] = field(default_factory=list)
    """Checkers' callbacks, called just before the coordinator commits offsets."""

    def configure(self, **settings: float) -> None:
        """Change settings, given by their names."""
        for name, value in settings.items():
            setattr(self, name, value)


class GroupTopic(CoordinatorTopic["GroupShard"]):
    """The topic `__consumer_offsets` of a cluster, and its coordinators."""

    def __init__(self, cluster: CoordinatedCluster, settings: GroupSettings) -> None:
        super().__init__(cluster, GROUP_TOPIC, lambda held: GroupShard(held, settings))


class GroupShard:
    """The groups and offsets in one partition of `__consumer_offsets`, as its leader knows them."""

    def __init__(self, leadership: Leadership[GroupShard], settings: GroupSettings) -> None:
        self.leadership = leadership
        self.rng = leadership.rng
        self.settings = settings
        self.groups: dict[str, ClassicGroup | ConsumerProtocolGroup] = {}
        self.offsets: dict[str, StoredGroupOffsets] = {}
        self._plan_expiry()

    # Life cycle

    def replay(self, key: Key, value: Any) -> None:
        """Apply an entry of the internal topic."""
        if key[0] == "group":
            self._replay_group(str(key[1]), value)
        elif key[0] == "offset" and value is None:
            self._of(str(key[1])).forget(_partition(key))
        elif key[0] == "offset":
            if key[1] not in self.groups:  # as in Kafka, a commit creates an unknown group
                self.classic(str(key[1]), create=True)
            self._of(str(key[1])).commit(_partition(key), value)
        elif key[0] == "forget":
            for offsets in self.offsets.values():
                offsets.forget_topic(str(key[1]))
        elif key[0] == "pending":
            self._of(str(key[1])).pend(_producer(key), _partition(key), value)
        elif key[0] == "end":
            self._end(_producer(key), commit=value)

    def _replay_group(self, group_id: str, value: Any) -> None:
        if isinstance(value, StoredGroup):
            classic = self.groups[group_id] = ClassicGroup(group_id, self)
            classic.restore(value)
        elif isinstance(value, StoredConsumerGroup):
            consumer = self.groups[group_id] = ConsumerProtocolGroup(group_id, self)
            consumer.restore(value)
        elif value is None:
            self.groups.pop(group_id, None)
            self.offsets.pop(group_id, None)

    def loaded(self) -> None:
        """Start the session timeouts of all groups after the entries were replayed."""
        for group in self.groups.values():
            group.begin()

    def stopped(self) -> None:
        """Respond to waiting members that this broker isn't the coordinator any more."""
        for group in self.groups.values():
            group.moved()

    @staticmethod
    def fold(entries: Iterable[Entry]) -> dict[Key, Any]:
        """Return the newest entry of each group and offset, also of offsets in transactions."""
        newest: dict[Key, Any] = {}
        for key, value in entries:
            if key[0] == "forget":
                for old in [k for k in newest if k[0] in ("offset", "pending") and k[2] == key[1]]:
                    del newest[old]
                continue
            if key[0] != "end":
                newest.pop(key, None)
                newest[key] = value
                continue
            for pending in [k for k in newest if k[0] == "pending" and k[-1] == key[1]]:
                committed = newest.pop(pending)
                if value:
                    newest["offset", *pending[1:-1]] = committed
        return newest

    # Services for groups of this shard

    @property
    def now(self) -> float:
        """Time on the broker's clock in seconds."""
        return self.leadership.time.now

    @property
    def initial_rebalance_delay(self) -> float:
        """Seconds for which the first generation of an empty group waits for more members."""
        return self.settings.initial_rebalance_delay

    @property
    def consumer_session_timeout(self) -> float:
        """Seconds without a heartbeat after which a member of the consumer protocol is removed."""
        return self.settings.consumer_session_timeout

    @property
    def strict_epochs(self) -> bool:
        """Whether only commits with the present epoch are accepted, as before KIP-1251."""
        return self.settings.strict_epochs

    @property
    def topics(self) -> Mapping[str, SimulatedTopic]:
        """All topics of the cluster."""
        return self.leadership.cluster.topics

    def after(self, seconds: float, action: Callable[[], None]) -> ShardTimer:
        """Schedule an action; drop the action if this broker stops coordinating before then."""
        return self.leadership.after(seconds, action)

    def keep(self, group_id: str, value: Any, done: Callable[[bool], None]) -> None:
        """Write a group's state to the internal topic; call `done(True)` when it is replicated."""
        self.leadership.write([(("group", group_id), value)], done)

    # Groups

    def classic(self, group_id: str, *, create: bool) -> ClassicGroup:
        """Return the group for a request of the classic protocol, or raise Kafka's error."""
        found = self.groups.get(group_id)
        if isinstance(found, ConsumerProtocolGroup) and found.members:
            raise errors.InconsistentGroupProtocolError(f"{group_id} uses the consumer protocol")
        if isinstance(found, ClassicGroup):
            return found
        if not create:
            raise errors.UnknownMemberIdError(f"there is no group {group_id}")
        made = self.groups[group_id] = ClassicGroup(group_id, self)
        return made

    def consumer(self, group_id: str, *, create: bool) -> ConsumerProtocolGroup:
        """Return the group for a request of the consumer protocol, or raise Kafka's error."""
        found = self.groups.get(group_id)
        if isinstance(found, ConsumerProtocolGroup):
            return found
        empty = found is None or (found.state is ClassicState.EMPTY and not found.pending)
        if not create or not empty:
            raise errors.GroupIdNotFoundError(f"{group_id} isn't a consumer group")
        made = self.groups[group_id] = ConsumerProtocolGroup(group_id, self)
        return made

    def delete(self, group_id: str, done: Settled) -> None:
        """Delete a group without members; `done` is called when the deletion is replicated."""
        found = self.groups.get(group_id)
        if found is None:
            raise errors.GroupIdNotFoundError(f"there is no group {group_id}")
        if found.members:
            raise errors.NonEmptyGroupError(f"{group_id} has members")
        entries: list[Entry] = [(("group", group_id), None)]
        entries += [(("offset", group_id, *p), None) for p in self.committed(group_id).stable]
        del self.groups[group_id]
        self.offsets.pop(group_id, None)
        self._write(entries, done)

    def subscribed(self, group_id: str) -> set[str]:
        """Return the topics to which members of a group subscribe."""
        found = self.groups.get(group_id)
        if found is None:
            raise errors.GroupIdNotFoundError(f"there is no group {group_id}")
        if isinstance(found, ConsumerProtocolGroup):
            ids = {i for m in found.members.values() for i in found.topics_of(m)}
            return {t.name for t in self.topics.values() if t.id in ids}
        # The subscriptions of classic members aren't decoded here, so return all topics.
        return set(self.topics) if found.members else set()

    def forget(self, group_id: str, partition: TopicPartition) -> None:
        """Delete one committed offset."""
        self._of(group_id).forget(partition)
        self._write([(("offset", group_id, *partition), None)], lambda _: None)

    def forget_topic(self, topic: str) -> None:
        """Delete the committed offsets of a topic that is deleted, as Kafka does.

        One entry deletes them, also those of commits that are still being replicated: Kafka's
        coordinator sees its own entries before they are replicated (`onPartitionsDeleted`). If the
        leadership is lost before the entry is replicated, the next coordinator writes it again.
        """

        def written(error: BrokerError | None) -> None:
            if error is not None:
                # Retry later: a leader that doesn't know yet that it was replaced would be refused
                # now.
                leadership = self.leadership
                again = partial(leadership.topic.tell, lambda shard: shard.forget_topic(topic))
                leadership.time.after(leadership.topic.load_time, again)

        self._write([(("forget", topic), None)], written)

    # Offsets

    def _of(self, group_id: str) -> StoredGroupOffsets:
        return self.offsets.setdefault(group_id, StoredGroupOffsets())

    def committed(self, group_id: str) -> StoredGroupOffsets:
        """Return a group's committed offsets; an unknown group has none."""
        return self.offsets.get(group_id, StoredGroupOffsets())

    def commit(
        self,
        group_id: str,
        member: MemberWords,
        version: int,
        offsets: Mapping[TopicPartition, Committed],
        done: Settled,
    ) -> None:
        """Commit offsets; `done` is called with None when they are replicated, or an error."""
        try:
            self._check_commit(group_id, member, offsets, transactional=False, version=version)
        except BrokerError as error:
            done(error)
            return

        topics = dict(self.topics)

        def taken() -> None:
            self._note(group_id, member[0], offsets, topics)

        entries: list[Entry] = [
            (("offset", group_id, *p), replace(c, at=self.now)) for p, c in offsets.items()
        ]
        self._write(entries, done, taken)

    def commit_in_transaction(
        self,
        group_id: str,
        member: MemberWords,
        producer_id: int,
        producer_epoch: int,
        offsets: Mapping[TopicPartition, Committed],
        done: Settled,
    ) -> None:
        """Store offsets that take effect if the producer's transaction is committed."""
        try:
            self._check_commit(group_id, member, offsets, transactional=True, version=9)
        except BrokerError as error:
            done(error)
            return
        entries: list[Entry] = [
            (("pending", group_id, *p, producer_id), replace(c, at=self.now))
            for p, c in offsets.items()
        ]
        self._write(entries, done)

    def end_transaction(self, producer_id: int, commit: bool, done: Callable[[bool], None]) -> None:
        """Commit or drop the offsets in a producer's transaction, which has ended."""
        topics = dict(self.topics)

        def written(there: bool) -> None:
            if there:
                for group_id, offsets in self.offsets.items() if commit else ():
                    self._note(group_id, None, offsets.waiting(producer_id), topics)
                self._end(producer_id, commit=commit)
            done(there)

        self.leadership.write([(("end", producer_id), commit)], written)

    def _plan_expiry(self) -> None:
        if self.settings.offsets_retention < math.inf:
            self.after(self.settings.offsets_check_interval, self._expire)

    def _expire(self) -> None:
        """Delete expired offsets.

        Offsets of subscribed topics don't expire. In a group without members, the age of an offset
        is counted from its own commit (consumer protocol, KIP-848), or from the time when the last
        member left, if that was later (classic protocol, KIP-211).
        """
        before = self.now - self.settings.offsets_retention
        entries: list[Entry] = []
        for group_id, offsets in self.offsets.items():
            group = self.groups.get(group_id)
            empty_since = group.empty_since if isinstance(group, ClassicGroup) else -math.inf
            subscribed = self.subscribed(group_id) if group is not None else set()
            expired = offsets.expired(before, empty_since, subscribed)
            entries += [(("offset", group_id, *p), None) for p in expired]
        self._write(entries, lambda _: None)
        self._plan_expiry()

    def _end(self, producer_id: int, *, commit: bool) -> None:
        for offsets in self.offsets.values():
            offsets.end(producer_id, commit=commit)

    def _note(
        self,
        group_id: str,
        member_id: str | None,
        offsets: Mapping[TopicPartition, Committed],
        topics: Mapping[str, SimulatedTopic],
    ) -> None:
        """Call the observers with the offsets of an entry that has just been replicated.

        Offsets whose topic was deleted after the entry was written are omitted: the next entry
        deletes them.
        """
        there = {
            p: c for p, c in offsets.items() if topics.get(p.topic) is self.topics.get(p.topic)
        }
        for observer in self.settings.observers:
            observer(group_id, member_id, there)

    def _write(
        self, entries: list[Entry], done: Settled, before: Callable[[], None] = lambda: None
    ) -> None:
        def written(there: bool) -> None:
            if not there:
                done(errors.NotCoordinatorError("another broker coordinates now"))
                return
            before()
            for key, value in entries:
                self.replay(key, value)
            done(None)

        if entries:
            self.leadership.write(entries, written)
        else:
            done(None)

    def _check_commit(
        self,
        group_id: str,
        member: MemberWords,
        partitions: Iterable[TopicPartition],
        *,
        transactional: bool,
        version: int,
    ) -> None:
        member_id, generation, instance_id = member
        group = self.groups.get(group_id)
        if isinstance(group, ClassicGroup):
            group.check_commit(member_id, instance_id, generation, transactional=transactional)
        elif isinstance(group, ConsumerProtocolGroup):
            group.check_commit(
                member_id,
                generation,
                partitions,
                transactional=transactional,
                old_version=version < 9,
            )
        elif generation >= 0:
            if version >= 9 and not transactional:
                raise errors.GroupIdNotFoundError(f"there is no group {group_id}")
            raise errors.IllegalGenerationError(f"there is no group {group_id}")


def _partition(key: Key) -> TopicPartition:
    return TopicPartition(str(key[2]), int(str(key[3])))


def _producer(key: Key) -> int:
    return int(str(key[-1]))

"""Coordinate a group of the consumer protocol (KIP-848): epochs, target, reconciliation.

In: ConsumerGroupHeartbeat, and services of the shard (time, writing of entries, topics). Out:
responses, when the group's new state is replicated. Each heartbeat does up to four things: it
applies the member's changes, bumps the group's epoch, computes a new target assignment, and moves
the member one step towards its target: partitions are revoked before another member gets them.
Simplified: no members with the classic protocol. Must not know versions.
"""

from __future__ import annotations

import copy
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, Protocol

from odradek.common.errors import BrokerError
from odradek.common.errors import kafka as errors
from odradek.common.types import TopicPartition
from odradek.simulation.coordinators.server_assignors import ASSIGNORS, DEFAULT_ASSIGNOR, Place
from odradek.simulation.coordinators.shards import ShardTimer
from odradek.simulation.logs.topics import SimulatedTopic

JOIN_EPOCH, LEAVE_EPOCH, STATIC_LEAVE_EPOCH = 0, -1, -2
REGEX_RESOLVED = 0.02
"""Seconds from the first heartbeat with a new regular expression until its topics are known."""
Places = frozenset[Place]
NOTHING: Places = frozenset()


class Reconciliation(Enum):
    """Progress of a member towards its target assignment."""

    STABLE = "Stable"
    UNREVOKED_PARTITIONS = "UnrevokedPartitions"
    """The member must revoke partitions, and confirm that, before it gets other partitions."""
    UNRELEASED_PARTITIONS = "UnreleasedPartitions"
    """Other members haven't yet revoked partitions that are to be assigned to this member."""


@dataclass(frozen=True, slots=True)
class Beat:
    """Content of a heartbeat request; fields that are None haven't changed."""

    member_id: str
    epoch: int
    instance_id: str | None = None
    rebalance_timeout: float | None = None
    names: tuple[str, ...] | None = None
    regex: str | None = None
    assignor: str | None = None
    owned: Places | None = None


@dataclass(frozen=True, slots=True)
class BeatAnswer:
    """Content of the response to a heartbeat."""

    error: BrokerError | None
    member_id: str
    epoch: int = 0
    assignment: Places | None = None


@dataclass(frozen=True, slots=True)
class ConsumerMember:
    """One member; immutable, because written entries refer to it."""

    id: str
    instance_id: str | None = None
    rebalance_timeout: float = 45.0
    names: tuple[str, ...] = ()
    regex: str = ""
    assignor: str | None = None
    epoch: int = 0
    previous_epoch: int = 0
    state: Reconciliation = Reconciliation.STABLE
    assigned: Places = NOTHING
    revoking: Places = NOTHING
    since: tuple[tuple[Place, int], ...] = ()
    """Partitions with the epoch in which each was assigned: commits with this epoch or a later one
    are accepted (KIP-1251)."""

    def at(
        self, epoch: int, state: Reconciliation, assigned: Places, revoking: Places
    ) -> ConsumerMember:
        """Return the member after one step of its reconciliation."""
        return replace(
            self,
            epoch=epoch,
            previous_epoch=self.epoch if epoch != self.epoch else self.previous_epoch,
            state=state,
            assigned=assigned,
            revoking=revoking,
            since=tuple((p, dict(self.since).get(p, epoch)) for p in sorted(assigned)),
        )


@dataclass(frozen=True, slots=True)
class StoredConsumerGroup:
    """A group, as the internal topic stores it."""

    epoch: int
    target_epoch: int
    counts: tuple[tuple[bytes, int], ...]
    members: tuple[ConsumerMember, ...]
    target: tuple[tuple[str, Places], ...]


class ConsumerProtocolLender(Protocol):
    """Services that a coordinator's shard offers to a group of the consumer protocol."""

    @property
    def consumer_session_timeout(self) -> float:
        """Seconds without a heartbeat after which a member is removed."""

    @property
    def strict_epochs(self) -> bool:
        """Whether only commits with the present epoch are accepted, as before KIP-1251."""

    @property
    def topics(self) -> Mapping[str, SimulatedTopic]:
        """All topics of the cluster."""

    def after(self, seconds: float, action: Callable[[], None]) -> ShardTimer:
        """Schedule an action; drop the action if this broker stops coordinating before then."""

    def keep(self, group_id: str, value: Any, done: Callable[[bool], None]) -> None:
        """Write a group's state to the internal topic; call `done(True)` when it is replicated."""


@dataclass(slots=True)
class ConsumerProtocolGroup:
    """A group of the consumer protocol; `epoch` grows with each change of members or topics."""

    id: str
    lender: ConsumerProtocolLender
    epoch: int = 0
    target_epoch: int = 0
    counts: dict[bytes, int] = field(default_factory=dict)
    """Partition counts of the subscribed topics at the last bump of the epoch, by topic id."""
    members: dict[str, ConsumerMember] = field(default_factory=dict)
    target: dict[str, Places] = field(default_factory=dict)
    _sessions: dict[str, ShardTimer] = field(default_factory=dict)
    _revocations: dict[str, ShardTimer] = field(default_factory=dict)
    _resolved: set[str] = field(default_factory=set)
    """Regular expressions whose topics are known."""

    # Heartbeats

    def heartbeat(self, beat: Beat, answer: Callable[[BeatAnswer], None]) -> None:
        """Apply a heartbeat and answer it when the group's new state is replicated."""
        before = self.stored()
        try:
            if beat.epoch < JOIN_EPOCH:
                reply = self._leave(beat)
            else:
                reply = self._beat(beat)
        except BrokerError as error:
            answer(BeatAnswer(error, beat.member_id))
            return
        if self.stored() == before:
            answer(reply)
            return
        moved = errors.NotCoordinatorError("another broker coordinates now")
        lost = BeatAnswer(moved, beat.member_id)
        self.lender.keep(self.id, self.stored(), lambda there: answer(reply if there else lost))

    def _beat(self, beat: Beat) -> BeatAnswer:
        if beat.regex:
            self._check_regex(beat.regex)
        before = self._member(beat)
        member = replace(
            before,
            instance_id=beat.instance_id or before.instance_id,
            rebalance_timeout=beat.rebalance_timeout or before.rebalance_timeout,
            names=before.names if beat.names is None else tuple(sorted(set(beat.names))),
            regex=before.regex if beat.regex is None else beat.regex,
            assignor=beat.assignor or before.assignor,
        )
        self.members[member.id] = member
        counts = self._counts()
        changed = (member.names, member.regex) != (before.names, before.regex)
        if changed or counts != self.counts:
            self.epoch += 1
            self.counts = counts
        if self.epoch > self.target_epoch:
            self._make_target()
        reconciled = self._reconciled(member, beat.owned)
        self._watch(reconciled, moved=reconciled != member)
        self.members[member.id] = member = reconciled
        whole = beat.epoch == JOIN_EPOCH or (
            beat.rebalance_timeout is not None
            and (beat.names is not None or beat.regex is not None)
            and beat.owned is not None
        )
        tells = whole or member.assigned != before.assigned
        return BeatAnswer(None, member.id, member.epoch, member.assigned if tells else None)

    def _member(self, beat: Beat) -> ConsumerMember:
        joins = beat.epoch == JOIN_EPOCH
        if beat.instance_id is not None:
            static = self._static(beat.instance_id)
            if joins and static is not None and static.id != beat.member_id:
                return self._take_over(static, beat)
            if not joins:
                self._check_static(static, beat)
        member = self.members.get(beat.member_id)
        if member is None:
            if not joins:
                raise errors.UnknownMemberIdError(f"{beat.member_id} isn't a member of {self.id}")
            return ConsumerMember(beat.member_id, beat.instance_id)
        if joins:  # a member may join again at any time; `_next` decides about its partitions
            return replace(member, epoch=max(member.epoch, 0))
        self._check_epoch(member, beat)
        return member

    @staticmethod
    def _check_epoch(member: ConsumerMember, beat: Beat) -> None:
        if beat.epoch == member.epoch:
            return
        # The response with the new epoch may be lost: then the member owns only what it had.
        lost = beat.epoch == member.previous_epoch and beat.epoch < member.epoch
        if not lost or beat.owned is None or not beat.owned <= member.assigned:
            raise errors.FencedMemberEpochError(f"{beat.epoch} instead of {member.epoch}")

    def _static(self, instance_id: str) -> ConsumerMember | None:
        return next((m for m in self.members.values() if m.instance_id == instance_id), None)

    @staticmethod
    def _check_static(static: ConsumerMember | None, beat: Beat) -> None:
        if static is None:
            raise errors.UnknownMemberIdError(f"no member is {beat.instance_id}")
        if static.id != beat.member_id:
            raise errors.FencedInstanceIdError(f"{beat.instance_id} has joined again")

    def _take_over(self, static: ConsumerMember, beat: Beat) -> ConsumerMember:
        """Let a new member id replace a static member that had left temporarily."""
        if static.epoch != STATIC_LEAVE_EPOCH:
            raise errors.UnreleasedInstanceIdError(f"{beat.instance_id} is still a member")
        self._forget(static)
        self.target[beat.member_id] = self.target.pop(static.id, NOTHING)
        return replace(static, id=beat.member_id, epoch=0, previous_epoch=0)

    def _leave(self, beat: Beat) -> BeatAnswer:
        if beat.instance_id is not None:
            self._check_static(self._static(beat.instance_id), beat)
        member = self.members.get(beat.member_id)
        if member is None:
            raise errors.UnknownMemberIdError(f"{beat.member_id} isn't a member of {self.id}")
        if beat.epoch == STATIC_LEAVE_EPOCH:
            self.members[member.id] = replace(member, epoch=STATIC_LEAVE_EPOCH, revoking=NOTHING)
        else:
            self._fence(member)
        return BeatAnswer(None, member.id, beat.epoch)

    def _fence(self, member: ConsumerMember) -> None:
        """Remove a member, which frees its partitions at once."""
        self._forget(member)
        self.target.pop(member.id, None)
        self.epoch += 1

    def _forget(self, member: ConsumerMember) -> None:
        del self.members[member.id]
        for timers in (self._sessions, self._revocations):
            timer = timers.pop(member.id, None)
            if timer is not None:
                timer.cancel()

    # Timers

    def _watch(self, member: ConsumerMember, *, moved: bool) -> None:
        """Restart a member's session timeout and, if it `moved`, its timeout for revocations."""
        member_id = member.id
        if member_id in self._sessions:
            self._sessions[member_id].cancel()
        self._sessions[member_id] = self.lender.after(
            self.lender.consumer_session_timeout, lambda: self._expired(member_id, None)
        )
        if moved:
            if member_id in self._revocations:
                self._revocations.pop(member_id).cancel()
            if member.state is Reconciliation.UNREVOKED_PARTITIONS:
                self._revocations[member_id] = self.lender.after(
                    member.rebalance_timeout, lambda: self._expired(member_id, member.epoch)
                )

    def _expired(self, member_id: str, epoch: int | None) -> None:
        member = self.members.get(member_id)
        if member is not None and epoch in (None, member.epoch):
            self._fence(member)
            self.lender.keep(self.id, self.stored(), lambda _: None)

    # Subscribed topics and the target assignment

    def _check_regex(self, regex: str) -> None:
        try:
            re.compile(regex)
        except re.error as error:
            raise errors.InvalidRegularExpressionError(f"{regex!r}: {error}") from error
        if regex not in self._resolved:
            self.lender.after(REGEX_RESOLVED, lambda: self._resolved.add(regex))

    def topics_of(self, member: ConsumerMember) -> dict[bytes, int]:
        """Return the existing topics that a member subscribes to, as partition counts by id."""
        known = self.lender.topics
        names = {n for n in member.names if n in known}
        if member.regex in self._resolved:
            pattern = re.compile(member.regex)
            names |= {t.name for t in known.values() if pattern.fullmatch(t.name)}
        return {known[n].id: len(known[n].partitions) for n in sorted(names)}

    def _counts(self) -> dict[bytes, int]:
        return {k: v for m in self.members.values() for k, v in self.topics_of(m).items()}

    def _make_target(self) -> None:
        votes = Counter(m.assignor for m in self.members.values() if m.assignor is not None)
        chosen = max(votes, key=lambda name: (votes[name], name)) if votes else DEFAULT_ASSIGNOR
        subscriptions = {m.id: self.topics_of(m) for m in self.members.values()}
        self.target = ASSIGNORS[chosen](subscriptions, self.target)
        self.target_epoch = self.epoch

    def _reconciled(self, member: ConsumerMember, owned: Places | None) -> ConsumerMember:
        if member.state is Reconciliation.UNREVOKED_PARTITIONS:
            if owned is None or owned & member.revoking:
                return member
            return self._next(member, member.epoch + 1, owned)
        if member.state is Reconciliation.STABLE and member.epoch == self.target_epoch:
            return member
        return self._next(member, member.epoch, owned)

    def _next(self, member: ConsumerMember, epoch: int, owned: Places | None) -> ConsumerMember:
        """Move a member as far towards its target assignment as possible.

        `epoch` is the member's new epoch if it must revoke partitions first.
        """
        target = self.target.get(member.id, NOTHING)
        assigned = member.assigned & target
        revoking = member.assigned - assigned
        wanted = target - assigned
        free = wanted - self._held()
        if revoking and (owned is None or owned & revoking):
            return member.at(epoch, Reconciliation.UNREVOKED_PARTITIONS, assigned, revoking)
        state = Reconciliation.UNRELEASED_PARTITIONS if wanted - free else Reconciliation.STABLE
        return member.at(self.target_epoch, state, assigned | free, NOTHING)

    def _held(self) -> Places:
        """Return the partitions that members own or must still revoke."""
        members = self.members.values()
        return NOTHING.union(*(m.assigned for m in members), *(m.revoking for m in members))

    # Commits

    def check_commit(
        self,
        member_id: str,
        epoch: int,
        partitions: Iterable[TopicPartition],
        *,
        transactional: bool,
        old_version: bool,
    ) -> None:
        """Raise an error if the member with this id and epoch may not commit offsets."""
        if epoch < 0 and not self.members:
            return
        member = self._known(member_id)
        if old_version and not transactional:
            raise errors.UnsupportedVersionError("OffsetCommit before version 9")
        if epoch == member.epoch or (
            epoch < member.epoch and self._all_assigned(member, epoch, partitions)
        ):
            return
        text = f"{epoch} instead of {member.epoch}"
        if transactional:
            raise errors.IllegalGenerationError(text)
        raise errors.StaleMemberEpochError(text)

    def _all_assigned(
        self, member: ConsumerMember, epoch: int, partitions: Iterable[TopicPartition]
    ) -> bool:
        """Return whether all partitions were assigned to the member by this epoch (KIP-1251)."""
        if self.lender.strict_epochs:
            return False
        since = {place: then for place, then in member.since if then <= epoch}
        topics = self.lender.topics
        return all(
            p.topic in topics and (topics[p.topic].id, p.partition) in since for p in partitions
        )

    def copied(self) -> ConsumerProtocolGroup:
        """Return a copy of the group, which a zombie broker answers requests from."""
        made = copy.copy(self)
        made.members = {member_id: copy.copy(member) for member_id, member in self.members.items()}
        return made

    def check_fetch(self, member_id: str | None, epoch: int) -> None:
        """Raise an error if the member with this id and epoch may not fetch offsets."""
        if member_id is None and epoch < 0:
            return
        member = self._known(member_id or "")
        if epoch != member.epoch:
            raise errors.StaleMemberEpochError(f"{epoch} instead of {member.epoch}")

    def _known(self, member_id: str) -> ConsumerMember:
        member = self.members.get(member_id)
        if member is None:
            raise errors.UnknownMemberIdError(f"{member_id} isn't a member of {self.id}")
        return member

    # Entries in the internal topic

    def stored(self) -> StoredConsumerGroup:
        """Return the group's state for the internal topic."""
        return StoredConsumerGroup(
            self.epoch,
            self.target_epoch,
            tuple(self.counts.items()),
            tuple(self.members.values()),
            tuple(self.target.items()),
        )

    def restore(self, stored: StoredConsumerGroup) -> None:
        """Set the group's state to one that was read from the internal topic."""
        self.epoch, self.target_epoch = stored.epoch, stored.target_epoch
        self.counts = dict(stored.counts)
        self.members = {m.id: m for m in stored.members}
        self.target = dict(stored.target)
        self._resolved = {m.regex for m in stored.members if m.regex}

    def begin(self) -> None:
        """Start the session timeouts after the shard was loaded by a new coordinator."""
        for member in self.members.values():
            self._watch(member, moved=True)

    def moved(self) -> None:
        """Do nothing when this broker stops coordinating: members only wait for writes."""

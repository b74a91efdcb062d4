"""Track the ownership of a group consumer's partitions, as its caller knows it.

The I/O thread loses partitions and rejoins while the caller still processes earlier records. A call
refers to the ownership that was last announced to the caller: by on_assigned, or by `poll` if there
is no such callback (R-ID-1, R-ID-2). In: partitions that were assigned, revoked, lost;
announcements. Out: the ownerships that a commit refers to, or the commit's error. Must not:
communicate with the coordinator, or run callbacks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from odradek.clients.consumer.group.offset_lookup import GroupIdentity
from odradek.clients.consumer.ownership import Ownership
from odradek.clients.consumer.partition_state import PartitionState
from odradek.clients.consumer.records import OffsetAndMetadata
from odradek.clients.consumer.subscription_state import SubscriptionState
from odradek.common.errors import KafkaError
from odradek.common.types import TopicPartition

REMEMBERED = 10_000
"""Maximum number of ownerships to remember, or twice the number of partitions if larger."""

Offsets = Mapping[TopicPartition, OffsetAndMetadata]


class AskedCommit(NamedTuple):
    """A commit, and the ownerships that its caller knew at the time of the call."""

    offsets: dict[TopicPartition, OffsetAndMetadata]
    ownerships: dict[TopicPartition, Ownership]
    """Ownerships that the caller knows, or of partitions that are assigned for the first time.

    Offsets of partitions without an ownership here are sent; the coordinator may refuse them.
    """
    older: frozenset[TopicPartition] = frozenset()
    """Partitions whose records were returned before the present ownership began."""
    broken: bool = False
    """Whether the commit sends positions although partitions that the caller knows were lost."""
    ids: Mapping[TopicPartition, bytes] = {}
    """The ids of the offsets' topics; `NO_ID` if unknown (R-ID-3)."""
    replaced: Mapping[TopicPartition, KafkaError] = {}
    """Errors of offsets whose topic was recreated; no request contains these offsets."""
    topic_id: Callable[[str], bytes] | None = None
    """Returns a topic's id in the consumer's metadata at the time of the call."""
    is_missing: Callable[[str], bool] | None = None
    """Returns whether a topic is missing in the consumer's metadata at that time."""

    def refused(self) -> list[TopicPartition]:
        """Return the partitions that another member may have read in the meantime."""
        over = [p for p, ownership in self.ownerships.items() if ownership.ended]
        return [*over, *self.older] if self.older else over


class AnnouncedOwnership:
    """The ownerships of a subscription's partitions that the caller was last notified of."""

    def __init__(self, subscription: SubscriptionState) -> None:
        self._subscription = subscription
        self._known: dict[TopicPartition, Ownership] = {}
        """The last announced ownership of each partition, also an ended one.

        The caller may still process records of an ended ownership.
        """
        self._given_back: dict[TopicPartition, Ownership] = {}
        """Ownerships of revoked partitions, which the next assignment ends or resumes."""
        self._former: set[TopicPartition] = set()
        """Partitions that the caller gave up by leaving the group.

        If they are assigned again, their new ownership counts as announced.
        """
        self.broken = False
        """Whether partitions that the caller knows were lost, without an announcement since."""
        self.unannounced = False
        """Whether the next `poll` has to announce partitions, because no callback does."""
        self.attended = False
        """Whether the client itself runs `poll`, for its own purposes, instead of the caller."""
        self.losses = 0
        """Number of losses, by which an announcement is recognized as older than a loss."""
        self._member = GroupIdentity()
        """The member's identity when its partitions were last announced to the caller."""

    # Calls of the membership (in the engine's step)

    def assigned(self, states: Iterable[PartitionState], member: GroupIdentity) -> None:
        """Start an ownership of each partition, or resume the one that a rebalance interrupted.

        An ownership resumes only in the same member's next generation: otherwise another member may
        have had the partition in between.
        """
        back, self._given_back = self._given_back, {}
        for state in states:
            before = back.get(state.partition)
            if before is not None and _follows(before.given_back_by, member):
                del back[state.partition]
                before.resume()
                state.owned_as(before)
            else:
                state.ownership.replace(state.partition in self._known)
                if state.partition in self._former:
                    self._note(state)
        for partition, ownership in back.items():
            # A cooperative member revokes partitions in the generation in which it gets others.
            if ownership.given_back_by == _key(member):
                self._given_back[partition] = ownership
            else:
                ownership.end()
        if not self.broken:
            self._member = member

    def given_back(self, states: Iterable[PartitionState], member: GroupIdentity) -> None:
        """Note that partitions were revoked in a rebalance, not lost.

        With KIP-848, another member may own them before this member has its next epoch.
        """
        for state in states:
            if member.by_epoch or member.generation < 0:
                state.ownership.end()
            else:
                state.ownership.give_back(_key(member))
                self._given_back[state.partition] = state.ownership

    def lost(self, states: Iterable[PartitionState]) -> None:
        """End these ownerships and those that were given back, because the membership has ended."""
        ended = {s.partition: s.ownership for s in states}
        ended.update(self._given_back)
        self._given_back = {}
        self.losses += 1
        self.unannounced = False
        for partition, ownership in ended.items():
            ownership.end()
            if self._known.get(partition) is ownership:
                self.broken = True

    def left(self, states: Iterable[PartitionState]) -> None:
        """End all ownerships, because the caller has left its group."""
        self.lost(states)
        self._former.update(self._known)
        self.broken, self._member = False, GroupIdentity()

    # Announcements (in the caller's thread)

    def leave_unannounced(self) -> None:
        """Let the caller's next poll announce the assigned partitions."""
        self.unannounced = True

    def attend(self, *, attended: bool) -> None:
        """Set whether the client itself runs the next polls, instead of the caller."""
        self.attended = attended

    def announce(
        self, partitions: Iterable[TopicPartition], losses: int, now: GroupIdentity
    ) -> None:
        """Note that the caller is notified of these partitions.

        `losses`: the number of losses when they were assigned.
        """
        here = self._subscription.partitions
        for state in [here[p] for p in partitions if p in here]:
            self._note(state)
        if losses == self.losses and self.broken:
            self.broken = False
            if now.generation >= 0:
                self._member = now

    def _note(self, state: PartitionState) -> None:
        partition, known = state.partition, self._known
        state.ownership.announce()
        self._subscription.note_told(state)
        self._former.discard(partition)
        known.pop(partition, None)  # move it to the end: the first is the oldest
        known[partition] = state.ownership
        if len(known) > max(REMEMBERED, 2 * len(self._subscription.partitions)):
            oldest = next(iter(known))
            del known[oldest]
            self._former.discard(oldest)

    def announce_all(self, now: GroupIdentity) -> None:
        """Note that the caller is notified of all assigned partitions."""
        self.unannounced = False
        self.announce(list(self._subscription.partitions), self.losses, now)

    # Operations of the caller

    def member(self, now: GroupIdentity) -> GroupIdentity:
        """Return the member's identity as the caller knows it.

        After a loss it is that of the former member, which brokers refuse. Without an identity,
        brokers wouldn't check the offsets of a transaction at all (KIP-447).
        """
        return self._member if self.broken or now.generation < 0 else now

    def asked(self, offsets: Offsets, *, read: bool) -> AskedCommit:
        """Return the commit of these offsets with the ownerships that the caller knows.

        `read`: the offsets come from records, which may be older than the last announcement.
        """
        here = self._subscription.partitions
        found: dict[TopicPartition, Ownership] = {}
        older = []
        for partition, offset in offsets.items():
            state = here.get(partition)
            ownership = self._known.get(partition)
            if ownership is None and state is not None:
                ownership = state.ownership
            if ownership is None:
                continue
            found[partition] = ownership
            position = None if state is None else state.position
            if read and not ownership.covers(offset.offset, position):
                older.append(partition)
        return AskedCommit(dict(offsets), found, frozenset(older))


def _key(member: GroupIdentity) -> tuple[str, int]:
    return member.member_id, member.generation


def _follows(before: tuple[str, int], member: GroupIdentity) -> bool:
    return _key(member) == (before[0], before[1] + 1)

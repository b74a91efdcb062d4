"""Check the commits of one group member with `enable.auto.commit`.

In: commits as the client starts them, starts and ends of orderly closes. Out: violations.
`GroupLedger` checks the coordinator's side, which can't distinguish a renewal from a request that
arrives late. Must not: commit offsets.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Container, Iterator

from odradek.clients.consumer.group.announced_ownership import AskedCommit
from odradek.clients.consumer.group.auto_commit import RENEWAL_INTERVAL
from odradek.clients.consumer.ownership import Ownership
from odradek.common.types import TopicPartition
from odradek.simulation.checkers.group_checkers import GroupLedger, MemberView, Stint
from odradek.simulation.checkers.invariants import Violation

Holding = tuple[Stint | None, Ownership | None, bytes | None, bytes]
"""Ownership known to the application, ownership known to the client, topic id, previous topic id.

The client's ownership differs if the member was removed and has joined again in the background
(R-ID-1). A broker that is cut off may name a deleted topic again, which the client then reads from
the topic's beginning."""
SPARE = 5.0
"""Maximum number of seconds from a commit's acceptance until the client knows of it."""
Begun = tuple[Holding, int, bool]
"""The ownership when a commit began, the commit's offset, and whether the caller requested it."""


class OwnCommits:
    """The commits of one member, from its first commit to its last close."""

    def __init__(self, ledger: GroupLedger, budget: float) -> None:
        """Set `budget`, the seconds of an orderly close in which its commit must succeed."""
        self._ledger = ledger
        self._budget = budget
        self._begun: dict[TopicPartition, Begun] = {}
        """The last commit of each partition; the group may have stored it or not."""
        self._replaced: dict[TopicPartition, tuple[AskedCommit, Begun | None]] = {}
        """The last commit of each partition, and the commit before it."""
        self._due: dict[TopicPartition, int] | None = None
        """While the member closes: the offset after the last record that it returned, by partition
        and topic incarnation; else None."""
        self._idle: dict[TopicPartition, tuple[str, float]] = {}
        """While the member closes: the idle partitions whose last commit is this member's and must
        be renewed, each with the member's id and the time of that commit."""
        self._closing_since = 0.0
        self._warnings = 0

    def begins(
        self, member: MemberView, commit: AskedCommit, renewed: Container[TopicPartition] | None
    ) -> Violation | None:
        """Note a commit; return a violation if the client moves the group's offset back by itself.

        `renewed`: None if the caller requested the commit, otherwise the partitions whose offset is
        the last committed one (R-GR-3). After the caller's own commit has failed, the client may go
        back to the offset that the caller has processed, but no renewal may replace the failed
        commit.
        """
        ledger = self._ledger
        stints = ledger.stints.get(member.name, {})
        found = None
        for partition, offset in commit.offsets.items():
            now = (
                stints.get(partition),
                commit.ownerships.get(partition),
                commit.ids.get(partition),
                member.former_id(partition),
            )
            self._replaced[partition] = commit, self._begun.get(partition)
            before, last, asked = self._begun.get(partition, (None, 0, False))
            back = before == now and offset.offset < last
            if renewed is not None and back and (partition in renewed or not asked):
                found = Violation(
                    f"{ledger.now}: {member.name} commits {partition} at {offset.offset} by itself "
                    f"after it has begun a commit at {last}"
                )
            repeated = asked and before == now and offset.offset == last
            self._begun[partition] = now, offset.offset, renewed is None or repeated
        return found

    def not_stored(self, commit: AskedCommit, accepted: Container[TopicPartition]) -> None:
        """Note that the group has stored a commit only for the accepted partitions."""
        for partition in commit.offsets:
            last, before = self._replaced.get(partition, (None, None))
            if last is not commit or partition in accepted:
                continue
            if before is None:
                del self._begun[partition]
            else:
                self._begun[partition] = before

    def closes(self, member: MemberView, *, renews: bool = True) -> None:
        """Note the offsets that an orderly close must commit: those after all returned records.

        Records of partitions that the client has lost don't count. `renews`: whether no commit of
        the caller can be in doubt, so that idle partitions are committed again, too.
        """
        ledger = self._ledger
        self._closing_since, self._warnings = ledger.now, ledger.warnings()
        fenced = not ledger.is_member(member.identity[0])
        stints = {} if fenced else ledger.stints.get(member.name, {})
        self._due = {
            TopicPartition(stint.life, partition.partition): stint.next_offset
            for partition, stint in stints.items()
            if stint.next_offset is not None and not member.lost(partition)
        }
        self._idle = dict(self._old_commits(member)) if renews and not fenced else {}

    def _old_commits(
        self, member: MemberView
    ) -> Iterator[tuple[TopicPartition, tuple[str, float]]]:
        """Yield the partitions whose last commit an orderly close must repeat (R-GR-3)."""
        ledger, member_id = self._ledger, member.identity[0]
        for partition in ledger.stints.get(member.name, {}):
            place = ledger.place(partition)
            if ledger.taken.get(place, (0, None))[1] != member_id or member.lost(partition):
                continue
            at = ledger.committers[place][member_id]
            if ledger.now - at > RENEWAL_INTERVAL + SPARE:
                yield place, (member_id, at)

    def loses(self, partitions: Collection[TopicPartition]) -> None:
        """Expect no more commits of these partitions."""
        due = self._due or {}
        for partition in partitions:
            due.pop(self._ledger.place(partition), None)
            self._idle.pop(self._ledger.place(partition), None)

    def goes_on(self) -> None:
        """Note that `unsubscribe()` has returned before LeaveGroup, as with refused credentials.

        The member, which is still leaving, may commit or log a warning later.
        """
        self._due = None

    def closed(self, member: MemberView) -> Violation | None:
        """Return a violation if an orderly close hasn't committed all returned records.

        Members that were fenced are excused. If the schedule has no faults that refuse commits,
        neither a WARNING nor a timeout is an excuse.
        """
        ledger, due = self._ledger, self._due
        self._due = None
        late = ledger.now - self._closing_since >= self._budget
        if due is None or (not ledger.gentle and (late or ledger.warnings() > self._warnings)):
            return None
        ledger.hits["orderly close within its time"] += 1
        for place, offset in due.items():
            found = ledger.reached(place)
            if place in ledger.misnamed:
                continue
            if place.topic == ledger.life(place.topic.partition("#")[0]) and found < offset:
                return Violation(
                    f"{ledger.now}: {member.name} has closed in order within "
                    f"{ledger.now - self._closing_since:.1f} s; {place} was returned up to "
                    f"{offset}, and is committed up to {found}"
                )
        return self._not_renewed() if ledger.gentle else None

    def _not_renewed(self) -> Violation | None:
        """Return a violation if the close hasn't repeated the commit of an idle partition."""
        ledger = self._ledger
        for place, (member_id, at) in self._idle.items():
            again = ledger.committers.get(place, {}).get(member_id, math.inf)
            if place.topic == ledger.life(place.topic.partition("#")[0]) and again == at:
                return Violation(
                    f"{ledger.now}: the close hasn't renewed the offset of {place}, which was "
                    f"committed at {at}"
                )
        return None

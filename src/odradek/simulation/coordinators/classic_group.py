"""Coordinate a classic group: Kafka's state machine of joins, syncs and heartbeats.

In: JoinGroup, SyncGroup, Heartbeat and LeaveGroup, each with a callback for its later response, and
services of the shard (time, writing). Out: responses, and the group's state, which is written
whenever an assignment is complete or the group becomes empty. As in Kafka, a failed coordinator
loses later changes. Must not know versions, except where the meaning of a response depends on them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from odradek.common.errors import BrokerError
from odradek.common.errors import kafka as errors
from odradek.simulation.coordinators.classic_members import (
    MOVES,
    AnswerJoin,
    AnswerSync,
    ClassicState,
    Join,
    Joined,
    JoinPhase,
    Lender,
    Member,
    StoredGroup,
    StoredMember,
    Synced,
    voted,
)
from odradek.simulation.coordinators.shards import ShardTimer


@dataclass(slots=True)
class ClassicGroup:
    """A classic group; `members` is ordered by the time of joining."""

    id: str
    lender: Lender
    state: ClassicState = ClassicState.EMPTY
    generation: int = 0
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str | None = None
    members: dict[str, Member] = field(default_factory=dict)
    static: dict[str, str] = field(default_factory=dict)
    """Member ids by group instance id."""
    pending: dict[str, ShardTimer] = field(default_factory=dict)
    """Timers by member id, for ids that new members were given and haven't joined again with
    yet."""
    unsynced: dict[str, None] = field(default_factory=dict)
    rebalances: int = 0
    empty_since: float = -math.inf
    """Time when the last member left; minus infinity if the group never had a member."""
    _rebalance: JoinPhase = field(default_factory=JoinPhase)
    _sync_timer: ShardTimer | None = None

    # Joining

    def join(self, join: Join, answer: AnswerJoin) -> None:
        """Handle JoinGroup: let the member take part in the next generation."""
        try:
            self._check_protocols(join)
            if join.member_id:
                self._known_joins(join, answer)
            else:
                self._new_joins(join, answer)
        except BrokerError as error:
            answer(Joined(error, join.member_id))

    def _check_protocols(self, join: Join) -> None:
        supported = {name for name, _ in join.protocols}
        others = [m for m in self.members.values() if m.id != join.member_id]
        if not join.protocol_type or not supported:
            raise errors.InconsistentGroupProtocolError("a member without protocols")
        if others:
            for member in others:
                supported &= {name for name, _ in member.protocols}
            if join.protocol_type != self.protocol_type or not supported:
                raise errors.InconsistentGroupProtocolError("no protocol that all members have")

    def _new_joins(self, join: Join, answer: AnswerJoin) -> None:
        prefix = join.instance_id or join.client_id
        member_id = f"{prefix}-{self.lender.rng.getrandbits(64):016x}"
        if join.instance_id is not None:
            if join.instance_id in self.static:
                self._replace_static(join, member_id, answer)
            else:
                self._add(join, member_id, answer)
        elif join.id_required:
            self.pending[member_id] = self.lender.after(
                join.session_timeout, lambda: self._forget_pending(member_id)
            )
            required = errors.MemberIdRequiredError("come back with the id that you are given")
            answer(Joined(required, member_id))
        else:
            self._add(join, member_id, answer)

    def _known_joins(self, join: Join, answer: AnswerJoin) -> None:
        timer = self.pending.pop(join.member_id, None)
        if timer is not None:
            timer.cancel()
            self._add(join, join.member_id, answer)
            return
        member = self._member(join.member_id, join.instance_id)
        if self.state is ClassicState.PREPARING_REBALANCE:
            self._update(member, join, answer)
            self._complete_if_all_joined()
        elif self.state is ClassicState.COMPLETING_REBALANCE:
            if member.protocols == join.protocols:  # a retry: the response was lost
                answer(self._joined(member))
            else:
                self._update(member, join, answer)
                self.rebalance()
        elif member.id == self.leader or member.protocols != join.protocols:
            self._update(member, join, answer)
            self.rebalance()
        else:
            answer(self._joined(member))

    def _add(self, join: Join, member_id: str, answer: AnswerJoin) -> None:
        member = Member(
            member_id,
            join.instance_id,
            join.session_timeout,
            join.rebalance_timeout,
            join.protocols,
            join=answer,
        )
        self.members[member_id] = member
        self.protocol_type = join.protocol_type
        if join.instance_id is not None:
            self.static[join.instance_id] = member_id
        if self.leader is None:
            self.leader = member_id
        self._rebalance.grow()
        self.rebalance()

    def _update(self, member: Member, join: Join, answer: AnswerJoin) -> None:
        member.joins(join, answer)
        self._stop_session(member)

    def _replace_static(self, join: Join, member_id: str, answer: AnswerJoin) -> None:
        """Replace a restarted static member by a member with a new id; the old id is fenced."""
        old = self.members.pop(self.static[join.instance_id or ""])
        self._stop_session(old)
        fenced = errors.FencedInstanceIdError(f"{join.instance_id} has joined again")
        old.answer_join(Joined(fenced, old.id))
        old.answer_sync(Synced(fenced))
        was_leader = self.leader == old.id
        member = Member(
            member_id, join.instance_id, join.session_timeout, join.rebalance_timeout,
            join.protocols, old.assignment,
        )  # fmt: skip
        self.members[member_id] = member
        self.static[join.instance_id or ""] = member_id
        if was_leader:
            self.leader = member_id
        if old.id in self.unsynced:
            del self.unsynced[old.id]
            self.unsynced[member_id] = None
        if self.state is not ClassicState.STABLE or voted(self.members.values()) != self.protocol:
            member.joins(join, answer)
            self.rebalance()
            return
        reply = self._joined(member)
        if was_leader and join.may_skip_assignment:
            reply = self._joined(member, skip_assignment=True)
        # A response that names another leader keeps the member from computing a useless assignment.
        elif was_leader:
            reply = Joined(
                None, member_id, self.generation, self.protocol_type, self.protocol, old.id
            )
        self.heard(member)

        def stored(there: bool) -> None:
            answer(reply if there else Joined(_moved(), member_id))

        self.lender.keep(self.id, self.stored(), stored)

    def _joined(self, member: Member, *, skip_assignment: bool = False) -> Joined:
        members: tuple[tuple[str, str | None, bytes], ...] = ()
        if member.id == self.leader:
            members = tuple(
                (m.id, m.instance_id, m.metadata(self.protocol)) for m in self.members.values()
            )
        return Joined(
            None, member.id, self.generation, self.protocol_type, self.protocol,
            self.leader or "", members, skip_assignment,
        )  # fmt: skip

    # Rebalances

    def _to(self, state: ClassicState) -> None:
        if state not in MOVES[self.state]:
            raise AssertionError(f"group {self.id}: from {self.state} to {state}")
        self.state = state

    def rebalance(self) -> None:
        """Begin the join phase, or end it if all members have joined."""
        if self.state is ClassicState.PREPARING_REBALANCE:
            self._complete_if_all_joined()
            return
        if self.state is ClassicState.COMPLETING_REBALANCE:
            again = errors.RebalanceInProgressError("another rebalance has begun")
            self._answer_syncs(Synced(again))
            for member in self.members.values():
                member.assign(b"")
        self._cancel_sync_timer()
        initial = self.state is ClassicState.EMPTY
        self._to(ClassicState.PREPARING_REBALANCE)
        self.rebalances += 1
        phase = self._rebalance = JoinPhase(initial=initial)
        if initial and self.lender.initial_rebalance_delay:
            self._wait_for_more(phase)
            return
        phase.initial = False
        phase.timer = self.lender.after(self._rebalance_timeout(), self._complete_join)
        self._complete_if_all_joined()

    def _wait_for_more(self, phase: JoinPhase) -> None:
        """Delay the first generation, and again if members join meanwhile."""
        left = self._rebalance_timeout() - phase.waited
        delay = min(self.lender.initial_rebalance_delay, left)
        phase.wait(delay)

        def look() -> None:
            if phase.grown and phase.waited < self._rebalance_timeout():
                self._wait_for_more(phase)
                return
            phase.initial = False
            self._complete_join()

        phase.timer = self.lender.after(delay, look)

    def _rebalance_timeout(self) -> float:
        return max((m.rebalance_timeout for m in self.members.values()), default=0.0)

    def _complete_if_all_joined(self) -> None:
        waiting = all(m.join is not None for m in self.members.values())
        if (
            self.state is ClassicState.PREPARING_REBALANCE
            and not self._rebalance.initial
            and waiting
            and not self.pending
        ):
            self._complete_join()

    def _complete_join(self) -> None:
        phase = self._rebalance
        if phase.timer is not None:
            phase.timer.cancel()
        for member in [m for m in self.members.values() if m.join is None]:
            if member.instance_id is None:
                self._drop(member)
        joined = [m for m in self.members.values() if m.join is not None]
        if self.members and not joined:  # static members may still join: wait again
            phase.timer = self.lender.after(self._rebalance_timeout(), self._complete_join)
            return
        self.generation += 1
        if not self.members:
            self._become_empty()
            return
        if self.leader not in {m.id for m in joined}:
            self.leader = joined[0].id
        self.protocol = voted(self.members.values())
        self._to(ClassicState.COMPLETING_REBALANCE)
        self.unsynced = {m.id: None for m in self.members.values()}
        self._sync_timer = self.lender.after(self._rebalance_timeout(), self._sync_overdue)
        for member in joined:
            self.heard(member)
            member.answer_join(self._joined(member))

    def _become_empty(self) -> None:
        self._to(ClassicState.EMPTY)
        self.empty_since = self.lender.now
        self.protocol = self.leader = None
        self.lender.keep(self.id, self.stored(), lambda _: None)

    def _sync_overdue(self) -> None:
        if self.state is ClassicState.COMPLETING_REBALANCE and self.unsynced:
            for member_id in list(self.unsynced):
                if member_id in self.members:
                    self._drop(self.members[member_id])
            self.rebalance()

    # Syncing

    def sync(
        self,
        member_id: str,
        instance_id: str | None,
        generation: int,
        protocol: tuple[str | None, str | None],
        assignments: dict[str, bytes],
        answer: AnswerSync,
    ) -> None:
        """Return the member's assignment (SyncGroup); the leader's request has all of them."""
        try:
            member = self._member(member_id, instance_id)
            self._check_generation(generation)
            for given, mine in zip(protocol, (self.protocol_type, self.protocol), strict=True):
                if given is not None and given != mine:
                    raise errors.InconsistentGroupProtocolError(f"{given} instead of {mine}")
            if self.state is ClassicState.PREPARING_REBALANCE:
                raise errors.RebalanceInProgressError("join again")
        except BrokerError as error:
            answer(Synced(error))
            return
        if self.state is ClassicState.STABLE:
            self.heard(member)
            answer(self._synced(member))
            return
        member.syncs(answer)
        self._stop_session(member)
        self.unsynced.pop(member.id, None)
        if member.id == self.leader:
            self._assigned(assignments)

    def _assigned(self, assignments: dict[str, bytes]) -> None:
        generation, rebalances = self.generation, self.rebalances

        def stored(there: bool) -> None:
            now = (self.generation, self.rebalances, self.state)
            if now != (generation, rebalances, ClassicState.COMPLETING_REBALANCE):
                return
            if not there:
                self._answer_syncs(Synced(_moved()))
                return
            for member in self.members.values():
                member.assign(assignments.get(member.id, b""))
            self._to(ClassicState.STABLE)
            for member in self.members.values():
                if member.sync is not None:
                    self.heard(member)
                    member.answer_sync(self._synced(member))

        self.lender.keep(self.id, self.stored(assignments), stored)

    def _synced(self, member: Member) -> Synced:
        return Synced(None, self.protocol_type, self.protocol, member.assignment)

    def _answer_syncs(self, answer: Synced) -> None:
        for member in self.members.values():
            if member.sync is not None:
                self.heard(member)
                member.answer_sync(answer)

    def _cancel_sync_timer(self) -> None:
        if self._sync_timer is not None:
            self._sync_timer.cancel()

    # Membership

    def heartbeat(self, member_id: str, instance_id: str | None, generation: int) -> None:
        """Handle Heartbeat: restart the session timeout, or raise Kafka's error."""
        member = self._member(member_id, instance_id)
        if self.state is ClassicState.EMPTY:
            raise errors.UnknownMemberIdError(member_id)
        self._check_generation(generation)
        self.heard(member)
        if self.state is ClassicState.PREPARING_REBALANCE:
            raise errors.RebalanceInProgressError("join again")

    def leave(self, member_id: str, instance_id: str | None) -> None:
        """Remove a member; an instance id alone identifies a static member."""
        if instance_id is not None and not member_id:
            member_id = self.static.get(instance_id, "")
        if instance_id is None and member_id in self.pending:
            self._forget_pending(member_id)
            return
        member = self._member(member_id, instance_id)
        self._drop(member)
        self._without_member()

    def check_commit(
        self, member_id: str, instance_id: str | None, generation: int, *, transactional: bool
    ) -> None:
        """Raise an error if the member with this id and generation may not commit offsets."""
        if generation < 0 and self.state is ClassicState.EMPTY:
            return  # a consumer without a group membership commits
        if generation >= 0 or member_id or instance_id is not None:
            member = self._member(member_id, instance_id)
            self._check_generation(generation)
            if transactional:
                return
            if self.state is ClassicState.COMPLETING_REBALANCE:
                raise errors.RebalanceInProgressError("the assignment isn't complete")
            self.heard(member)
        elif not transactional and self.state is not ClassicState.EMPTY:
            raise errors.UnknownMemberIdError("the group has members, and you aren't one")

    def _check_generation(self, generation: int) -> None:
        if generation != self.generation:
            raise errors.IllegalGenerationError(f"{generation} instead of {self.generation}")

    def _member(self, member_id: str, instance_id: str | None) -> Member:
        if instance_id is not None:
            found = self.static.get(instance_id)
            if found is None:
                raise errors.UnknownMemberIdError(f"no member is {instance_id}")
            if found != member_id:
                raise errors.FencedInstanceIdError(f"{instance_id} has joined again")
        if member_id not in self.members:
            raise errors.UnknownMemberIdError(f"{member_id} isn't a member of {self.id}")
        return self.members[member_id]

    def heard(self, member: Member) -> None:
        """Restart a member's session timeout."""
        self._stop_session(member)
        member.timer = self.lender.after(member.session_timeout, lambda: self._expired(member))

    def _stop_session(self, member: Member) -> None:
        """Stop a member's session timeout while the member waits for a response."""
        if member.timer is not None:
            member.timer.cancel()
            member.timer = None

    def _expired(self, member: Member) -> None:
        if self.members.get(member.id) is member and member.join is None and member.sync is None:
            self._drop(member)
            self._without_member()

    def _forget_pending(self, member_id: str) -> None:
        timer = self.pending.pop(member_id, None)
        if timer is not None:
            timer.cancel()
            self._complete_if_all_joined()

    def _drop(self, member: Member) -> None:
        self._stop_session(member)
        del self.members[member.id]
        self.unsynced.pop(member.id, None)
        if member.instance_id is not None and self.static.get(member.instance_id) == member.id:
            del self.static[member.instance_id]
        gone = errors.UnknownMemberIdError(f"{member.id} isn't a member any more")
        member.answer_join(Joined(gone, member.id))
        member.answer_sync(Synced(gone))
        if self.leader == member.id:
            self.leader = next(iter(self.members), None)

    def _without_member(self) -> None:
        if self.state is ClassicState.PREPARING_REBALANCE:
            self._complete_if_all_joined()
        elif self.state is not ClassicState.EMPTY:
            self.rebalance()

    # Entries in the internal topic

    def stored(self, assignments: dict[str, bytes] | None = None) -> StoredGroup:
        """Return the group's state for the internal topic, with new assignments if given."""
        members = tuple(
            StoredMember(
                m.id, m.instance_id, m.session_timeout, m.rebalance_timeout,
                m.metadata(self.protocol),
                m.assignment if assignments is None else assignments.get(m.id, b""),
            )
            for m in self.members.values()
        )  # fmt: skip
        return StoredGroup(
            self.generation, self.protocol_type, self.protocol, self.leader, members,
            self.empty_since,
        )  # fmt: skip

    def restore(self, stored: StoredGroup) -> None:
        """Set the group's state to one that was read from the internal topic."""
        self.generation, self.leader = stored.generation, stored.leader
        self.empty_since = stored.empty_since
        self.protocol_type, self.protocol = stored.protocol_type, stored.protocol
        self.members = {
            m.id: Member(
                m.id, m.instance_id, m.session_timeout, m.rebalance_timeout,
                ((stored.protocol or "", m.metadata),), m.assignment,
            )
            for m in stored.members
        }  # fmt: skip
        self.static = {m.instance_id: m.id for m in stored.members if m.instance_id is not None}
        self.state = ClassicState.STABLE if stored.members else ClassicState.EMPTY

    def begin(self) -> None:
        """Start the session timeouts after the shard was loaded by a new coordinator."""
        for member in self.members.values():
            self.heard(member)

    def moved(self) -> None:
        """Respond to waiting members that this broker isn't the coordinator any more."""
        for member in self.members.values():
            member.answer_join(Joined(_moved(), member.id))
            member.answer_sync(Synced(_moved()))


def _moved() -> BrokerError:
    return errors.NotCoordinatorError("another broker coordinates now")

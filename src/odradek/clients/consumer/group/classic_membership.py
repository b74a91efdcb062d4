"""Run a consumer's membership of a classic group: one generator from `subscribe` to `close`.

The generator rebalances (revoke, join, compute or receive the assignment, apply it), and keeps the
membership by heartbeats until something causes the next rebalance. Eager members revoke everything
before they join; cooperative ones keep their partitions, revoke those that the new assignment
lacks, and join once more (KIP-429). In: the coordinator's responses, calls of the consumer's group.
Out: calls of `Group`. Must not: know positions, offsets or callbacks.
"""

from __future__ import annotations

import logging
import math
from typing import Any

from odradek.clients.consumer.group.assignors import COOPERATIVE, find, rebalance_protocol
from odradek.clients.consumer.group.classic_join import (
    NO_GENERATION,
    NO_MEMBER,
    ClassicIdentity,
    Joining,
)
from odradek.clients.consumer.group.classic_leader import Leader
from odradek.clients.consumer.group.embedded_protocol import decode_assignment
from odradek.clients.consumer.group.group_commits import patience
from odradek.clients.consumer.group.member_states import CLASSIC, Life, MemberEvent
from odradek.clients.consumer.group.membership import Group, MemberState, PollOverdueError
from odradek.clients.consumer.group.poll_overdue import OVERDUE_CURE, overdue, why_overdue
from odradek.clients.consumer.group.unowned_partitions import find_unowned
from odradek.clients.consumer.subscription_state import SubscriptionState
from odradek.clients.final_errors import is_refusal
from odradek.common.backoff import Backoff
from odradek.common.errors import DisconnectedError, KafkaError, KafkaTimeoutError
from odradek.common.errors.kafka import (
    IllegalGenerationError,
    RebalanceInProgressError,
    UnknownMemberIdError,
    error_for,
)
from odradek.common.types import Rng, TopicPartition
from odradek.metadata.metadata import Metadata
from odradek.network.engine import Engine
from odradek.network.flow import START, Completion, Flow, Signal, Wait
from odradek.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from odradek.protocol.messages.join_group import JoinGroupResponse
from odradek.protocol.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
)

logger = logging.getLogger("odradek.consumer")

MEMBERS = 3
"""First version of LeaveGroup that takes a list of members (KIP-345)."""
LEAVE_TIMEOUT = 5.0
"""Seconds for leaving if the caller didn't request it.

Without it, the other members only have to wait longer: until the session times out.
`close()` may take as long as its caller allows.
"""


JOINING = (MemberState.PREPARING_REBALANCE, MemberState.COMPLETING_REBALANCE)
REMOVED = (UnknownMemberIdError, IllegalGenerationError)
"""Errors after which the partitions are lost, and the member joins again."""


MOST_LOOKS = 16
"""Maximum number of failed DescribeGroups requests of a static member that returned.

After a timeout the member sends no more of them: they delay heartbeats on the same connection.
"""


class ClassicMembership(Life):
    """One consumer in one classic group."""

    def __init__(
        self,
        group: Group,
        engine: Engine,
        metadata: Metadata,
        rng: Rng,
        subscription: SubscriptionState,
    ) -> None:
        super().__init__(group, engine, CLASSIC)
        self._metadata = metadata
        self._subscription = subscription
        config = group.config
        assignors = find(config["partition.assignment.strategy"])
        self._cooperative = rebalance_protocol(assignors) is COOPERATIVE
        self._identity = ClassicIdentity()
        self._joining = Joining(group, engine, self._identity, assignors, rng)
        self._leader = Leader(group, engine, metadata, rng, assignors)
        self._interval: float = config["heartbeat.interval.ms"]
        self._session: float = config["session.timeout.ms"]
        self._max_poll: float = config["max.poll.interval.ms"]
        self._patience = patience(config)
        self._mishaps = Backoff(config.backoff("retry.backoff"), rng)
        """Backoff of unexpected errors since the membership was last stable."""
        self._looks = Backoff(config.backoff("retry.backoff"), rng)
        """Backoff of failed searches for partitions without an owner."""
        self._changed = Signal()
        """Notified when another join or the end is requested."""
        self._wish: str | None = None
        """Reason to join again; None while there is none."""
        self._removal: KafkaError | None = None
        """Error of a commit which means that this member was removed."""
        self._moved_to: list[str] = []
        """Topics for which this static member left and joined again; it does so only once."""
        steady = config.backoff("retry.backoff").steady()
        self._removals, self._syncs = Backoff(steady, rng), Backoff(steady, rng)
        """Backoff of removals since the last accepted heartbeat, and of refused syncs in a row.

        After the first failure of either kind, the member joins again at once (R-RT-1).
        """
        self._beats = Backoff(steady, rng)
        """Backoff of heartbeats in a row with errors that don't concern this member."""
        self._beat_at = math.inf
        self._sent_at = -math.inf
        self._expires = math.inf
        """Time when the session times out unless a heartbeat is answered before."""
        self._doubtful = False
        """Whether the session has timed out by the client's clock: no records are returned then.

        The partitions aren't dropped yet, because in an outage of the whole cluster the coordinator
        ends no session. No records are returned, because other members may have the partitions.
        """
        self._holding = False
        """Whether the consumer leaves as soon as its offsets are committed."""
        self._running: Completion[None] | None = None
        self._revoking: Completion[float] | None = None

    # Calls of the group's engine

    @property
    def member_id(self) -> str:
        """The member id that the coordinator assigned; empty without one."""
        return self._identity.member_id

    @property
    def generation(self) -> int:
        """Generation of which this is a member; -1 without one."""
        return self._identity.generation

    def start(self, now: float) -> None:
        """Start to join, for the first time or after the group refused the member."""
        self._wish = self._removal = None
        self._move(MemberEvent.SUBSCRIBED, "subscribed", now)
        self._running = self._engine.start(self._run())

    def rejoin(self, reason: str, now: float) -> None:
        """Request another join as soon as possible; any join that starts later fulfills this."""
        del now
        self._wish = reason
        self._changed.notify()

    def refused(self, error: BaseException | None, now: float) -> None:
        """Join again after a refused commit, as after a refused heartbeat."""
        self._removal = error if isinstance(error, UnknownMemberIdError) else None
        self.rejoin(f"a commit failed: {error}", now)

    @property
    def _revokes(self) -> bool:
        return self._revoking is not None and not self._revoking.done

    def hold(self) -> None:
        """Start no further join, and send heartbeats until `leave`.

        A join in flight is finished if partitions are owned: once the coordinator has started the
        next generation, it only accepts offsets from members of that generation.
        """
        if self.state in JOINING and not self._revokes and self._group.owned():
            self._holding = True
            return
        self._stop()
        self._running = self._engine.start(self._hold())

    def leave(self, deadline: float) -> Flow[None]:
        """Leave the group, unless the member is static; end at the deadline and never raise."""
        now = yield START
        self._stop()
        if self.state in (MemberState.LEAVING, MemberState.UNJOINED):
            return
        self._move(MemberEvent.LEAVE, "the consumer leaves", now)
        yield from self._say_goodbye("the consumer unsubscribes or is closed", deadline)
        self._leader.step_down()
        self._trust()
        self._identity.forget()
        self._move(MemberEvent.LEFT, None, self._engine.now)

    # The membership from join to leave

    def _run(self) -> Flow[None]:
        yield START
        reason = "the consumer has subscribed"
        # A leaving member with a generation finishes its join, even after errors: once the next
        # generation has begun, the coordinator only accepts commits from members of that one.
        while not self._holding or self.generation != NO_GENERATION:
            try:
                yield from self._rebalance(reason)
                reason = yield from self._stay()
                self._move(MemberEvent.REBALANCE, reason, self._engine.now)
            except REMOVED as error:
                yield from self._removed(error)
                reason = f"{type(error).__name__}: {error}"
            except PollOverdueError:
                yield from self._poll_overdue()
                reason = "the application polls again"
            except KafkaError as error:
                if self._engine.ended is not None:
                    return
                if is_refusal(error):
                    yield from self._refused(error)
                    return
                yield from self._mishap(error)
                reason = f"{type(error).__name__}: {error}"
        yield from self._hold()

    def _rebalance(self, reason: str) -> Flow[None]:
        """Rebalance, from revoking to the new assignment; again if the group changes meanwhile."""
        engine, identity = self._engine, self._identity
        while True:
            self._group.list_again()
            yield from self._prepare()
            topics = self._group.topics()
            self._wish = self._removal = None
            returns = self._group.instance_id is not None and identity.member_id == NO_MEMBER
            joined = yield from self._joining.join(topics, reason)
            now = engine.now
            generation = f"generation {joined.generation_id}"
            self._move(MemberEvent.JOINED, generation, now)
            self._trust()
            protocol = joined.protocol_name or ""
            assignments = []
            if joined.leader == identity.member_id:
                assignments = yield from self._divide(protocol, joined)
            else:
                self._leader.step_down()
            assigned = yield from self._joining.sync(protocol, assignments)
            now = engine.now
            if assigned is not None:
                break
            reason = "the group is rebalancing"
            self._move(MemberEvent.REBALANCE, reason, now)
            yield from self._back_off(self._syncs)
        self._syncs.succeeded()
        self._beat_at, self._expires = now + self._interval, now + self._session
        self._mishaps.succeeded()
        self._move(MemberEvent.SYNCED, generation, now)
        yield from self._take(decode_assignment(assigned).partitions, topics)
        if returns:
            unknown = [] if joined.leader == identity.member_id else topics
            engine.start(self._look_for_unowned(identity.generation, unknown))

    def _look_for_unowned(self, generation: int, unknown: list[str]) -> Flow[None]:
        """Rebalance once if this static member returned and a partition has no owner.

        Do so as well if one of the `unknown` topics doesn't exist yet: the leader may not know that
        this member subscribes to it, and wouldn't notice its creation. The subscription that is
        sent then has another generation and other owned partitions than the first one, so the
        coordinator starts a rebalance. Rebalance as well if the group can't be described: a leader
        that returned (KIP-814) wouldn't find such partitions in any other way.
        """
        now = yield START
        group, failures = self._group, 0
        reason: str | None
        while self.state is MemberState.STABLE and self.generation == generation:
            try:
                found = yield from find_unowned(group, self._metadata, now + self._patience)
            except KafkaError as error:
                logger.debug("group %r: partitions without an owner: %s", group.group_id, error)
                failures += 1
                over = isinstance(error, KafkaTimeoutError) or failures == MOST_LOOKS
                if self._engine.ended is not None:
                    return
                if not (over or is_refusal(error)):
                    now = yield Wait((), self._looks.failed(self._engine.now))
                    continue
                reason = f"the group can't be described after a restart: {error}"
            else:
                self._looks.succeeded()
                reason = self._why_unowned(found, unknown)
            same = self.state is MemberState.STABLE and self.generation == generation
            if reason is not None and same:
                self.rejoin(reason, self._engine.now)
            return

    def _why_unowned(self, found: TopicPartition | None, unknown: list[str]) -> str | None:
        """Return why a static member that returned has to rebalance, None if it needn't."""
        if found is not None:
            return f"{found} has no owner"
        snapshot = self._metadata.snapshot
        if snapshot is None:
            return None
        missing = next((t for t in unknown if snapshot.topic(t) is None), None)
        if missing is None:
            return None
        return f"topic {missing} doesn't exist, which the leader may not notice"

    def _divide(self, protocol: str, joined: JoinGroupResponse) -> Flow[list[Any]]:
        if joined.skip_assignment:
            yield from self._leader.watch(joined.members)
            return []
        return (yield from self._leader.divide(protocol, joined.members))

    def _prepare(self) -> Flow[None]:
        """Revoke all partitions of an eager member before its join (R-GR-1)."""
        gone = self._group.owned()
        if self._cooperative:
            topics = set(self._group.topics())
            gone = [p for p in gone if p.topic not in topics]
        yield from self._give_back(gone)

    def _take(self, assigned: tuple[TopicPartition, ...], topics: list[str]) -> Flow[None]:
        """Revoke partitions that aren't assigned any more, and add the new ones."""
        if self._holding:
            yield START
            return
        group, joining = self._group, self._joining
        joining.took(assigned, self.generation)
        given, subscribed = set(assigned), set(topics)
        wanted = [p for p in sorted(given) if p.topic in subscribed]
        if group.instance_id is not None and len(wanted) < len(given) and self._moved_to != topics:
            self._moved_to = topics
            yield from self._give_place_up()
            return
        gone = [p for p in group.owned() if p not in given]
        yield from self._give_back(gone)
        kept = set(group.owned())
        yield from group.assign([p for p in wanted if p not in kept])
        if gone:  # the next generation assigns them to other members (KIP-429)
            self.rejoin("partitions were revoked", self._engine.now)

    def _give_place_up(self) -> Flow[None]:
        """Leave the group as a static member that returned with another subscription.

        The coordinator kept the member's old subscription and assignment (KIP-345), and doesn't
        rebalance when the member returns.
        """
        yield from self._give_back(self._group.owned())
        reason, now = "the subscription of this static member has changed", self._engine.now
        yield from self._say_goodbye(reason, now + LEAVE_TIMEOUT, static=True)
        self._identity.forget()
        self.rejoin(reason, self._engine.now)

    def _give_back(self, gone: list[TopicPartition]) -> Flow[None]:
        """Let the application revoke partitions, which may take long: heartbeats continue."""
        yield START
        if gone:
            engine = self._engine
            self._revoking = engine.start(self._group.revoke(gone))
            yield from self._beat_until(self._revoking)
            self._revoking.result()

    # Membership

    def _stay(self) -> Flow[str]:
        """Stay a member until there is a reason to join again."""
        if self._holding:
            yield from self._hold()
        group = self._group
        now = yield START
        beat: Completion[None] | None = None
        try:
            while (reason := self._wish or self._leader.reason(now)) is None:
                if now >= group.polled_at + self._max_poll:
                    raise PollOverdueError
                if beat is not None and beat.done:
                    beat.result()
                    beat = None
                    continue
                if beat is None and now >= self._beat_at:
                    beat = self._beat(now)
                on = (self._changed, self._metadata.changed, *((beat,) if beat is not None else ()))
                until = [group.polled_at + self._max_poll, self._leader.look_at()]
                if beat is None:
                    until.append(self._beat_at)
                now = yield Wait(on, min(until))
        finally:
            self._forget_beat(beat)
        if self._removal is not None:
            raise self._removal
        return reason

    def _beat_until(self, done: Completion[Any]) -> Flow[None]:
        """Send heartbeats until `done` is completed by work that runs meanwhile."""
        now = yield START
        beat: Completion[None] | None = None
        trouble: KafkaError | None = None
        try:
            while not done.done:
                if beat is not None and beat.done:
                    if isinstance(beat.error, KafkaError):
                        trouble = beat.error
                    beat = None
                quiet = trouble is not None or self.generation == NO_GENERATION
                if beat is None and not quiet and now >= self._beat_at:
                    beat = self._beat(now)
                until = math.inf if quiet or beat is not None else self._beat_at
                now = yield Wait((done, beat) if beat is not None else (done,), until)
        finally:
            self._forget_beat(beat)
        if trouble is not None and done.error is None:
            raise trouble

    def _hold(self) -> Flow[None]:
        yield START
        yield from self._beat_until(Completion())

    def _beat(self, now: float) -> Completion[None]:
        self._beat_at = now + self._interval
        return self._engine.start(self._heartbeat())

    def _heartbeat(self) -> Flow[None]:
        """Send one heartbeat until it is answered, even after the session has timed out.

        The response may be late, and the membership may still exist (R-RB-9).
        """
        yield START
        group, identity = self._group, self._identity

        def body(_: float) -> HeartbeatRequest:
            self._sent_at = self._engine.now
            return HeartbeatRequest(
                group.group_id, identity.generation, identity.member_id, group.instance_id
            )

        while True:
            asked = self._engine.start(
                group.coordinator.ask(
                    "Heartbeat", body, HeartbeatResponse, _check_beat, math.inf, steady=True
                )
            )
            if not (yield from self._answered(asked)):
                return
            error, now = asked.error, self._engine.now
            if not isinstance(error, KafkaError) or is_refusal(error) or isinstance(error, REMOVED):
                break
            if self._doubtful or now >= self._expires:
                break  # no answer for a whole session: the group may have removed this member
            logger.warning("heartbeat to group %r: %s; sent again", group.group_id, error)
            yield Wait((), self._beats.failed(now))
            if self._running is None:
                return
        answer = asked.result()
        group.heartbeats.record(now - self._sent_at, now)
        self._expires = max(self._expires, self._sent_at + self._session)
        self._beats.succeeded()
        self._removals.succeeded()
        self._trust(MemberEvent.SESSION_CONFIRMED)
        if answer.error_code == RebalanceInProgressError.code:
            self.rejoin("the group is rebalancing", self._engine.now)

    def _answered(self, asked: Completion[HeartbeatResponse]) -> Flow[bool]:
        """Wait for the response without a limit; return False if the consumer leaves meanwhile."""
        try:
            while not asked.done:
                now = yield Wait((asked,), math.inf if self._doubtful else self._expires)
                if self._running is None:  # `_stop` was called in the same step
                    return False
                if not (asked.done or self._doubtful) and now >= self._expires:
                    self._doubt()
            return True
        finally:
            self._forget_beat(asked)

    def _doubt(self) -> None:
        """Return no records until the coordinator confirms that the session hasn't ended."""
        text = f"no heartbeat was answered within session.timeout.ms ({self._session:g} s)"
        logger.warning(
            "group %r: %s; poll() returns no records until one is", self._group.group_id, text
        )
        self._doubtful = True
        self._subscription.suspend()
        self._move(MemberEvent.SESSION_EXPIRED, text, self._engine.now)

    def _trust(self, event: MemberEvent | None = None) -> None:
        """Return records again: the group confirms this member, or it has no partitions."""
        if self._doubtful:
            self._doubtful = False
            self._subscription.resume()
            if event is not None:
                self._move(event, None, self._engine.now)

    def _forget_beat(self, beat: Completion[Any] | None) -> None:
        """Cancel a heartbeat, because its response would refer to an earlier generation."""
        if beat is not None and not beat.done:
            self._engine.cancel_now(beat, DisconnectedError("no longer needed"))

    # Ends of a membership

    def _removed(self, error: KafkaError) -> Flow[None]:
        """Handle a removal from the group: its partitions belong to other members by now."""
        now = yield START
        logger.warning("removed from group %r: %s", self._group.group_id, error)
        self._move(MemberEvent.REMOVED, f"{type(error).__name__}: {error}", now)
        # An illegal generation leaves the member id valid. The next join uses it, so that the
        # group needn't wait until the session of an abandoned id times out.
        self._identity.forget(member_id=isinstance(error, UnknownMemberIdError))
        now = yield from self._lose_all(now)
        yield from self._back_off(self._removals)
        self._move(MemberEvent.REBALANCE, "joins again", self._engine.now)

    def _back_off(self, backoff: Backoff) -> Flow[None]:
        """Wait before another join, unless it is the first since the backoff was last reset."""
        now = yield START
        until = backoff.failed(now)
        while backoff.failures > 1 and now < until:
            now = yield Wait((), until)

    def _poll_overdue(self) -> Flow[None]:
        """Leave because the application doesn't poll: other members get its partitions."""
        now = yield START
        group = self._group
        text = overdue(group.config)
        logger.warning("%s. %s", why_overdue(group.config), OVERDUE_CURE)
        self._move(MemberEvent.POLL_OVERDUE, text, now)
        now = yield from self._lose_all(now, taken=group.instance_id is None)
        # Forget the generation at once, so that no heartbeat is sent for it during `close()`.
        self._identity.forget(member_id=False)
        yield from self._say_goodbye(text, now + LEAVE_TIMEOUT)
        self._identity.forget()
        while self._engine.now >= group.polled_at + self._max_poll:
            yield Wait((group.poll_wanted,), math.inf)
        self._move(MemberEvent.POLLED, None, self._engine.now)

    def _refused(self, error: KafkaError) -> Flow[None]:
        """End this membership with an error that the next poll raises."""
        now = yield START
        self._move(MemberEvent.REFUSED, f"{type(error).__name__}: {error}", now)
        now = yield from self._lose_all(now)
        self._group.failed(error)
        self._identity.forget(member_id=False)
        # Other members may wait for this one: it may be the leader, and its assignor has failed.
        yield from self._say_goodbye(f"{type(error).__name__}: {error}", now + LEAVE_TIMEOUT)
        self._identity.forget()

    def _mishap(self, error: KafkaError) -> Flow[None]:
        """Join again after an error that doesn't concern this member; the next poll raises it.

        The member keeps its partitions, at the latest until its session times out.
        """
        now = yield START
        text, group = f"{type(error).__name__}: {error}", self._group
        logger.warning("group %r: %s; the consumer joins again", group.group_id, text)
        group.complain(error)
        if self.state is not MemberState.PREPARING_REBALANCE:
            self._move(MemberEvent.REBALANCE, text, now)
        if now >= self._expires and not self._doubtful and group.owned():
            self._doubt()
        until = self._mishaps.failed(now)
        while now < until:
            now = yield Wait((), until)

    def _lose_all(self, now: float, *, taken: bool = True) -> Flow[float]:
        self._leader.step_down()
        # Called even without partitions, to end the ownership of partitions that were revoked for
        # this rebalance, and that other members may own by now.
        now = yield from self._group.lose(self._group.owned(), taken=taken)
        self._trust()
        return now

    def _say_goodbye(self, reason: str, deadline: float, *, static: bool = False) -> Flow[None]:
        """Send LeaveGroup. KIP-345: static members remain in the group until their session ends."""
        group, identity = self._group, self._identity
        yield START
        if group.instance_id is not None and not static:
            return
        if identity.member_id == NO_MEMBER:
            late = yield from self._joining.learn_id(deadline)
            if late is not None:
                self._engine.start(self._leave_late(late))
        if identity.member_id != NO_MEMBER:
            yield from self._leave_as(identity.member_id, reason, deadline)

    def _leave_late(self, asked: Completion[JoinGroupResponse]) -> Flow[None]:
        """Leave after a late response to a first JoinGroup, if the client is still open."""
        now = yield START
        until = now + self._session
        while not asked.done and now < until:
            now = yield Wait((asked,), until)
        if not asked.done:
            over = DisconnectedError("the consumer has left its group")
            self._engine.cancel_now(asked, over)
        elif asked.error is None:
            reason = "the answer to JoinGroup came after the consumer had left"
            yield from self._leave_as(asked.result().member_id, reason, now + LEAVE_TIMEOUT)

    def _leave_as(self, member: str, reason: str, deadline: float) -> Flow[None]:
        group = self._group
        yield START

        def body(_: float) -> LeaveGroupRequest:
            if (group.coordinator.version(LeaveGroupRequest) or 0) < MEMBERS:
                return LeaveGroupRequest(group.group_id, member)
            one = MemberIdentity(member, group.instance_id, reason[:255])
            return LeaveGroupRequest(group.group_id, members=[one])

        try:
            yield from group.coordinator.ask(
                "LeaveGroup",
                body,
                LeaveGroupResponse,
                lambda answer: error_for(answer.error_code) if answer.error_code else None,
                deadline,
            )
        except KafkaError as error:
            logger.debug("leaving group %r: %s", group.group_id, error)

    def _stop(self) -> None:
        """Cancel all running generators of this membership, wherever they wait."""
        over = DisconnectedError("the consumer is leaving its group")
        for open_ in (self._revoking, self._running):
            if open_ is not None and not open_.done:
                self._engine.cancel_now(open_, over)
        self._revoking = self._running = None


def _check_beat(answer: HeartbeatResponse) -> KafkaError | None:
    """Return the error in a heartbeat's response; None for success or a rebalance."""
    if answer.error_code in (0, RebalanceInProgressError.code):
        return None
    return error_for(answer.error_code)

"""Manage the group of one consumer: subscription, owned partitions, commits, callbacks.

In: the caller's subscription, the assignment from the membership, the records that the caller
received. Out: partitions added to and dropped from the subscription state, committed offsets. The
membership (`classic_membership`, `consumer_membership`) communicates with the coordinator and calls
this module (`membership.Group`). Must not: touch partitions that remain assigned, or return
records.

R-GR-1, the order of a revocation: records of the partition are withheld; the caller polls again, so
it has processed its records; their offsets are committed; on_revoked runs; commits that the caller
requested end; the partition is dropped; only then the membership continues.
"""

from __future__ import annotations

import logging
import re
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from odradek.clients.caller_flow import CallerFlow
from odradek.clients.consumer.group.announced_ownership import AnnouncedOwnership
from odradek.clients.consumer.group.auto_commit import AutoCommit
from odradek.clients.consumer.group.group_commits import GroupCommits
from odradek.clients.consumer.group.member import ThisMember
from odradek.clients.consumer.group.membership import (
    Group,
    Membership,
    MemberState,
    PollOverdueError,
)
from odradek.clients.consumer.group.offset_lookup import GroupIdentity
from odradek.clients.consumer.group.pending_callbacks import (
    COMMIT_CALLBACK,
    ON_ASSIGNED,
    ON_LOST,
    ON_REVOKED,
    PendingCallback,
    PendingCallbacks,
)
from odradek.clients.consumer.group.rebalances import Rebalances
from odradek.clients.consumer.group.topic_watch import TopicWatch
from odradek.clients.consumer.partition_state import PartitionState
from odradek.clients.consumer.records import ConsumerGroupMetadata, HeldGroupMetadata
from odradek.clients.consumer.subscription_state import Selection, SubscriptionState
from odradek.clients.error_explanations import with_cure
from odradek.common.errors import IllegalStateError, KafkaError
from odradek.common.printable import lists_members
from odradek.common.sampled import Sampled
from odradek.common.types import Lock, TopicPartition
from odradek.network.connection_state import worded
from odradek.network.flow import START, Completion, Flow, Signal, Wait

if TYPE_CHECKING:
    from odradek.clients.coordinator import Coordinator
    from odradek.common.config import Config
    from odradek.metadata.metadata import Metadata
    from odradek.network.engine import Engine

logger = logging.getLogger("odradek.consumer")

Listener = Callable[[list[TopicPartition]], object]
"""A rebalance callback of the user, without its consumer argument."""


LEAVING_SHARE = 0.2
"""Share of a leave's timeout that is reserved for callbacks and LeaveGroup."""

JOIN_NOTICE_S = 5.0
"""Seconds without an assignment after which a consumer warns (R-IN-6)."""
JOINS = frozenset((MemberState.PREPARING_REBALANCE, MemberState.COMPLETING_REBALANCE))
JOINED_LATE = (
    "The group waits until all members have joined again; a member that ended without leaving "
    "(a killed one, or a static one after close()) holds it up until its session times out "
    "(session.timeout.ms, here %.0f s), and one that doesn't call poll() for max.poll.interval.ms "
    "(here %.0f s)"
)
TAKEN = (
    "Other members have all of them; one that ended without leaving (a killed one, or a static one "
    "after close()) keeps its partitions until its session times out (the broker's "
    "group.consumer.session.timeout.ms, 45 s by default)"
)
WAITS = "group %s has assigned this consumer no partitions for %.0f s (%s). %s. %s"
TAKEN_BY = {
    True: "other members may already read from there",
    False: "other members read from there once this member's session has timed out",
}
WAITED = "group %s: all members have joined after %.0f s"


class Listeners(NamedTuple):
    """The callbacks of one `subscribe`."""

    on_assigned: Listener | None = None
    on_revoked: Listener | None = None
    on_lost: Listener | None = None


NO_LISTENERS = Listeners()


class ConsumerGroup:
    """A consumer's side of its group; implements `membership.Group`."""

    def __init__(
        self,
        engine: Engine,
        config: Config,
        metadata: Metadata,
        subscription: SubscriptionState,
        lock: Lock,
        *,
        member: ThisMember,
        coordinator: Coordinator,
        callbacks: PendingCallbacks,
        ownership: AnnouncedOwnership,
        commits: GroupCommits,
        watch: TopicWatch,
        new_membership: Callable[[Group], Membership],
    ) -> None:
        """Set `new_membership`, which returns the membership of a `subscribe`."""
        self._engine = engine
        self.config = config
        self._metadata = metadata
        self._subscription = subscription
        self._lock = lock
        self.member = member
        self.group_id = member.group_id
        self.instance_id = member.instance_id
        self.by_epoch = member.by_epoch
        self.coordinator = coordinator
        self.callbacks = callbacks
        self.ownership = ownership
        self.commits = commits
        self._watch = watch
        self._new_membership = new_membership
        self._silent: set[TopicPartition] = set()
        """Assigned partitions whose on_assigned callback was withdrawn before it ran."""
        self._unwanted: dict[PartitionState, None] = {}
        """Partitions of topics that aren't subscribed any more, withheld until they are revoked."""
        self.poll_wanted = Signal()
        self.heartbeats = Sampled()
        """Response times of heartbeats in seconds, in either protocol."""
        self.rebalances = Rebalances()
        engine.events.listen(self.rebalances.note)
        self.auto_commit = self._auto_commit() if config["enable.auto.commit"] else None
        """Automatic commits; None if only the caller commits."""
        self._listeners = NO_LISTENERS
        self._goodbye: PendingCallback | None = None
        """The on_revoked callback of partitions that aren't dropped yet."""
        self._waits_since: float | None = None
        """Time when a wait for an assignment began that a warning has reported; else None."""
        self._unassigned_since: float | None = None
        """Time when a KIP-848 member joined without partitions; None once it was assigned some."""
        self._next: Completion[None] | None = None
        """The next subscription, which begins when the group has been left."""
        self._max_poll: float = config["max.poll.interval.ms"]
        self.asked_at = 0.0
        """Time when the caller last asked for records or received some."""
        self.given: deque[float] = deque([0.0], maxlen=1)
        """Time when a loop over the consumer last requested a record.

        Each request counts as a poll for `max.poll.interval.ms`; it is noted without a Python call.
        """
        self._polling = False

    @property
    def membership(self) -> Membership | None:
        """The membership of the last `subscribe`; None once the group is left."""
        return self.member.membership

    @property
    def error(self) -> KafkaError | None:
        """Error with which the group refuses this consumer for good."""
        return self.member.error

    def identity(self) -> GroupIdentity:
        """Return the identity of the member that commits now."""
        return self.member.identity()

    # Subscription (the caller's thread, under the lock)

    @property
    def subscribed(self) -> bool:
        """Whether a subscription exists, or will begin after the group is left."""
        return self._watch.active

    @property
    def leaving(self) -> bool:
        """Whether a leave is in progress, even if no caller waits for it."""
        return self.member.leaving is not None

    @property
    def pattern(self) -> str | None:
        """The subscribed pattern."""
        return self._watch.pattern

    @property
    def unmatched(self) -> tuple[float, str] | None:
        """Time since which no topic has matched the pattern, and a description; else None."""
        return self._watch.unmatched

    def topics(self) -> list[str]:
        """Return the subscribed topics; with a classic pattern those that match now."""
        return self._watch.topics()

    def list_again(self) -> None:
        """List topics again for a classic pattern."""
        self._watch.list_again()

    def subscribe(
        self,
        topics: Collection[str],
        pattern: str | re.Pattern[str] | None,
        listeners: Listeners,
        now: float,
    ) -> None:
        """Subscribe to other topics from now on, as a member of the group.

        If the group is still being left (`unsubscribe()` was interrupted or timed out), the new
        subscription begins afterwards: the leaving member keeps its callbacks and its commits.
        """
        self.callbacks.check("subscribe()")
        membership = self.member.membership
        refused = membership is not None and membership.state is MemberState.FATAL
        first = refused or not self.subscribed
        another = self._watch.subscribe(topics, pattern) or self.member.error is not None
        # As in Java: without on_lost, on_revoked is called for lost partitions.
        listeners = listeners._replace(on_lost=listeners.on_lost or listeners.on_revoked)
        self.member.forgive()
        if (leaving := self.member.leaving) is not None:
            self._cancel_next()
            self._next = self._engine.start(self._join_after(leaving, listeners))
            return
        self._listeners = listeners
        if not (first or another):
            return
        if first or membership is None:
            self._join(now)
            return
        named = set(topics)
        for state in self._subscription.partitions.values():
            if pattern is None and state.partition.topic not in named:
                if not state.revoked:
                    self._unwanted[state] = None
                self._subscription.withhold(state)
            elif state in self._unwanted:  # its topic was subscribed again before it was revoked
                del self._unwanted[state]
                self._subscription.release(state)
        self._engine.post(self._watch.begin)

    def _join(self, now: float) -> None:
        self.asked_at = now
        self.member.joins(self._new_membership(self))
        self._waits_since = self._unassigned_since = None
        self._engine.post(self._watch.begin)

    def _join_after(self, left: Completion[None], listeners: Listeners) -> Flow[None]:
        yield START
        now = yield Wait((left,))
        self._listeners = listeners
        self._join(now)

    def _cancel_next(self) -> None:
        if self._next is not None:
            error = IllegalStateError("subscribe() or unsubscribe() was called again")
            self._engine.cancel(self._next, error)
            self._next = None

    # Calls of a membership (in the engine's step)

    @property
    def polled_at(self) -> float:
        """Time when the caller was last inside `poll()`."""
        return self._engine.now if self._polling else max(self.asked_at, self.given[0])

    @property
    def polling(self) -> bool:
        """Whether the caller is inside `poll()`."""
        return self._polling

    def last_poll(self, now: float) -> float | None:
        """Return the seconds since the caller last asked for records.

        Returns None inside `poll()` and before the first one.
        """
        return None if self._polling or self.asked_at == 0.0 else now - self.polled_at

    def owned(self) -> list[TopicPartition]:
        """Return the current assignment."""
        return list(self._subscription.partitions)

    def revoke(self, partitions: Collection[TopicPartition]) -> Flow[float]:
        """Revoke partitions (R-GR-1); raise `PollOverdueError` if the caller doesn't poll."""
        now = yield START
        states = self._states(partitions)
        if not states:
            return now
        for state in states:
            self._unwanted.pop(state, None)
            self._subscription.withhold(state)
        self._subscription.readable.notify()
        while any(s.consumed != s.position for s in states):
            now = yield from self._caller(now)
        if self.auto_commit is not None:
            now = yield from self.auto_commit.before_revocation(states, now)
        now = yield from self._called(ON_REVOKED, self._listeners.on_revoked, states, now)
        now = yield from self.commits.before_revocation({s.partition for s in states}, now)
        held = [s for s in states if self._subscription.holds(s)]
        self.ownership.given_back(held, self.identity())
        self._drop(states)
        return now

    def lose(self, partitions: Collection[TopicPartition], *, taken: bool = True) -> Flow[float]:
        """Drop partitions that may have other owners, without a commit; queue on_lost."""
        now = yield START
        states = self._states(partitions)
        self.ownership.lost(states)
        if states:
            count = "1 partition was" if len(states) == 1 else f"{len(states)} partitions were"
            logger.warning("group %s: %s lost; %s", self.group_id, count, TAKEN_BY[taken])
            if self.auto_commit is not None and not self.leaving:  # else `at_the_end` warns
                self.auto_commit.warn_of_repeats(states)
            told = self._announced(states)
            self._drop(states)
            self._queue(ON_LOST, self._listeners.on_lost, told)
        return now

    def assign(
        self,
        partitions: Collection[TopicPartition],
        ids: Mapping[TopicPartition, bytes] = MappingProxyType({}),
    ) -> Flow[float]:
        """Add partitions; on_assigned runs in the next poll, before their records are returned."""
        now = yield START
        self._unassigned_since = None
        added = [p for p in partitions if p not in self._subscription.partitions]
        self._subscription.add(added, ids)
        self.ownership.assigned(self._states(added), self.identity())
        self._metadata.want(dict.fromkeys(p.topic for p in added))
        if self._queue(ON_ASSIGNED, self._listeners.on_assigned, added) is None:
            self.ownership.leave_unannounced()
        self._subscription.readable.notify()
        return now

    def assigned_nothing(self) -> None:
        """Note an empty assignment: from the next poll on, `commit()` commits nothing."""
        self.ownership.leave_unannounced()
        self._unassigned_since = self._engine.now
        self._engine.start(self._tell_of_wait(self._engine.now))

    def unsettled(self, since: float) -> None:
        """Warn if the member stays without partitions for a while."""
        self._engine.start(self._tell_of_wait(since))

    def waits_for(self, now: float) -> tuple[float, str] | None:
        """Return since when this member has had no partitions, and a text on the reason."""
        member, since = self.member.membership, self._unassigned_since
        if member is None or self.owned():
            return None
        snapshot, why = self._metadata.snapshot, None
        if member.state is MemberState.STABLE and snapshot is not None:
            why = TAKEN if any(topic in snapshot.topics for topic in self.topics()) else None
        if member.state in JOINS and self.coordinator.broker is not None:
            times = self.config["session.timeout.ms"], self.config["max.poll.interval.ms"]
            since, why = member.unsettled_since, JOINED_LATE % times
        return None if why is None or since is None or now < since + JOIN_NOTICE_S else (since, why)

    def _tell_of_wait(self, since: float) -> Flow[None]:
        yield START
        now = yield Wait((), since + JOIN_NOTICE_S)
        found, member = self.waits_for(now), self.member.membership
        if found is None or found[0] != since or member is None:
            return
        name, level = self.group_id, logging.WARNING
        if member.state in JOINS:
            self._waits_since = since
        else:
            level = logging.INFO  # more members than partitions may be intended
        lists = lists_members(name, self.config["bootstrap.servers"])
        logger.log(level, WAITS, name, now - since, worded(member.state), found[1], lists)

    def settled(self, now: float) -> None:
        """Log that the membership is stable again, if a warning said that it isn't."""
        since, self._waits_since = self._waits_since, None
        if since is not None:
            logger.warning(WAITED, self.group_id, now - since)

    def complain(self, error: KafkaError) -> None:
        """Let the next poll raise this error, once."""
        self.member.complain(error)

    def failed(self, error: KafkaError) -> None:
        """Let every poll raise this error from now on, until another `subscribe`."""
        self.member.refuse(with_cure(error, self.config))

    def _states(self, partitions: Iterable[TopicPartition]) -> list[PartitionState]:
        here = self._subscription.partitions
        return [here[p] for p in partitions if p in here]

    def _drop(self, states: list[PartitionState]) -> None:
        kept = self._subscription.partitions
        self._goodbye = None
        gone = [s.partition for s in states if kept.get(s.partition) is s]
        self._subscription.drop(gone)
        self._silent.difference_update(gone)
        for state in states:
            self._unwanted.pop(state, None)
        self._watch.forget_unused({s.partition.topic for s in states})
        self._subscription.readable.notify()

    def _announced(self, states: list[PartitionState]) -> list[TopicPartition]:
        """Return the partitions for which on_assigned was called, and on_revoked wasn't yet."""
        silent = self._unannounced(s.partition for s in states)
        if self._goodbye is not None and self._goodbye.begun:
            silent.update(self._goodbye.partitions)
        return [s.partition for s in states if s.partition not in silent]

    def _unannounced(self, partitions: Iterable[TopicPartition]) -> set[TopicPartition]:
        """Withdraw pending on_assigned calls; return the partitions without such a call."""
        found = set(partitions)
        self._silent |= self.callbacks.unannounced(found)
        return self._silent & found

    def _queue(
        self, what: str, listener: Listener | None, partitions: list[TopicPartition]
    ) -> PendingCallback | None:
        if listener is None or (what != ON_ASSIGNED and not partitions):
            return None
        losses = self.ownership.losses

        def call() -> object:
            if what == ON_ASSIGNED and self.ownership.attended:
                self.ownership.leave_unannounced()
            elif what == ON_ASSIGNED:
                with self._lock:
                    self.ownership.announce(partitions, losses, self.identity())
            return listener(list(partitions))

        pending = PendingCallback(what, call, partitions)
        self.callbacks.put(pending)
        self._subscription.readable.notify()
        return pending

    def _called(
        self, what: str, listener: Listener | None, states: list[PartitionState], now: float
    ) -> Flow[float]:
        """Wait until the caller has run a callback."""
        told = [s.partition for s in states if s.partition not in self._silent]
        self._goodbye = pending = self._queue(what, listener, told)
        if pending is None:
            return now
        try:
            while not pending.done.done:
                now = yield from self._caller(now, pending)
        finally:
            self.callbacks.withdraw(pending)
        return now

    def _caller(self, now: float, pending: PendingCallback | None = None) -> Flow[float]:
        """Wait until the caller polls or has run the callback; raise if the poll is overdue."""
        until = self.polled_at + self._max_poll
        if now >= until:
            raise PollOverdueError(
                f"poll() wasn't called for {now - self.polled_at:.0f} s (max.poll.interval.ms)"
            )
        on = (self.poll_wanted,) if pending is None else (self.poll_wanted, pending.done)
        return (yield Wait(on, until))

    # Calls of the caller (its thread)

    def entered(self, now: float, of: Selection = None) -> bool:
        """Note that the caller asks for more records and has finished its last ones.

        Returns whether to wake the I/O thread. `of` has the requested partitions; other tasks may
        still process records of other partitions.
        """
        self.callbacks.check("poll()")
        with self._lock:
            self._subscription.note_consumed(of)
            self.asked_at, self._polling = now, True
            wanted = self.poll_wanted.awaited
        if wanted:
            self._engine.post(lambda _: self.poll_wanted.notify())
        return wanted

    def announce_all(self) -> None:
        """Note that the caller knows all assigned partitions, if no callback is pending."""
        with self._lock:
            ownership = self.ownership
            if ownership.unannounced and not (ownership.attended or self.callbacks):
                self.ownership.announce_all(self.identity())

    def left(self, now: float, *, brought: bool = True) -> None:
        """Note that a call of the caller returns; `brought`: it may return records."""
        self.asked_at, self._polling = now, False
        if not brought and self.ownership.unannounced:
            self.announce_all()

    def run_callbacks(self, now: float, wake: Callable[[], None]) -> CallerFlow[None]:
        """Run pending callbacks; raise their errors, or the one with which the group failed."""
        yield from self.call_back(now, wake)
        self.member.raise_pending()

    def call_back(self, now: float, wake: Callable[[], None]) -> CallerFlow[None]:
        """Run pending callbacks; raise their errors."""
        if self.callbacks:
            polling, self._polling, self.asked_at = self._polling, False, now
            try:
                yield from self.callbacks.take(lambda pending: self._ended(pending, wake))
                self.asked_at = yield START
            finally:  # after an error the poll ends, too, and `left` notes the time
                self._polling = polling

    def tell_of_commits(self, wake: Callable[[], None]) -> CallerFlow[None]:
        """Run callbacks of finished commits, unless the caller is inside a callback."""
        if self.callbacks and self.callbacks.running is None:
            yield from self.callbacks.take(
                lambda pending: self._ended(pending, wake), COMMIT_CALLBACK
            )

    def tell_the_rest(self, wake: Callable[[], None]) -> CallerFlow[None]:
        """Run the remaining callbacks of `commit_async`, even after a timeout or the client's end.

        A commit that such a callback starts is refused, because it would never finish.
        """
        now = yield START
        with self._lock:
            self.commits.close(now)
        try:
            yield from self.tell_of_commits(wake)
        except KafkaError as error:
            logger.debug("group %s: a commit's callback: %s", self.group_id, error)

    @property
    def calls(self) -> bool:
        """Whether a callback or error waits for the caller, before any records."""
        member = self.member
        return bool(self.callbacks) or member.error is not None or member.trouble is not None

    @property
    def needs_poll(self) -> bool:
        """Whether a rebalance, or an error, waits for the caller's next poll."""
        waiting = list(self.callbacks.waiting)
        waits = self.poll_wanted.awaited or any(p.what != COMMIT_CALLBACK for p in waiting)
        return waits or self.member.error is not None or self.member.trouble is not None

    def _ended(self, pending: PendingCallback, wake: Callable[[], None]) -> None:
        def end(_: float) -> None:
            if not pending.done.done:  # an interrupted caller may run this twice
                pending.done.complete(None)

        self._engine.post(end)
        wake()

    # Commits

    def metadata(self) -> ConsumerGroupMetadata:
        """Return the identity of the consumer as its caller knows it, for transactions."""
        self.commits.expect_transactions()
        who = self.ownership.member(self.identity())
        member = who.generation, who.member_id, self.instance_id
        return HeldGroupMetadata.of(
            ConsumerGroupMetadata(self.group_id, *member), self.commits.in_transaction
        )

    def took(self, state: PartitionState, offset: int) -> None:
        """Commit the offset that a reset found for a partition, unless the caller commits.

        Only needed if the group has no offset: a later reset could then skip records (R-GR-6).
        """
        if self.auto_commit is not None and state.committed is None:
            state.take(offset)
            self.auto_commit.took()

    def remember_positions(self, on: bool) -> None:
        """Start or stop commits of the offsets that resets find, for a caller with its own commits.

        Requires the lock. Has no effect with `enable.auto.commit`, which includes these commits.
        """
        if self.config["enable.auto.commit"]:
            return
        if self.auto_commit is not None:
            self.auto_commit.end()
        self.auto_commit = self._auto_commit(only_taken=True) if on else None
        if self.auto_commit is not None:
            self._engine.start(self.auto_commit.run())

    def _auto_commit(self, *, only_taken: bool = False) -> AutoCommit:
        return AutoCommit(
            *(self._engine, self.config, self._subscription, self.member),
            *(self._watch, self.commits),
            only_taken=only_taken,
        )

    # Leaving

    def leave(self, deadline: float) -> Completion[None]:
        """Commit finished records, revoke everything, and leave.

        Ends at the deadline; errors are logged. Callbacks run in the caller.
        """
        self._cancel_next()
        end = self._engine.start(self._leave(deadline))
        self.member.leaves(end)
        return end

    def _leave(self, deadline: float) -> Flow[None]:
        now = yield START
        membership, auto_commit = self.member.membership, self.auto_commit
        if membership is not None:
            membership.hold()
            for state in self._subscription.partitions.values():
                self._subscription.withhold(state)
            self._unannounced(self.owned())
        until = deadline - LEAVING_SHARE * max(0.0, deadline - now)
        if auto_commit is not None:
            now = yield from auto_commit.at_the_end(until, now)
        now = yield from self.commits.settle(until, now)
        if membership is None or membership is not self.member.membership:  # another call has left
            if self._next is None:
                self._watch.end()
            yield from self._called_back(until)
            return
        if self._next is None:
            self._watch.end()
        else:
            self._watch.stop()
        # Read after the commit: on_lost reports partitions that were lost during it.
        states = list(self._subscription.partitions.values())
        if self.callbacks.running is None:
            lost = membership.generation < 0
            listener = self._listeners.on_lost if lost else self._listeners.on_revoked
            told = self._announced(states)
            self._queue(ON_LOST if lost else ON_REVOKED, listener, told)
            self._silent.update(told)  # so that a later loss isn't reported again
        yield from self._called_back(until)
        yield from membership.leave(deadline)
        if membership is not self.member.membership:
            return
        self.ownership.left(states)
        self.callbacks.clear()
        self._drop(states)
        self._listeners = NO_LISTENERS
        if (refusal := self.member.error) is not None:  # the caller doesn't poll any more
            logger.warning("group %s refused this consumer: %s", self.group_id, refusal)
        self.member.has_left()

    def settle(self, deadline: float) -> Flow[None]:
        """Wait until all commits have ended and their callbacks have run, or for the deadline."""
        now = yield START
        yield from self.commits.settle(deadline, now)
        yield from self._called_back(deadline)

    def _called_back(self, until: float) -> Flow[float]:
        """Wait until all callbacks have run, including those of commits that callbacks started."""
        now = yield from self._callbacks_run()
        while self.commits.open and now < until:
            yield from self.commits.settle(until, now)
            now = yield from self._callbacks_run()
        self.commits.give_up(now)
        return (yield from self._callbacks_run())

    def _callbacks_run(self) -> Flow[float]:
        """Wait until the pending callbacks have run."""
        for pending in list(self.callbacks.waiting):
            if pending.due and not pending.done.done:
                yield Wait((pending.done,))
        return self._engine.now

    def turn_or(self, end: Completion[None], deadline: float) -> Flow[bool]:
        """Wait for a due callback; return False if `end` completes or the deadline passes first."""
        now = yield START
        while not self.callbacks:
            if now >= deadline or end.done:
                return False
            now = yield Wait((end, self._subscription.readable), deadline)
        return True

    def check_assignable(self) -> None:
        """Raise if `assign` is called after `subscribe`, or while partitions are revoked."""
        if self.leaving and not self.subscribed:
            if self.callbacks.running is not None:
                raise IllegalStateError(
                    f"assign() can't be called inside {self.callbacks.running} while unsubscribe() "
                    "leaves the group: call it after unsubscribe() has returned"
                )
            raise IllegalStateError(
                "unsubscribe() was interrupted and the consumer is still leaving its group: call "
                "unsubscribe() again to wait for that, then assign()"
            )
        if self.subscribed:
            raise IllegalStateError(
                "subscribe() and assign() are mutually exclusive: the group assigns partitions. To "
                "start at other offsets, call seek() in on_assigned; to use assign(), call "
                "unsubscribe() first."
            )

"""The group of one consumer: what is subscribed and owned, commits, and the caller's callbacks.

In: the caller's subscription, what the membership was assigned, what the caller was handed. Out:
partitions added to and dropped from the subscription state, offsets committed. The membership
(`classic_membership`, `consumer_membership`) speaks with the coordinator and calls what is here
(`membership.Group`). Must not: touch partitions that stay, or hand anything out.

R-GR-1, in order: a partition that goes is withheld; the caller comes back for more, so it is
through with what it had; that is committed; on_revoked runs; the partition is dropped; only then
the membership goes on.
"""

from __future__ import annotations

import logging
import re
from collections import deque
from collections.abc import Callable, Collection, Iterable
from typing import TYPE_CHECKING, NamedTuple

from odradek.clients.calls.caller_flow import CallerFlow
from odradek.clients.consumer.group.auto_commit import AutoCommit
from odradek.clients.consumer.group.group_commits import GroupCommits
from odradek.clients.consumer.group.membership import Membership, MemberState, PollOverdueError
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
from odradek.clients.consumer.records import ConsumerGroupMetadata
from odradek.clients.consumer.subscription_state import PartitionState
from odradek.clients.coordinator import Coordinator, CoordinatorKind
from odradek.common.errors import IllegalStateError, KafkaError
from odradek.common.group_options import NEW
from odradek.common.sampled import Sampled
from odradek.common.types import TopicPartition
from odradek.network.flow import START, Completion, Flow, Signal, Wait

if TYPE_CHECKING:
    from odradek.clients.consumer.consumer_engine import ConsumerEngine
    from odradek.common.config import Config

logger = logging.getLogger("odradek.consumer")

Listener = Callable[[list[TopicPartition]], object]
"""A rebalance callback; the facade has put the consumer in front."""


LEAVING_SHARE = 0.2
"""Of the time for leaving: what the last commit leaves to the callbacks and to the goodbye."""

UNTOLD = 10.0
"""Seconds that a consumer waits for its share of a group before it says so."""
JOINS = frozenset((MemberState.PREPARING_REBALANCE, MemberState.COMPLETING_REBALANCE))
WAITS = (
    "group %s has given this consumer nothing to read for %.0f s (%s). It waits until all of its "
    "members have joined again, and for one that ended without close() until its session is over "
    "(session.timeout.ms, here %.0f s); `odradek groups members` says who is there"
)
WAITED = "group %s: the wait is over after %.0f s; all of its members have joined"


class Listeners(NamedTuple):
    """The callbacks of one `subscribe`."""

    on_assigned: Listener | None = None
    on_revoked: Listener | None = None
    on_lost: Listener | None = None


NOBODY = Listeners()


def _membership(group: ConsumerGroup) -> Membership:
    """Imported here: who assigns partitions doesn't pay for either."""
    if group.by_epoch:
        from odradek.clients.consumer.group.consumer_membership import ConsumerMembership

        return ConsumerMembership(group)
    from odradek.clients.consumer.group.classic_membership import ClassicMembership

    return ClassicMembership(group)


class ConsumerGroup:
    """A consumer's side of its group; implements `membership.Group`."""

    def __init__(self, engine: ConsumerEngine, group_id: str) -> None:
        config = engine.config
        self.engine = engine
        self.group_id = group_id
        self.instance_id: str | None = config["group.instance.id"]
        self.coordinator = Coordinator(engine, CoordinatorKind.GROUP, group_id)
        self.callbacks = PendingCallbacks(engine.lock)
        self._silent: set[TopicPartition] = set()
        """Held, but on_assigned was taken back before it told of them."""
        self._unwanted: dict[PartitionState, None] = {}
        """Withheld because their topic isn't subscribed any more; the group will take them."""
        self.poll_wanted = Signal()
        self.membership: Membership | None = None
        self.error: KafkaError | None = None
        """Why the group refuses this consumer for good."""
        self.trouble: KafkaError | None = None
        """What the next poll raises, once."""
        self.heartbeats = Sampled()
        """Seconds from each to its answer, in either protocol."""
        self.rebalances = Rebalances()
        engine.events.listen(self.rebalances.note)
        self.commits = GroupCommits(self)
        self.auto_commit = AutoCommit(self) if config["enable.auto.commit"] else None
        self._subscription = engine.subscription
        self._listeners = NOBODY
        self._goodbye: PendingCallback | None = None
        self._waits_since: float | None = None
        """Since when it has waited for its share, once that was told."""
        """The call of on_revoked for partitions that aren't dropped yet."""
        self._watch = TopicWatch(self)
        self._leaving: Completion[None] | None = None
        """The last `leave`; an interrupted `unsubscribe()` doesn't see its end."""
        self._next: Completion[None] | None = None
        """The subscription that begins once the group is left."""
        self._max_poll: float = config["max.poll.interval.ms"]
        self.asked_at = 0.0
        """When the caller asked for records, or was last given some."""
        self.given: deque[float] = deque([0.0], maxlen=1)
        """When the caller of a loop came back after a record: each counts for
        `max.poll.interval.ms`, and costs no call of a function of ours.
        """
        self._polling = False
        self.dispossessed = False
        """Partitions were lost since some were assigned: what was handed out can't be committed."""
        self._owner: GroupIdentity | None = None
        """Who this consumer was when partitions were assigned to it last."""
        self._outlived: GroupIdentity | None = None
        """Who it was when it lost partitions whose records the caller may still have in hand."""

    @property
    def config(self) -> Config:
        """The consumer's."""
        return self.engine.config

    # The subscription (the caller's thread, under the lock)

    @property
    def subscribed(self) -> bool:
        """`subscribe` was called, and not taken back."""
        return self._watch.active

    @property
    def leaving(self) -> bool:
        """A goodbye goes on, whether or not somebody waits for it."""
        return self._leaving is not None and not self._leaving.done

    @property
    def pattern(self) -> str | None:
        """The subscribed pattern."""
        return self._watch.pattern

    def topics(self) -> list[str]:
        """The subscribed topics; with a classic pattern those that match now."""
        return self._watch.topics()

    def subscribe(
        self,
        topics: Collection[str],
        pattern: str | re.Pattern[str] | None,
        listeners: Listeners,
        now: float,
    ) -> None:
        """Subscribe to other topics from now on, as a member of the group.

        Where the group is being left still (`unsubscribe()` was interrupted, or its time was up),
        this begins after that: the member that leaves keeps its callbacks and its commits.
        """
        self.callbacks.check("subscribe()")
        refused = self.membership is not None and self.membership.state is MemberState.FATAL
        first = refused or not self.subscribed
        another = self._watch.subscribe(topics, pattern) or self.error is not None
        # As in Java: losing is a way of giving back.
        listeners = listeners._replace(on_lost=listeners.on_lost or listeners.on_revoked)
        self.error = None
        if self._leaving is not None and self.leaving:
            self._cancel_next()
            self._next = self.engine.start(self._join_after(self._leaving, listeners))
            return
        self._listeners = listeners
        if not (first or another):
            return
        if first or self.membership is None:
            self._join(now)
            return
        named = set(topics)
        for state in self._subscription.partitions.values():
            if pattern is None and state.partition.topic not in named:
                if not state.revoked:
                    self._unwanted[state] = None
                self._subscription.withhold(state)
            elif state in self._unwanted:  # subscribed again before the group took it away
                del self._unwanted[state]
                self._subscription.release(state)
        self.engine.post(self._watch.begin)

    def _join(self, now: float) -> None:
        self.asked_at = now
        self.membership, self._waits_since = _membership(self), None
        self.engine.post(self._watch.begin)

    def _join_after(self, left: Completion[None], listeners: Listeners) -> Flow[None]:
        yield START
        now = yield Wait((left,))
        self._listeners = listeners
        self._join(now)

    def _cancel_next(self) -> None:
        if self._next is not None:
            self.engine.cancel(self._next, IllegalStateError("another call has taken its place"))
            self._next = None

    @property
    def by_epoch(self) -> bool:
        """KIP-848."""
        return bool(self.config["group.protocol"] == NEW)

    # What a membership uses (the engine's step)

    @property
    def polled_at(self) -> float:
        """When the caller was last inside `poll()`."""
        return self.engine.now if self._polling else max(self.asked_at, self.given[0])

    @property
    def polling(self) -> bool:
        """The caller asks for records just now."""
        return self._polling

    def last_poll(self, now: float) -> float | None:
        """How long ago the caller asked for records; None while it asks, or never did."""
        return None if self._polling or self.asked_at == 0.0 else now - self.polled_at

    def owned(self) -> list[TopicPartition]:
        """What is assigned now."""
        return list(self._subscription.partitions)

    def revoke(self, partitions: Collection[TopicPartition], now: float) -> Flow[float]:
        """Give partitions back (R-GR-1); raises `PollOverdueError` without the caller."""
        now = yield START
        states = self._states(partitions)
        if not states:
            return now
        for state in states:
            self._unwanted.pop(state, None)
            self._subscription.withhold(state)
        self.engine.fetcher.changed.notify()
        while any(s.consumed != s.position for s in states):
            now = yield from self._caller(now)
        if self.auto_commit is not None:
            now = yield from self.auto_commit.before_revocation(states, now)
        now = yield from self._called(ON_REVOKED, self._listeners.on_revoked, states, now)
        self._drop(states)
        return now

    def lose(self, partitions: Collection[TopicPartition], now: float) -> Flow[float]:
        """They are gone already: no commit; on_lost at the next poll."""
        now = yield START
        states = self._states(partitions)
        if states:
            logger.warning(
                "group %s: %d partitions were lost, others may read them already",
                *(self.group_id, len(states)),
            )
            self.dispossessed = True
            self._outlived = self._outlived or self._owner
            told = self._announced(states)
            self._drop(states)
            self._queue(ON_LOST, self._listeners.on_lost, told)
        return now

    def assign(self, partitions: Collection[TopicPartition], now: float) -> Flow[float]:
        """Add these; on_assigned at the next poll, before records of them are handed out."""
        now = yield START
        self.dispossessed = False
        self._owner = self.identity()
        added = [p for p in partitions if p not in self._subscription.partitions]
        self._subscription.add(added)
        self.engine.metadata.want(dict.fromkeys(p.topic for p in added))
        self._queue(ON_ASSIGNED, self._listeners.on_assigned, added)
        self.engine.fetcher.changed.notify()
        return now

    def unsettled(self, since: float) -> None:
        """The membership isn't stable: say so once, if that lasts and nothing is owned by then."""
        self.engine.start(self._tell_of_wait(since))

    def _tell_of_wait(self, since: float) -> Flow[None]:
        yield START
        now = yield Wait((), since + UNTOLD)
        member = self.membership
        if member is None or member.unsettled_since != since or self.owned():
            return
        if member.state in JOINS:
            session = self.config["session.timeout.ms"]
            logger.warning(WAITS, self.group_id, now - since, member.state.value, session)
            self._waits_since = since

    def settled(self, now: float) -> None:
        """The membership is stable: say so, if it was said that it isn't."""
        since, self._waits_since = self._waits_since, None
        if since is not None:
            logger.warning(WAITED, self.group_id, now - since)

    def complain(self, error: KafkaError) -> None:
        """The next poll raises this, once."""
        self.trouble = error
        self.engine.fetcher.changed.notify()

    def failed(self, error: KafkaError, now: float) -> None:
        """Every poll raises this from now on, until another `subscribe`."""
        del now
        self.error = error
        self.engine.fetcher.changed.notify()

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
        self.forget_unused({s.partition.topic for s in states})
        self.engine.fetcher.changed.notify()

    def forget_unused(self, topics: Iterable[str]) -> None:
        """Metadata needn't tell of topics any more that are neither subscribed nor assigned."""
        used = {*self.topics(), *(p.topic for p in self._subscription.partitions)}
        self.engine.metadata.forget_topics(t for t in topics if t not in used)

    def _announced(self, states: list[PartitionState]) -> list[TopicPartition]:
        """Those that on_assigned was called for, and on_revoked wasn't."""
        silent = self._unannounced(s.partition for s in states)
        if self._goodbye is not None and self._goodbye.begun:
            silent.update(self._goodbye.partitions)
        return [s.partition for s in states if s.partition not in silent]

    def _unannounced(self, partitions: Iterable[TopicPartition]) -> set[TopicPartition]:
        """Those of which on_assigned never told; it won't any more, whatever becomes of them."""
        found = set(partitions)
        self._silent |= self.callbacks.unannounced(found)
        return self._silent & found

    def _queue(
        self, what: str, listener: Listener | None, partitions: list[TopicPartition]
    ) -> PendingCallback | None:
        if listener is None or (what != ON_ASSIGNED and not partitions):
            return None
        pending = PendingCallback(what, lambda: listener(list(partitions)), partitions)
        self.callbacks.put(pending)
        self.engine.fetcher.changed.notify()
        return pending

    def _called(
        self, what: str, listener: Listener | None, states: list[PartitionState], now: float
    ) -> Flow[float]:
        """Have the caller run a callback, and wait for its end."""
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
        """Wait for the caller."""
        until = self.polled_at + self._max_poll
        if now >= until:
            raise PollOverdueError(
                f"poll() wasn't called for {now - self.polled_at:.0f} s (max.poll.interval.ms)"
            )
        on = (self.poll_wanted,) if pending is None else (self.poll_wanted, pending.done)
        return (yield Wait(on, until))

    # The caller's side (its thread)

    def entered(self, now: float) -> bool:
        """The caller asks for records: it is through with those it had. Says whether to wake."""
        self.callbacks.check("poll()")
        with self.engine.lock:
            self._subscription.note_consumed()
            self.asked_at, self._polling, self._outlived = now, True, None
            wanted = self.poll_wanted.awaited
        if wanted:
            self.engine.post(lambda _: self.poll_wanted.notify())
        return wanted

    def left(self, now: float) -> None:
        """The caller works on what it was handed."""
        self.asked_at, self._polling = now, False

    def run_callbacks(self, now: float, wake: Callable[[], None]) -> CallerFlow[None]:
        """Run the callbacks that wait; raises what they raise, or what the group failed with."""
        yield from self.call_back(now, wake)
        if self.error is not None:
            raise self.error.with_traceback(None)
        if self.trouble is not None:
            trouble, self.trouble = self.trouble, None
            raise trouble

    def call_back(self, now: float, wake: Callable[[], None]) -> CallerFlow[None]:
        """Run the callbacks that wait; raises what they raise."""
        if self.callbacks:
            polling, self._polling, self.asked_at = self._polling, False, now
            try:
                yield from self.callbacks.take(lambda pending: self._ended(pending, wake))
                self.asked_at = yield START
            finally:  # (an error ends the poll as well, and `left` tells when)
                self._polling = polling

    def tell_of_commits(self, wake: Callable[[], None]) -> CallerFlow[None]:
        """Run the callbacks of commits that have ended, unless the caller is inside of one."""
        if self.callbacks and self.callbacks.running is None:
            yield from self.callbacks.take(
                lambda pending: self._ended(pending, wake), COMMIT_CALLBACK
            )

    def tell_the_rest(self, wake: Callable[[], None]) -> CallerFlow[None]:
        """Each callback of `commit_async` is called once: also if the time is up, or the client
        has ended. What it begins now would end for nobody, so that is refused.
        """
        now = yield START
        with self.engine.lock:
            self.commits.closed = True
            self.commits.give_up(now)
        try:
            yield from self.tell_of_commits(wake)
        except KafkaError as error:
            logger.debug("group %s: a commit's callback: %s", self.group_id, error)

    @property
    def calls(self) -> bool:
        """Something waits for the caller before records do."""
        return bool(self.callbacks) or self.error is not None or self.trouble is not None

    def _ended(self, pending: PendingCallback, wake: Callable[[], None]) -> None:
        def end(_: float) -> None:
            if not pending.done.done:  # an interrupted caller tells of it once more
                pending.done.complete(None)

        self.engine.post(end)
        wake()

    # Commits

    def identity(self) -> GroupIdentity:
        """Who commits now."""
        membership = self.membership
        if membership is None:
            return GroupIdentity()
        return GroupIdentity(
            membership.member_id,
            membership.generation,
            self.instance_id,
            self.by_epoch,
            joining=membership.state is MemberState.PREPARING_REBALANCE,
        )

    @property
    def is_member(self) -> bool:
        """The group knows this consumer."""
        return self.membership is not None and self.membership.generation >= 0

    def metadata(self) -> ConsumerGroupMetadata:
        """For transactions: as whom the caller was handed what it has in hand.

        A member that lost its partitions, and may even have joined again, must be refused with the
        records from before: another one has them. Who isn't in the group would be let pass: brokers
        check no offsets of a transaction that come without member and generation (KIP-447).
        """
        who = self._outlived or self.identity()
        if who.generation < 0 and self._owner is not None:
            who = self._owner
        return ConsumerGroupMetadata(self.group_id, who.generation, who.member_id, self.instance_id)

    # The end

    def leave(self, deadline: float) -> Completion[None]:
        """Commit what the caller is through with, give everything back, and leave.

        Ends at the deadline; what went wrong is logged. Callbacks run in the caller.
        """
        self._cancel_next()
        self._leaving = self.engine.start(self._leave(deadline))
        return self._leaving

    def _leave(self, deadline: float) -> Flow[None]:
        now = yield START
        membership, auto_commit = self.membership, self.auto_commit
        if membership is not None:
            membership.hold(now)
            for state in self._subscription.partitions.values():
                self._subscription.withhold(state)
            self._unannounced(self.owned())
        until = deadline - LEAVING_SHARE * max(0.0, deadline - now)
        if auto_commit is not None:
            now = yield from auto_commit.at_the_end(until, now)
        now = yield from self.commits.settle(until, now)
        if membership is None or membership is not self.membership:  # another call has left
            if self._next is None:
                self._watch.end()
            yield from self._called_back(until)
            return
        if self._next is None:
            self._watch.end()
        else:
            self._watch.stop()
        # Not those that were lost during the commit: on_lost tells of them.
        states = list(self._subscription.partitions.values())
        if self.callbacks.running is None:
            lost = membership.generation < 0
            listener = self._listeners.on_lost if lost else self._listeners.on_revoked
            told = self._announced(states)
            self._queue(ON_LOST if lost else ON_REVOKED, listener, told)
            self._silent.update(told)  # once: what loses them from here on tells nobody
        yield from self._called_back(until)
        yield from membership.leave(deadline)
        if membership is not self.membership:
            return
        self.membership, self.dispossessed, self._owner = None, False, None
        self.callbacks.clear()
        self._drop(states)
        self._listeners = NOBODY
        if self.error is not None:  # there is no poll any more that could raise it
            logger.warning("group %s had refused this consumer: %s", self.group_id, self.error)
        self.error = None

    def settle(self, deadline: float) -> Flow[None]:
        """Wait for commits, and until their callbacks have run; ends at the deadline."""
        now = yield START
        yield from self.commits.settle(deadline, now)
        yield from self._called_back(deadline)

    def _called_back(self, until: float) -> Flow[float]:
        """All callbacks have run, those of commits, too, and of commits that callbacks began."""
        now = yield from self._callbacks_run()
        while self.commits.open and now < until:
            yield from self.commits.settle(until, now)
            now = yield from self._callbacks_run()
        self.commits.give_up(now)
        return (yield from self._callbacks_run())

    def _callbacks_run(self) -> Flow[float]:
        """Those that wait, an on_lost from before among them: however late the caller is."""
        for pending in list(self.callbacks.waiting):
            if pending.due and not pending.done.done:
                yield Wait((pending.done,))
        return self.engine.now

    def turn_or(self, end: Completion[None], deadline: float) -> Flow[bool]:
        """Wait until a callback is due (True), or something has ended."""
        now = yield START
        while not self.callbacks:
            if now >= deadline or end.done:
                return False
            now = yield Wait((end, self.engine.fetcher.changed), deadline)
        return True

    def check_assignable(self) -> None:
        """Refuse `assign` beside `subscribe`, and while partitions are given back."""
        if self.leaving and not self.subscribed:
            raise IllegalStateError(
                "unsubscribe() was interrupted, and the group is being left still: call "
                "unsubscribe() again, which waits for it, and then assign()"
            )
        if self.subscribed:
            raise IllegalStateError(
                "subscribe() and assign() exclude each other: the group decides what is assigned. "
                "To begin elsewhere, seek() in on_assigned; else unsubscribe() first."
            )

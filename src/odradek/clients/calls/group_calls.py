"""Run a group consumer's calls in its caller: subscriptions, commits, callbacks, leaving.

In: topics, callbacks, offsets. Out: generators that run in the caller, and callbacks for it to
run. The engine's `ConsumerGroup` decides how the group proceeds. Must not: know threads.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from weakref import ref

from odradek.clients.caller_flow import DUE, CallerFlow, run_always
from odradek.clients.calls.client_calls import ClientCalls
from odradek.clients.consumer.consumer_engine import ConsumerEngine
from odradek.clients.consumer.fetching.closing_fetch import CLOSING_PATIENCE, close_sessions
from odradek.clients.consumer.group.commit_arguments import offsets_to_commit
from odradek.clients.consumer.group.subscribe_arguments import (
    callbacks,
    listener_methods,
    pattern_to_subscribe,
    topics_to_subscribe,
)
from odradek.clients.consumer.records import OffsetAndMetadata
from odradek.common.arguments import some_function, text
from odradek.common.errors import ClientForkedError, IllegalStateError, KafkaError, first_use
from odradek.common.types import TopicPartition
from odradek.network.flow import START, Completion, Flow

if TYPE_CHECKING:
    from odradek.clients.consumer.group.consumer_group import ConsumerGroup, Listener
    from odradek.clients.consumer.group.group_commits import CommitCallback

logger = logging.getLogger("odradek.consumer")

LEAVING_GRACE = 0.05
"""Seconds after the deadline for work that needs no broker."""

RebalanceCallback = Callable[[Any, list[TopicPartition]], object]
"""A rebalance callback; it takes the consumer and the partitions."""


class GroupCalls(ClientCalls[ConsumerEngine]):
    """Calls of a consumer for its group."""

    def group(self, what: str) -> ConsumerGroup:
        """Return the group; raise if the consumer has none."""
        group = self.engine.group
        if group is None:
            raise IllegalStateError(
                f"{what} needs group.id; without a group, use assign() and seek()"
            )
        return group

    # Subscriptions

    def subscribe(
        self,
        topics: Collection[str] | str,
        pattern: str | re.Pattern[str] | None,
        listener: object | None,
        named: Mapping[str, RebalanceCallback | None],
        consumer: ref[Any],
    ) -> CallerFlow[None]:
        """Subscribe; callbacks are called with `consumer`, which they don't keep alive."""
        self.check_free("subscribe()")
        group = self.group("subscribe()")
        with first_use():
            from odradek.clients.consumer.group.consumer_group import Listeners

        names, pattern = topics_to_subscribe(topics), pattern_to_subscribe(pattern)
        calls = callbacks(named)
        if listener is not None and any(v is not None for v in calls):
            raise IllegalStateError("subscribe() takes a listener or callbacks, not both")
        if listener is not None:
            listeners = Listeners(*listener_methods(listener))
        else:
            listeners = Listeners(*(_with_consumer(v, consumer) for v in calls))
        assigned = self.engine.subscription.partitions.values()
        if not group.subscribed and not all(state.revoked for state in assigned):
            raise IllegalStateError(
                "subscribe() and assign() are mutually exclusive: call assign([]) first"
            )
        now = yield START
        with self.engine.lock:
            group.subscribe(names, pattern, listeners, now)
        self.host.wake()
        yield DUE

    def unsubscribe(self, timeout: float | None) -> CallerFlow[None]:
        """Give up all partitions and leave the group."""
        self.check_free("unsubscribe()")
        engine, seconds = self.engine, self.seconds(timeout)
        deadline = (yield START) + seconds
        group = engine.group
        if group is None or not (group.subscribed or group.leaving):
            engine.assign((), None)
            self.host.wake()
            yield DUE
            if group is not None and group.commits.open and group.callbacks.running is None:
                yield from self._run_callbacks(
                    group, engine.start(group.settle(deadline)), deadline
                )
            return
        group.callbacks.check("unsubscribe()")
        yield from self._leave(group, deadline, through=True)

    def enforce_rebalance(self, reason: str | None) -> None:
        """Make the group assign its partitions again (KIP-568)."""
        self.check_open()
        membership = self.group("enforce_rebalance()").membership
        if membership is None:
            raise IllegalStateError("call subscribe() before enforce_rebalance()")
        why = "" if reason is None else text("reason", reason)
        why = why or "enforce_rebalance() was called"
        self.engine.post(lambda now: membership.rejoin(why, now))
        self.host.wake()

    # Commits

    def commit(
        self, offsets: Any, timeout: float | None
    ) -> CallerFlow[dict[TopicPartition, OffsetAndMetadata]]:
        """Commit and wait for the result; run callbacks of earlier commits first."""
        group = self.group("commit()")
        chosen = None if offsets is None else offsets_to_commit(offsets)

        def begin(deadline: float) -> Flow[dict[TopicPartition, OffsetAndMetadata]]:
            with self.engine.lock:  # commit the positions that the caller knows now
                asked = group.commits.asked(chosen, read=not isinstance(offsets, Mapping))
                return group.commits.commit(asked, deadline)

        commit = self.call(begin, timeout, "commit")
        if self.engine.traces is not None:
            commit = self.engine.traces.settled(commit, chosen or {}, group.group_id)
        return run_always(commit, group.tell_of_commits(self.host.wake))

    def commit_async(self, offsets: Any, callback: CommitCallback | None) -> CallerFlow[None]:
        """Start a commit without waiting for its result."""
        self.check_free("commit_async()")
        group, engine = self.group("commit_async()"), self.engine
        callback = some_function("callback", callback)
        if engine.ended is not None:
            raise engine.ended.with_traceback(None)
        deadline = (yield START) + self.seconds(None)
        chosen = None if offsets is None else offsets_to_commit(offsets)
        with engine.lock:
            asked = group.commits.asked(chosen, read=not isinstance(offsets, Mapping))
            engine.start(group.commits.commit_and_tell(asked, deadline, callback))
        self.host.wake()
        yield DUE

    # Closing

    def leave_and_close(self, timeout: float, *, through: bool = True) -> CallerFlow[None]:
        """Commit, leave the group, and close.

        `through`: the caller has processed all returned records.
        """
        alone = self.host.interrupted
        if self.engine.group is not None and not (self.closed or self.host.cut_off):
            self.check_uninterrupted("close()")
        return self.close(timeout, lambda d: self._end(d, through=through, alone=alone))

    def _end(self, deadline: float, *, through: bool, alone: bool) -> CallerFlow[None]:
        host, engine, group = self.host, self.engine, self.engine.group
        if not self.closed and group is not None and not host.cut_off:
            rest = group.tell_the_rest(host.wake)
            with suppress(ClientForkedError):  # only the parent process is a member
                if engine.ended is None:
                    leaving = self._leave(group, deadline, through=through)
                    yield from run_always(leaving, rest)
                else:
                    self._warn_of_repeats(group, through=through)
                    yield from rest
        open_still = not (self.closed or alone or host.cut_off or host.torn)
        sessions = engine.fetcher.halt() if open_still else ()
        if sessions and engine.ended is None:
            patience = min(CLOSING_PATIENCE, max(0.0, deadline - (yield START)))
            with suppress(KafkaError):
                yield from self.call(
                    lambda d: close_sessions(engine.network, sessions, d), patience, "goodbyes"
                )

    def _leave(self, group: ConsumerGroup, deadline: float, *, through: bool) -> CallerFlow[None]:
        """Leave the group, and run its callbacks."""
        engine = self.engine
        with engine.lock:
            if through:
                engine.subscription.note_consumed()
            end = group.leave(deadline)
        why = "a callback failed, or the call was interrupted"
        try:
            why = yield from self._run_callbacks(group, end, deadline)
        finally:
            if not end.done:
                logger.warning("group %s was not left: %s", group.group_id, why)

    def _warn_of_repeats(self, group: ConsumerGroup, *, through: bool) -> None:
        """Warn of records that will be read again, because the client ended before a commit."""
        subscription = self.engine.subscription
        with self.engine.lock:
            if through:
                subscription.note_consumed()
            if group.auto_commit is not None:
                group.auto_commit.warn_of_repeats(subscription.partitions.values())

    def _run_callbacks(
        self, group: ConsumerGroup, end: Completion[None], deadline: float
    ) -> CallerFlow[str]:
        """Run callbacks until `end` is completed; then raise their first error.

        Returns a text that says why the wait has ended.
        """
        until = deadline + LEAVING_GRACE
        failure: Exception | None = None
        why = "the timeout is over"
        try:
            while True:
                left = max(0.0, until - (yield START))
                if not (yield from self.call(lambda _: group.turn_or(end, until), left, "leaving")):
                    break
                try:
                    yield from group.call_back((yield START), self.host.wake)
                except Exception as error:
                    failure = failure or error
        except KafkaError as error:  # for example refused credentials
            why = str(error)
        if failure is not None:
            try:
                raise failure
            finally:
                del failure  # avoid a reference cycle between the error and this frame
        return why


def _with_consumer(callback: RebalanceCallback | None, consumer: ref[Any]) -> Listener | None:
    if callback is None:
        return None
    return lambda partitions: callback(consumer(), partitions)

"""The group's half of the consumer as users see it: subscriptions and commits.

In: topics, callbacks, offsets. Out: the group's answers. The engine's `ConsumerGroup` decides; here
calls wait for it, and callbacks are given their consumer. Must not: decide anything.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol
from weakref import ref

from odradek.api.base import CLOSE_TIMEOUT, Client
from odradek.clients.consumer.consumer_engine import ConsumerEngine
from odradek.clients.consumer.fetching.closing_fetch import CLOSING_PATIENCE, close_sessions
from odradek.clients.consumer.group.commit_arguments import offsets_to_commit
from odradek.clients.consumer.group.consumer_group import ConsumerGroup, Listener, Listeners
from odradek.clients.consumer.group.subscribe_arguments import (
    callbacks,
    listener_methods,
    pattern_to_subscribe,
    topics_to_subscribe,
)
from odradek.clients.consumer.partition_arguments import some_partitions
from odradek.clients.consumer.records import (
    ConsumerGroupMetadata,
    ConsumerRecord,
    OffsetAndMetadata,
)
from odradek.common.arguments import FOREVER, checked_timeout, some_function, text
from odradek.common.errors import ClientForkedError, IllegalStateError, KafkaError
from odradek.common.habits import with_keywords
from odradek.common.types import TopicPartition
from odradek.network.flow import Completion

if TYPE_CHECKING:
    import pyarrow as pa

logger = logging.getLogger("odradek.consumer")

LEAVING_GRACE = 0.05
"""Seconds beyond the deadline, for what needs no broker."""

Callback = Callable[[Any, list[TopicPartition]], object]
"""A rebalance callback: the consumer, and the partitions that it is about."""


class RebalanceListener(Protocol):
    """What `subscribe(listener=…)` takes: an object as kafka-python and aiokafka have it."""

    def on_partitions_assigned(self, assigned: list[TopicPartition]) -> object: ...
    def on_partitions_revoked(self, revoked: list[TopicPartition]) -> object: ...


class GroupConsumer(Client[ConsumerEngine]):
    """Base of `Consumer`; not made directly."""

    @with_keywords
    def subscribe(
        self,
        topics: Collection[str] | str = (),
        pattern: str | re.Pattern[str] | None = None,
        listener: RebalanceListener | None = None,
        *,
        on_assigned: Callback | None = None,
        on_revoked: Callback | None = None,
        on_lost: Callback | None = None,
    ) -> None:
        """Join the group (`group.id`) and read what it assigns of these topics from now on.

        Give topics, or a `pattern`: a regular expression that a topic's *whole* name has to match.
        In a classic group it is Python's and is looked up every `metadata.max.age.ms`; with
        `group.protocol=consumer` (KIP-848) it is the broker's (RE2). A topic that isn't there yet
        is waited for. Another call replaces subscription and callbacks; the group stays. One with
        the same topics or pattern replaces the callbacks alone, and nobody rebalances.

        Returns at once: a thread of the client's own joins, sends heartbeats and fetches, so a
        slow loop doesn't cost the membership. But the application must ask for records at least
        every `max.poll.interval.ms` (any of `poll`, `poll_arrow`, `records`, `batches`, a `for`
        loop), else the member leaves, and joins again at its next call.

        Callbacks are called as `callback(consumer, partitions)`, in the thread that asks for
        records, inside that call, one at a time:

        - `on_assigned`: these came in addition, positions aren't looked up yet: `seek()` here to
          begin elsewhere. Runs before any record of them is handed out.
        - `on_revoked`: these go, in order. What the application was handed of them has been
          committed if `enable.auto.commit` is on, nothing more of them is handed out, and nobody
          else has them before it returns: the place to write out and `commit()`.
        - `on_lost`: these are gone already (the member was removed, or didn't poll in time), and
          others may read them: a commit would be refused. Without it `on_revoked` is called.

        Partitions that stay go on meanwhile: positions, buffers and fetches are kept
        (cooperative-sticky and KIP-848; the other assignors give everything back first). A callback
        may use the consumer (`position`, `seek`, `pause`, `commit`, `committed` …), but not
        `poll`, `subscribe` or `unsubscribe`. What it raises comes out of the call that it ran in;
        the rebalance goes on. A `listener` with kafka-python's methods does as well.

        Raises `ConfigurationError`, and `IllegalStateError` without `group.id` or after `assign`.
        What the group refuses (`GroupAuthorizationError`, `FencedInstanceIdError`,
        `InconsistentGroupProtocolError` …) is raised by the calls that ask for records.
        """
        self._calls.check_open()
        self._calls.check_uninterrupted("subscribe()")
        group = self._group("subscribe()")
        names, pattern = topics_to_subscribe(topics), pattern_to_subscribe(pattern)
        calls = callbacks(
            {"on_assigned": on_assigned, "on_revoked": on_revoked, "on_lost": on_lost}
        )
        if listener is not None and any(v is not None for v in calls):
            raise IllegalStateError("subscribe() takes a listener or callbacks, not both")
        if listener is not None:
            listeners = Listeners(*listener_methods(listener))
        else:
            listeners = Listeners(*(self._with_consumer(v) for v in calls))
        if not group.subscribed and self._engine.subscription.partitions:
            raise IllegalStateError("subscribe() and assign() exclude each other: assign([]) first")
        with self._engine.lock:
            group.subscribe(names, pattern, listeners, self._host.now())
        self._host.wake()
        self._host.drive()

    def _with_consumer(self, callback: Callback | None) -> Listener | None:
        if callback is None:
            return None
        this = ref(self)  # a consumer that was dropped isn't kept by its own callbacks
        return lambda partitions: callback(this(), partitions)

    def unsubscribe(self, timeout: float | None = None) -> None:
        """Give everything back and leave the group; `assign` or `subscribe` may follow.

        Commits what the application was handed if `enable.auto.commit` is on, and calls
        `on_revoked`. Ends within `timeout` (default `default.api.timeout.ms`), even where the
        group can't be reached.
        """
        self._calls.check_open()
        self._calls.check_uninterrupted("unsubscribe()")
        engine, deadline = self._engine, self._host.now() + self._calls.seconds(timeout)
        group = engine.group
        if group is None or not group.subscribed:
            engine.assign((), None)
            self._host.wake()
            self._host.drive()
            if group is not None and group.commits.open and group.turns.running is None:
                self._run_turns(group, engine.start(group.settle(deadline)), deadline)
            return
        group.turns.check("unsubscribe()")
        self._leave(group, deadline, through=True)

    def subscription(self) -> set[str]:
        """The subscribed topics; with a pattern of a classic group those that match now."""
        group = self._engine.group
        return set() if group is None else set(group.topics())

    def group_metadata(self) -> ConsumerGroupMetadata:
        """As whom it was handed what it has, for `send_offsets_to_transaction` (KIP-447).

        Who has lost its partitions since the last `poll()` is still told who it was before, even
        if it has joined again: brokers refuse its offsets then, as others read its partitions.
        """
        self._calls.check_open()
        return self._group("group_metadata()").metadata()

    def enforce_rebalance(self, reason: str | None = None) -> None:
        """Have the group divide its partitions anew, soon (KIP-568); returns at once."""
        self._calls.check_open()
        group = self._group("enforce_rebalance()")
        membership = group.membership
        if membership is None:
            raise IllegalStateError("enforce_rebalance() needs subscribe()")
        why = "" if reason is None else text("reason", reason)
        why = why or "enforce_rebalance() was called"
        self._engine.post(lambda now: membership.rejoin(why, now))
        self._host.wake()

    # Commits

    @with_keywords
    def commit(
        self,
        offsets: Mapping[TopicPartition, int | OffsetAndMetadata]
        | ConsumerRecord
        | Iterable[ConsumerRecord]
        | pa.RecordBatch
        | pa.Table
        | None = None,
        timeout: float | None = None,
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Commit, and wait for it; gives what was committed.

        Without an argument: the positions, that is everything that was handed out so far, the
        record or batch in hand included. Else offsets by partition (the *next* one to be read), a
        record or records, or Arrow data with the columns `topic`, `partition` and `offset`: then
        what is behind the last of them.

        With `enable.auto.commit` (the default where there is a `group.id`) nothing has to be called
        for at-least-once: every `auto.commit.interval.ms`, before partitions are given back, at
        `unsubscribe` and at `close`, the client commits what the application is through with. What
        it was handed last counts only when it asks for more: the list that `poll` gave, the batch
        or the record that a loop is at, are committed after the next call, so a crash loses
        none of them. `close()` says that it is through with them, too; leaving a `with` block by
        an exception doesn't.

        Also with `assign`, under a `group.id` that has no subscribed members.

        What the group took of it counts, also where an error is raised for the rest. A topic that
        was deleted is asked for five seconds long, then `UnknownTopicOrPartitionError` names it.

        Raises `CommitFailedError` where the group has given the partitions to others,
        `FencedInstanceIdError`, `GroupAuthorizationError` or `TopicAuthorizationError` where a
        right is missing, `OffsetMetadataTooLargeError` …, and `KafkaTimeoutError` after `timeout`
        seconds (default `default.api.timeout.ms`).
        """
        group = self._group("commit()")
        chosen = None if offsets is None else offsets_to_commit(offsets)
        try:
            return self._call(lambda d: group.commits.commit(chosen, d), timeout, "commit")
        finally:
            group.tell_of_commits(self._host.wake)

    def commit_async(
        self,
        offsets: Mapping[TopicPartition, int | OffsetAndMetadata]
        | ConsumerRecord
        | Iterable[ConsumerRecord]
        | pa.RecordBatch
        | pa.Table
        | None = None,
        callback: Callable[[dict[TopicPartition, OffsetAndMetadata], KafkaError | None], object]
        | None = None,
    ) -> None:
        """Commit as `commit` does, without waiting for it.

        `callback(offsets, error)` is called in a later call that asks for records, or before a
        later `commit` returns; at the latest in `close()` or `unsubscribe()`, which wait for it.
        It is called exactly once, also if the client ends; a client that has ended raises here.
        Without one a failure is logged. Commits go out in the order of their calls.
        """
        self._calls.check_open()
        self._calls.check_uninterrupted("commit_async()")
        group, engine = self._group("commit_async()"), self._engine
        callback = some_function("callback", callback)
        if engine.ended is not None:
            raise engine.ended.with_traceback(None)
        deadline = self._host.now() + self._calls.seconds(None)
        with engine.lock:
            chosen = group.commits.positions() if offsets is None else offsets_to_commit(offsets)
            engine.start(group.commits.commit_and_tell(chosen, deadline, callback))
        self._host.wake()
        self._host.drive()

    def committed(
        self, partitions: Collection[TopicPartition], timeout: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """What the group has committed, by partition; None where it hasn't.

        With `isolation.level=read_committed` it waits for open transactions that have sent offsets
        to the group (KIP-447).
        """
        group = self._group("committed()")
        wanted = some_partitions(partitions)
        return self._call(
            lambda d: group.commits.stored.fetch(wanted, d), timeout, "committed offsets"
        )

    # The end

    @with_keywords
    def close(self, timeout: float = CLOSE_TIMEOUT) -> None:
        """Commit, leave the group, close all connections; ends within `timeout` seconds.

        A coordinator that fails at this moment takes some ten seconds to be replaced: with more
        time than the usual 5 s the member still leaves, else the others wait for its session's end.

        With `enable.auto.commit` everything that was handed out is committed; commits of
        `commit_async` are waited for and their callbacks called; `on_revoked` is called if
        partitions were assigned. A static member (`group.instance.id`) doesn't leave: it
        may be back within `session.timeout.ms` and find its partitions. What can't be done in time
        is logged. May be called twice; later calls of other methods raise `ClientClosedError`.
        """
        self._close(timeout, through=True)

    def _close(self, timeout: float, *, through: bool) -> None:
        """`through`: the application is done with what it was handed."""
        deadline = self._host.now() + checked_timeout(timeout)
        group, alone = self._engine.group, self._host.interrupted
        if group is not None and not self._closed and not self._host.forked:
            self._calls.check_uninterrupted("close()")
        self._host.surfacing = False
        try:
            if not self._closed and group is not None and not self._host.forked:
                with suppress(ClientForkedError):  # the member is the parent's
                    try:
                        if self._engine.ended is None:
                            self._leave(group, deadline, through=through)
                    finally:
                        self._tell_the_rest(group)
            open_still = not (self._closed or alone or self._host.forked or self._host.torn)
            sessions = self._engine.fetcher.halt() if open_still else ()
            if sessions and self._engine.ended is None:
                patience = min(CLOSING_PATIENCE, max(0.0, deadline - self._host.now()))
                with suppress(KafkaError):
                    self._call(
                        lambda d: close_sessions(self._engine, sessions, d), patience, "goodbyes"
                    )
        finally:
            left = max(0.0, deadline - self._host.now())
            self._run(self._calls.close(min(FOREVER, left)))

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._close(CLOSE_TIMEOUT, through=error is None)

    def _leave(self, group: ConsumerGroup, deadline: float, *, through: bool) -> None:
        """Run the leaving, with its callbacks, in this thread."""
        engine = self._engine
        if through:
            with engine.lock:
                engine.subscription.note_consumed()
        end = engine.start(group.leave(deadline))
        try:
            self._run_turns(group, end, deadline)
        finally:
            if not end.done:
                logger.warning("group %s wasn't left in time", group.group_id)

    def _run_turns(self, group: ConsumerGroup, end: Completion[None], deadline: float) -> None:
        """Run callbacks in this thread until something has ended; then raise what they raised."""
        host, until = self._host, deadline + LEAVING_GRACE
        failure: Exception | None = None
        with suppress(KafkaError):  # the time is up, or the client has ended
            while self._call(
                lambda _: group.turn_or(end, until), max(0.0, until - host.now()), "leaving"
            ):
                try:
                    group.call_back(host.now, host.wake)
                except Exception as error:
                    failure = failure or error
        if failure is not None:
            raise failure

    def _tell_the_rest(self, group: ConsumerGroup) -> None:
        """Each callback of `commit_async` is called once: also if the time is up, or the client
        has ended. What it begins now would end for nobody, so that is refused.
        """
        with self._engine.lock:
            group.commits.closed = True
            group.commits.give_up(self._host.now())
        try:
            group.tell_of_commits(self._host.wake)
        except KafkaError as error:
            logger.debug("group %s: a commit's callback: %s", group.group_id, error)

    def _group(self, what: str) -> ConsumerGroup:
        group = self._engine.group
        if group is None:
            raise IllegalStateError(f"{what} needs a group.id (without one: assign() and seek())")
        return group

"""Calls of a consumer that wait, but don't read: subscriptions, commits, offsets, topics.

In: topics, callbacks, offsets. Out: answers of the group and of brokers. Must not: decide anything;
the engine and `clients/calls` do.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from types import TracebackType
from typing import TYPE_CHECKING
from weakref import ref

from odradek.api.base import Client
from odradek.api.consumer_state import ConsumerState, RebalanceListener
from odradek.clients.calls.client_calls import CLOSE_TIMEOUT
from odradek.clients.calls.group_calls import RebalanceCallback as Callback
from odradek.clients.consumer.consumer_engine import ConsumerEngine
from odradek.clients.consumer.fetching.offsets import BEGINNING, END
from odradek.clients.consumer.partition_arguments import (
    one_partition,
    some_partitions,
    some_times,
)
from odradek.clients.consumer.records import OffsetAndMetadata, OffsetAndTimestamp
from odradek.common.arguments import flag, names, topic_name
from odradek.common.errors import KafkaError
from odradek.common.options.habits import with_keywords
from odradek.common.types import TopicPartition

if TYPE_CHECKING:
    from odradek.api.consumer_state import Offsets
    from odradek.clients.descriptions import TopicDescription


class GroupConsumer(ConsumerState, Client[ConsumerEngine]):
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
        named = {"on_assigned": on_assigned, "on_revoked": on_revoked, "on_lost": on_lost}
        self._run(self._calls.subscribe(topics, pattern, listener, named, ref(self)))

    def unsubscribe(self, timeout: float | None = None) -> None:
        """Leave the group, all partitions included; `assign` or `subscribe` may follow.

        Commits what the application was handed if `enable.auto.commit` is on, and calls
        `on_revoked`. Ends within `timeout` (default `default.api.timeout.ms`), even where the
        group can't be reached.
        """
        self._run(self._calls.unsubscribe(timeout))

    # Commits

    @with_keywords
    def commit(
        self, offsets: Offsets | None = None, timeout: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Commit, wait for the answer, and return the committed offsets.

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

        With `enable.auto.commit=false` the client commits nothing by itself. A partition that has
        brought no record yet has no committed offset then, and with `auto.offset.reset=latest` its
        next reader skips what is written until it begins: call `commit()` without an argument once
        the partitions are assigned and their positions known.

        What the group took of it counts, also where an error is raised for the rest. A topic that
        was deleted is asked for five seconds long, then `UnknownTopicOrPartitionError` names it.

        Raises `CommitFailedError` where a partition was lost, or given to another member, since its
        records were read, even if this member has joined again; the others are committed. Offsets
        by partition are judged by the assignment that was announced last: by `on_assigned`, or by
        the call that asks for records if there is no such callback. Raises
        `FencedInstanceIdError`, `GroupAuthorizationError` or `TopicAuthorizationError` where a
        right is missing, `OffsetMetadataTooLargeError` …, and `KafkaTimeoutError` after `timeout`
        seconds (default `default.api.timeout.ms`).
        """
        return self._run(self._calls.commit(offsets, timeout))

    def commit_async(
        self,
        offsets: Offsets | None = None,
        callback: Callable[[dict[TopicPartition, OffsetAndMetadata], KafkaError | None], object]
        | None = None,
    ) -> None:
        """Commit as `commit` does, without waiting for it.

        `callback(offsets, error)` is called in a later call that asks for records, or before a
        later `commit` returns; at the latest in `close()` or `unsubscribe()`, which wait for it.
        It is called exactly once, also if the client ends; a client that has ended raises here.
        Without one a failure is logged. Commits go out in the order of their calls.
        """
        self._run(self._calls.commit_async(offsets, callback))

    def committed(
        self, partitions: Collection[TopicPartition], timeout: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """Return the group's committed offsets by partition; None without one.

        With `isolation.level=read_committed` it waits for open transactions that have sent offsets
        to the group (KIP-447).
        """
        group = self._calls.group("committed()")
        wanted = some_partitions(partitions)
        return self._call(
            lambda d: group.commits.stored.fetch(wanted, d), timeout, "committed offsets"
        )

    def seek_to_committed(
        self, partitions: Collection[TopicPartition] | None = None, timeout: float | None = None
    ) -> None:
        """Go back to what the group has committed (None: all assigned), once that is known.

        For what was read in vain: after an aborted transaction, or when work on records failed.
        Where nothing is committed `auto.offset.reset` says where to go on. A commit of this
        consumer's own that is under way counts once the group has it: wait for it first.

        Raises `KafkaTimeoutError` after `timeout` seconds (default `default.api.timeout.ms`): then
        `poll` goes on looking, and hands out nothing of these partitions before it knows. Raises
        what `committed` raises, and `IllegalStateError` without a `group.id`.

        >>> try:
        ...     with producer.transaction():
        ...         producer.send_offsets_to_transaction(records, consumer.group_metadata())
        ... except AbortableTransactionError:
        ...     consumer.seek_to_committed()
        """
        self._run(self._calls.seek_to_committed(partitions, timeout))

    def position(self, tp: TopicPartition, timeout: float | None = None) -> int:
        """The offset of the next record that `poll` will hand out.

        It moves when records are handed out, and by nothing else. Waits for a lookup where there is
        no position yet, at most `timeout` seconds (default `default.api.timeout.ms`).
        """
        known = self._calls.engine.subscription.position(one_partition(tp))
        return self._run(self._calls.position(tp, timeout)) if known is None else known

    # Offsets

    def beginning_offsets(
        self, partitions: Collection[TopicPartition], timeout: float | None = None
    ) -> dict[TopicPartition, int]:
        """Return the first offset of each partition."""
        wanted = some_partitions(partitions)
        return self._call(
            lambda d: self._engine.offsets_at(wanted, BEGINNING, d), timeout, "beginning offsets"
        )

    def end_offsets(
        self, partitions: Collection[TopicPartition], timeout: float | None = None
    ) -> dict[TopicPartition, int]:
        """The offset that the next record will get (read_committed: the last stable offset)."""
        wanted = some_partitions(partitions)
        return self._call(lambda d: self._engine.offsets_at(wanted, END, d), timeout, "end offsets")

    def offsets_for_times(
        self, times: Mapping[TopicPartition, int], timeout: float | None = None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Per partition the first record at or after a time in ms since the epoch, else None."""
        wanted = some_times(times)
        return self._call(
            lambda d: self._engine.offsets_for_times(wanted, d), timeout, "offsets for times"
        )

    # Topics and cluster

    def partitions_for(self, topic: str, timeout: float | None = None) -> list[TopicPartition]:
        """The partitions of a topic, in order. Raises `UnknownTopicOrPartitionError`."""
        name = topic_name("topic", topic)
        return self._call(
            lambda d: self._engine.partitions_for(name, d), timeout, f"partitions of {name}"
        )

    def describe(
        self, topics: Collection[str] | str, timeout: float | None = None
    ) -> dict[str, TopicDescription]:
        """Partitions, leaders and ids by topic; a str is one name.

        Raises `UnknownTopicOrPartitionError`.
        """
        wanted = names("topics", topics)
        return self._call(
            lambda d: self._engine.describe(wanted, d), timeout, "description of topics"
        )

    def list_topics(
        self, timeout: float | None = None, *, include_internal: bool = False
    ) -> list[str]:
        """The names of all topics that this client may see, sorted."""
        internal = flag("include_internal", include_internal)
        return self._call(
            lambda d: self._engine.list_topics(d, internal=internal), timeout, "list of topics"
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
        self._end(self._calls.leave_and_close(timeout))

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._end(self._calls.leave_and_close(CLOSE_TIMEOUT, through=error is None))

"""Calls of a consumer that wait, except reading: subscriptions, commits, offsets, topics.

In: topics, callbacks, offsets. Out: responses of the group and of brokers. Must not: decide
anything; the engine and `clients/calls` do.
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
from odradek.common.options.migration_hints import with_keywords
from odradek.common.types import TopicPartition

if TYPE_CHECKING:
    from odradek.api.consumer_state import Offsets
    from odradek.clients.descriptions import TopicDescription


class GroupConsumer(ConsumerState, Client[ConsumerEngine]):
    """Base class of `Consumer`; not instantiated directly."""

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
        """Join the group (`group.id`) and read the partitions of these topics that it assigns.

        Pass topics or a `pattern`, a regular expression that must match the *whole* topic name. In
        a classic group the pattern is Python's and is evaluated every `metadata.max.age.ms`; with
        `group.protocol=consumer` (KIP-848) it is RE2 and the broker evaluates it. Topics that don't
        exist yet are read once they are created. A second call replaces subscription and callbacks
        within the same group; with the same topics or pattern it only replaces the callbacks,
        without a rebalance.

        Returns at once. A background thread joins, sends heartbeats and fetches, so slow processing
        doesn't cost the membership. But the application must request records at least every
        `max.poll.interval.ms` (by `poll`, `poll_arrow`, `records`, `batches` or a `for` loop). If
        it doesn't, the member leaves, and rejoins at the next such call.

        Callbacks are called as `callback(consumer, partitions)`, one at a time, in the thread that
        reads records, inside that call:

        - `on_assigned`: newly assigned partitions, before their positions are looked up and before
          any of their records is returned. Call `seek()` here to start elsewhere.
        - `on_revoked`: partitions that are being revoked. With `enable.auto.commit` the returned
          records have been committed. No more records are returned, and no other member gets the
          partitions before the callback returns, so write results and `commit()` here.
        - `on_lost`: partitions that were lost, because the member was removed or didn't poll in
          time. Other members may be reading them, so a commit would be rejected. Defaults to
          `on_revoked`.

        Partitions that remain assigned continue meanwhile, with positions, buffers and fetches
        (cooperative-sticky and KIP-848; other assignors revoke all partitions first). Callbacks may
        use the consumer (`position`, `seek`, `pause`, `commit`, `committed` …), except `poll`,
        `subscribe` and `unsubscribe`. An exception of a callback is raised by the call that ran it,
        and the rebalance continues. A `listener` may have kafka-python's methods instead.

        Raises `ConfigurationError`, and `IllegalStateError` without a `group.id` or after `assign`.
        Errors of the group (`GroupAuthorizationError`, `FencedInstanceIdError`,
        `InconsistentGroupProtocolError` …) are raised by the calls that read records.
        """
        named = {"on_assigned": on_assigned, "on_revoked": on_revoked, "on_lost": on_lost}
        self._run(self._calls.subscribe(topics, pattern, listener, named, ref(self)))

    def unsubscribe(self, timeout: float | None = None) -> None:
        """Leave the group and drop all partitions; `assign` or `subscribe` may follow.

        With `enable.auto.commit` it commits the returned records, and it calls `on_revoked`.
        Returns within `timeout` seconds (default `default.api.timeout.ms`), even if the group can't
        be reached.
        """
        self._run(self._calls.unsubscribe(timeout))

    # Commits

    @with_keywords
    def commit(
        self, offsets: Offsets | None = None, timeout: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Commit offsets, wait for the response, and return the committed offsets.

        Without an argument it commits the positions: all records returned so far, including the
        record or batch of the current iteration. `offsets` may be a dict of the *next* offset to
        read by partition, a record or records, or Arrow data with the columns `topic`, `partition`
        and `offset`; of records and rows, the offset after the last one of each partition is
        committed.

        With `enable.auto.commit` (the default with a `group.id`) no call is needed for
        at-least-once processing: the client commits every `auto.commit.interval.ms`, before
        partitions are revoked, in `unsubscribe` and in `close`. It commits records only after the
        application has requested more: the list from `poll`, or the batch or record of the current
        iteration, is committed after the next call, so a crash loses none of them. `close()` counts
        as such a call; leaving a `with` block by an exception doesn't.

        With `enable.auto.commit=false` the client never commits by itself. A partition that has
        returned no record then has no committed offset, and with `auto.offset.reset=latest` its
        next reader skips the records written before it starts. To avoid that, call `commit()`
        without an argument once the partitions are assigned and their positions known.

        Also works with `assign`, under a `group.id` without subscribed members. If an error is
        raised, the other partitions may have been committed. For a topic that was deleted, commits
        are retried for five seconds, then `UnknownTopicOrPartitionError` names it.

        Raises `CommitFailedError` if a partition was lost or assigned to another member after its
        records were read, even if this member has rejoined; the others are committed. For a dict of
        offsets the assignment is the one last announced: to `on_assigned`, or without such a
        callback, in the call that reads records. Raises `FencedInstanceIdError`,
        `GroupAuthorizationError`, `TopicAuthorizationError`, `OffsetMetadataTooLargeError` …, and
        `KafkaTimeoutError` after `timeout` seconds (default `default.api.timeout.ms`).
        """
        return self._run(self._calls.commit(offsets, timeout))

    def commit_async(
        self,
        offsets: Offsets | None = None,
        callback: Callable[[dict[TopicPartition, OffsetAndMetadata], KafkaError | None], object]
        | None = None,
    ) -> None:
        """Commit offsets as `commit` does, without waiting for the response.

        `callback(offsets, error)` is called exactly once: in a later call that reads records,
        before a later `commit` returns, or in `close()` or `unsubscribe()`, which wait for it. It
        is also called if the client fails; after that, this method raises. Without a callback a
        failure is logged. Commits are sent in the order of the calls.
        """
        self._run(self._calls.commit_async(offsets, callback))

    def committed(
        self, partitions: Collection[TopicPartition], timeout: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """Return the group's committed offsets by partition; None for a partition without one.

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
        """Set positions to the group's committed offsets (None: all assigned partitions).

        Use it to read records again, after an aborted transaction or when processing failed.
        Partitions without a committed offset start where `auto.offset.reset` says. If a commit of
        this consumer is in flight, wait for it first: the lookup may return the offset before it.

        Raises `KafkaTimeoutError` after `timeout` seconds (default `default.api.timeout.ms`);
        `poll` then continues the lookup and returns no records of these partitions before it has
        finished. Raises what `committed` raises, and `IllegalStateError` without a `group.id`.

        >>> try:
        ...     with producer.transaction():
        ...         producer.send_offsets_to_transaction(records, consumer.group_metadata())
        ... except AbortableTransactionError:
        ...     consumer.seek_to_committed()
        """
        self._run(self._calls.seek_to_committed(partitions, timeout))

    def position(self, tp: TopicPartition, timeout: float | None = None) -> int:
        """Return the offset of the next record that `poll` will return.

        It moves with returned records and with seeks only. If there is no position yet, the call
        waits for the lookup for at most `timeout` seconds (default `default.api.timeout.ms`).
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
        """Return the log end offsets (read_committed: the last stable offsets)."""
        wanted = some_partitions(partitions)
        return self._call(lambda d: self._engine.offsets_at(wanted, END, d), timeout, "end offsets")

    def offsets_for_times(
        self, times: Mapping[TopicPartition, int], timeout: float | None = None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Return, by partition, the offset of the first record at or after a time; None for none.

        `times`: milliseconds since the epoch by partition.
        """
        wanted = some_times(times)
        return self._call(
            lambda d: self._engine.offsets_for_times(wanted, d), timeout, "offsets for times"
        )

    # Topics and cluster

    def partitions_for(self, topic: str, timeout: float | None = None) -> list[TopicPartition]:
        """Return the partitions of a topic, in order. Raises `UnknownTopicOrPartitionError`."""
        name = topic_name("topic", topic)
        return self._call(
            lambda d: self._engine.partitions_for(name, d), timeout, f"partitions of {name}"
        )

    def describe(
        self, topics: Collection[str] | str, timeout: float | None = None
    ) -> dict[str, TopicDescription]:
        """Return partitions, leaders and ids by topic; a str is one topic.

        Raises `UnknownTopicOrPartitionError`.
        """
        wanted = names("topics", topics)
        return self._call(
            lambda d: self._engine.describe_topics(wanted, d), timeout, "the description of topics"
        )

    def list_topics(
        self, timeout: float | None = None, *, include_internal: bool = False
    ) -> list[str]:
        """Return the names of all topics that this client may see, sorted."""
        internal = flag("include_internal", include_internal)
        return self._call(
            lambda d: self._engine.list_topics(d, internal=internal), timeout, "the list of topics"
        )

    # The end

    @with_keywords
    def close(self, timeout: float = CLOSE_TIMEOUT) -> None:
        """Commit, leave the group and close all connections, within `timeout` seconds.

        With `enable.auto.commit` all returned records are committed. Commits of `commit_async` are
        waited for and their callbacks called; `on_revoked` is called if partitions were assigned. A
        static member (`group.instance.id`) doesn't leave: if it returns within `session.timeout.ms`
        it gets its partitions back. Work that can't be finished in time is logged. Closing twice
        has no effect; later calls of other methods raise `ClientClosedError`.

        If the coordinator fails at this moment, it takes about ten seconds to be replaced. A longer
        `timeout` than the default of 5 s then lets the member leave; otherwise the other members
        wait until its session times out.
        """
        self._end(self._calls.leave_and_close(timeout))

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._end(self._calls.leave_and_close(CLOSE_TIMEOUT, through=error is None))

"""Shared part of `Consumer` and `AIOConsumer`: messages, subscriptions, metadata, closing.

In: subscriptions or assignments, calls that request messages. Out: messages and error messages. The
calls are generators (see `flows`), which the two classes run; rebalance callbacks run inside the
calls. Must not: decide what is assigned or fetched, or repeat checks for each message.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from typing import Any
from weakref import ref

import odradek
from odradek.common.errors.topics import TopicRecreatedError
from odradek.common.secret import private
from odradek.compat.buffered_records import Runs
from odradek.compat.clock import monotonic
from odradek.compat.confluent_kafka.assigned_consumer import AssignedConsumer
from odradek.compat.confluent_kafka.cluster_metadata import ClusterMetadata
from odradek.compat.confluent_kafka.flows import Flow
from odradek.compat.confluent_kafka.kafka_error import KafkaError
from odradek.compat.confluent_kafka.message import Message, messages_of
from odradek.compat.confluent_kafka.partition_ends import PATIENCE
from odradek.compat.confluent_kafka.settings import checked_seconds
from odradek.compat.confluent_kafka.subscription import (
    RebalanceCallback,
    checked_callbacks,
    topics_or_pattern,
)
from odradek.compat.confluent_kafka.topic_partition import (
    TopicPartition,
    found_at,
    one_partition,
    ours,
    partition_list,
    with_offset,
)
from odradek.compat.confluent_kafka.translated_errors import raise_error, translating

LONGEST_WAIT = 1.0
"""Seconds that a call waits for records before it checks for callbacks."""
MOST_MESSAGES = 1_000_000
"""Maximum number of messages that `consume` returns."""


class ConsumerCore(AssignedConsumer):
    """Base of the cores of `Consumer` and `AIOConsumer`; not instantiated directly."""

    _questions: Any
    """Source of cluster metadata."""
    _program: Callable[[], Any]
    """Weak reference to the program's consumer, which is passed to its callbacks."""

    # Differences between threads and event loops

    def _now(self) -> float:
        """Return the time in seconds, on the monotonic clock on which deadlines are computed."""
        raise NotImplementedError

    def _idle(self, seconds: float) -> Any:
        """Wait while the consumer has no partitions; a new callback may end the wait."""
        raise NotImplementedError

    def _rest(self, seconds: float) -> Any:
        """Wait this many seconds: block the thread, or return an awaitable."""
        raise NotImplementedError

    def _called(self, flow: Callable[..., Flow[None]]) -> Callable[..., Any]:
        """Convert a generator function of this object to a callback for Odradek's consumer."""
        raise NotImplementedError

    # Messages

    def at_hand(self) -> Message | None:
        """Return the next fetched message; None if `poll` has other work to do first."""
        try:
            return next(self._in_hand, None)
        except ValueError:  # another thread is taking a message from the same generator
            return None

    def _rest_in_hand(self) -> Iterator[Message]:
        """Yield fetched messages until `poll` has other work: a callback, a commit or a rebalance.

        This one generator does all checks itself: function calls would slow down each message.
        """
        consumer, taken = self._consumer, 0
        found, group, clock, most = consumer.rest()
        nothing_waits, every = self._queue.empty, self._every
        callbacks = () if group is None else group.callbacks.waiting
        try:
            while taken < most:
                if self._overdue or self._closed or callbacks or not nothing_waits():
                    return
                if every is not None and monotonic() >= self._commit_at:
                    return
                message = next(found, None)
                if message is None:
                    return
                taken += 1
                if group is not None:
                    group.given.append(clock())
                self._last = message._record
                yield message
        finally:
            consumer.took(taken)

    def poll(self, timeout: float) -> Flow[Message | None]:
        """Return the next message, or None after `timeout` seconds; runs callbacks meanwhile."""
        deadline = self._now() + checked_seconds(timeout)
        self._open()
        found = yield from self._next(deadline, 1, [])
        return found[0] if found else None

    def consume(self, num_messages: int, timeout: float) -> Flow[list[Message]]:
        """Return `num_messages` messages, or fewer after `timeout` seconds, errors among them.

        They count as returned all together: no commit or rebalance may come between two of them.
        """
        if not 0 <= num_messages <= MOST_MESSAGES:
            raise ValueError("num_messages must be between 0 and 1000000 (1M)")
        deadline = self._now() + checked_seconds(timeout)
        self._open()
        found: list[Message] = []
        taken: Runs = []
        try:
            while len(found) < num_messages:
                more = yield from self._next(deadline, num_messages - len(found), taken)
                if not more:
                    break
                found = found + more if found else more
        except BaseException:  # a cancellation, Ctrl-C, or a callback's exception
            self._give_back(found, taken)
            raise
        for run in taken:
            self._books.handed_out(run[-1])
        return found

    def _give_back(self, messages: list[Message], taken: Runs) -> None:
        """Let the next calls return these error messages and the records in `taken` again."""
        for message in messages:
            error = message.error()
            if error is not None and error.code() == KafkaError._PARTITION_EOF:
                self._forget_ends((message.topic() or "", message.partition() or 0))
            elif error is not None:
                self._again.append(message)
        first: dict[odradek.TopicPartition, Any] = {}
        for run in taken:
            first.setdefault(odradek.TopicPartition(*run[0][:2]), run[0])
        for place in first.keys() & self._consumer.assigned():
            record = first[place]
            with suppress(odradek.IllegalStateError, TopicRecreatedError):  # the partition was lost
                self._consumer.seek(place, odradek.OffsetAndMetadata(record[2], "", record[8]))

    def _next(self, deadline: float, most: int, taken: Runs) -> Flow[list[Message]]:
        """Return at least one message and at most `most`; none after the deadline.

        `taken` contains the records that the program hasn't received yet. If there are any, and a
        rebalance waits until they are processed, the result is empty, too.
        """
        while not (taken and self._consumer.needs_poll()):
            self._queue.serve(0)
            due = self._due()
            if due:
                yield from self._commit_later(due)
            told = self._again.popleft() if self._again else self._too_late()
            told = told or (yield from self._end())
            if told is not None:
                return [told]
            left = max(0.0, deadline - self._now())
            often = self._ends is not None and self._ends.waits
            patience = self._queue.until_due(min(left, PATIENCE if often else LONGEST_WAIT))
            if not self._has_something:
                yield self._idle(patience)
            else:
                try:
                    found = yield from self._some(patience, most, taken)
                except odradek.KafkaError as error:
                    message = self._told(error)
                    if message is not None:
                        return [message]
                    yield self._rest(min(left, PATIENCE))
                else:
                    if found:
                        return found
                    if patience and (missing := self._missing()) is not None:
                        return [missing]
            if deadline <= self._now():
                self._queue.serve(0)
                return []
        return []

    def _some(self, patience: float, most: int, taken: Runs) -> Flow[list[Message]]:
        """Return the next messages, and add their records to `taken`.

        If only one is requested, it comes from the fetched records, without an engine call for it.
        """
        consumer, books = self._open(), self._books
        found: list[Message] = []
        if most > 1 or taken:
            runs = yield consumer.runs(patience, most, more=bool(taken))
            taken += runs  # first, because Ctrl-C may interrupt the conversion
            for run in runs:
                found += messages_of(run)
            return found
        message, tries = consumer.at_hand(), 2  # the first `fetch` may only yield to the loop
        while message is None and tries and (yield consumer.fetch(patience)):
            message, tries = consumer.at_hand(), tries - 1
        if message is not None:
            books.handed_out(message._record)
            found.append(message)
            if self._ends is None:
                self._in_hand = self._rest_in_hand()
        return found

    def _end(self) -> Flow[Message | None]:
        """Return a `_PARTITION_EOF` message for a partition whose end was reached, or None."""
        ends, consumer = self._ends, self._open()
        if ends is not None:
            for partition in ends.reached(consumer):
                message = ends.message(partition, (yield consumer.position(partition)))
                if message is not None:
                    return message
        return None

    # Subscriptions

    def subscribe(
        self,
        program: Any,
        topics: list[str],
        on_assign: RebalanceCallback | None,
        on_revoke: RebalanceCallback | None,
        on_lost: RebalanceCallback | None,
    ) -> Flow[None]:
        """Subscribe to these topics; `program` is the consumer that is passed to callbacks."""
        consumer = self._open()
        names, pattern = topics_or_pattern(topics)
        self._program = ref(program)
        self._callbacks = checked_callbacks(
            on_assign=on_assign, on_revoke=on_revoke, on_lost=on_lost or on_revoke
        )
        with translating():
            if not consumer.subscription() and consumer.assigned():
                consumer.assign([])
            yield consumer.subscribe(
                names,
                pattern,
                on_assigned=self._called(self._assigned),
                on_revoked=self._called(self._revoked),
                on_lost=self._called(self._lost),
            )
        self._has_something = True
        self._missed.clear()

    def unsubscribe(self) -> Flow[None]:
        """Leave the group; calls `on_revoke`."""
        consumer = self._open()
        yield from self._commit_now()
        with translating():
            yield consumer.unsubscribe()
        self._has_something = False
        self._books.forget()

    def _assigned(self, partitions: Collection[odradek.TopicPartition]) -> Flow[None]:
        self._books.forget(partitions)
        self._forget_ends()
        yield from self._call_back("on_assign", partitions)

    def _revoked(self, partitions: Collection[odradek.TopicPartition]) -> Flow[None]:
        try:
            yield from self._call_back("on_revoke", partitions)
        finally:
            yield from self._commit_now(partitions)
            self._books.forget(partitions)

    def _lost(self, partitions: Collection[odradek.TopicPartition]) -> Flow[None]:
        self._books.forget(partitions)
        yield from self._call_back("on_lost", partitions)

    def _call_back(self, name: str, partitions: Collection[odradek.TopicPartition]) -> Flow[None]:
        callback = self._callbacks[name]
        if callback is not None:
            yield from self._running.run(callback, self._program(), partitions)

    # Offsets

    def committed(
        self, partitions: list[TopicPartition], timeout: float
    ) -> Flow[list[TopicPartition]]:
        """Return the group's committed offsets; `OFFSET_INVALID` for a partition without one."""
        consumer, wanted = self._open(), [ours(p) for p in partition_list(partitions)]
        with translating():
            found = yield consumer.committed(wanted, checked_seconds(timeout))
        return [with_offset(place, found.get(place)) for place in wanted]

    def get_watermark_offsets(
        self, partition: TopicPartition, timeout: float, cached: bool
    ) -> Flow[tuple[int, int]]:
        """Return the first offset, and the offset of the next message."""
        consumer, place = self._open(), ours(one_partition(partition))
        if cached:
            known = (yield consumer.position(place)) if self._has_lag(place) else None
            return self._known_watermarks(place, known)
        seconds = checked_seconds(timeout)
        with translating():
            try:  # Odradek's consumer would wait for a missing partition
                there = yield consumer.partitions_for(place.topic, seconds)
            except odradek.UnknownTopicOrPartitionError as error:
                raise_error(KafkaError._UNKNOWN_PARTITION, str(error))
            if place not in there:
                raise_error(KafkaError._UNKNOWN_PARTITION, f"partition {place} doesn't exist")
            low = (yield consumer.beginning_offsets([place], seconds))[place]
            high = (yield consumer.end_offsets([place], seconds))[place]
        self._watermarks[place] = low, high
        return low, high

    def offsets_for_times(
        self, partitions: list[TopicPartition], timeout: float
    ) -> Flow[list[TopicPartition]]:
        """Return each partition's first message at or after the time (ms) that is its `offset`."""
        consumer, wanted = self._open(), partition_list(partitions)
        times = {ours(p): p.offset for p in wanted}
        with translating():
            found = yield consumer.offsets_for_times(times, checked_seconds(timeout))
        return [found_at(place, found[place]) for place in map(ours, wanted)]

    # Cluster metadata and closing

    def list_topics(self, topic: str | None, timeout: float) -> Flow[ClusterMetadata]:
        """Return the cluster's brokers and topics, or one topic; doesn't create topics."""
        self._open()
        found: ClusterMetadata = yield self._questions.list_topics(topic, timeout)
        return found

    def cluster_id(self, timeout: float) -> Flow[str]:
        """Return the cluster's id."""
        consumer = self._open()
        with translating():
            found: str = yield consumer.cluster_id(checked_seconds(timeout))
        return found

    @private
    def set_sasl_credentials(self, username: str, password: str) -> None:
        """Use these credentials from the next login on (PLAIN and SCRAM)."""
        consumer = self._open()
        if not self._given.checked_login(username, password):
            return
        with translating():
            consumer.set_sasl_credentials(username, password)
            self._questions.set_sasl_credentials(username, password)

    def close(self) -> Flow[None]:
        """Commit if configured, leave the group and close; closing twice has no effect."""
        if self._closed:
            return
        try:
            yield from self._commit_now()
            with translating():
                yield self._consumer.close()
        finally:
            self._closed = True
            yield self._questions.close()
        self._queue.serve_last()

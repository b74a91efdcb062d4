"""What `Consumer` and `AIOConsumer` do, once for both: messages, subscriptions, questions, the end.

In: subscriptions or assignments, calls that ask for messages. Out: messages, errors among them, as
flows (`flows`), which the two carry out; rebalance callbacks are called inside these. Must not:
decide what is assigned or fetched, or look at each message for what can be looked at once.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from time import monotonic
from typing import Any
from weakref import ref

import odradek
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
"""Seconds that a call waits for records before it looks whether a callback is due."""
MOST_MESSAGES = 1_000_000
"""What `consume` gives at most."""


class ConsumerCore(AssignedConsumer):
    """Base of what the two have inside; not made directly."""

    _questions: Any
    """Who is asked for topics."""
    _program: Callable[[], Any]
    """The consumer that callbacks get, which an event loop mustn't keep alive."""

    # What differs between a thread and a loop

    def _now(self) -> float:
        """The time that deadlines are made of."""
        raise NotImplementedError

    def _idle(self, seconds: float) -> Any:
        """Nothing can come: what is yielded until something may be looked at."""
        raise NotImplementedError

    def _rest(self, seconds: float) -> Any:
        """What is yielded for a pause."""
        raise NotImplementedError

    def _called(self, flow: Callable[..., Flow[None]]) -> Callable[..., Any]:
        """A method of this object's, which is a flow, as a callback of our consumer."""
        raise NotImplementedError

    # Messages

    def at_hand(self) -> Message | None:
        """The next message, where it has come already and nothing else has to be looked at."""
        try:
            return next(self._in_hand, None)
        except ValueError:  # another thread takes one just now
            return None

    def _rest_in_hand(self) -> Iterator[Message]:
        """What has come, one by one, until something else has to be looked at. It is one function
        that goes on, as each message would wait for all calls there are in between.
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
        """The next message, None after `timeout` seconds; callbacks are made meanwhile."""
        deadline = self._now() + checked_seconds(timeout)
        self._open()
        found = yield from self._next(deadline, 1)
        return found[0] if found else None

    def consume(self, num_messages: int, timeout: float) -> Flow[list[Message]]:
        """So many messages, fewer after `timeout` seconds, errors among them."""
        if not 0 <= num_messages <= MOST_MESSAGES:
            raise ValueError("num_messages must be between 0 and 1000000 (1M)")
        deadline = self._now() + checked_seconds(timeout)
        self._open()
        found: list[Message] = []
        try:
            while len(found) < num_messages:
                more = yield from self._next(deadline, num_messages - len(found))
                if not more:
                    break
                found = found + more if found else more
        except BaseException:  # cancelled, or a callback raised: nobody gets these
            self._give_back(found)
            raise
        return found

    def _give_back(self, messages: list[Message]) -> None:
        """Go on reading at these messages, which the program didn't get."""
        first: dict[odradek.TopicPartition, Message] = {}
        for message in messages:
            if message.error() is None:
                topic, number, *_ = message._record
                first.setdefault(odradek.TopicPartition(topic, number), message)
        for place in first.keys() & self._consumer.assignment():
            record = first[place]._record
            with suppress(odradek.IllegalStateError):  # it was lost meanwhile, and assigned again
                self._consumer.seek(place, odradek.OffsetAndMetadata(record[2], "", record[8]))
            self._books.take_back(record)

    def _next(self, deadline: float, most: int) -> Flow[list[Message]]:
        """At least one message, at most so many; none when the time is up."""
        while True:
            self._queue.serve(0)
            due = self._due()
            if due:
                yield from self._commit_later(due)
            told = self._too_late() or (yield from self._end())
            if told is not None:
                return [told]
            left = max(0.0, deadline - self._now())
            often = self._ends is not None and self._ends.waits
            patience = self._queue.until_due(min(left, PATIENCE if often else LONGEST_WAIT))
            if not self._has_something:
                yield self._idle(patience)
            else:
                try:
                    found = yield from self._some(patience, most)
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

    def _some(self, patience: float, most: int) -> Flow[list[Message]]:
        """The next messages. One comes from those that were fetched together, which costs no flow
        of the engine's for each.
        """
        consumer, books = self._open(), self._books
        found: list[Message] = []
        if most > 1:
            for run in (yield consumer.runs(patience, most)):
                books.handed_out(run[-1])
                found += messages_of(run)
            return found
        message, tries = consumer.at_hand(), 2  # a loop's turn may come after the last one here
        while message is None and tries and (yield consumer.fetch(patience)):
            message, tries = consumer.at_hand(), tries - 1
        if message is not None:
            books.handed_out(message._record)
            found.append(message)
            if self._ends is None:
                self._in_hand = self._rest_in_hand()
        return found

    def _end(self) -> Flow[Message | None]:
        """A message that tells of an end that was reached."""
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
        """Read these topics; `program` is the consumer that callbacks get."""
        consumer = self._open()
        names, pattern = topics_or_pattern(topics)
        self._program = ref(program)
        self._callbacks = checked_callbacks(
            on_assign=on_assign, on_revoke=on_revoke, on_lost=on_lost or on_revoke
        )
        with translating():
            if not consumer.subscription() and consumer.assignment():
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
        """Leave the group; `on_revoke` is called in here."""
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
        """What the group has committed; `OFFSET_INVALID` where it has nothing."""
        consumer, wanted = self._open(), [ours(p) for p in partition_list(partitions)]
        with translating():
            found = yield consumer.committed(wanted, checked_seconds(timeout))
        return [with_offset(place, found.get(place)) for place in wanted]

    def get_watermark_offsets(
        self, partition: TopicPartition, timeout: float, cached: bool
    ) -> Flow[tuple[int, int]]:
        """The first offset that is there, and the one that the next message gets."""
        consumer, place = self._open(), ours(one_partition(partition))
        if cached:
            known = (yield consumer.position(place)) if self._has_lag(place) else None
            return self._known_watermarks(place, known)
        seconds = checked_seconds(timeout)
        with translating():
            try:  # our consumer would wait for one that isn't there
                there = yield consumer.partitions_for(place.topic, seconds)
            except odradek.UnknownTopicOrPartitionError as error:
                raise_error(KafkaError._UNKNOWN_PARTITION, str(error))
            if place not in there:
                raise_error(KafkaError._UNKNOWN_PARTITION, f"there is no partition {place}")
            low = (yield consumer.beginning_offsets([place], seconds))[place]
            high = (yield consumer.end_offsets([place], seconds))[place]
        self._watermarks[place] = low, high
        return low, high

    def offsets_for_times(
        self, partitions: list[TopicPartition], timeout: float
    ) -> Flow[list[TopicPartition]]:
        """For each partition, whose `offset` is a time in ms, the first message at or after it."""
        consumer, wanted = self._open(), partition_list(partitions)
        times = {ours(p): p.offset for p in wanted}
        with translating():
            found = yield consumer.offsets_for_times(times, checked_seconds(timeout))
        return [found_at(place, found[place]) for place in map(ours, wanted)]

    # The cluster, and the end

    def list_topics(self, topic: str | None, timeout: float) -> Flow[ClusterMetadata]:
        """The cluster's brokers and topics, or one topic; it makes no topic."""
        self._open()
        found: ClusterMetadata = yield self._questions.list_topics(topic, timeout)
        return found

    def cluster_id(self, timeout: float) -> Flow[str]:
        """The cluster's id."""
        consumer = self._open()
        with translating():
            found: str = yield consumer.cluster_id(checked_seconds(timeout))
        return found

    def set_sasl_credentials(self, username: str, password: str) -> None:
        """Use another name and password from the next login on (PLAIN and SCRAM)."""
        consumer = self._open()
        if not self._given.checked_login(username, password):
            return
        with translating():
            consumer.set_sasl_credentials(username, password)
            self._questions.set_sasl_credentials(username, password)

    def close(self) -> Flow[None]:
        """Commit where that is set up so, leave the group, close; may be called twice."""
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

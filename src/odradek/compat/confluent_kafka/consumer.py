"""`Consumer` as confluent-kafka has it, over ours.

In: subscriptions or assignments, calls of `poll()` and `consume()`. Out: messages, errors among
them; all callbacks are made inside these calls, and inside `commit()`, `unsubscribe()` and
`close()`. Must not: decide what is assigned or fetched.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Iterator
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

import odradek
from odradek.compat.confluent_kafka.assigned_consumer import AssignedConsumer
from odradek.compat.confluent_kafka.cluster_metadata import ClusterMetadata
from odradek.compat.confluent_kafka.kafka_error import KafkaError
from odradek.compat.confluent_kafka.message import Message, message_of
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
from odradek.compat.confluent_kafka.translated_errors import raise_error, translated, translating

logger = logging.getLogger("odradek.compat")

LONGEST_WAIT = 1.0
"""Seconds that a call waits for records before it looks whether a callback is due."""
MOST_MESSAGES = 1_000_000
"""What `consume` gives at most."""


class Consumer(AssignedConsumer):
    """Hands out messages of subscribed or assigned partitions, one by one.

    The configuration has librdkafka's names and is read as there (`group.id` has to be given); what
    can't be honoured is refused by name, as a `KafkaException` with `_INVALID_ARG`. Times are
    seconds; one below 0 means as long as it takes. Calls come from one thread at a time.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._records: Iterator[odradek.ConsumerRecord] = iter(())
        self._plain = self._ends is None and self._given.commit_every is None
        """A message that has come already can be handed out without a look at anything else."""

    def _made(self) -> odradek.Consumer:
        return odradek.Consumer(self._given.ours)

    def _open(self) -> odradek.Consumer:
        found: odradek.Consumer = super()._open()
        return found

    def _go_to_committed(self, place: odradek.TopicPartition) -> None:
        self._consumer.seek_to_committed([place])

    # Messages

    def poll(self, timeout: float = -1) -> Message | None:
        """The next message, None after `timeout` seconds; callbacks are made meanwhile.

        A message may tell of an error: look at its `error()` first. What a callback raises comes
        out here.
        """
        seconds = checked_seconds(timeout)
        self._open()
        found = self._come(1)
        return found[0] if found else self._next(time.monotonic() + seconds)

    def consume(self, num_messages: int = 1, timeout: float = -1) -> list[Message]:
        """So many messages, fewer after `timeout` seconds, errors among them."""
        if not 0 <= num_messages <= MOST_MESSAGES:
            raise ValueError("num_messages must be between 0 and 1000000 (1M)")
        deadline = time.monotonic() + checked_seconds(timeout)
        self._open()
        found: list[Message] = []
        while len(found) < num_messages:
            found += self._come(num_messages - len(found))
            if len(found) < num_messages:
                message = self._next(deadline)
                if message is None:
                    break
                found.append(message)
        return found

    def _come(self, most: int) -> list[Message]:
        """Messages that have come already, where nothing else has to be looked at for each."""
        found: list[Message] = []
        self._queue.serve(0)
        if not (self._plain and self._has_something):
            return found
        try:
            for record in self._records:
                self._books.handed_out(record)
                found.append(message_of(record))
                if len(found) == most:
                    break
        except odradek.KafkaError as error:
            message = self._told(error)
            if message is not None:
                found.append(message)
        return found

    def _next(self, deadline: float) -> Message | None:
        while True:
            self._queue.serve(0)
            due = self._due()
            if due:
                self._commit_later(due)
            if (end := self._end()) is not None:
                return end
            left = max(0.0, deadline - time.monotonic())
            often = self._ends is not None and self._ends.waits
            patience = min(left, PATIENCE if often else LONGEST_WAIT)
            if not self._has_something:
                self._queue.serve(patience)
            else:
                try:
                    record = self._record(patience)
                except odradek.KafkaError as error:
                    message = self._told(error)
                    if message is not None:
                        return message
                    time.sleep(min(left, PATIENCE))
                else:
                    if record is not None:
                        self._books.handed_out(record)
                        return message_of(record)
                    if patience and (missing := self._missing()) is not None:
                        return missing
            if deadline <= time.monotonic():
                self._queue.serve(0)
                return None

    def _end(self) -> Message | None:
        """A message that tells of an end that was reached."""
        ends = self._ends
        if ends is None:
            return None
        found = (ends.message(p, self._consumer.position(p)) for p in ends.reached(self._consumer))
        return next((message for message in found if message is not None), None)

    def _record(self, patience: float) -> odradek.ConsumerRecord | None:
        """The next record; what has come already costs no wait and no flow of the engine's."""
        record = next(self._records, None)
        if record is None:
            found = self._consumer.poll(patience, 1)
            if not found:
                return None
            record = found[0]
            self._records = self._consumer.records(0)
        return record

    # Subscriptions

    def subscribe(
        self,
        topics: list[str],
        on_assign: RebalanceCallback | None = None,
        on_revoke: RebalanceCallback | None = None,
        on_lost: RebalanceCallback | None = None,
    ) -> None:
        """Join the group and read these topics; one that begins with ^ is a regular expression.

        Callbacks are called as `callback(consumer, partitions)` inside `poll()` and `consume()`. In
        `on_assign`, `assign()` with offsets says where to begin. Without `on_lost`, `on_revoke` is
        called for what is lost.
        """
        consumer = self._open()
        names, pattern = topics_or_pattern(topics)
        self._callbacks = checked_callbacks(
            on_assign=on_assign, on_revoke=on_revoke, on_lost=on_lost or on_revoke
        )
        with translating():
            if not consumer.subscription() and consumer.assignment():
                consumer.assign([])
            consumer.subscribe(
                names,
                pattern,
                on_assigned=self._assigned,
                on_revoked=self._revoked,
                on_lost=self._lost,
            )
        self._has_something = True
        self._missed.clear()

    def unsubscribe(self) -> None:
        """Leave the group; `on_revoke` is called in here."""
        consumer = self._open()
        self._commit_now()
        with translating():
            consumer.unsubscribe()
        self._has_something = False
        self._books.forget()

    def _assigned(self, _: Any, partitions: Collection[odradek.TopicPartition]) -> None:
        self._books.forget(partitions)
        self._forget_ends()
        callback = self._callbacks["on_assign"]
        if callback is not None:
            self._running.run(callback, self, partitions)

    def _revoked(self, _: Any, partitions: Collection[odradek.TopicPartition]) -> None:
        callback = self._callbacks["on_revoke"]
        try:
            if callback is not None:
                self._running.run(callback, self, partitions)
        finally:
            self._commit_now(partitions)
            self._books.forget(partitions)

    def _lost(self, _: Any, partitions: Collection[odradek.TopicPartition]) -> None:
        callback = self._callbacks["on_lost"]
        self._books.forget(partitions)
        if callback is not None:
            self._running.run(callback, self, partitions)

    # Commits

    def commit(
        self,
        message: Message | None = None,
        offsets: list[TopicPartition] | None = None,
        asynchronous: bool = True,
    ) -> list[TopicPartition] | None:
        """Commit what is behind a message, these offsets, or what is stored.

        Gives None at once, and `on_commit` hears of the outcome; with `asynchronous=False` it waits
        and gives the partitions. Raises `KafkaException`: `_NO_OFFSET` where nothing is new.
        """
        consumer = self._open()
        chosen = self._to_commit(message, offsets)
        if asynchronous:
            self._commit_later(chosen)
            return None
        if not chosen:
            raise_error(KafkaError._NO_OFFSET, "Commit failed: Local: No offset stored")
        with translating():
            done = consumer.commit(chosen)
        self._books.committed(done.items())
        self._queue.serve(0)
        return self._outcomes(done, whole=message is None and offsets is None)

    def _commit_later(
        self, chosen: dict[odradek.TopicPartition, odradek.OffsetAndMetadata]
    ) -> None:
        if not chosen:
            self._tell_of_commit({}, KafkaError(KafkaError._NO_OFFSET))
            return
        with translating():
            self._open().commit_async(chosen, self._committed)

    def _commit_now(self, of: Collection[odradek.TopicPartition] | None = None) -> None:
        """Commit what is stored before partitions go, where that is this package's task."""
        if self._given.commit_every is None:
            return
        chosen = self._books.to_commit(of)
        if not chosen:
            return
        try:
            done = self._consumer.commit(chosen)
        except odradek.KafkaError as error:
            logger.warning("stored offsets weren't committed: %s", error)
            self._tell_of_commit(chosen, translated(error))
        else:
            self._books.committed(done.items())
            self._tell_of_commit(done, None)

    # Offsets

    def committed(
        self, partitions: list[TopicPartition], timeout: float = -1
    ) -> list[TopicPartition]:
        """What the group has committed; `OFFSET_INVALID` where it has nothing."""
        consumer, wanted = self._open(), [ours(p) for p in partition_list(partitions)]
        with translating():
            found = consumer.committed(wanted, checked_seconds(timeout))
        return [with_offset(place, found.get(place)) for place in wanted]

    def get_watermark_offsets(
        self, partition: TopicPartition, timeout: float = -1, cached: bool = False
    ) -> tuple[int, int]:
        """The first offset that is there, and the one that the next message gets.

        `cached`: as far as it is known, without a question; `OFFSET_INVALID` where it isn't.
        """
        consumer, place = self._open(), ours(one_partition(partition))
        if cached:
            known = consumer.position(place) if self._has_lag(place) else None
            return self._known_watermarks(place, known)
        seconds = checked_seconds(timeout)
        with translating():
            self._check_there(place, seconds)
            low = consumer.beginning_offsets([place], seconds)[place]
            high = consumer.end_offsets([place], seconds)[place]
        self._watermarks[place] = low, high
        return low, high

    def _check_there(self, place: odradek.TopicPartition, seconds: float) -> None:
        """Raise for a partition that isn't there, which our consumer would wait for."""
        try:
            known = self._consumer.partitions_for(place.topic, seconds)
        except odradek.UnknownTopicOrPartitionError as error:
            raise_error(KafkaError._UNKNOWN_PARTITION, str(error))
        if place not in known:
            raise_error(KafkaError._UNKNOWN_PARTITION, f"there is no partition {place}")

    def offsets_for_times(
        self, partitions: list[TopicPartition], timeout: float = -1
    ) -> list[TopicPartition]:
        """For each partition, whose `offset` is a time in ms, the first message at or after it.

        `OFFSET_END` where there is none.
        """
        consumer, wanted = self._open(), partition_list(partitions)
        times = {ours(p): p.offset for p in wanted}
        with translating():
            found = consumer.offsets_for_times(times, checked_seconds(timeout))
        return [found_at(place, found[place]) for place in map(ours, wanted)]

    # The cluster

    def list_topics(self, topic: str | None = None, timeout: float = -1) -> ClusterMetadata:
        """The cluster's brokers and topics, or one topic; it makes no topic."""
        self._open()
        return self._questions.list_topics(topic, timeout)

    def cluster_id(self, timeout: float = -1) -> str:
        """The cluster's id."""
        consumer = self._open()
        with translating():
            return consumer.cluster_id(checked_seconds(timeout))

    def set_sasl_credentials(self, username: str, password: str) -> None:
        """Use another name and password from the next login on (PLAIN and SCRAM)."""
        consumer = self._open()
        with translating():
            consumer.set_sasl_credentials(username, password)
            self._questions.set_sasl_credentials(username, password)

    # The end

    def close(self) -> None:
        """Commit where that is set up so, leave the group, close; may be called twice."""
        if self._closed:
            return
        self._records = iter(())
        try:
            self._commit_now()
            with translating():
                self._consumer.close()
        finally:
            self._closed = True
            self._questions.close()
        self._queue.serve(0)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with suppress(RuntimeError):
            self.close()

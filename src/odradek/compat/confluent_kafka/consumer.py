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
from odradek.compat.confluent_kafka.kafka_error import KafkaError, KafkaException
from odradek.compat.confluent_kafka.message import Message, error_message, message_of
from odradek.compat.confluent_kafka.partition_ends import PATIENCE
from odradek.compat.confluent_kafka.settings import checked_seconds
from odradek.compat.confluent_kafka.subscription import (
    RebalanceCallback,
    checked_callbacks,
    topics_or_pattern,
)
from odradek.compat.confluent_kafka.topic_partition import TopicPartition, partition_list
from odradek.compat.confluent_kafka.translated_errors import raise_error, translated, translating

logger = logging.getLogger("odradek.compat")

LONGEST_WAIT = 1.0
"""Seconds that a call waits for records before it looks whether a callback is due."""
SAME_ERROR, SAME_FATAL = 30.0, 1.0
"""Seconds between two messages with the same error, and with one that ends the consumer."""
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
        self._last_error: tuple[str, float] = "", 0.0

    # Messages

    def poll(self, timeout: float = -1) -> Message | None:
        """The next message, None after `timeout` seconds; callbacks are made meanwhile.

        A message may tell of an error: look at its `error()` first. What a callback raises comes
        out here.
        """
        deadline = time.monotonic() + checked_seconds(timeout)
        self._open()
        return self._next(deadline)

    def consume(self, num_messages: int = 1, timeout: float = -1) -> list[Message]:
        """So many messages, fewer after `timeout` seconds, errors among them."""
        if not 0 <= num_messages <= MOST_MESSAGES:
            raise ValueError("num_messages must be between 0 and 1000000 (1M)")
        deadline = time.monotonic() + checked_seconds(timeout)
        self._open()
        found: list[Message] = []
        while len(found) < num_messages:
            message = self._next(deadline)
            if message is None:
                break
            found.append(message)
        return found

    def _next(self, deadline: float) -> Message | None:
        while True:
            self._queue.serve(0)
            self._commit_in_time()
            if self._ends is not None and (end := self._ends.next(self._consumer)) is not None:
                return _end_of(*end)
            left = max(0.0, deadline - time.monotonic())
            often = self._ends is not None and self._ends.waits
            patience = min(left, PATIENCE if often else LONGEST_WAIT)
            if not self._has_something:
                self._queue.serve(patience)
            else:
                try:
                    record = self._record(patience)
                except odradek.KafkaError as error:
                    message = self._told(error, left)
                    if message is not None:
                        return message
                else:
                    if record is not None:
                        self._books.handed_out(record)
                        return message_of(record)
            if deadline <= time.monotonic():
                self._queue.serve(0)
                return None

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

    def _told(self, error: odradek.KafkaError, left: float) -> Message | None:
        """A message that tells of an error; not again and again of the same one."""
        now, found = time.monotonic(), self._poll_error(error)
        said, at = self._last_error
        if said == str(error) and now - at < (SAME_FATAL if found.fatal() else SAME_ERROR):
            time.sleep(min(left, PATIENCE))
            return None
        self._last_error = str(error), now
        place = getattr(error, "partition", None)
        partition = place if isinstance(place, odradek.TopicPartition) else None
        return error_message(found, partition)

    def _poll_error(self, error: odradek.KafkaError) -> KafkaError:
        found = translated(error)
        no_place = found.code() == KafkaError._STATE and not self._given.resets
        return KafkaError(KafkaError._AUTO_OFFSET_RESET, found.str()) if no_place else found

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
        whole = message is None and offsets is None
        places = consumer.assignment() if whole else list(chosen)
        return [self._outcome(place, done.get(place)) for place in places]

    def _to_commit(
        self, message: Message | None, offsets: list[TopicPartition] | None
    ) -> dict[odradek.TopicPartition, odradek.OffsetAndMetadata]:
        if message is not None and offsets is not None:
            raise ValueError("message and offsets are mutually exclusive")
        if message is None and offsets is None:
            return self._books.to_commit()
        return {
            odradek.TopicPartition(p.topic, p.partition): self._kept(p)
            for p in self._behind(message, offsets)
            if p.offset >= 0
        }

    def _commit_later(
        self, chosen: dict[odradek.TopicPartition, odradek.OffsetAndMetadata]
    ) -> None:
        if not chosen:
            self._tell_of_commit({}, KafkaError(KafkaError._NO_OFFSET))
            return

        def done(
            offsets: dict[odradek.TopicPartition, odradek.OffsetAndMetadata],
            error: odradek.KafkaError | None,
        ) -> None:
            if error is None:
                self._books.committed(offsets.items())
            self._tell_of_commit(offsets, None if error is None else translated(error))

        with translating():
            self._open().commit_async(chosen, done)

    def _tell_of_commit(
        self,
        offsets: dict[odradek.TopicPartition, odradek.OffsetAndMetadata],
        error: KafkaError | None,
    ) -> None:
        """Have `on_commit` called in the next call that makes callbacks."""
        callback = self._given.on_commit
        if callback is not None:
            partitions = [self._outcome(p, offset) for p, offset in offsets.items()]
            self._queue.put(lambda: callback(error, partitions))

    def _commit_in_time(self) -> None:
        """Commit what is stored where that is this package's task and its time has come."""
        every = self._given.commit_every
        if every is None:
            return
        now = time.monotonic()
        if now >= self._commit_at:
            self._commit_at = now + every
            stored = self._books.to_commit()
            if stored:
                self._commit_later(stored)

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

    def store_offsets(
        self, message: Message | None = None, offsets: list[TopicPartition] | None = None
    ) -> None:
        """Say what is worked on, with `enable.auto.offset.store=false`: later commits are of that.

        Raises `KafkaException`: `_INVALID_ARG` where each message is stored as it is handed out,
        `_UNKNOWN_PARTITION` for what isn't assigned.
        """
        consumer = self._open()
        if (message is None) == (offsets is None):
            raise ValueError("expected either message or offsets")
        if self._given.store_offsets:
            raise_error(KafkaError._INVALID_ARG, "it needs enable.auto.offset.store=false")
        assigned = consumer.assignment()
        partitions = self._behind(message, offsets)
        for partition in partitions:
            if (partition.topic, partition.partition) not in assigned:
                partition._failed(KafkaError(KafkaError._UNKNOWN_PARTITION))
        if any(partition.error is not None for partition in partitions):
            raise_error(KafkaError._UNKNOWN_PARTITION, "StoreOffsets failed: it isn't assigned")
        for partition in partitions:
            self._books.keep(partition)

    @staticmethod
    def _behind(
        message: Message | None, offsets: list[TopicPartition] | None
    ) -> list[TopicPartition]:
        """The offsets, or what is behind a message."""
        if message is None:
            return partition_list(offsets)
        if not isinstance(message, Message):
            raise TypeError(f"expected a Message, not {type(message).__name__}")
        error, topic = message.error(), message.topic()
        number, offset = message.partition(), message.offset()
        if error is not None or topic is None or number is None or offset is None:
            raise KafkaException(error or KafkaError(KafkaError._INVALID_ARG))
        return [TopicPartition(topic, number, offset + 1, None, message.leader_epoch())]

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


def _end_of(partition: odradek.TopicPartition, offset: int) -> Message:
    text = f"{partition} was read to its end, offset {offset}"
    return error_message(KafkaError(KafkaError._PARTITION_EOF, text), partition, offset)

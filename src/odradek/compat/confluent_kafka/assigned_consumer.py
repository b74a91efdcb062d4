"""Calls of a consumer about partitions: assign, seek, pause, commit, store offsets.

In: partitions with offsets, logical ones too. Out: the same calls of Odradek's consumer, for
threads or for event loops (`flows`). Must not: return messages; `consumer_core` does.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Collection, Iterator
from typing import Any

import odradek
from odradek.common.options.values import CONSUMER
from odradek.common.secret import private
from odradek.compat.clock import monotonic
from odradek.compat.confluent_kafka.callback_queue import CallbackQueue
from odradek.compat.confluent_kafka.flows import Flow
from odradek.compat.confluent_kafka.kafka_error import KafkaError
from odradek.compat.confluent_kafka.message import Message, error_message
from odradek.compat.confluent_kafka.offset_tracking import OffsetBooks
from odradek.compat.confluent_kafka.partition_ends import PartitionEnds
from odradek.compat.confluent_kafka.settings import Given, given
from odradek.compat.confluent_kafka.statistics_json import tell_regularly
from odradek.compat.confluent_kafka.subscription import RebalanceCallback, RunningCallback
from odradek.compat.confluent_kafka.topic_partition import (
    OFFSET_BEGINNING,
    OFFSET_END,
    OFFSET_INVALID,
    OFFSET_STORED,
    TopicPartition,
    at_offset,
    one_partition,
    ours,
    partition_list,
    to_commit,
    with_offset,
)
from odradek.compat.confluent_kafka.translated_errors import raise_error, translated, translating

logger = logging.getLogger("odradek.compat")

Committable = dict[odradek.TopicPartition, odradek.OffsetAndMetadata]
SAME_ERROR, SAME_FATAL = 30.0, 1.0
"""Minimum seconds between two messages with equal errors, and with equal fatal errors."""


class AssignedConsumer:
    """Base of `ConsumerCore`; not instantiated directly."""

    @private
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if len(args) > 1:
            raise TypeError(f"Consumer takes one configuration dict, not {len(args)} arguments")
        self._given = self._as_called(given(CONSUMER, args[0] if args else None, kwargs))
        self._queue = CallbackQueue(self._given)
        self._all_books = OffsetBooks(store=self._given.store_offsets)
        self._last: tuple[Any, ...] | None = None
        """Last returned record, unless `_all_books` has its offset already (see `_books`)."""
        self._in_hand: Iterator[Message] = iter(())
        """Iterator over messages that are fetched and not returned yet."""
        self._every = self._given.commit_every
        self._ends = PartitionEnds() if self._given.partition_eof else None
        self._callbacks: dict[str, RebalanceCallback | None] = {}
        self._running = RunningCallback()
        self._watermarks: dict[tuple[str, int], tuple[int, int]] = {}
        self._commit_at = 0.0
        self._missed: set[str] = set()
        """Names of missing topics that were reported to the program, each once."""
        self._again: deque[Message] = deque()
        """Errors that `consume` had taken but didn't return, because it was interrupted."""
        self._has_something = False
        """Whether there is a subscription or an assigned partition."""
        self._closed = False
        self._last_error: tuple[str, float] = "", 0.0
        with translating():
            self._consumer: Any = self._made()
        if self._every is not None:
            self._consumer.remember_positions()
        self._overdue = False
        """Whether the member has left its group because the program didn't poll in time."""
        self._consumer.listen(self._heard())
        tell_regularly(self._queue, CONSUMER, self._given, self, lambda own: own._consumer)

    def _hear(self, event: odradek.Event) -> None:
        """Notice that the member has left its group; pass each event to the callbacks' queue."""
        if event.kind == "group" and event.fields["event"] == "poll_overdue":
            self._overdue = True
        self._queue.hear(event)

    # Differences between threads and event loops

    def _as_called(self, found: Given) -> Given:
        """Return the configuration; for an event loop, with coroutine callbacks wrapped."""
        return found

    def _made(self) -> Any:
        """Create the Odradek consumer, for threads or for an event loop."""
        raise NotImplementedError

    def _heard(self) -> Callable[[odradek.Event], None]:
        """Return the listener for events, which mustn't keep an asyncio consumer alive."""
        return self._hear

    def _open(self) -> Any:
        if self._closed:
            raise RuntimeError("Consumer closed")
        return self._consumer

    @property
    def _books(self) -> OffsetBooks:
        """Returned, stored and committed offsets, updated with the last returned message."""
        last, self._last = self._last, None
        if last is not None:
            self._all_books.handed_out(last)
        return self._all_books

    def _forget_ends(self, place: tuple[str, int] | None = None) -> None:
        if self._ends is not None:
            self._ends.forget(place)

    # Assignments

    def assign(self, partitions: list[TopicPartition]) -> Flow[None]:
        """Read these partitions from their offsets; in `on_assign`, set the start offsets.

        A partition without an offset starts at the committed offset, or as `auto.offset.reset`
        says.
        """
        consumer, chosen = self._open(), partition_list(partitions)
        if self._running.partitions is not None:
            yield from self._begin_at(chosen, self._running.partitions)
            return
        with translating():
            consumer.assign([])  # otherwise partitions that are kept would keep their positions
            consumer.assign([ours(p) for p in chosen])
        self._has_something = bool(chosen)
        self._books.forget()
        self._forget_ends()
        yield from self._place(chosen)

    def unassign(self) -> Flow[None]:
        """Drop all partitions; has no effect in a rebalance callback."""
        consumer = self._open()
        if self._running.partitions is None:
            yield from self._commit_now()
            with translating():
                consumer.assign([])
            self._has_something = False
            self._books.forget()

    def incremental_assign(self, partitions: list[TopicPartition]) -> Flow[None]:
        """Read these partitions, too; in `on_assign`, set the start offsets.

        Raises `KafkaException`: `_CONFLICT` for a partition that is already assigned,
        `_INVALID_ARG` for one that is given twice.
        """
        consumer, chosen = self._open(), partition_list(partitions)
        if self._running.partitions is not None:
            yield from self._begin_at(chosen, self._running.partitions)
            return
        assigned, more = consumer.assigned(), [ours(p) for p in chosen]
        for place in more:
            if place in assigned:
                raise_error(KafkaError._CONFLICT, f"{place} is assigned already")
            if more.count(place) > 1:
                raise_error(KafkaError._INVALID_ARG, f"{place} was passed twice")
        with translating():
            consumer.assign([*assigned, *more])
        self._has_something = bool(consumer.assigned())
        self._books.forget([(p.topic, p.partition) for p in chosen])
        yield from self._place(chosen)

    def incremental_unassign(self, partitions: list[TopicPartition]) -> Flow[None]:
        """Drop these partitions; has no effect in `on_revoke`."""
        consumer, chosen = self._open(), [ours(p) for p in partition_list(partitions)]
        if self._running.partitions is not None:
            return
        assigned = consumer.assigned()
        for partition in chosen:
            if partition not in assigned:
                raise_error(KafkaError._INVALID_ARG, f"{partition} isn't assigned")
        yield from self._commit_now(chosen)
        with translating():
            consumer.assign([p for p in assigned if p not in chosen])
        self._has_something = bool(consumer.assigned())
        self._books.forget(chosen)

    def _begin_at(
        self, chosen: list[TopicPartition], assigned: frozenset[tuple[str, int]]
    ) -> Flow[None]:
        """Set the start offsets of partitions that a rebalance has already assigned."""
        for partition in chosen:
            if (partition.topic, partition.partition) not in assigned:
                raise_error(
                    KafkaError._INVALID_ARG,
                    f"{partition.topic} [{partition.partition}] can't be assigned in this "
                    "callback, which is for other partitions",
                )
        yield from self._place(chosen)

    def _place(self, partitions: list[TopicPartition]) -> Flow[None]:
        for partition in partitions:
            if partition.offset not in (OFFSET_INVALID, OFFSET_STORED):
                yield from self._move(partition)

    def _move(self, partition: TopicPartition) -> Flow[None]:
        """Seek to the partition's offset, which may be a number or a constant like OFFSET_END."""
        consumer, place, offset = self._consumer, ours(partition), partition.offset
        with translating():
            if offset == OFFSET_BEGINNING:
                consumer.seek_to_beginning([place])
            elif offset == OFFSET_END:
                consumer.seek_to_end([place])
            elif offset == OFFSET_STORED:
                yield consumer.seek_to_committed([place])
            elif offset == OFFSET_INVALID:
                return
            elif offset < 0:
                raise_error(
                    KafkaError._INVALID_ARG,
                    f"invalid offset {offset}: expected 0 or more, or one of the OFFSET_ constants",
                )
            else:
                consumer.seek(place, to_commit(partition))
        self._books.sought(place)
        self._forget_ends(place)

    def assignment(self) -> list[TopicPartition]:
        """Return the assigned partitions."""
        return [at_offset(place, OFFSET_STORED) for place in self._open().assignment()]

    # Positions

    def seek(self, partition: TopicPartition) -> Flow[None]:
        """Set the position of a partition; raises `_UNKNOWN_PARTITION` if it isn't assigned."""
        consumer, place = self._open(), ours(one_partition(partition))
        if place not in consumer.assigned():
            raise_error(
                KafkaError._UNKNOWN_PARTITION,
                f"Failed to seek to offset {partition.offset}: {place} isn't assigned",
            )
        yield from self._move(partition)

    def position(self, partitions: list[TopicPartition]) -> list[TopicPartition]:
        """Return the offsets after the last returned messages, or `OFFSET_INVALID`."""
        self._open()
        return [self._books.position((p.topic, p.partition)) for p in partition_list(partitions)]

    def pause(self, partitions: list[TopicPartition]) -> None:
        """Stop returning messages of these partitions until `resume()`."""
        assigned = self._assigned_of(partitions)
        with translating():
            self._consumer.pause(assigned)

    def resume(self, partitions: list[TopicPartition]) -> None:
        """Resume fetching from these paused partitions."""
        assigned = self._assigned_of(partitions)
        with translating():
            self._consumer.resume(assigned)

    def _assigned_of(self, partitions: list[TopicPartition]) -> list[odradek.TopicPartition]:
        assigned = self._open().assigned()
        return [place for p in partition_list(partitions) if (place := ours(p)) in assigned]

    # Group and cluster

    def consumer_group_metadata(self) -> odradek.ConsumerGroupMetadata:
        """Return this consumer's membership, for `send_offsets_to_transaction()`."""
        with translating():
            found: odradek.ConsumerGroupMetadata = self._open().group_metadata()
        return found

    def memberid(self) -> str | None:
        """Return the member's id, or None before it has joined."""
        with translating():
            return self._open().group_metadata().member_id or None

    # Commits

    def _to_commit(
        self, message: Message | None, offsets: list[TopicPartition] | None
    ) -> Committable:
        if message is not None and offsets is not None:
            raise ValueError("message and offsets are mutually exclusive")
        if message is None and offsets is None:
            return self._books.to_commit()
        return {
            odradek.TopicPartition(p.topic, p.partition): to_commit(p)
            for p in self._behind(message, offsets)
            if p.offset >= 0
        }

    def store_offsets(
        self, message: Message | None = None, offsets: list[TopicPartition] | None = None
    ) -> None:
        """Store offsets of processed messages, which later commits send.

        Needs `enable.auto.offset.store=false`. Raises `KafkaException`: `_INVALID_ARG` without that
        setting, `_UNKNOWN_PARTITION` for a partition that isn't assigned.
        """
        consumer = self._open()
        if message is not None and offsets is not None:
            raise ValueError("message and offsets are mutually exclusive")
        if message is None and offsets is None:
            raise ValueError("expected either message or offsets")
        if self._given.store_offsets:
            raise_error(
                KafkaError._INVALID_ARG, "StoreOffsets failed: set enable.auto.offset.store=false"
            )
        partitions = self._behind(message, offsets)
        for partition in partitions:
            if not consumer.is_assigned(partition.topic, partition.partition):
                partition._failed(KafkaError(KafkaError._UNKNOWN_PARTITION))
        if any(partition.error is not None for partition in partitions):
            raise_error(
                KafkaError._UNKNOWN_PARTITION, "StoreOffsets failed: the partition isn't assigned"
            )
        if message is not None and not consumer.may_commit(message._record):
            raise_error(
                KafkaError._STATE,
                "StoreOffsets failed: the message was read before its partition was lost",
            )
        for partition in partitions:
            self._books.keep(partition)

    @staticmethod
    def _behind(
        message: Message | None, offsets: list[TopicPartition] | None
    ) -> list[TopicPartition]:
        """Return the given offsets; for a message, the offset after it."""
        if message is None:
            return partition_list(offsets)
        if not isinstance(message, Message):
            raise TypeError(f"expected a Message, not {type(message).__name__}")
        error, topic = message.error(), message.topic()
        number, offset = message.partition(), message.offset()
        if error is not None or topic is None or number is None:
            what = "without a partition" if error is None else f"with an error: {error.str()}"
            raise_error(KafkaError._INVALID_ARG, f"a message {what} can't be committed")
        behind = OFFSET_INVALID if offset is None else offset + 1
        return [TopicPartition(topic, number, behind, None, message.leader_epoch())]

    def commit(
        self,
        message: Message | None = None,
        offsets: list[TopicPartition] | None = None,
        asynchronous: bool = True,
    ) -> Flow[list[TopicPartition] | None]:
        """Commit the offset after a message, these offsets, or the stored offsets.

        Returns None at once, and reports the result to `on_commit`; with `asynchronous=False` it
        waits and returns the partitions. Raises `KafkaException`: `_NO_OFFSET` if there is nothing
        to commit.
        """
        consumer = self._open()
        chosen = self._to_commit(message, offsets)
        given: Any = chosen
        if message is not None and isinstance(message._record, odradek.ConsumerRecord):
            given = message._record  # rejected if its partition was lost since it was read
        if asynchronous:
            yield from self._commit_later(chosen, given)
            return None
        if not chosen:
            raise_error(KafkaError._NO_OFFSET, "Commit failed: Local: No offset stored")
        with translating():
            done = yield consumer.commit(given)
        self._books.committed(done.items())
        self._queue.serve(0)
        return self._outcomes(done, whole=message is None and offsets is None)

    def _commit_later(self, chosen: Committable, given: Any = None) -> Flow[None]:
        """Commit without waiting: `given` (the record of a message), or else `chosen`."""
        if not chosen:
            self._tell_of_commit({}, KafkaError(KafkaError._NO_OFFSET))
            return
        with translating():
            yield self._open().commit_async(given or chosen, self._committed)

    def _commit_now(self, of: Collection[odradek.TopicPartition] | None = None) -> Flow[None]:
        """Commit the stored offsets before partitions are dropped, if this class auto-commits."""
        chosen = {} if self._given.commit_every is None else self._books.to_commit(of)
        if not chosen:
            return
        try:
            done = yield self._consumer.commit(chosen)
        except odradek.KafkaError as error:
            self._forget_deleted(error)
            logger.warning("the stored offsets weren't committed: %s", error)
            self._tell_of_commit(chosen, translated(error))
        else:
            self._books.committed(done.items())
            self._tell_of_commit(done, None)

    def _due(self) -> Committable:
        """Return the offsets to commit now, if this class auto-commits and the time has come."""
        every = self._given.commit_every
        if every is None or (now := monotonic()) < self._commit_at:
            return {}
        self._commit_at = now + every
        return self._books.to_commit()

    def _outcomes(
        self,
        done: Committable,
        *,
        whole: bool,
    ) -> list[TopicPartition]:
        """Return partitions with their committed offsets; all assigned ones if `whole`."""
        places = self._consumer.assigned() if whole else list(done)
        return [with_offset(place, done.get(place)) for place in places]

    def _committed(
        self,
        offsets: Committable,
        error: odradek.KafkaError | None,
    ) -> None:
        """Handle the result of an asynchronous commit."""
        if error is None:
            self._books.committed(offsets.items())
        else:
            self._forget_deleted(error)
        self._tell_of_commit(offsets, None if error is None else translated(error))

    def _forget_deleted(self, error: odradek.KafkaError) -> None:
        """Forget offsets of deleted and recreated topics, which every commit would reject."""
        errors = error.errors.items()
        gone = [tuple(p) for p, e in errors if isinstance(e, odradek.errors.TopicRecreatedError)]
        if gone:
            self._books.forget(gone)

    def _tell_of_commit(
        self,
        offsets: Committable,
        error: KafkaError | None,
    ) -> None:
        """Queue a call of `on_commit`."""
        callback = self._given.on_commit
        if callback is not None:
            partitions = [with_offset(p, offset) for p, offset in offsets.items()]
            self._queue.put(lambda: callback(error, partitions))

    # Errors

    def _told(self, error: odradek.KafkaError) -> Message | None:
        """Return a message for an error, or None if the same error was reported recently."""
        now, found = monotonic(), translated(error)
        said, at = self._last_error
        if said == str(error) and now - at < (SAME_FATAL if found.fatal() else SAME_ERROR):
            return None
        self._last_error = str(error), now
        place = getattr(error, "partition", None)
        return error_message(found, place if isinstance(place, odradek.TopicPartition) else None)

    def _too_late(self) -> Message | None:
        """Return an error message, once, after the member lost its partitions by a late poll."""
        if not self._overdue:
            return None
        self._overdue = False
        every = self._given.ours.get("max.poll.interval.ms", 300_000)
        text = (
            f"the last poll() was more than max.poll.interval.ms ({every} ms) ago, so the member "
            "left its group; the next poll() rejoins it. Poll more often, or increase "
            "max.poll.interval.ms"
        )
        return error_message(KafkaError(KafkaError._MAX_POLL_EXCEEDED, text))

    def _missing(self) -> Message | None:
        """Return an error message for a subscribed topic that doesn't exist; once per topic."""
        for missing in self._consumer.explain().missing:
            if missing.partition is None and missing.topic not in self._missed:
                self._missed.add(missing.topic)
                text = f"Subscribed topic not available: {missing}"
                place = odradek.TopicPartition(missing.topic, 0)
                return error_message(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART, text), place)
        return None

    # Watermarks

    def _known_watermarks(
        self, place: odradek.TopicPartition, position: int | None
    ) -> tuple[int, int]:
        """Return the known watermarks, `OFFSET_INVALID` for unknown ones, without a request."""
        low, high = self._watermarks.get(place, (OFFSET_INVALID, OFFSET_INVALID))
        lag = None if position is None else self._consumer.lag(place)
        return low, high if lag is None or position is None else position + lag

    def _has_lag(self, place: odradek.TopicPartition) -> bool:
        """Return whether the position of a partition and its end are known."""
        consumer = self._open()
        return place in consumer.assigned() and consumer.lag(place) is not None

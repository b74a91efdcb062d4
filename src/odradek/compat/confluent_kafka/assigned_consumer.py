"""What a consumer can do with partitions: assign, seek, pause, ask for offsets.

In: partitions with offsets, logical ones too. Out: the same calls of our consumer. Must not: hand
out messages; `consumer` does.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import odradek
from odradek.common.option_values import CONSUMER
from odradek.compat.confluent_kafka.callback_queue import CallbackQueue
from odradek.compat.confluent_kafka.cluster_metadata import ClusterMetadata, ClusterQuestions
from odradek.compat.confluent_kafka.kafka_error import KafkaError
from odradek.compat.confluent_kafka.offset_books import OffsetBooks
from odradek.compat.confluent_kafka.partition_ends import PartitionEnds
from odradek.compat.confluent_kafka.settings import checked_seconds, given
from odradek.compat.confluent_kafka.subscription import RebalanceCallback, RunningCallback
from odradek.compat.confluent_kafka.topic_partition import (
    OFFSET_BEGINNING,
    OFFSET_END,
    OFFSET_INVALID,
    OFFSET_STORED,
    TopicPartition,
    one_partition,
    ours,
    partition_list,
    to_commit,
    with_offset,
)
from odradek.compat.confluent_kafka.translated_errors import raise_error, translating


class AssignedConsumer:
    """Base of `Consumer`; not made directly."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if len(args) > 1:
            raise TypeError(f"Consumer takes one configuration, not {len(args)}")
        self._given = given(CONSUMER, args[0] if args else None, kwargs)
        self._queue = CallbackQueue(self._given)
        self._books = OffsetBooks(store=self._given.store_offsets)
        self._ends = PartitionEnds() if self._given.partition_eof else None
        self._questions = ClusterQuestions(self._given.admin)
        self._callbacks: dict[str, RebalanceCallback | None] = {}
        self._running = RunningCallback()
        self._watermarks: dict[tuple[str, int], tuple[int, int]] = {}
        self._commit_at = 0.0
        self._has_something = False
        """Whether there may be something to read: a subscription, or partitions."""
        self._closed = False
        with translating():
            self._consumer = odradek.Consumer(self._given.ours)
        if self._queue.hears:
            self._consumer.listen(self._queue.hear)

    def _open(self) -> odradek.Consumer:
        if self._closed:
            raise RuntimeError("Consumer closed")
        return self._consumer

    def _forget_ends(self, place: tuple[str, int] | None = None) -> None:
        if self._ends is not None:
            self._ends.forget(place)

    # Assignments

    def assign(self, partitions: list[TopicPartition]) -> None:
        """Read these partitions, from their offsets; in `on_assign`, begin there.

        Without an offset: where the group has committed, or as `auto.offset.reset` says.
        """
        consumer, chosen = self._open(), partition_list(partitions)
        if self._running.partitions is not None:
            self._begin_at(chosen, self._running.partitions)
            return
        with translating():
            consumer.assign([ours(p) for p in chosen])
        self._has_something = bool(chosen)
        self._books.forget()
        self._forget_ends()
        self._place(chosen)

    def unassign(self) -> None:
        """Read nothing any more; in a rebalance callback it says nothing new."""
        consumer = self._open()
        if self._running.partitions is None:
            self._commit_now()
            with translating():
                consumer.assign([])
            self._has_something = False
            self._books.forget()

    def incremental_assign(self, partitions: list[TopicPartition]) -> None:
        """Read these partitions, too; in `on_assign`, begin there."""
        consumer, chosen = self._open(), partition_list(partitions)
        if self._running.partitions is not None:
            self._begin_at(chosen, self._running.partitions)
            return
        with translating():
            consumer.assign([*consumer.assignment(), *(ours(p) for p in chosen)])
        self._has_something = bool(consumer.assignment())
        self._books.forget([(p.topic, p.partition) for p in chosen])
        self._place(chosen)

    def incremental_unassign(self, partitions: list[TopicPartition]) -> None:
        """Read these no more; in `on_revoke` it says nothing new."""
        consumer, chosen = self._open(), [ours(p) for p in partition_list(partitions)]
        if self._running.partitions is not None:
            return
        assigned = consumer.assignment()
        for partition in chosen:
            if partition not in assigned:
                raise_error(KafkaError._INVALID_ARG, f"{partition} isn't assigned")
        self._commit_now(chosen)
        with translating():
            consumer.assign([p for p in assigned if p not in chosen])
        self._has_something = bool(consumer.assignment())
        self._books.forget(chosen)

    def _commit_now(self, of: Collection[odradek.TopicPartition] | None = None) -> None:
        """Commit what is stored, where that is this package's task."""
        raise NotImplementedError

    def _begin_at(self, chosen: list[TopicPartition], assigned: frozenset[tuple[str, int]]) -> None:
        """In a rebalance callback: the partitions are assigned already, and may begin elsewhere."""
        for partition in chosen:
            if (partition.topic, partition.partition) not in assigned:
                raise_error(
                    KafkaError._INVALID_ARG,
                    f"{partition.topic} [{partition.partition}] can't be assigned in this "
                    "callback, which isn't about it",
                )
        self._place(chosen)

    def _place(self, partitions: list[TopicPartition]) -> None:
        for partition in partitions:
            if partition.offset not in (OFFSET_INVALID, OFFSET_STORED):
                self._move(partition)

    def _move(self, partition: TopicPartition) -> None:
        """Go on at an offset, logical ones too."""
        consumer, place, offset = self._consumer, ours(partition), partition.offset
        with translating():
            if offset == OFFSET_BEGINNING:
                consumer.seek_to_beginning([place])
            elif offset == OFFSET_END:
                consumer.seek_to_end([place])
            elif offset == OFFSET_STORED:
                consumer.seek_to_committed([place])
            elif offset == OFFSET_INVALID:
                return
            elif offset < 0:
                raise_error(KafkaError._INVALID_ARG, f"there is no offset {offset}")
            else:
                consumer.seek(place, to_commit(partition))
        self._books.sought(place)
        self._forget_ends(place)

    def assignment(self) -> list[TopicPartition]:
        """What is assigned."""
        return [TopicPartition(*place, OFFSET_STORED) for place in self._open().assignment()]

    # Positions

    def seek(self, partition: TopicPartition) -> None:
        """Go on reading a partition at its offset. Raises `_UNKNOWN_PARTITION` if it isn't
        assigned.
        """
        consumer, place = self._open(), ours(one_partition(partition))
        if place not in consumer.assignment():
            raise_error(
                KafkaError._UNKNOWN_PARTITION,
                f"Failed to seek to offset {partition.offset}: {place} isn't assigned",
            )
        self._move(partition)

    def position(self, partitions: list[TopicPartition]) -> list[TopicPartition]:
        """Behind the last message that was handed out; `OFFSET_INVALID` before the first one."""
        self._open()
        return [self._books.position((p.topic, p.partition)) for p in partition_list(partitions)]

    def pause(self, partitions: list[TopicPartition]) -> None:
        """Hand out nothing of these until `resume()`."""
        assigned = self._assigned_of(partitions)
        with translating():
            self._consumer.pause(assigned)

    def resume(self, partitions: list[TopicPartition]) -> None:
        """Hand out messages of these again."""
        assigned = self._assigned_of(partitions)
        with translating():
            self._consumer.resume(assigned)

    def _assigned_of(self, partitions: list[TopicPartition]) -> list[odradek.TopicPartition]:
        assigned = self._open().assignment()
        return [place for p in partition_list(partitions) if (place := ours(p)) in assigned]

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
            return self._known_watermarks(place)
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

    def _known_watermarks(self, place: odradek.TopicPartition) -> tuple[int, int]:
        low, high = self._watermarks.get(place, (OFFSET_INVALID, OFFSET_INVALID))
        if place in self._consumer.assignment():
            lag = self._consumer.lag(place)
            if lag is not None:
                high = self._consumer.position(place) + lag
        return low, high

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
        return [
            TopicPartition(*place, OFFSET_END if at is None else at.offset)
            for place, at in ((ours(p), found[ours(p)]) for p in wanted)
        ]

    @staticmethod
    def _kept(partition: TopicPartition) -> odradek.OffsetAndMetadata:
        return to_commit(partition)

    @staticmethod
    def _outcome(
        place: odradek.TopicPartition, offset: odradek.OffsetAndMetadata | None
    ) -> TopicPartition:
        return with_offset(place, offset)

    # Group and cluster

    def consumer_group_metadata(self) -> odradek.ConsumerGroupMetadata:
        """Who this consumer is in its group, for `send_offsets_to_transaction()`."""
        with translating():
            return self._open().group_metadata()

    def memberid(self) -> str | None:
        """The member's id, None before it has joined."""
        with translating():
            return self._open().group_metadata().member_id or None

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

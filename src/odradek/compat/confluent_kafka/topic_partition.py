"""`TopicPartition` with an offset, and the logical offsets.

In: a program's partitions. Out: Odradek's partitions and offsets, and the reverse. Must not: check
whether a partition exists.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import odradek
from odradek.compat.confluent_kafka.kafka_error import KafkaError

OFFSET_BEGINNING = -2
OFFSET_END = -1
OFFSET_STORED = -1000
OFFSET_INVALID = -1001


class TopicPartition:
    """Partition with an offset, and the error of a call.

    `offset` is an offset of the log or one of `OFFSET_BEGINNING`, `OFFSET_END`, `OFFSET_STORED` and
    `OFFSET_INVALID` (none). Two objects are equal if their topics and partitions are equal.
    """

    __slots__ = ("error", "leader_epoch", "metadata", "offset", "partition", "topic")

    def __init__(
        self,
        topic: str,
        partition: int = -1,
        offset: int = OFFSET_INVALID,
        metadata: str | None = None,
        leader_epoch: int | None = None,
    ) -> None:
        if not isinstance(topic, str):
            raise TypeError(f"topic must be a str, not {type(topic).__name__}")
        if metadata is not None and "\0" in metadata:
            raise ValueError("metadata: embedded null character")
        self.topic = topic
        self.partition = int(partition)
        self.offset = int(offset)
        self.metadata = metadata
        self.leader_epoch = None if leader_epoch is None or leader_epoch < 0 else leader_epoch
        self.error: KafkaError | None = None

    def __str__(self) -> str:
        return (
            f"TopicPartition{{topic={self.topic},partition={self.partition},offset={self.offset},"
            f"leader_epoch={self.leader_epoch},error={self.error}}}"
        )

    __repr__ = __str__

    def _failed(self, error: KafkaError) -> None:
        """Set the error of a call that failed for this partition."""
        self.error = error

    def _place(self) -> tuple[str, int]:
        return self.topic, self.partition

    def __hash__(self) -> int:
        return hash(self._place())

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, TopicPartition):
            return NotImplemented
        return self._place() == other._place()

    def __lt__(self, other: TopicPartition) -> bool:
        return self._place() < other._place()

    def __le__(self, other: TopicPartition) -> bool:
        return self._place() <= other._place()

    def __gt__(self, other: TopicPartition) -> bool:
        return self._place() > other._place()

    def __ge__(self, other: TopicPartition) -> bool:
        return self._place() >= other._place()


def partition_list(given: Any) -> list[TopicPartition]:
    """Check that an argument is a list of partitions; raises `TypeError`."""
    if not isinstance(given, list):
        raise TypeError("expected a list of TopicPartition")
    for one in given:
        one_partition(one)
    return given


def one_partition(given: Any) -> TopicPartition:
    """Check that an argument is a partition; raises `TypeError`."""
    if not isinstance(given, TopicPartition):
        raise TypeError(f"expected a TopicPartition, not {type(given).__name__}")
    return given


def ours(partition: TopicPartition) -> odradek.TopicPartition:
    """Convert the partition to Odradek's `TopicPartition`."""
    return odradek.TopicPartition(partition.topic, partition.partition)


def theirs(partitions: Iterable[odradek.TopicPartition]) -> list[TopicPartition]:
    """Convert Odradek's partitions to confluent-kafka's, without offsets."""
    return [TopicPartition(topic, number) for topic, number in partitions]


def at_offset(partition: odradek.TopicPartition, offset: int) -> TopicPartition:
    """Convert Odradek's partition to confluent-kafka's, with an offset."""
    return TopicPartition(partition.topic, partition.partition, offset)


def found_at(
    partition: odradek.TopicPartition, found: odradek.OffsetAndTimestamp | None
) -> TopicPartition:
    """Return a partition with the offset found for a time, or `OFFSET_END`."""
    return at_offset(partition, OFFSET_END if found is None else found.offset)


def to_commit(partition: TopicPartition) -> odradek.OffsetAndMetadata:
    """Convert a partition's offset to the type that Odradek's clients commit."""
    epoch = -1 if partition.leader_epoch is None else partition.leader_epoch
    # confluent-kafka stores a final zero byte, as in a C string. It distinguishes "" from None, and
    # members of the group that still use confluent-kafka would read past a text without the zero.
    metadata = "" if partition.metadata is None else f"{partition.metadata}\0"
    return odradek.OffsetAndMetadata(partition.offset, metadata, epoch)


def with_offset(
    partition: odradek.TopicPartition, found: odradek.OffsetAndMetadata | None
) -> TopicPartition:
    """Return a partition with its committed offset, or `OFFSET_INVALID`."""
    topic, number = partition
    if found is None:
        return TopicPartition(topic, number)
    metadata = found.metadata.partition("\0")[0] if found.metadata else None
    return TopicPartition(topic, number, found.offset, metadata, found.leader_epoch)

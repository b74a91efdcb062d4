"""Define the values that a consumer returns.

In: rows of decoded columns, responses to ListOffsets. Out: plain values. Must not: keep the
network buffers alive from which the values were decoded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Generic, NamedTuple
from weakref import WeakMethod

from odradek.common.errors import IllegalStateError
from odradek.common.errors.kafka import OffsetOutOfRangeError
from odradek.common.options.migration_hints import add_migration_hints
from odradek.common.types import K_co, TopicPartition, V_co
from odradek.record import read_as_slots
from odradek.record.columns import Headers, RawHeaders

_HEADERS = 7
"""Index of the headers in a record."""


class ConsumerRecord(NamedTuple, Generic[K_co, V_co]):
    """One record of a partition, as a named tuple."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    """Milliseconds since the epoch; -1 if the producer set none."""
    timestamp_type: int
    """0: the producer's create time; 1: the broker's log append time; -1: none, as in message
    format 0 (before Kafka 0.10)."""
    key: K_co
    """Bytes, or the result of the consumer's `key_deserializer`; None without a key."""
    value: V_co
    """Bytes, or the result of the consumer's `value_deserializer`; None for a tombstone."""
    headers: Headers
    leader_epoch: int
    """Epoch of the leader that appended the record, -1 if unknown."""

    @property
    def timestamp(self) -> int:
        """The same as `timestamp_ms`."""
        return self.timestamp_ms

    @property
    def topic_partition(self) -> TopicPartition:
        """The record's partition, which `commit`, `seek` and other calls take."""
        return TopicPartition(self.topic, self.partition)


read_as_slots(ConsumerRecord)
add_migration_hints(ConsumerRecord)


class UnreadRecord(ConsumerRecord):
    """A record with very many headers, which remain bytes and are decoded at each access.

    Ten thousand headers take 20 KB as bytes, and half a megabyte as objects. Copies and pickles of
    an `UnreadRecord` are `ConsumerRecord`s, which are equal to it.
    """

    __slots__ = ()

    @property
    def headers(self) -> Headers:
        """(name, value) of each header, decoded at each access.

        Keep the result if you need it twice.
        """
        held: Any = super().__getitem__(_HEADERS)
        return tuple(held)

    def __iter__(self) -> Iterator[Any]:
        for item in super().__iter__():
            yield tuple(item) if isinstance(item, RawHeaders) else item

    def __getitem__(self, index: Any) -> Any:
        found = super().__getitem__(index)
        if isinstance(found, tuple):  # `index` is a slice, which may include the encoded headers
            return tuple(self)[index]
        return tuple(found) if isinstance(found, RawHeaders) else found

    def __reduce__(self) -> tuple[type[ConsumerRecord], tuple[Any, ...]]:
        return ConsumerRecord, tuple(self)


class OffsetAndTimestamp(NamedTuple):
    """Offset and timestamp of the first record at or after the requested time."""

    offset: int
    timestamp_ms: int
    leader_epoch: int = -1


class OffsetAndMetadata(NamedTuple):
    """A committed offset, which is the offset of the next record to read."""

    offset: int
    metadata: str = ""
    """Text that the application stores with the offset."""
    leader_epoch: int = -1
    """Epoch of the leader that appended the previous record, -1 if unknown."""


class ConsumerGroupMetadata(NamedTuple):
    """The identity of a consumer in its group, for `send_offsets_to_transaction` (KIP-447)."""

    group_id: str
    generation_id: int = -1
    """The classic group's generation, or the member's epoch (KIP-848); -1 without membership."""
    member_id: str = ""
    group_instance_id: str | None = None


class HeldGroupMetadata(ConsumerGroupMetadata):
    """Group metadata that a consumer returned, with a reference to that consumer.

    `send_offsets_to_transaction` asks the consumer for the ids of the offsets' topics (R-ID-3), and
    whether another member may have read their partitions since (R-ID-1).

    Copies and pickles are a plain `ConsumerGroupMetadata`.
    """

    asked: Callable[[], Callable[..., Any] | None]
    """Returns `GroupCommits.in_transaction` of the consumer; None once the consumer is freed."""

    @classmethod
    def of(
        cls,
        group: ConsumerGroupMetadata,
        asked: Callable[..., Any],
    ) -> HeldGroupMetadata:
        """Return the group's metadata with a weak reference to the consumer's method `asked`."""
        made = cls(*group)
        made.asked = WeakMethod(asked)
        return made

    def __repr__(self) -> str:
        return repr(ConsumerGroupMetadata(*self))

    def __reduce__(self) -> tuple[type[ConsumerGroupMetadata], tuple[Any, ...]]:
        return ConsumerGroupMetadata, tuple(self)


class NoSuchOffsetError(OffsetOutOfRangeError):
    """A position is outside the log, and `auto.offset.reset` is none.

    `log_start` is the first offset of the log, `log_end` the offset of the next record; None if the
    broker didn't answer before the timeout.
    """

    def __init__(
        self, partition: TopicPartition, position: int, log_start: int | None, log_end: int | None
    ) -> None:
        self.partition, self.position = partition, position
        self.log_start, self.log_end = log_start, log_end
        start = "unknown" if log_start is None else log_start
        end = "unknown" if log_end is None else log_end
        super().__init__(
            f"OFFSET_OUT_OF_RANGE (1): offset {position} of {partition} isn't in its log, which "
            f"has offsets {start} to {end} (exclusive). Records were deleted (retention), the "
            "topic was recreated, or the log was truncated. Call seek() with an offset in that "
            "range, or set auto.offset.reset."
        )


class NoOffsetForPartitionError(IllegalStateError):
    """A partition has no position and no committed offset, and `auto.offset.reset` is none."""

    def __init__(self, partition: TopicPartition, where: str) -> None:
        super().__init__(partition, where)  # copies and pickles pass these arguments again
        self.partition, self.where = partition, where

    def __str__(self) -> str:
        return f"{self.partition} has {self.where}, and auto.offset.reset=none: call seek() first"


class LogTruncationError(OffsetOutOfRangeError):
    """Records before the position were lost in an election, and auto.offset.reset is none.

    From `divergent_offset` on, the log differs from the records that were read; it is None if the
    leader doesn't know this offset. Call `seek()` to continue there or elsewhere (KIP-320).
    """

    def __init__(
        self, partition: TopicPartition, position: int, epoch: int, divergent_offset: int | None
    ) -> None:
        self.partition, self.position = partition, position
        self.leader_epoch, self.divergent_offset = epoch, divergent_offset
        where = (
            "from an unknown offset"
            if divergent_offset is None
            else f"from offset {divergent_offset}"
        )
        super().__init__(
            f"the log of {partition} differs {where} from what was read up to position {position} "
            f"(leader epoch {epoch}). A replica that lacked records became the leader "
            "(unclean.leader.election.enable, or a lost disk). As auto.offset.reset=none, call "
            "seek() to choose where to continue."
        )

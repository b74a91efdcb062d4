"""Append records to open batches, and store data for delivery reports.

In: a record, and the producer's data of its topic (`TopicLane`). Out: the record's future, or data
for its delivery report; without an open batch, the partition, if it is known for certain. The
kernel has a faster implementation without a Python call per record, which tests compare with this
one. In plain Python, `BatchBuilder` needs the accumulator's lock, so every record is left to the
code that takes the lock. Must not: wait, open or close a batch, or change its arguments.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeVar

M = TypeVar("M")
Note = tuple[int, float, int, bytes | None, bytes | None, Any]
"""A message's data: index in the batch, monotonic sending time, timestamp, key, value, callback."""
_new = object.__new__
_PARTS = ("_record", "_error", "_more")
"""Attributes of a delivery report."""


class Known(Protocol):
    """Holder of the newest snapshot of the metadata."""

    snapshot: Any


class Here(Protocol):
    """Object whose flag `here` says whether open batches may be appended to without a lock."""

    here: bool


class Room:
    """Number of messages and bytes that may be accepted until they have to be counted again."""

    __slots__ = ("messages", "size")

    def __init__(self, messages: int = 0, size: int = 0) -> None:
        self.messages = messages
        self.size = size

    def take(self, size: int) -> bool:
        """Subtract a message of this size; return whether it fitted."""
        self.messages -= 1
        self.size -= size
        return self.messages >= 0 and self.size >= 0

    def counted(self, messages: int, left: int, size: int) -> bool:
        """Set the number of messages and bytes that are left, and subtract one message."""
        self.messages, self.size = messages, left
        return self.take(size)


class Notes:
    """Data for the delivery reports of one batch's messages, in order.

    In the kernel's implementation, the garbage collector only traverses the callbacks, and not a
    hundred thousand messages again and again.
    """

    __slots__ = ("_notes", "_sizes", "can_be_made")

    def __init__(self, *_: object) -> None:
        self._notes: list[Note] = []
        self._sizes: list[int] = []
        """Sizes of messages; not their sum, as without a GIL concurrent additions could be lost."""
        self.can_be_made = False

    @property
    def count(self) -> int:
        """Number of messages whose data is stored."""
        return len(self._notes)

    @property
    def size(self) -> int:
        """Size of keys and values of all messages that were ever added, in bytes."""
        return sum(self._sizes)

    def add(self, message: Note, size: int) -> None:
        """Add the data of a message, and the size of its key and value."""
        self._notes.append(message)
        self._sizes.append(size)

    def take(self, most: int) -> Notes:
        """Remove and return the data of the first messages, at most `most` of them."""
        made = Notes()
        made._notes = self._notes[: max(0, most)]
        del self._notes[: len(made._notes)]
        return made

    def put_back(self, taken: Notes, told: int) -> None:
        """Put the result of the last `take` back to the front, except its first `told` messages."""
        if not 0 <= told <= taken.count:
            raise ValueError("can't put back other records than were taken from this queue")
        self._notes[:0] = taken._notes[told:]
        del taken._notes[told:]

    def items(self) -> list[Note]:
        """Return the data of all messages, as it was added."""
        return [*self._notes]

    @property
    def calls(self) -> list[Any]:
        """The callbacks of all messages."""
        return [note[-1] for note in self._notes]


class OpenBatches:
    """Appends records directly to open batches, if possible."""

    def __init__(
        self,
        lanes: dict[str, Any],
        metadata: Known,
        process: Here,
        clock: Callable[[], float],
        make: Callable[..., Any],
    ) -> None:
        """Set the topics, the clock and the class of futures.

        `lanes` contains the producer's data of each topic, which never changes; `clock` returns
        seconds since the epoch. `make(producer, batch, index, timestamp_ms)` creates a future. If
        it is a class with an attribute `_blank`, a list of names and values, it isn't called:
        objects get these attributes, and `_producer`, `_batch`, `_index` and `_timestamp_ms`.
        Raises `TypeError` for a class with a `__new__`.
        """
        self._lanes = lanes
        self._metadata = metadata
        self._process = process
        self._clock = clock
        self._make = make
        if hasattr(make, "_blank"):
            check_plain(make)

    def _found(self, topic: Any, key: Any, value: Any, partition: Any) -> tuple[Any, Any]:
        """Return a record's partition (None if uncertain) and its open batch (None without one)."""
        lane = self._lanes.get(topic)
        if lane is None or lane.snapshot is not self._metadata.snapshot:
            return partition, None
        if partition is None:
            partition = lane.choose(key, value)
        return partition, lane.open.get(partition) if self._process.here else None

    def send(
        self,
        producer: object,
        topic: Any,
        key: Any,
        value: Any,
        headers: Any,
        timestamp_ms: Any,
        partition: Any,
    ) -> Any:
        """Append a record to its open batch and return its future; if impossible, its partition.

        If the batch is full or missing, or the topic isn't known, the partition is returned: an int
        if it is known for certain, or None.
        """
        partition, batch = self._found(topic, key, value, partition)
        if batch is None:
            return partition
        at = int(self._clock() * 1000) if timestamp_ms is None else timestamp_ms
        index = batch.builder.append(key, value, headers, at)
        return partition if index is None else self._make(producer, batch, index, at)

    def report(
        self,
        room: Room,
        by_batch: dict[Any, Any],
        begun: float,
        topic: Any,
        key: Any,
        value: Any,
        partition: Any,
        timestamp_ms: Any,
        call: Any,
    ) -> Any:
        """Append a message to its open batch, and store data for its delivery report; return True.

        If the batch is full or missing, or the message is unusual, the partition is returned as by
        `send`. `by_batch` contains the `Notes` of each batch, whose method `late()` is called if
        the batch was completed before the message's data was stored.
        """
        usual = type(topic) is str and type(timestamp_ms) is int and timestamp_ms < 1 << 63
        if not usual or not all(part is None or type(part) is bytes for part in (key, value)):
            return partition
        partition, batch = self._found(topic, key, value, partition)
        notes = by_batch.get(batch)
        size = len(key or b"") + len(value or b"")
        if notes is None or room.messages < 1 or room.size < size:
            return partition
        at = timestamp_ms if timestamp_ms > 0 else int(self._clock() * 1000)
        index = batch.builder.append(key, value, (), at)
        if index is None:
            return partition
        room.take(size)
        notes.add((index, begun, at, key, value, call), size)
        if notes.can_be_made:  # the batch was completed meanwhile
            notes.late()
        return True


def check_plain(cls: Any) -> None:
    """Raise `TypeError` for a class with its own `__new__`."""
    if cls.__new__ is not object.__new__ or cls.__itemsize__:
        raise TypeError(f"{cls!r} must be a plain class, without __new__")


def build_reports(
    cls: type[M],
    kind: int,
    topic: str,
    partition: int | None,
    outcome: tuple[int, int],
    error: Any,
    now: float,
    notes: Notes,
) -> list[M]:
    """Create a delivery report, a `cls`, for each message in `notes`, for the user's callbacks.

    The garbage collector doesn't track a report until `collectable` is called for it. `outcome` is
    the offset of the batch and its log append time, each -1 if there is none. A report has
    `_record` (the fields of a `ConsumerRecord`), `_error`, and `_more`: the seconds since the
    message was sent.
    """
    check_plain(cls)
    base, appended = outcome
    found = []
    for index, begun, at, key, value, _ in notes.items():
        made = _new(cls)
        offset = base + index if base >= 0 else None
        time_ms = at if appended < 0 else appended
        record = (topic, partition, offset, time_ms, kind, key, value, None, -1)
        parts = (record, error, now - begun)
        for name, part in zip(_PARTS, parts, strict=True):
            setattr(made, name, part)
        found.append(made)
    return found

"""Append records to open batches, and store the data of their delivery reports.

In: a record, and a producer's data of its topic (`TopicLane`). Out: the record's future, or a note
for its report; without an open batch, its partition if that is certain. The kernel has a faster
implementation without a Python call per record, which tests compare with this one. Here
`BatchBuilder` needs the accumulator's lock, so every record is left to the call that takes the
lock. Must not wait, open or close a batch, or change its arguments.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeVar

M = TypeVar("M")
Note = tuple[int, float, int, bytes | None, bytes | None, Any]
"""A message's index in its batch, monotonic sending time, timestamp, key, value and callback."""
_new = object.__new__
_PARTS = ("_record", "_error", "_more")
"""Attributes of a report."""


class Known(Protocol):
    """The newest snapshot of the metadata."""

    snapshot: Any


class Here(Protocol):
    """Whether a record may go directly into an open batch."""

    here: bool


class Room:
    """Number of messages and bytes that may be accepted before they have to be counted."""

    __slots__ = ("messages", "size")

    def __init__(self, messages: int = 0, size: int = 0) -> None:
        self.messages = messages
        self.size = size

    def take(self, size: int) -> bool:
        """Count a message of this size; return whether it still fits."""
        self.messages -= 1
        self.size -= size
        return self.messages >= 0 and self.size >= 0

    def counted(self, messages: int, left: int, size: int) -> bool:
        """Set the number of messages and bytes that are left, and count one message."""
        self.messages, self.size = messages, left
        return self.take(size)


class Notes:
    """Data for the reports of one batch's messages, in order.

    In the kernel's implementation, the garbage collector only sees the callbacks: otherwise it
    would traverse a hundred thousand messages again and again.
    """

    __slots__ = ("_notes", "_sizes", "can_be_made")

    def __init__(self, *_: object) -> None:
        self._notes: list[Note] = []
        self._sizes: list[int] = []
        """A list and not a sum, because without a GIL concurrent additions could be lost."""
        self.can_be_made = False

    @property
    def count(self) -> int:
        """Number of messages."""
        return len(self._notes)

    @property
    def size(self) -> int:
        """Bytes of keys and values of all messages that were ever added."""
        return sum(self._sizes)

    def add(self, message: Note, size: int) -> None:
        """Add a message: index, times, key, value and callback; and the bytes of key and value."""
        self._notes.append(message)
        self._sizes.append(size)

    def take(self, most: int) -> Notes:
        """Remove and return the first messages, at most `most`."""
        made = Notes()
        made._notes = self._notes[: max(0, most)]
        del self._notes[: len(made._notes)]
        return made

    def put_back(self, taken: Notes, told: int) -> None:
        """Put the messages of the last `take` back to the front, without the first `told` ones."""
        if not 0 <= told <= taken.count:
            raise ValueError("can't put back other records than were taken from this queue")
        self._notes[:0] = taken._notes[told:]
        del taken._notes[told:]

    def items(self) -> list[Note]:
        """Return all messages as they were added."""
        return [*self._notes]

    @property
    def calls(self) -> list[Any]:
        """Callbacks of the reports."""
        return [note[-1] for note in self._notes]


class OpenBatches:
    """Appends records to open batches."""

    def __init__(
        self,
        lanes: dict[str, Any],
        metadata: Known,
        process: Here,
        clock: Callable[[], float],
        make: Callable[..., Any],
    ) -> None:
        """Set the topics, the clock and the class of futures.

        `lanes` contains the known data of topics, each of which never changes; `clock` returns
        seconds since the epoch. `make(producer, batch, index, timestamp_ms)` creates a future. A
        class with an attribute `_blank`, which lists names and values, isn't called: its objects
        get these attributes, and `_producer`, `_batch`, `_index` and `_timestamp_ms`. Raises
        `TypeError` for a class with a `__new__`.
        """
        self._lanes = lanes
        self._metadata = metadata
        self._process = process
        self._clock = clock
        self._make = make
        if hasattr(make, "_blank"):
            check_plain(make)

    def _found(self, topic: Any, key: Any, value: Any, partition: Any) -> tuple[Any, Any]:
        """Return the partition, if it is certain, and its open batch, or None."""
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
        """Append a record to its open batch and return its future, or else its partition.

        The partition is an int if it is certain, or None. A partition is returned if the batch is
        full or missing, or the topic isn't known.
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
        """Append a message to its open batch and note the data of its report; return True.

        If the batch is full or missing, or the message is unusual, its partition is returned as in
        `send`. `by_batch` contains the notes of batches. Their method `late()` is called for a
        message that arrives when the reports of its batch can be built already.
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
        if notes.can_be_made:  # the batch was completed in the meantime
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
    """Build a `cls` for each message that was noted, for the program's callbacks.

    The garbage collector doesn't track these objects until `collectable` is called for one.
    `outcome` is the offset of the batch and its log append time, each -1 if there is none. An
    object has `_record`, with the items of our clients' records, `_error`, and `_more`: the seconds
    since it was sent.
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

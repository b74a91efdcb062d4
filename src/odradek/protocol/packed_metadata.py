"""Decode Metadata responses without their partitions, which remain bytes, for large clusters.

In: a response of version 9 or newer. Out: a response as from `messages.metadata`, but each
partition is only decoded when it is accessed. Nearly always, the encoded partitions (rows) of a
topic have one width (equal numbers of replicas, all in sync, each with a leader); then a few
comparisons of every n-th byte check all rows at once. Other rows are checked one by one.

The caller reads a response of more than `SLICE` bytes in parts, so that no step of an engine takes
long. Must not: accept bytes that the plain decoder (`messages.metadata`) refuses, or raise another
error; so whatever can't be read here is passed to the plain decoder.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from functools import lru_cache
from struct import Struct
from struct import error as StructError  # noqa: N812  # an exception class with a function's name
from typing import Any, ClassVar, cast, overload

from odradek.protocol.message import Message, Reader
from odradek.protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
    _read_all_metadata_response_broker_9,
)
from odradek.protocol.primitives import (
    ZERO_UUID,
    One,
    WireError,
    packing,
    read_compact_count,
    read_compact_string,
    read_int32s,
    read_nullable_compact_string,
    read_uvarint,
    skip_tags,
)

SLICE = 1 << 19
"""Number of bytes of a response that are read at once, which takes at most 10 to 20 ms."""
FIRST = 9
"""First version with compact lengths, and without stale leader epochs (KAFKA-9212)."""
ROW = 18
"""Minimum size of an encoded partition (row) in bytes."""
_HEAD = 14  # size of error code, partition, leader and leader epoch
_CACHED = 1000
_ONE = range(1)
_, _unpack_h = packing("h")
_, _unpack_i = packing("i")
_, _unpack_hiii = packing("hiii")
_, _unpack_flag = packing("?")
_, _unpack_id = packing("16s?")
_UNREADABLE = (WireError, StructError, IndexError, UnicodeDecodeError)


@lru_cache(256)
def _every(width: int, count: int) -> Struct:
    """Return a `Struct` that reads the leader epochs of `count` rows of one width."""
    return Struct(">" + f"10xi{width - _HEAD}x" * count)


def _columns(replicas: int, isr: int, offline: int, count: int) -> tuple[tuple[int, bytes], ...]:
    """Return positions in a row, each with the bytes that usual rows have there.

    A usual row has no error, but a number, a leader, an epoch, and these numbers of replicas (plus
    one, as they are encoded).
    """
    indexes = b"".join(n.to_bytes(4, "big") for n in range(count))
    none = bytes(count)
    at_isr = _HEAD + 4 * replicas - 3
    at_offline = at_isr + 4 * isr - 3
    return (
        (14, bytes((replicas,)) * count),
        (at_isr, bytes((isr,)) * count),
        (at_offline, bytes((offline,)) * count),
        (at_offline + 4 * offline - 3, none),  # no tagged fields
        *((n, none) for n in (0, 1)),
        *((n + 2, indexes[n::4]) for n in range(4)),
        (6, none),  # first byte of leader id, of epoch: not negative
        (10, none),
    )


_cached_columns = lru_cache(64)(_columns)


class PackedPartitions(Sequence[MetadataResponsePartition]):
    """A topic's partitions in the order of their numbers, decoded on each access."""

    __slots__ = ("_compared", "_epochs", "_offsets", "leaderless", "numbered", "rows")

    def __init__(
        self, rows: bytes, offsets: Sequence[int], epochs: array[int] | None, leaderless: int
    ) -> None:
        """Set the bytes of the rows; `epochs` is None if all rows have one width."""
        self.rows = rows
        """The rows as they were received; equal bytes mean equal partitions."""
        self._offsets = offsets
        self._epochs = epochs
        self.leaderless = leaderless
        """Number of partitions without a leader."""
        self.numbered = True
        """Whether the partition numbers are 0, 1, 2 and so on, and each partition has an epoch."""
        self._compared: tuple[PackedPartitions, bool, bool] | None = None

    def __len__(self) -> int:
        return len(self._offsets)

    @overload
    def __getitem__(self, at: int) -> MetadataResponsePartition: ...
    @overload
    def __getitem__(self, at: slice) -> list[MetadataResponsePartition]: ...
    def __getitem__(self, at: int | slice) -> Any:
        """Decode one partition, or a list of partitions for a slice."""
        if isinstance(at, slice):
            return [_partition(self.rows, n) for n in self._offsets[at]]
        return _partition(self.rows, self._offsets[at])

    def __iter__(self) -> Iterator[MetadataResponsePartition]:
        return (_partition(self.rows, at) for at in self._offsets)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, PackedPartitions) and self.rows == other.rows:
            return True
        return isinstance(other, Sequence) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]  # as lists have none

    def __repr__(self) -> str:
        return repr(list(self))

    def epochs(self) -> Sequence[int]:
        """Return the leader epochs, in the order of the partitions."""
        if self._epochs is not None:
            return self._epochs
        count = len(self._offsets)
        if count <= _CACHED:
            return _every(len(self.rows) // count, count).unpack(self.rows)
        view = memoryview(self.rows)
        return array("i", (_unpack_i(view, at + 10)[0] for at in self._offsets))

    def compare(self, old: PackedPartitions) -> tuple[bool, bool]:
        """Compare with an older response; return (no epoch is missing or lower, anything is newer).

        The second value is True if a partition is new or has a higher epoch. The result is cached
        until `forget_compared`.
        """
        if old is self or old.rows == self.rows:
            return True, False
        if self._compared is None or self._compared[0] is not old:
            before, after = old.epochs(), self.epochs()
            all_there = len(before) <= len(after)
            no_epoch_is_lower = all_there and not any(map(int.__gt__, before, after))
            news = len(before) != len(after) or any(map(int.__lt__, before, after))
            self._compared = old, no_epoch_is_lower, news
        return self._compared[1:]

    def forget_compared(self) -> None:
        """Drop the result of `compare`, which refers to older partitions."""
        self._compared = None


@lru_cache(64)
def _row(replicas: int, isr: int, offline: int) -> Struct:
    """Return the layout of a row with lists of these lengths (plus one, as they are encoded)."""
    return Struct(f">hiiiB{replicas - 1}iB{isr - 1}iB{offline - 1}i")


def _partition(rows: bytes, pos: int) -> MetadataResponsePartition:
    replicas = rows[pos + _HEAD]
    at = pos + _HEAD + 4 * replicas - 3
    isr = rows[at] if replicas < 0x80 else 0x80
    offline = rows[at + 4 * isr - 3] if isr < 0x80 else 0x80
    if offline < 0x80:  # the usual case
        found = _row(replicas, isr, offline).unpack_from(rows, pos)
        first, second = 4 + replicas, 4 + replicas + isr  # positions of list lengths
        error_code, number, leader, epoch = found[:4]
        brokers, in_sync, gone = found[5:first], found[first + 1 : second], found[second + 1 :]
        return MetadataResponsePartition(
            error_code, number, leader, epoch, list(brokers), list(in_sync), list(gone)
        )
    view = memoryview(rows)
    numbers = _unpack_hiii(view, pos)
    pos += _HEAD
    lists = []
    for _ in range(3):
        count, pos = read_compact_count(view, pos, 4)
        lists.append(read_int32s(view, pos, count))
        pos += 4 * count
    return MetadataResponsePartition(*numbers, *lists)


def _read_partitions(view: memoryview, pos: int) -> tuple[Sequence[MetadataResponsePartition], int]:
    count, pos = read_compact_count(view, pos, ROW)
    if count == 0:
        return [], pos
    replicas = view[pos + _HEAD]
    at = pos + _HEAD + 4 * replicas - 3
    size = len(view)  # for the positions below, if there are 127 replicas
    isr = view[at] if at < size else 0
    at += 4 * isr - 3
    offline = view[at] if at < size else 0
    width = at + 4 * offline - 2 - pos
    end = pos + width * count
    if min(replicas, isr, offline) > 0 and max(replicas, isr, offline) < 0x80 and end <= size:
        rows = bytes(view[pos:end])
        if count == 1:  # usual in clusters with very many topics
            error_code, number, leader, epoch = _unpack_hiii(view, pos)
            if not (error_code or number or rows[-1]) and min(leader, epoch) >= 0:
                return PackedPartitions(rows, _ONE, None, 0), end
            return _walk(view, pos, count)
        columns = _cached_columns if count <= _CACHED else _columns
        for first, expected in columns(replicas, isr, offline, count):
            if rows[first::width] != expected:
                break
        else:
            return PackedPartitions(rows, range(0, len(rows), width), None, 0), end
    return _walk(view, pos, count)


def _walk(view: memoryview, start: int, count: int) -> tuple[PackedPartitions, int]:
    """Read rows of different widths one by one."""
    offsets, found, pos = array("L"), [], start
    for _ in range(count):
        offsets.append(pos - start)
        found.append(_unpack_hiii(view, pos))
        pos += _HEAD
        for _ in range(3):
            length = view[pos]
            if 0 < length < 0x80:
                pos += 4 * length - 3
            else:
                length, pos = read_uvarint(view, pos)
                if length == 0:
                    raise WireError("null where null isn't allowed")
                pos += 4 * (length - 1)
        pos = skip_tags(view, pos) if view[pos] else pos + 1
    numbers = [row[1] for row in found]
    if numbers != list(range(count)):
        order = sorted(range(count), key=numbers.__getitem__)
        offsets = array("L", (offsets[n] for n in order))
        found = [found[n] for n in order]
    epochs = array("i", (row[3] for row in found))
    leaderless = sum(1 for row in found if row[2] < 0)
    packed = PackedPartitions(bytes(view[start:pos]), offsets, epochs, leaderless)
    packed.numbered = min(epochs) >= 0 and [row[1] for row in found] == list(range(count))
    return packed, pos


class _Topics:
    """Reader of a response's topics and of the fields after them."""

    def __init__(self, view: memoryview, start: int, pos: int, version: int) -> None:
        self._view, self._start, self._version = view, start, version
        self._left, self._pos = read_compact_count(view, pos, 26 if version > FIRST else 10)

    def read(self, answer: PackedMetadataResponse, most: int) -> int:
        """Read about `most` bytes; return the position after the response, or 0 if more is left."""
        view, pos, version, topics = self._view, self._pos, self._version, answer.topics
        stop = pos + most
        read_name = read_nullable_compact_string if version >= 12 else read_compact_string
        topic_id = ZERO_UUID
        while self._left:
            if pos >= stop:
                self._pos = pos
                return 0
            (error_code,) = _unpack_h(view, pos)
            name, pos = read_name(view, pos + 2)
            if version > FIRST:
                topic_id, internal = _unpack_id(view, pos)
                pos += 17
            else:
                (internal,) = _unpack_flag(view, pos)
                pos += 1
            partitions, pos = _read_partitions(view, pos)
            (operations,) = _unpack_i(view, pos)
            pos += 4
            pos = skip_tags(view, pos) if view[pos] else pos + 1
            topics.append(
                MetadataResponseTopic(
                    error_code,
                    name,
                    topic_id,
                    internal,
                    cast("list[MetadataResponsePartition]", partitions),
                    operations,
                )
            )
            self._left -= 1
        if version <= 10:
            answer.ends(operations=_unpack_i(view, pos)[0])
            pos += 4
        if version >= 13:
            answer.ends(error_code=_unpack_h(view, pos)[0])
            pos += 2
        return skip_tags(view, pos)

    def read_on(self, answer: PackedMetadataResponse, most: int) -> bool:
        """Read the next bytes; return whether all is read. The plain decoder raises errors."""
        try:
            end = self.read(answer, most)
            if end not in (0, len(self._view)):
                raise WireError("unread bytes at the end")
        except _UNREADABLE:
            MetadataResponse.read(self._view, self._version, self._start)  # raises a better error
            raise
        return end != 0


def _read(view: memoryview, start: int, version: int) -> One[PackedMetadataResponse]:
    try:
        (throttle_time_ms,) = _unpack_i(view, start)
        brokers, pos = _read_all_metadata_response_broker_9(view, start + 4)
        cluster_id, pos = read_nullable_compact_string(view, pos)
        (controller_id,) = _unpack_i(view, pos)
        answer = PackedMetadataResponse(throttle_time_ms, brokers, cluster_id, controller_id)
        topics = _Topics(view, start, pos + 4, version)
        if len(view) - pos > SLICE:
            answer.unread = topics
            return answer, len(view)
        return answer, topics.read(answer, len(view))
    except _UNREADABLE:
        MetadataResponse.read(view, version, start, whole=False)  # raises a better error
        raise


def _reader(version: int) -> Reader:
    return lambda view, start: _read(view, start, version)


def _without_epoch(p: MetadataResponsePartition) -> MetadataResponsePartition:
    lists = p.replica_nodes, p.isr_nodes, p.offline_replicas
    return MetadataResponsePartition(p.error_code, p.partition_index, p.leader_id, -1, *lists)


def _plain(reader: Reader) -> Reader:
    def read(view: memoryview, start: int) -> One[PackedMetadataResponse]:
        found, pos = reader(view, start)
        for topic in found.topics:
            topic.partitions[:] = map(_without_epoch, topic.partitions)
        answer = PackedMetadataResponse(
            found.throttle_time_ms,
            found.brokers,
            found.cluster_id,
            found.controller_id,
            found.topics,
            found.cluster_authorized_operations,
        )
        return answer, pos

    return read


class PackedMetadataResponse(MetadataResponse):
    """A response to Metadata; from version 9 on its partitions are `PackedPartitions`.

    In older versions leader epochs are ignored: brokers may report stale epochs while partitions
    are reassigned, and leaders refuse requests with a stale epoch.
    """

    __slots__ = ("unread",)
    READERS: ClassVar[tuple[Reader, ...]] = tuple(
        _plain(reader) if version < FIRST else _reader(version)
        for version, reader in enumerate(MetadataResponse.READERS, MetadataResponse.MIN_VERSION)
    )

    def __init__(self, *fields: Any) -> None:
        """Set the fields, in the order of `MetadataResponse`."""
        super().__init__(*fields)
        self.unread: _Topics | None = None
        """The unread part of a response of more than `SLICE` bytes: see `read_on`."""

    def ends(self, *, operations: int | None = None, error_code: int = 0) -> None:
        """Set the fields that follow the topics, because all topics are read."""
        self.error_code = error_code
        if operations is not None:
            self.cluster_authorized_operations = operations

    def read_on(self) -> bool:
        """Read the next `SLICE` bytes; return whether the response is complete.

        Raises MalformedMessageError if the bytes can't be decoded.
        """
        if self.unread is not None and self.unread.read_on(self, SLICE):
            self.unread = None
        return self.unread is None


class PackedMetadataRequest(MetadataRequest):
    """A Metadata request whose response has packed partitions."""

    __slots__ = ()
    RESPONSE: ClassVar[type[Message]] = PackedMetadataResponse

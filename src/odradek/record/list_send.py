"""Convert lists, which are the arguments of `send_many`, to columns for the encoder.

In: lists of keys, values, headers, partitions and timestamps, with an item for each record. Out: a
sequence of `SentColumns`, each with a group of records, so that long lists need little additional
memory. The caller can check all lists first, so that no record is sent if an item is invalid. Must
not: need pyarrow, or read a user's list twice, because another thread may change it.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from itertools import accumulate, chain
from typing import Any, NamedTuple

from odradek.common.arguments import (
    INT64_MAX,
    Headers,
    iterable,
    partition_number,
    record_bytes,
    record_headers,
    refusal,
    timestamp,
)
from odradek.common.errors import ArgumentError, KafkaError
from odradek.record import gather, only_bytes
from odradek.record.builder import plain_bytes
from odradek.record.sent_columns import SentBinary, SentColumns, SentHeaders, SentNumbers

PIECE_RECORDS = 1 << 13
PIECE_BYTES = 1 << 20
"""Maximum number of records and bytes in a group; a larger record is a group of its own."""
NO_TIME = -1
_OR_NONE = {bytes, type(None)}


class RecordLists(NamedTuple):
    """The lists of a call, copied, and of equal length; None for a list with None only."""

    values: list[Any]
    keys: list[Any] | None = None
    headers: list[Any] | None = None
    partitions: list[Any] | None = None
    timestamps_ms: list[Any] | None = None

    @classmethod
    def given(cls, **lists: Any) -> RecordLists:
        """Copy the lists that the user passed.

        Raises `ArgumentError` for an argument that isn't a list, or has another length than
        `values`.
        """
        found = {
            name: _listed(name, given)
            for name, given in lists.items()
            if given is not None or name == "values"
        }
        count = len(found["values"])
        for name, items in found.items():
            if len(items) != count:
                raise ArgumentError(
                    f"{name} and values must have the same length, not {len(items)} and {count}"
                )
        return cls(**found)

    def objects(self) -> Iterator[tuple[Any, Any, Any]]:
        """Yield the key, the value and the headers of each record, for serializers."""
        nothing = [None] * len(self.values)
        keys = nothing if self.keys is None else self.keys
        headers = nothing if self.headers is None else self.headers
        return zip(keys, self.values, headers, strict=True)

    def written(self, records: Sequence[tuple[Any, Any, Any]]) -> dict[str, list[Any] | None]:
        """Return all lists by name, with the given keys, values and headers."""
        return {
            "values": [value for _, value, _ in records],
            "keys": [key for key, _, _ in records],
            "headers": [headers for _, _, headers in records],
            "partitions": self.partitions,
            "timestamps_ms": self.timestamps_ms,
        }

    def check(self) -> Iterator[None]:
        """Check all items, one group of records per iteration.

        Only this reads headers. Raises `ArgumentError` or `ConfigurationError` for an invalid item.
        """
        for first in range(0, len(self.values), PIECE_RECORDS):
            last = min(first + PIECE_RECORDS, len(self.values))
            for name, given in (("values", self.values), ("keys", self.keys)):
                if given is not None and not only_bytes(given, first, last):
                    _each(name, given, first, last, _bytes)
            _each("headers", self.headers, first, last, _headers)
            _each("partitions", self.partitions, first, last, partition_number)
            _each("timestamps_ms", self.timestamps_ms, first, last, _time)
            yield

    def columns(self) -> Iterator[SentColumns]:
        """Yield the columns of each group of records; `check` must have been run before."""
        first, count = 0, len(self.values)
        while first < count:
            piece = self._piece(first, min(first + PIECE_RECORDS, count))
            yield piece
            first += piece.count

    def _piece(self, first: int, last: int) -> SentColumns:
        """Return the columns of a group: records from `first` on, at most up to `last`."""
        headers = None
        if self.headers is not None:
            headers = _Lists(self.headers[first:last])
            last = first + headers.fitting()
        keys, key_column = last - first, None
        if self.keys is not None:
            keys, key_column = _column(self.keys, first, last)
        count, value_column = _column(self.values, first, first + keys)
        if count < keys and self.keys is not None:
            _, key_column = _column(self.keys, first, first + count)
        last = first + count
        partitions, times = self.partitions, self.timestamps_ms
        return SentColumns(
            count,
            value_column,
            key_column,
            None if headers is None else headers.column(count),
            None if partitions is None else _numbers("i", partitions[first:last]),
            None if times is None else _numbers("q", times[first:last]),
            first,
        )


def _listed(name: str, given: Any) -> list[Any]:
    wanted = "a list with one item for each record"
    if isinstance(given, Mapping | AbstractSet):  # these have no order
        raise refusal(name, wanted, given)
    return iterable(name, given, wanted)


def _each(
    name: str, given: list[Any] | None, first: int, last: int, read: Callable[[str, Any], Any]
) -> None:
    """Replace each item of a range by the result of a function, which gets the item's name."""
    if given is not None:
        for position, item in enumerate(given[first:last], first):
            if item is not None:
                given[position] = read(f"{name}[{position}]", item)


def _bytes(name: str, given: Any) -> Any:
    record_bytes(name, given)
    return given


def _headers(name: str, given: Any) -> Headers:
    try:
        return record_headers(given)
    except KafkaError as error:
        raise type(error)(f"{name}: {error}") from None


def _time(name: str, given: Any) -> int:
    return timestamp(name, given, NO_TIME)


def _column(items: list[Any], first: int, last: int) -> tuple[int, SentBinary | None]:
    """Return a column of items from `first` on, up to `last` or the size of a group.

    The first part of the result is the number of items.
    """
    found = gather(items, first, last, PIECE_BYTES)
    if found is None:  # other bytes-like objects
        given = [one if type(one) in _OR_NONE else plain_bytes(one) for one in items[first:last]]
        found = gather(given, 0, len(given), PIECE_BYTES)
    if found is None:
        raise TypeError("an item was changed to an invalid value while it was sent")
    return found


class _Lists:
    """Headers of records, converted to three buffers."""

    def __init__(self, items: list[Headers | None]) -> None:
        self._items: list[Headers] = [one or () for one in items]
        sizes = (sum(len(n) + _size(v) for n, v in one) for one in self._items)
        self._ends = array("q", accumulate(sizes, initial=0))

    def fitting(self) -> int:
        """Return the number of first records whose headers fit into a group; at least 1."""
        ends = self._ends
        if ends[-1] <= PIECE_BYTES:
            return len(ends) - 1
        return max(1, bisect_right(ends, PIECE_BYTES) - 1)

    def column(self, count: int) -> SentHeaders:
        """Return a column with the headers of the first `count` records."""
        items = self._items[:count]
        pairs = list(chain.from_iterable(items))
        names = _whole([name.encode() for name, _ in pairs])
        contents = _whole([content for _, content in pairs])
        offsets = array("q", accumulate(map(len, items), initial=0))
        return SentHeaders(memoryview(offsets), names, contents, len(pairs), wide=True)


def _size(content: Any) -> int:
    return 0 if content is None else memoryview(content).nbytes  # items may have several bytes


def _whole(items: list[Any]) -> SentBinary:
    """Return all items as one column, without data if all items are None."""
    given = [one if type(one) in _OR_NONE else plain_bytes(one) for one in items]
    found = gather(given, 0, len(given), INT64_MAX)
    column = None if found is None else found[1]
    if column is not None:
        return column
    return SentBinary(bytes(8 * (len(items) + 1)), b"", bytes((len(items) + 7) // 8), wide=True)


def _numbers(code: str, items: list[Any]) -> SentNumbers:
    """Return a column of integers, some of which may be None."""
    bits = _bits(items) if None in items else None
    return SentNumbers(memoryview(array(code, [one or 0 for one in items])), bits)


def _bits(items: list[Any]) -> bytes:
    """Return Arrow's validity bitmap: a bit per item, lowest bit first, 0 for None."""
    text = "".join("0" if one is None else "1" for one in reversed(items))
    return int(text, 2).to_bytes((len(items) + 7) // 8, "little")

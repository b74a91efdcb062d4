"""Implement the partitioners besides Java's: librdkafka's by name, and a user's function.

In: the value of the option `partitioner`. Out: a `Rule` for single records, and for columns a
partition column made by the same rule. Must not: use randomness: for librdkafka's `_random`
partitioners a rule returns None, and the sticky partitioner decides.

Every client that uses one of these names must agree on its hash bit by bit, so nothing in here can
be changed. A partition without a leader changes nothing: otherwise the same key would be in two
partitions after an outage.
"""

from __future__ import annotations

import operator
from array import array
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise, repeat
from typing import Literal
from zlib import crc32

from odradek.common.errors import PartitionerError
from odradek.common.types import PartitionFunction
from odradek.record import SentBinary, SentColumns, SentNumbers, partition_for_key
from odradek.record.columns import ByteBuffer

Rule = Callable[[str, bytes | None, bytes | None, int], int | None]
"""Returns the partition for topic, key, value and number of partitions; None: the sticky one."""

_FNV_OFFSET = 0x811C9DC5
_FNV_PRIME = 0x01000193


def fnv1a(data: bytes) -> int:
    """Return the absolute value of the FNV-1a hash as a signed 32-bit integer, like Sarama."""
    h = _FNV_OFFSET
    for byte in data:
        h = (h ^ byte) * _FNV_PRIME & 0xFFFFFFFF
    return (1 << 32) - h if h >> 31 else h


_RULES: dict[str, Rule | None] = {
    "default": None,
    "random": None,  # the sticky partitioner, with `ignore_keys`
    "consistent": lambda _, key, __, count: crc32(key or b"") % count,
    "consistent_random": lambda _, key, __, count: crc32(key) % count if key else None,
    "murmur2": lambda _, key, __, count: partition_for_key(key or b"", count),
    "murmur2_random": None,  # the default here and in Java's client
    "fnv1a": lambda _, key, __, count: fnv1a(key or b"") % count,
    "fnv1a_random": lambda _, key, __, count: None if key is None else fnv1a(key) % count,
}


def rule_for(partitioner: str | PartitionFunction) -> Rule | None:
    """Return the rule of an option's value; None if Java's partitioner decides."""
    return _RULES[partitioner] if isinstance(partitioner, str) else _checked(partitioner)


def _checked(function: PartitionFunction) -> Rule:
    """Wrap a user's function: raise `PartitionerError` unless it returns a valid partition."""
    name = getattr(function, "__qualname__", type(function).__qualname__)

    def rule(topic: str, key: bytes | None, value: bytes | None, count: int) -> int:
        try:
            found = function(topic, key, value, count)
        except Exception as error:
            raise PartitionerError(
                f"the partitioner {name} raised {type(error).__name__} for a record of topic "
                f"{topic}; nothing was written"
            ) from error
        try:
            # A returned bool or None is a mistake in the function.
            partition = -1 if isinstance(found, bool) else operator.index(found)
        except TypeError:
            partition = -1
        if not 0 <= partition < count:
            raise PartitionerError(
                f"the partitioner {name} returned {found!r} for a record of topic {topic}, which "
                f"has partitions 0 to {count - 1}; nothing was written"
            )
        return partition

    return rule


def place_rows(columns: SentColumns, rule: Rule, topic: str, count: int) -> SentColumns:
    """Return the columns with the rule's partition in each row that has none.

    `columns` must have passed the encoder's checks; then the rule is called once per row, in order.
    Another thread may write into the buffers meanwhile: slices never exceed them, and the encoder
    checks the result again. Raises `PartitionerError`, which names the row.
    """
    partitions = array("i", bytes(4 * columns.count))
    bits = bytearray(b"\xff") * ((columns.count + 7) // 8)
    values = None if rule in _RULES.values() else columns.values  # built-in rules only use keys
    rows = zip(
        _given(columns.partitions, columns.count),
        _texts(columns.keys, columns.count),
        _texts(values, columns.count),
        strict=False,
    )
    row = 0
    try:
        for row, (given, key, value) in enumerate(rows):
            chosen = rule(topic, key, value, count) if given is None else given
            if chosen is None:
                bits[row >> 3] &= ~(1 << (row & 7))
            else:
                partitions[row] = chosen
    except PartitionerError as error:
        raise PartitionerError(str(error), columns.first_row + row) from error.__cause__
    return columns._replace(partitions=SentNumbers(memoryview(partitions), bits))


def _texts(column: SentBinary | None, count: int) -> Iterable[bytes | None]:
    """Yield the byte strings of a column, as `send` would receive them."""
    if column is None:
        return repeat(None)
    start = column.start
    ends = _numbers(column.offsets, "q" if column.wide else "i", start, count + 1)
    data = memoryview(column.data).cast("B")
    if column.validity is None:
        return (bytes(data[a:b]) for a, b in pairwise(ends))
    bits = _valid(column.validity, start, count)
    return (
        bytes(data[a:b]) if valid else None
        for (a, b), valid in zip(pairwise(ends), bits, strict=True)
    )


def _given(column: SentNumbers | None, count: int) -> Iterable[int | None]:
    if column is None:
        return repeat(None, count)
    numbers = _numbers(column.data, "i", column.start, count)
    if column.validity is None:
        return numbers
    bits = _valid(column.validity, column.start, count)
    return (number if valid else None for number, valid in zip(numbers, bits, strict=True))


def _numbers(buffer: ByteBuffer, kind: Literal["i", "q"], start: int, count: int) -> list[int]:
    """Return integers of a buffer, whose length needn't be a multiple of their width."""
    width = 8 if kind == "q" else 4
    view = memoryview(buffer).cast("B")[width * start : width * (start + count)]
    return view.cast(kind).tolist()


def _valid(bitmap: ByteBuffer, start: int, count: int) -> Iterator[bool]:
    """Return Arrow's validity bits from `start` on."""
    bits = memoryview(bitmap).cast("B")
    return (bool(bits[at >> 3] >> (at & 7) & 1) for at in range(start, start + count))

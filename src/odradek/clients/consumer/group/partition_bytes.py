"""Encode partitions by topic, as the records that members of a group exchange contain them.

In: partitions, or bytes and a position. Out: bytes, or partitions and the position after them.
"""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct

from odradek.common.types import TopicPartition
from odradek.protocol.primitives import (
    read_count,
    read_int32s,
    read_string,
    write_count,
    write_numbers,
    write_string,
)

_int32 = Struct(">i")


def write_partitions(out: bytearray, partitions: Iterable[TopicPartition]) -> None:
    """Encode partitions, grouped by topic."""
    by_topic: dict[str, list[int]] = {}
    for topic, partition in partitions:
        by_topic.setdefault(topic, []).append(partition)
    out += _int32.pack(len(by_topic))
    for topic, numbers in by_topic.items():
        write_string(out, topic)
        write_count(out, numbers)
        write_numbers(out, numbers, "i")


def read_partitions(view: memoryview, pos: int) -> tuple[list[TopicPartition], int]:
    """Decode partitions that are grouped by topic."""
    found: list[TopicPartition] = []
    topics, pos = read_count(view, pos, 6)
    for _ in range(topics):
        topic, pos = read_string(view, pos)
        count, pos = read_count(view, pos, 4)
        found += [TopicPartition(topic, number) for number in read_int32s(view, pos, count)]
        pos += 4 * count
    return found, pos

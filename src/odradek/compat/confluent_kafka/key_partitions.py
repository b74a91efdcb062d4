"""The partitioners `murmur2`, `consistent` and `fnv1a` as plain functions.

In: a key's bytes and a number of partitions. Out: the partition's number that a producer with the
option `partitioner` of that name chooses. Must not: be used by Odradek's producers, which have
their own.
"""

from __future__ import annotations

from operator import index
from zlib import crc32

_MURMUR_SEED, _MURMUR_FACTOR, _MURMUR_SHIFT = 0x9747B28C, 0x5BD1E995, 24
_FNV_OFFSET, _FNV_PRIME = 0x811C9DC5, 0x01000193
_MASK = 0xFFFFFFFF


def murmur2(key: bytes, partition_count: int) -> int:
    """Return the partition that Java's default partitioner chooses."""
    data, count = _checked(key, partition_count)
    whole = len(data) & ~3
    value = _MURMUR_SEED ^ len(data)
    for at in range(0, whole, 4):
        word = int.from_bytes(data[at : at + 4], "little") * _MURMUR_FACTOR & _MASK
        word = (word ^ word >> _MURMUR_SHIFT) * _MURMUR_FACTOR & _MASK
        value = value * _MURMUR_FACTOR & _MASK ^ word
    if whole < len(data):
        value = (value ^ int.from_bytes(data[whole:], "little")) * _MURMUR_FACTOR & _MASK
    value = (value ^ value >> 13) * _MURMUR_FACTOR & _MASK
    return ((value ^ value >> 15) & 0x7FFFFFFF) % count


def consistent(key: bytes, partition_count: int) -> int:
    """Return the partition by CRC32."""
    data, count = _checked(key, partition_count)
    return crc32(data) % count


def fnv1a(key: bytes, partition_count: int) -> int:
    """Return the partition by FNV-1a, as Sarama does."""
    data, count = _checked(key, partition_count)
    value = _FNV_OFFSET
    for byte in data:
        value = (value ^ byte) * _FNV_PRIME & _MASK
    signed = value - (1 << 32) if value >> 31 else value
    return abs(signed) % count


def _checked(key: object, count: int) -> tuple[bytes, int]:
    if isinstance(key, str):
        raise TypeError("a bytes-like object is required, not 'str'")
    if index(count) <= 0:
        raise ValueError(f"partition_count must be > 0, got {count}")
    return bytes(memoryview(key)), count  # type: ignore[arg-type]

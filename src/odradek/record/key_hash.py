"""Compute the partition of a key as Java's producer does.

In: a key as bytes. Out: a partition number. Clients of all languages must choose one partition for
a key, so this function can't be changed or tuned.
"""

from __future__ import annotations

import struct

from odradek.record.builder import plain_bytes

_SEED = 0x9747B28C
_M = 0x5BD1E995
_MASK = 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """Return the 32-bit hash of `data`, signed like Java's `int`."""
    if type(data) is not bytes:
        data = plain_bytes(data)  # items may have several bytes
    length = len(data)
    h = (_SEED ^ length) & _MASK
    words = length >> 2
    for k in struct.unpack_from(f"<{words}I", data):
        k = k * _M & _MASK
        h = (h * _M & _MASK) ^ ((k ^ k >> 24) * _M & _MASK)
    if length & 3:
        h = (h ^ int.from_bytes(data[words << 2 :], "little")) * _M & _MASK
    h = (h ^ h >> 13) * _M & _MASK
    h ^= h >> 15
    return h - (1 << 32) if h >> 31 else h


def partition_for_key(key: bytes, partitions: int) -> int:
    """Return the partition that Java chooses: the hash without its sign bit, modulo `count`."""
    if partitions < 1:
        raise ValueError(f"a topic can't have {partitions} partitions")
    return (murmur2(key) & 0x7FFFFFFF) % partitions

"""The hash by which Java's producer spreads keys over partitions.

In: key bytes. Out: a number. Every client that wants a key's records in one partition must
agree on it bit by bit, so it can't be changed or tuned.
"""

from __future__ import annotations

import struct

from odradek.record.builder import plain_bytes

_SEED = 0x9747B28C
_M = 0x5BD1E995
_MASK = 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """Hash `data` to 32 bits, signed as Java's `int` is."""
    if type(data) is not bytes:
        data = plain_bytes(data)  # an array has larger items
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
    """Choose the partition as Java does: the sign bit is dropped, not the sign changed."""
    if partitions < 1:
        raise ValueError(f"a topic can't have {partitions} partitions")
    return (murmur2(key) & 0x7FFFFFFF) % partitions

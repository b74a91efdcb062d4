"""Messages of formats 0 and 1, plain and in compressed wrappers, valid and hostile.

In: the random choices of `frames`. Out: the bytes of a message. Nearly all have correct checksums,
inside of wrappers too, because nothing is read after a wrong one. Must not use the readers under
test.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable

from odradek.record.compression import compress

_LONG = 1 << 63
_FRONT = struct.Struct(">qiI")
_LARGEST_CODEC = 3
LIES = ("length", "magic", "attributes", "offset", "key", "value", "crc", "cut", "more")
_EDGES = (-2, -1, 0, 1, 2)
_SIZES = (-1, -2, 0, 1, 4, 1000, (1 << 31) - 1, -(1 << 31))
_LENGTHS = (-1, 0, 13, 14, 15, 21, 22, 23, (1 << 31) - 1, -(1 << 31))
_OFFSETS = (-1, 0, 1, 5, -_LONG, _LONG - 1, _LONG - 2)
_PIECES = (None, b"", b"k", b"twelve bytes", b"thirteen byte", bytes(40), bytes(range(200)))
_TIMES = (0, -1, 1_700_000_000_000, 5, _LONG - 1, -_LONG)
NULL = -1


def sized(piece: bytes | None, claimed: int | None = None) -> bytes:
    """Return the length, or the claimed number, and the bytes of a key or value."""
    content = b"" if piece is None else piece
    length = (NULL if piece is None else len(piece)) if claimed is None else claimed
    return struct.pack(">i", length) + content


def message(
    offset: int,
    magic: int,
    key: bytes | None,
    value: bytes | None,
    *,
    time: int = -1,
    attributes: int = 0,
    key_size: int | None = None,
    value_size: int | None = None,
) -> bytearray:
    """Return one message of format 0 or 1."""
    body = bytes((magic & 255, attributes & 255))
    if magic == 1:
        body += struct.pack(">q", time)
    body += sized(key, key_size) + sized(value, value_size)
    return sealed(bytearray(_FRONT.pack(offset, 0, 0) + body))


def sealed(data: bytearray) -> bytearray:
    """Return the bytes after their length and checksum."""
    struct.pack_into(">i", data, 8, len(data) - 12)
    struct.pack_into(">I", data, 12, zlib.crc32(data[16:]))
    return data


def wrapper(
    inner: bytes | bytearray,
    offset: int,
    magic: int,
    codec: int,
    *,
    time: int = -1,
    append_time: bool = False,
    packed: bytes | bytearray | None = None,
) -> bytearray:
    """Return a message whose value is a compressed set of messages."""
    attributes = codec | (8 if append_time else 0)
    value = compress(codec, None, memoryview(inner)) if packed is None else packed
    return message(offset, magic, None, bytes(value), time=time, attributes=attributes)


class OldMessages:
    """Creates messages at random; `pick(n)` returns a random number below n."""

    def __init__(self, pick: Callable[[int], int]) -> None:
        self._pick = pick

    def make(self, offset: int, valid: bool) -> tuple[bytes, int]:
        """Create a record or a wrapper that begins at `offset`, and return the next offset, too."""
        pick = self._pick
        magic, kind = pick(2), pick(5)
        if kind < 3:
            return bytes(self._message(offset, magic, valid)), offset + 1
        count = (1, 2, 3, 5)[pick(4)]
        broken = count if valid or pick(3) == 0 else pick(count)
        # Inner offsets of format 1 are relative; the wrapper's offset is that of the last message.
        first = offset if magic == 0 or pick(8) == 0 else (0, 0, 3)[pick(3)]
        inner, at = bytearray(), first
        for i in range(count):
            each = magic if pick(20) else 1 - magic
            inner += self._message(at, each, i != broken)
            at += 1 if pick(4) else 3
        end = offset + at - 1 - first
        if not valid and pick(3) == 0:
            self._spoil(inner)
        codec = 1 + pick(_LARGEST_CODEC)
        packed = compress(codec, None, memoryview(inner)) if inner else b""
        if not valid and pick(6) == 0:
            changed = bytearray(packed)
            self._spoil(changed)
            packed = bytes(changed)
        made = wrapper(
            inner, self._last(inner, magic, offset, end), magic, codec,
            time=_TIMES[pick(6)], append_time=pick(3) == 0, packed=bytes(packed),
        )  # fmt: skip
        if not valid and pick(4) == 0:
            self._lie(made, LIES[pick(len(LIES))])
        return bytes(made), end + 1

    def _last(self, inner: bytearray, magic: int, offset: int, end: int) -> int:
        """Return the wrapper's offset: that of the last readable message, or one nearby."""
        return end + (_EDGES[self._pick(5)] if self._pick(12) == 0 else 0)

    def _message(self, offset: int, magic: int, valid: bool) -> bytearray:
        pick = self._pick
        key, value = _PIECES[pick(7)], _PIECES[pick(7)]
        attributes = 8 if magic and pick(4) == 0 else 0
        made = message(offset, magic, key, value, time=_TIMES[pick(6)], attributes=attributes)
        if not valid:
            self._lie(made, LIES[pick(len(LIES))])
        return made

    def _lie(self, data: bytearray, lie: str) -> None:
        """Change a field of a message, mostly with a checksum that agrees."""
        pick = self._pick
        pieces = 18 + 8 * (data[16] == 1)
        (key,) = struct.unpack_from(">i", data, pieces)
        where = pieces if lie == "key" else pieces + 4 + max(key, 0)
        if lie in ("key", "value"):
            left = len(data) - where - (8 if lie == "key" else 4)
            size = left + _EDGES[pick(5)] if pick(2) else _SIZES[pick(8)]
            struct.pack_into(">i", data, where, size)
        elif lie == "cut":
            del data[18 + pick(len(data) - 17) :]
        elif lie == "more":
            data += bytes(1 + pick(9))
        elif lie == "magic":
            data[16] = (0, 1, 2, 3, 255)[pick(5)]
        elif lie == "attributes":
            data[17] = (1, 2, 3, 4, 5, 7, 8, 15, 0x10, 0x28, 0xF0, 255)[pick(12)]
        sealed(data)
        if lie == "offset":
            (now,) = struct.unpack_from(">q", data)
            now += _EDGES[pick(5)]
            struct.pack_into(">q", data, 0, now if pick(2) else _OFFSETS[pick(7)])
        elif lie == "crc":
            data[12 + pick(4)] ^= 1 << pick(8)
        elif lie == "length":
            size = len(data) - 12 + _EDGES[pick(5)] if pick(2) else _LENGTHS[pick(10)]
            struct.pack_into(">i", data, 8, size)
            if pick(2):
                struct.pack_into(">I", data, 12, zlib.crc32(data[16 : max(12 + size, 16)]))

    def _spoil(self, data: bytearray) -> None:
        """Truncate, extend or change bytes anywhere."""
        pick = self._pick
        if not data:
            return
        at = pick(len(data))
        match pick(3):
            case 0:
                del data[at:]
            case 1:
                data += bytes(1 + pick(30))
            case _:
                data[at] ^= 1 << pick(8)

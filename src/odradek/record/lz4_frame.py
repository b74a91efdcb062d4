"""Write and read LZ4 frames, of Kafka's and other kinds, with a library's codec for blocks.

In: records, or the compressed part of a batch. Out: a frame of independent blocks, or the records
in memory that the caller passes. `record/compression.py` sets the limits. Must not: trust a size
that a frame claims, or write linked blocks, which brokers refuse.

Checksums inside a frame (header, blocks, content) are skipped, because the batch's checksum, which
is always verified, covers the frame. Frames of message format 0 have a wrong header checksum,
computed with the magic number (KAFKA-3160).
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from struct import Struct
from typing import NamedTuple

from cramjam import DecompressionError, lz4

from odradek.record.batch import BadBatchError
from odradek.record.limits import NO_ROOM
from odradek.record.window import into_views

_MAGIC = 0x184D2204
_FRAME = Struct("<IBB")
_BLOCK = Struct("<I")
_CONTENT = Struct("<Q")
_END = bytes(4)
_STORED = 1 << 31  # bit in a block's size: not compressed
_SIZES = {4: 1 << 16, 5: 1 << 18, 6: 1 << 20, 7: 1 << 22}
_LARGEST_SIZE = _SIZES[7]
_CHECKSUMS = {4: 0x82, 5: 0xFB, 6: 0x51, 7: 0x73}  # of the headers that `write` creates
_HEADERS = {
    size: _FRAME.pack(_MAGIC, 0x60, code << 4) + bytes((_CHECKSUMS[code],))
    for code, size in _SIZES.items()
}
_HEADER_SIZE = 7
_VERSION = 1
_INDEPENDENT, _BLOCK_CHECKSUM, _CONTENT_SIZE, _CONTENT_CHECKSUM = 0x20, 0x10, 0x08, 0x04
_UNKNOWN_FLAGS = 0x03  # a reserved bit, and the bit for a dictionary
_LARGEST_RATIO = 255
"""Maximum number of bytes per compressed byte, as a length is stored in bytes of up to 255."""
_KAFKAS_DEFAULT_LEVEL = 9
_LOWEST_HIGH_LEVEL = 3
_PRIMES = (2654435761, 2246822519, 3266489917, 668265263, 374761393)
_MASK = 0xFFFFFFFF
_compress_block_into = into_views(lz4.compress_block_into)
_decompress_block_into = into_views(lz4.decompress_block_into)
_decompress_into = into_views(lz4.decompress_into)


class _Layout(NamedTuple):
    """The layout of a frame, from flags in its first two bytes."""

    block_size: int
    linked: bool
    block_checksum: int
    """Size of the checksum after each block; 0 without one."""
    content_checksum: int
    """Size of the checksum after the last block; 0 without one."""
    has_content_size: bool


def write(data: memoryview, level: int | None) -> bytearray:
    """Compress into one frame. As in Java, level 9 is the fast compressor, other levels are HC."""
    if level not in (None, _KAFKAS_DEFAULT_LEVEL):
        return _write_high(data, level or 0)
    size = next((size for size in _HEADERS if len(data) <= size), _LARGEST_SIZE)
    parts = [data[at : at + size] for at in range(0, len(data), size)]
    most = sum(_BLOCK.size + lz4.compress_block_bound(part) for part in parts)
    frame = bytearray(_HEADER_SIZE + most + len(_END))
    frame[:_HEADER_SIZE] = _HEADERS[size]
    at = _HEADER_SIZE
    with memoryview(frame) as room:
        for part in parts:
            start = at + _BLOCK.size
            with room[start:] as left:
                packed = _compress_block_into(part, left, store_size=False)
            if packed < len(part):
                _BLOCK.pack_into(frame, at, packed)
            else:
                packed = len(part)
                room[start : start + packed] = part
                _BLOCK.pack_into(frame, at, packed | _STORED)
            at = start + packed
    frame[at:] = _END
    return frame


def _write_high(data: memoryview, level: int) -> bytearray:
    """Compress with LZ4 HC; the block checksums of the library's frame are removed.

    As in the reference implementation, levels below the lowest HC level mean the lowest HC level.
    """
    level = max(level, _LOWEST_HIGH_LEVEL)
    packer = lz4.Compressor(level=level, content_checksum=False, block_linked=False)
    packer.compress(bytes(data))
    packed = memoryview(packer.finish())
    layout, at, _ = _header(packed, 0)
    frame = bytearray(_HEADERS[layout.block_size])
    while span := _block(packed, at, layout):
        _, end, _ = span
        frame += packed[at:end]
        at = end + layout.block_checksum
    frame += _END
    return frame


def read_into(data: memoryview, room: memoryview) -> int:
    """Decompress into `room` and return the size; `NO_ROOM` if `room` is too small.

    Several frames may follow each other, although Kafka's clients only write a single frame.
    """
    at = total = 0
    while at < len(data) or not at:
        layout, start, content_size = _header(data, at)
        before = total
        if layout.linked:
            end, most = _extent(data, start, layout)
            size = _read_linked(data[at:end], room[total:], most)
            if size == NO_ROOM:
                return NO_ROOM
            total += size
            at = end
        else:
            at = start
            while span := _block(data, at, layout):
                start, at, stored = span
                left = room[total : total + layout.block_size]
                size = _read(data[start:at], stored, left, layout.block_size)
                if size == NO_ROOM:
                    return NO_ROOM
                total += size
                at += layout.block_checksum
            at += _BLOCK.size + layout.content_checksum
            if at > len(data):
                raise BadBatchError("its lz4 data is truncated")
        if content_size not in (None, total - before):
            raise BadBatchError(
                f"an lz4 frame has {total - before} bytes instead of {content_size}"
            )
    return total


def measure(data: memoryview) -> Iterator[int]:
    """Yield the decompressed size of each block (if linked: of each frame), using memory for one.

    This checks no more than necessary, because `read_into` follows.
    """
    room = memoryview(bytearray(_LARGEST_SIZE))
    at = 0
    while at < len(data):
        layout, first, _ = _header(data, at)
        end, most = _extent(data, first, layout)
        if layout.linked:
            yield _read_linked(data[at:end], memoryview(bytearray(most)), most)
        else:
            at = first
            while span := _block(data, at, layout):
                start, at, stored = span
                yield _read(data[start:at], stored, room[: layout.block_size], layout.block_size)
                at += layout.block_checksum
        at = end


def _read(block: memoryview, stored: bool, room: memoryview, block_size: int) -> int:
    """Decompress a block into `room`, which is no larger than `block_size`."""
    if stored:
        if len(block) > len(room):
            return NO_ROOM
        room[: len(block)] = block
        return len(block)
    try:
        return _decompress_block_into(block, room, output_len=len(room))
    except DecompressionError as error:
        if len(room) < min(block_size, _LARGEST_RATIO * len(block)):
            return NO_ROOM  # or corrupt, which a next call reports
        raise BadBatchError(f"its lz4 data is corrupt ({error})") from error


def _read_linked(frame: memoryview, room: memoryview, most: int) -> int:
    """Decompress a frame of linked blocks in one call, because only the library can read these."""
    end = _HEADER_SIZE - 1 + (_CONTENT.size if frame[4] & _CONTENT_SIZE else 0)
    if (checksum := _header_checksum(frame[4:end])) != frame[end]:
        frame = memoryview(b"".join((frame[:end], bytes((checksum,)), frame[end + 1 :])))
    try:
        return _decompress_into(frame, room)
    except DecompressionError as error:
        if len(room) < most:
            return NO_ROOM
        raise BadBatchError(f"its lz4 data is corrupt ({error})") from error


def _header_checksum(fields: memoryview) -> int:
    """Return the checksum of a frame's header, one byte of XXH32, which Python doesn't have."""
    words, rest = divmod(len(fields), 4)
    found = _PRIMES[4] + len(fields)
    for word in Struct(f"<{words}I").unpack(fields[: 4 * words]):
        found = _rotated(found + word * _PRIMES[2], 17) * _PRIMES[3]
    for byte in fields[len(fields) - rest :]:
        found = _rotated(found + byte * _PRIMES[4], 11) * _PRIMES[0]
    found &= _MASK
    for shift, prime in ((15, _PRIMES[1]), (13, _PRIMES[2])):
        found = (found ^ found >> shift) * prime & _MASK
    return (found ^ found >> 16) >> 8 & 0xFF


def _rotated(value: int, bits: int) -> int:
    value &= _MASK
    return value << bits & _MASK | value >> 32 - bits


def _extent(data: memoryview, at: int, layout: _Layout) -> tuple[int, int]:
    """Return the end of a frame whose blocks begin at `at`, and its maximum decompressed size."""
    most = 0
    while span := _block(data, at, layout):
        start, end, _ = span
        most += min(layout.block_size, _LARGEST_RATIO * (end - start))
        at = end + layout.block_checksum
    end = at + _BLOCK.size + layout.content_checksum
    if end > len(data):
        raise BadBatchError("its lz4 data is truncated")
    return end, most


def _header(data: memoryview, start: int) -> tuple[_Layout, int, int | None]:
    """Read the header of the frame at `start`: layout, position of the blocks, claimed size."""
    if len(data) - start < _HEADER_SIZE:
        raise BadBatchError("its lz4 data is truncated")
    magic, flags, sizes = _FRAME.unpack_from(data, start)
    if magic != _MAGIC:
        raise BadBatchError(
            f"its lz4 data begins with {data[start : start + 4].hex()}, which isn't an lz4 frame"
        )
    layout = _layout(flags, sizes)
    if not layout.has_content_size:
        return layout, start + _HEADER_SIZE, None
    if len(data) - start < _HEADER_SIZE + _CONTENT.size:
        raise BadBatchError("its lz4 data is truncated")
    (claimed,) = _CONTENT.unpack_from(data, start + _FRAME.size)
    return layout, start + _HEADER_SIZE + _CONTENT.size, claimed


@cache
def _layout(flags: int, sizes: int) -> _Layout:
    size = _SIZES.get(sizes >> 4)
    if flags >> 6 != _VERSION or flags & _UNKNOWN_FLAGS or sizes & 0x0F or not size:
        raise BadBatchError(f"an lz4 frame has the unknown flags {flags:02x} {sizes:02x}")
    return _Layout(
        size,
        not flags & _INDEPENDENT,
        _BLOCK.size if flags & _BLOCK_CHECKSUM else 0,
        _BLOCK.size if flags & _CONTENT_CHECKSUM else 0,
        bool(flags & _CONTENT_SIZE),
    )


def _block(data: memoryview, at: int, layout: _Layout) -> tuple[int, int, bool] | None:
    """Return start and end of the block at `at`, and whether it is uncompressed.

    Returns None at the end mark, which follows the last block.
    """
    start = at + _BLOCK.size
    left = len(data) - start
    if left < 0:
        raise BadBatchError("its lz4 data is truncated")
    (field,) = _BLOCK.unpack_from(data, at)
    if not field:
        return None
    length = field & ~_STORED
    if length > layout.block_size or length + layout.block_checksum > left:
        raise BadBatchError(
            f"the length of an lz4 block is {length}, but the limit is {layout.block_size} "
            f"and {left} bytes are left"
        )
    return start, start + length, field != length

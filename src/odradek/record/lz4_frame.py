"""LZ4 frames as Kafka writes them, and as others do: around the blocks of a library.

In: records, or the compressed part of a batch. Out: a frame of independent blocks, or the records
in memory that is handed in. `record/compression.py` sets the limits.
Must not trust a size that a frame claims, and writes no linked blocks: brokers refuse those.

Checksums inside of a frame (header, blocks, content) are passed over: the batch's own checksum,
which is always verified, covers the same bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import NamedTuple

from cramjam import DecompressionError, lz4

from odradek.record.batch import BadBatchError

NO_ROOM = -1
"""What a reader gives where the records need more memory than it was given."""

_MAGIC = 0x184D2204
_FRAME = Struct("<IBB")
_BLOCK = Struct("<I")
_CONTENT = Struct("<Q")
_END = bytes(4)
_STORED = 1 << 31  # of a block's size: its bytes are as they were
_SIZES = {4: 1 << 16, 5: 1 << 18, 6: 1 << 20, 7: 1 << 22}
_LARGEST_SIZE = _SIZES[7]
_CHECKSUMS = {4: 0x82, 5: 0xFB, 6: 0x51, 7: 0x73}  # of the headers that are written here
_HEADERS = {
    size: _FRAME.pack(_MAGIC, 0x60, code << 4) + bytes((_CHECKSUMS[code],))
    for code, size in _SIZES.items()
}
_HEADER_SIZE = 7
_VERSION, _LINKED_BIT, _BLOCK_CHECKSUM, _CONTENT_SIZE, _CONTENT_CHECKSUM = 1, 0x20, 0x10, 0x08, 0x04
_UNKNOWN_FLAGS = 0x03  # one is reserved, one means a dictionary
_LARGEST_RATIO = 255
"""A byte of a block stands for so many bytes at most: runs are counted with 255 to the byte."""
_KAFKAS_DEFAULT_LEVEL = 9
_LOWEST_HIGH_LEVEL = 3


class _Frame(NamedTuple):
    """What the header of a frame says, and where its first block is."""

    first: int
    block_size: int
    linked: bool
    block_checksum: int
    """Bytes behind each block."""
    content_checksum: int
    """Bytes behind the last one."""
    content_size: int | None


def write(data: memoryview, level: int | None) -> bytearray:
    """Compress into one frame. Like Java: level 9 means the fast compressor, all others HC."""
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
                packed = lz4.compress_block_into(part, left, store_size=False)
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
    """Compress with LZ4 HC; the library's frame has block checksums, which are left out again.

    Levels below the lowest of HC mean that one, as in the reference implementation.
    """
    level = max(level, _LOWEST_HIGH_LEVEL)
    packer = lz4.Compressor(level=level, content_checksum=False, block_linked=False)
    packer.compress(bytes(data))
    packed = memoryview(packer.finish())
    found = _header(packed, 0)
    frame = bytearray(_HEADERS[found.block_size])
    at = found.first
    while span := _block(packed, at, found):
        _, end, _ = span
        frame += packed[at:end]
        at = end + found.block_checksum
    frame += _END
    return frame


def read_into(data: memoryview, room: memoryview) -> int:
    """Decompress into `room` and give the size; `NO_ROOM` where that is too small."""
    total = 0
    for size in _pieces(data, room, keep=True):
        if size == NO_ROOM:
            return NO_ROOM
        total += size
    return total


def measure(data: memoryview) -> Iterator[int]:
    """Give the decompressed sizes piece by piece, in memory for one block (linked: one frame)."""
    return _pieces(data, memoryview(bytearray(_LARGEST_SIZE)), keep=False)


def _pieces(data: memoryview, room: memoryview, *, keep: bool) -> Iterator[int]:
    """Decompress block by block: one behind the other, or each at the beginning of `room`.

    Frames may follow each other, though Kafka's clients write one.
    """
    at = total = 0
    while at < len(data) or not at:
        start, before = at, total
        frame = _header(data, at)
        at = frame.first
        while span := _block(data, at, frame):
            first, at, stored = span
            if not frame.linked:
                place = total if keep else 0
                left = room[place : place + frame.block_size]
                size = _read(data[first:at], stored, left, frame.block_size)
                yield size
                total += size
            at += frame.block_checksum
        at += _BLOCK.size + frame.content_checksum
        if at > len(data):
            raise BadBatchError("its lz4 data ends early")
        if frame.linked:
            most = _most(data, frame)
            size = _read_linked(
                data[start:at], room[total:] if keep else memoryview(bytearray(most)), most
            )
            yield size
            total += size
        if frame.content_size not in (None, total - before):
            raise BadBatchError(
                f"an lz4 frame claims {frame.content_size} bytes and has {total - before}"
            )


def _read(block: memoryview, stored: bool, room: memoryview, block_size: int) -> int:
    """Decompress a block into `room`, which is no larger than `block_size`."""
    if stored:
        if len(block) > len(room):
            return NO_ROOM
        room[: len(block)] = block
        return len(block)
    try:
        return lz4.decompress_block_into(block, room, output_len=len(room))
    except DecompressionError as error:
        if len(room) < min(block_size, _LARGEST_RATIO * len(block)):
            return NO_ROOM  # or broken: with more room the library will tell
        raise BadBatchError(f"its lz4 data is broken ({error})") from error


def _read_linked(frame: memoryview, room: memoryview, most: int) -> int:
    """Decompress a frame whose blocks refer to those before: only the library can, as a whole."""
    try:
        return lz4.decompress_into(frame, room)
    except DecompressionError as error:
        if len(room) < most:
            return NO_ROOM
        raise BadBatchError(f"its lz4 data is broken ({error})") from error


def _most(data: memoryview, frame: _Frame) -> int:
    """Give what a frame can become at most, from the sizes of its blocks."""
    total, at = 0, frame.first
    while span := _block(data, at, frame):
        start, end, _ = span
        total += min(frame.block_size, _LARGEST_RATIO * (end - start))
        at = end + frame.block_checksum
    return total


def _header(data: memoryview, start: int) -> _Frame:
    """Read the header of the frame at `start`."""
    if len(data) - start < _HEADER_SIZE:
        raise BadBatchError("its lz4 data ends early")
    magic, flags, sizes = _FRAME.unpack_from(data, start)
    if magic != _MAGIC:
        raise BadBatchError(f"its lz4 data begins with {data[start : start + 4].hex()}, no frame")
    size = _SIZES.get(sizes >> 4)
    if flags >> 6 != _VERSION or flags & _UNKNOWN_FLAGS or sizes & 0x0F or not size:
        raise BadBatchError(f"an lz4 frame has the unknown flags {flags:02x} {sizes:02x}")
    first, content_size = start + _HEADER_SIZE, None
    if flags & _CONTENT_SIZE:
        first += _CONTENT.size
        if first > len(data):
            raise BadBatchError("its lz4 data ends early")
        (content_size,) = _CONTENT.unpack_from(data, start + _FRAME.size)
    return _Frame(
        first,
        size,
        not flags & _LINKED_BIT,
        _BLOCK.size if flags & _BLOCK_CHECKSUM else 0,
        _BLOCK.size if flags & _CONTENT_CHECKSUM else 0,
        content_size,
    )


def _block(data: memoryview, at: int, frame: _Frame) -> tuple[int, int, bool] | None:
    """Give where the bytes of the block at `at` start and end, and whether they are as they were.

    None at the mark behind the last block.
    """
    left = len(data) - at - _BLOCK.size
    if left < 0:
        raise BadBatchError("its lz4 data ends early")
    (field,) = _BLOCK.unpack_from(data, at)
    if not field:
        return None
    length = field & ~_STORED
    if length > frame.block_size or length + frame.block_checksum > left:
        raise BadBatchError(
            f"an lz4 block claims {length} bytes of at most {frame.block_size}, {left} are left"
        )
    at += _BLOCK.size
    return at, at + length, field != length

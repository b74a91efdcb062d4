"""LZ4 frames as Kafka writes them, and as others do: around the blocks of a library.

In: records, or the compressed part of a batch. Out: a frame of independent blocks, or the records
in memory that is handed in. `record/compression.py` sets the limits.
Must not trust a size that a frame claims, and writes no linked blocks: brokers refuse those.

Checksums inside of a frame (header, blocks, content) are passed over: the batch's own checksum,
which is always verified, covers the same bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from odradek.record.batch import BadBatchError

NO_ROOM = -1
"""What a reader returns where the records need more memory than it was given."""

_MAGIC = b"\x04\x22\x4d\x18"
_END = bytes(4)
_STORED = 1 << 31  # of a block's size: its bytes are as they were
_SIZES = {4: 1 << 16, 5: 1 << 18, 6: 1 << 20, 7: 1 << 22}
_HEADERS = tuple(
    (_SIZES[code], _MAGIC + bytes((0x60, code << 4, checksum)))
    for code, checksum in ((4, 0x82), (5, 0xFB), (6, 0x51), (7, 0x73))
)
_HEADER_SIZE = 7
_VERSION, _INDEPENDENT, _BLOCK_CHECKSUM, _CONTENT_SIZE, _CHECKSUM, _RESERVED, _DICTIONARY = (
    0x40, 0x20, 0x10, 0x08, 0x04, 0x02, 0x01,
)  # fmt: skip
_LARGEST_RATIO = 255
"""A byte of a block stands for so many bytes at most: runs are counted with 255 to the byte."""
_KAFKAS_DEFAULT_LEVEL = 9
_LOWEST_HIGH_LEVEL = 3


@dataclass(frozen=True, slots=True)
class _Frame:
    """One frame: where it is, and its blocks as (start, end, whether stored as they were)."""

    start: int
    end: int
    linked: bool
    block_size: int
    content_size: int | None
    blocks: list[tuple[int, int, bool]]

    def most(self, start: int, end: int) -> int:
        """Give what a compressed block can become at most."""
        return min(self.block_size, _LARGEST_RATIO * (end - start))

    def most_in_all(self) -> int:
        return sum(self.most(start, end) for start, end, _ in self.blocks)


def write(data: memoryview, level: int | None) -> bytearray:
    """Compress into one frame. Like Java: level 9 means the fast compressor, all others HC."""
    size, header = next(
        (entry for entry in _HEADERS if len(data) <= entry[0]),
        _HEADERS[-1],
    )
    if level not in (None, _KAFKAS_DEFAULT_LEVEL):
        return _write_high(data, level or 0)
    from cramjam import lz4

    parts = [data[at : at + size] for at in range(0, len(data), size)]
    frame = bytearray(
        _HEADER_SIZE + sum(4 + lz4.compress_block_bound(part) for part in parts) + len(_END)
    )
    frame[:_HEADER_SIZE] = header
    at = _HEADER_SIZE
    with memoryview(frame) as room:
        for part in parts:
            packed = lz4.compress_block_into(part, room[at + 4 :], store_size=False)
            kept = packed
            if packed >= len(part):
                kept = len(part)
                room[at + 4 : at + 4 + kept] = part
            room[at : at + 4] = (kept if kept is packed else kept | _STORED).to_bytes(4, "little")
            at += 4 + kept
    frame[at:] = _END
    return frame


def _write_high(data: memoryview, level: int) -> bytearray:
    """Compress with LZ4 HC; the library's frame has block checksums, which are left out again.

    Levels below the lowest of HC mean that one, as in the reference implementation.
    """
    from cramjam import lz4

    packer = lz4.Compressor(
        level=max(level, _LOWEST_HIGH_LEVEL), content_checksum=False, block_linked=False
    )
    packer.compress(data)
    packed = memoryview(packer.finish())
    (found,) = _frames(packed)
    header = next(header for size, header in _HEADERS if size == found.block_size)
    frame = bytearray(header)
    for start, end, _ in found.blocks:
        frame += packed[start - 4 : end]
    frame += _END
    return frame


def read_into(data: memoryview, room: memoryview) -> int:
    """Decompress into `room` and give the size; `NO_ROOM` where that is too small."""
    total = 0
    for frame in _frames(data):
        size = (_read_linked if frame.linked else _read_blocks)(frame, data, room[total:])
        if size == NO_ROOM:
            return NO_ROOM
        if frame.content_size not in (None, size):
            raise BadBatchError(f"an lz4 frame claims {frame.content_size} bytes and has {size}")
        total += size
    return total


def measure(data: memoryview) -> Iterator[int]:
    """Give the decompressed sizes piece by piece, in memory for one block (linked: one frame)."""
    for frame in _frames(data):
        if frame.linked:
            yield _read_linked(frame, data, memoryview(bytearray(frame.most_in_all())))
            continue
        room = memoryview(bytearray(frame.block_size))
        for block in frame.blocks:
            yield _read_block(frame, data, block, room)


def _read_blocks(frame: _Frame, data: memoryview, room: memoryview) -> int:
    total = 0
    for block in frame.blocks:
        size = _read_block(frame, data, block, room[total:])
        if size == NO_ROOM:
            return NO_ROOM
        total += size
    return total


def _read_block(
    frame: _Frame, data: memoryview, block: tuple[int, int, bool], room: memoryview
) -> int:
    start, end, stored = block
    if stored:
        if end - start > len(room):
            return NO_ROOM
        room[: end - start] = data[start:end]
        return end - start
    from cramjam import DecompressionError, lz4

    most = min(len(room), frame.block_size)
    try:
        return int(lz4.decompress_block_into(data[start:end], room[:most], output_len=most))
    except DecompressionError as error:
        if most < frame.most(start, end):
            return NO_ROOM  # or broken: with more room the library will tell
        raise BadBatchError(f"its lz4 data is broken ({error})") from error


def _read_linked(frame: _Frame, data: memoryview, room: memoryview) -> int:
    """Decompress a frame whose blocks refer to those before: only the library can, as a whole."""
    from cramjam import DecompressionError, lz4

    try:
        return int(lz4.decompress_into(data[frame.start : frame.end], room))
    except DecompressionError as error:
        if len(room) < frame.most_in_all():
            return NO_ROOM
        raise BadBatchError(f"its lz4 data is broken ({error})") from error


def _frames(data: memoryview) -> Iterator[_Frame]:
    """Walk the frames; mostly there is one, and none isn't Kafka's way to say no records."""
    at = 0
    while at < len(data) or not at:
        frame = _frame(data, at)
        yield frame
        at = frame.end


def _frame(data: memoryview, start: int) -> _Frame:
    """Read the header of the frame at `start` and where its blocks are."""
    if len(data) - start < _HEADER_SIZE:
        raise BadBatchError("its lz4 data ends early")
    if data[start : start + 4] != _MAGIC:
        raise BadBatchError(f"its lz4 data begins with {data[start : start + 4].hex()}, no frame")
    flags, sizes = data[start + 4], data[start + 5]
    size = _SIZES.get(sizes >> 4)
    if flags & 0xC0 != _VERSION or flags & (_RESERVED | _DICTIONARY) or sizes & 0x0F or not size:
        raise BadBatchError(f"an lz4 frame has the unknown flags {flags:02x} {sizes:02x}")
    at, content_size = start + _HEADER_SIZE, None
    if flags & _CONTENT_SIZE:
        content_size = int.from_bytes(data[start + 6 : start + 14], "little")
        at += 8
    checksum = 4 if flags & _BLOCK_CHECKSUM else 0
    blocks: list[tuple[int, int, bool]] = []
    while True:
        if len(data) - at < 4:
            raise BadBatchError("its lz4 data ends early")
        field = int.from_bytes(data[at : at + 4], "little")
        at += 4
        if not field:
            break
        length = field & ~_STORED
        if length > size or length + checksum > len(data) - at:
            raise BadBatchError(
                f"an lz4 block claims {length} bytes of at most {size}, {len(data) - at} are left"
            )
        blocks.append((at, at + length, bool(field & _STORED)))
        at += length + checksum
    at += 4 if flags & _CHECKSUM else 0
    if at > len(data):
        raise BadBatchError("its lz4 data ends early")
    return _Frame(start, at, not flags & _INDEPENDENT, size, content_size, blocks)

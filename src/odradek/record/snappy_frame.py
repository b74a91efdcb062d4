"""Snappy as Java frames it (xerial's chunks), and bare blocks as some others write them.

In: records, or the compressed part of a batch. Out: chunks, or the records in memory that is
handed in. `record/compression.py` sets the limits.
Must not trust a size: a block that claims more than snappy can pack into its bytes is broken.
"""

from __future__ import annotations

from odradek.record.batch import BadBatchError

_MAGIC = b"\x82SNAPPY\x00"
_HEADER = _MAGIC + (1).to_bytes(4, "big") * 2  # its version, and the oldest that can read it
_CHUNK = 1 << 16  # snappy looks back no further, so larger chunks wouldn't shrink better
_LARGEST_RATIO = 22
"""A copy takes three bytes for 64 at most, or two for eleven."""
_LONGEST_SIZE = 5

Block = tuple[int, int, int]
"""Where a block starts and ends, and how large it says its records are."""


def write(data: memoryview) -> bytearray:
    """Compress into chunks, each a block of its own behind its length."""
    from cramjam import snappy

    parts = [data[at : at + _CHUNK] for at in range(0, len(data), _CHUNK)]
    packed = bytearray(len(_HEADER) + sum(4 + snappy.compress_raw_max_len(part) for part in parts))
    packed[: len(_HEADER)] = _HEADER
    at = len(_HEADER)
    with memoryview(packed) as room:
        for part in parts:
            size = snappy.compress_raw_into(part, room[at + 4 :])
            room[at : at + 4] = size.to_bytes(4, "big")
            at += 4 + size
    del packed[at:]
    return packed


def blocks(data: memoryview) -> list[Block]:
    """Find the blocks; their sizes are checked against what their bytes can hold."""
    if data[: len(_MAGIC)] != _MAGIC:
        return [_block(data, 0, len(data))]
    found: list[Block] = []
    at = 0
    while at < len(data):
        if data[at : at + len(_MAGIC)] == _MAGIC:  # streams may be joined
            at += len(_HEADER)
            if at > len(data):
                raise BadBatchError("its snappy data ends early")
            continue
        length = int.from_bytes(data[at : at + 4], "big")
        at += 4
        if length > len(data) - at:
            raise BadBatchError(f"a snappy chunk claims {length} of {len(data) - at} bytes left")
        found.append(_block(data, at, at + length))
        at += length
    return found


def _block(data: memoryview, start: int, end: int) -> Block:
    """Read the size that stands before a block, a number in groups of seven bits."""
    size = 0
    for i, byte in enumerate(data[start : min(end, start + _LONGEST_SIZE)]):
        size |= (byte & 0x7F) << 7 * i
        if byte < 0x80:
            if size > _LARGEST_RATIO * (end - start):
                raise BadBatchError(f"a snappy block of {end - start} bytes claims to hold {size}")
            return start, end, size
    raise BadBatchError("a snappy block has no size")


def read_into(data: memoryview, found: list[Block], room: memoryview) -> None:
    """Decompress blocks that `blocks` found; `room` has exactly what they claim."""
    from cramjam import DecompressionError, snappy

    at = 0
    for start, end, size in found:
        try:
            written = snappy.decompress_raw_into(data[start:end], room[at : at + size])
        except DecompressionError as error:
            raise BadBatchError(f"its snappy data is broken ({error})") from error
        if written != size:
            raise BadBatchError(f"a snappy block holds {written} bytes, not {size}")
        at += size

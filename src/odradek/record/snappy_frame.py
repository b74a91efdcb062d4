"""Write and read Snappy with Java's framing (xerial's chunks); read blocks without framing.

In: records, or the compressed part of a batch. Out: chunks, or the records in memory that the
caller passes. `record/compression.py` sets the limits. Must not: trust a size; a block is corrupt
if it claims more bytes than snappy can compress into it.
"""

from __future__ import annotations

from struct import Struct

from cramjam import DecompressionError, snappy

from odradek.record.batch import BadBatchError
from odradek.record.window import into_views

_MAGIC = b"\x82SNAPPY\x00"
# version of the framing, and oldest version that can read it
_HEADER = _MAGIC + (1).to_bytes(4, "big") * 2
_MAGIC_HEAD = int.from_bytes(_MAGIC[:4], "big")
_LENGTH = Struct(">I")
_CHUNK = 1 << 16  # snappy's window: larger chunks wouldn't compress better
_LARGEST_RATIO = 22
"""Maximum compression ratio: three bytes can represent 64, two can represent eleven."""
_LONGEST_SIZE = 5
_compress_raw_into = into_views(snappy.compress_raw_into)
_decompress_raw_into = into_views(snappy.decompress_raw_into)

Block = tuple[int, int, int]
"""Type of a block: start, end, and the decompressed size that it claims."""


def write(data: memoryview) -> bytearray:
    """Compress into chunks, each a length and a separate block."""
    parts = [data[at : at + _CHUNK] for at in range(0, len(data), _CHUNK)]
    packed = bytearray(
        len(_HEADER) + sum(_LENGTH.size + snappy.compress_raw_max_len(part) for part in parts)
    )
    packed[: len(_HEADER)] = _HEADER
    at = len(_HEADER)
    with memoryview(packed) as room:
        for part in parts:
            size = _compress_raw_into(part, room[at + _LENGTH.size :])
            _LENGTH.pack_into(packed, at, size)
            at += _LENGTH.size + size
    del packed[at:]
    return packed


def blocks(data: memoryview) -> list[Block]:
    """Return the blocks; raise if a size that a block claims is impossible."""
    if bytes(data[: len(_MAGIC)]) != _MAGIC:
        return [_block(data, 0, len(data))]
    found: list[Block] = []
    at, total, length_at = 0, len(data), _LENGTH.unpack_from
    while at < total:
        start = at + 4
        if start > total:
            raise BadBatchError("its snappy data is truncated")
        (length,) = length_at(data, at)
        if length == _MAGIC_HEAD and bytes(data[at : at + len(_MAGIC)]) == _MAGIC:
            at += len(_HEADER)  # concatenated streams have more headers
            if at > total:
                raise BadBatchError("its snappy data is truncated")
            continue
        at = start + length
        if at > total:
            raise BadBatchError(
                f"the length of a snappy chunk is {length}, but {total - start} bytes are left"
            )
        if length == 1 and not data[start]:
            continue  # skip empty blocks: a MB may have 200,000
        found.append(_block(data, start, at))
    return found


def _block(data: memoryview, start: int, end: int) -> Block:
    """Return a block, with the claimed size, which is encoded in groups of seven bits before it."""
    size = data[start] if start < end else 0x80
    if size < 0x80 and size <= _LARGEST_RATIO * (end - start):
        return start, end, size  # usual for small blocks: four times as fast
    size = 0
    for i, byte in enumerate(data[start : min(end, start + _LONGEST_SIZE)]):
        size |= (byte & 0x7F) << 7 * i
        if byte < 0x80:
            if size > _LARGEST_RATIO * (end - start):
                raise BadBatchError(f"a snappy block of {end - start} bytes can't contain {size}")
            return start, end, size
    raise BadBatchError("a snappy block has no size")


def read_into(data: memoryview, found: list[Block], room: memoryview) -> None:
    """Decompress the result of `blocks` into `room`, which has exactly the size that they claim."""
    at = 0
    for start, end, size in found:
        try:
            written = _decompress_raw_into(data[start:end], room[at : at + size])
        except DecompressionError as error:
            raise BadBatchError(f"its snappy data is corrupt ({error})") from error
        if written != size:
            raise BadBatchError(f"a snappy block holds {written} bytes, not {size}")
        at += size

"""Codecs of record batches: from bytes to bytes, with a limit on what may come out.

In: the compressed part of a batch, or the records to compress. Out: bytes. A library does the
work of each codec and is imported on its first use.
Must not trust a size that the data claims.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator

from odradek.common.errors import ConfigurationError, UnsupportedFeatureError
from odradek.record.batch import BadBatchError

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
"""Kafka's names, each at its number in the attributes of a batch."""
SUPPORTED = ("none", "gzip", "zstd")
DECOMPRESSED_LIMIT = 256 << 20
"""No batch may become larger than this; brokers refuse batches of a few MB by default."""

_FREE_ALLOWANCE = 1 << 20
_FREE_RATIO = 64
_CHUNK = 1 << 18
_SCRATCH_KEPT = 8 << 20  # larger batches are rare: their memory is let go again
_INPUT_CHUNK = 1 << 13  # small: each gzip member end copies what is left of its piece
_GZIP_WINDOW = 31  # 15 bits and a gzip header
_ZSTD_LARGEST_WINDOW = 1 << 27  # what level 22 uses; zstd's own limit for streams
_LEVELS = {"gzip": (1, 9), "zstd": (-(1 << 17), 22)}


def codec_number(name: str | None, level: int | None = None) -> int:
    """Turn `compression.type` into the number of the codec, and check the level.

    Called where a batch is begun, so that a wrong setting shows before any record is taken.
    """
    name = name or "none"
    if name not in CODECS:
        raise ConfigurationError(f"compression.type {name!r} is none of {', '.join(CODECS)}")
    if name not in SUPPORTED:
        raise UnsupportedFeatureError(
            f"compression.type {name!r} isn't there yet; this release writes "
            f"{', '.join(SUPPORTED)}. Use zstd for the best ratio, gzip for the oldest readers."
        )
    if level is not None and name in _LEVELS:
        low, high = _LEVELS[name]
        if not low <= level <= high and not (name == "gzip" and level == -1):
            raise ConfigurationError(f"compression.{name}.level {level} isn't {low} to {high}")
    return CODECS.index(name)


def compress(codec: int, level: int | None, data: memoryview) -> bytes:
    """Compress the records of a batch with a codec that `codec_number` gave."""
    if CODECS[codec] == "gzip":
        packer = zlib.compressobj(-1 if level is None else level, zlib.DEFLATED, _GZIP_WINDOW)
        return packer.compress(data) + packer.flush()
    import zstandard

    packed: bytes = zstandard.ZstdCompressor(level=3 if level is None else level).compress(data)
    return packed


def decompress(codec: int, data: bytes | memoryview, limit: int = DECOMPRESSED_LIMIT) -> bytes:
    """Decompress to at most `limit` bytes; `UnsupportedFeatureError` for codecs not there yet."""
    name = CODECS[codec] if codec < len(CODECS) else None
    if name is None:
        raise BadBatchError(f"its codec has the unknown number {codec}")
    if name == "gzip":
        return _collect(lambda: _gunzip(data), len(data), limit)
    if name == "zstd":
        return _collect(lambda: _unzstd(data), len(data), limit)
    raise UnsupportedFeatureError(
        f"it is compressed with {name}, which this release can't read yet; it reads "
        f"{', '.join(SUPPORTED)}. Set compression.type to one of these on the producer or the topic"
    )


class Scratch:
    """Memory that batches are decompressed into, one after the other.

    Fresh pages cost more than most codecs do, so a decoder keeps one of these for all batches of
    a thread. Not safe for two threads at once.
    """

    __slots__ = ("_buffer",)

    def __init__(self) -> None:
        self._buffer = bytearray()

    def room(self, size: int) -> memoryview:
        """Give at least `size` writable bytes; what was given before is no longer valid."""
        if size > _SCRATCH_KEPT:
            return memoryview(bytearray(size))
        if size > len(self._buffer):
            # Not resized: views of the old one may still be alive, and its bytes aren't needed.
            self._buffer = bytearray(min(_SCRATCH_KEPT, max(2 * size, _FREE_ALLOWANCE)))
        return memoryview(self._buffer)


def decompress_into(
    codec: int, data: bytes | memoryview, scratch: Scratch, limit: int = DECOMPRESSED_LIMIT
) -> memoryview:
    """Decompress like `decompress`, into memory that is used again.

    The view is valid until the next call with the same `scratch`: take out what you need first.
    """
    found = decompress(codec, data, limit)
    room = scratch.room(len(found))
    room[: len(found)] = found
    return room[: len(found)]


def _collect(read: Callable[[], Iterator[bytes]], compressed: int, limit: int) -> bytes:
    """Join the pieces, or, where they grow far beyond their source, first only measure them.

    So a bomb costs time up to `limit` but never its memory. Honest data that shrank more than 64
    times pays by being decompressed twice.
    """
    allowance = min(limit, max(_FREE_ALLOWANCE, _FREE_RATIO * compressed))
    kept: list[bytes] = []
    total = 0
    for chunk in read():
        total += len(chunk)
        if total > limit:
            raise BadBatchError(f"its records are larger than {limit} bytes decompressed")
        if total <= allowance:
            kept.append(chunk)
        else:
            kept.clear()
    return b"".join(kept if total <= allowance else read())


def _gunzip(data: bytes | memoryview) -> Iterator[bytes]:
    """Read gzip in pieces; members may follow each other, as Java's reader allows."""
    view = memoryview(data)
    unpacker = zlib.decompressobj(_GZIP_WINDOW)
    try:
        for at in range(0, len(view), _INPUT_CHUNK):
            rest: bytes | memoryview = view[at : at + _INPUT_CHUNK]
            while rest:
                if unpacker.eof:
                    unpacker = zlib.decompressobj(_GZIP_WINDOW)
                yield unpacker.decompress(rest, _CHUNK)
                rest = unpacker.unused_data if unpacker.eof else unpacker.unconsumed_tail
        while not unpacker.eof:
            chunk = unpacker.decompress(b"", _CHUNK)
            if not chunk:
                raise BadBatchError("its gzip data ends early")
            yield chunk
    except zlib.error as error:
        raise BadBatchError(f"its gzip data is broken ({error})") from error


def _unzstd(data: bytes | memoryview) -> Iterator[bytes]:
    """Read zstd in pieces. A frame that ends early isn't noticed here, but by its records."""
    import zstandard

    unpacker = zstandard.ZstdDecompressor(max_window_size=_ZSTD_LARGEST_WINDOW)
    try:
        with unpacker.stream_reader(data, read_across_frames=True) as reader:
            while chunk := reader.read(_CHUNK):
                yield chunk
    except zstandard.ZstdError as error:
        raise BadBatchError(f"its zstd data is broken ({error})") from error

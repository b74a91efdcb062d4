"""Compress and decompress record batches, with a limit on the decompressed size.

In: the compressed part of a batch, or the records to compress. Out: bytes, or a view of memory that
is reused for the next batch. Each codec is implemented by a library, which runs without the GIL and
is imported on first use. Must not: trust a size that the data claims.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from odradek.common.errors import ConfigurationError, first_use
from odradek.record.batch import BadBatchError
from odradek.record.limits import DECOMPRESSED_LIMIT, NO_ROOM, BeyondLimitError, Limits

if TYPE_CHECKING:
    import zstandard

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
"""Kafka's names of the codecs; the index is the codec's number in the attributes of a batch."""
_GZIP, _SNAPPY, _LZ4, _ZSTD = 1, 2, 3, 4
_LOADED = {0}
"""Numbers of the codecs whose libraries are imported."""
LEVELS = {"gzip": (1, 9), "lz4": (1, 17), "zstd": (-(1 << 17), 22)}
"""Minimum and maximum of Kafka's `compression.<codec>.level`; gzip also takes -1, its default."""

_GZIP_DEFAULT = -1
_FREE_ALLOWANCE = 1 << 20
_FREE_RATIO = 64
_SCRATCH_KEPT = 8 << 20  # memory for larger, rare batches is freed
_SMALLEST_ROOM = 1 << 16
_GROWTH = 4
_CHUNK = 1 << 18
_INPUT_CHUNK = 1 << 13  # small, as the rest is copied when a gzip member ends
_GZIP_WINDOW = 31  # zlib's number for a window of 15 bits and a gzip header
_FAST_GZIP_DEFAULT, _FAST_GZIP_HIGHEST = 2, 3
_ZSTD_DEFAULT = 3
_ZSTD_LARGEST_WINDOW = 1 << 27  # as for level 22; zstd's limit for streams
_ZSTD_PACKERS_KEPT = 4


def codec_number(name: str | None, level: int | None = None) -> int:
    """Return the number of the codec that `compression.type` names, and check the level.

    Called when a batch is opened, so that a wrong setting, or a library that can't be imported,
    raises before a record is accepted; later, the error would end the producer (R-TI-2).
    """
    name = name or "none"
    if name not in CODECS:
        raise ConfigurationError(
            f"compression.type must be one of {', '.join(CODECS)}, not {name!r}"
        )
    if level is not None and name in LEVELS:
        low, high = LEVELS[name]
        if not low <= level <= high and not (name == "gzip" and level == _GZIP_DEFAULT):
            raise ConfigurationError(
                f"compression.{name}.level must be {low} to {high}, not {level}"
            )
    number = CODECS.index(name)
    if number not in _LOADED:
        _load(number)
    return number


def _load(codec: int) -> None:
    """Import a codec's library; raise `SystemLimitError` if no file descriptor is free."""
    with first_use():
        if codec == _GZIP:
            _fast_zlib()
        elif codec == _LZ4:
            from odradek.record import lz4_frame as lz4_frame
        elif codec == _SNAPPY:
            from odradek.record import snappy_frame as snappy_frame
        else:
            import zstandard as zstandard
    _LOADED.add(codec)


def compress(codec: int, level: int | None, data: memoryview) -> bytes | bytearray:
    """Compress the records of a batch with a codec, whose number `codec_number` has returned."""
    if codec == _GZIP:
        return _gzip(level, data)
    if codec == _LZ4:
        from odradek.record import lz4_frame

        return lz4_frame.write(data, level)
    if codec == _SNAPPY:
        from odradek.record import snappy_frame

        return snappy_frame.write(data)
    return _zstd(_ZSTD_DEFAULT if level is None else level, data)


class Scratch:
    """Memory for a decompressed batch, reused for the next batch.

    Writing to new memory pages takes longer than most codecs do, so a decoder reuses one `Scratch`
    for all batches of a thread. Two threads must not use it at the same time.
    """

    __slots__ = ("_unzstd", "kept")

    def __init__(self) -> None:
        self.kept = memoryview(bytearray())
        """The allocated memory, as a writable view."""
        self._unzstd: zstandard.ZstdDecompressor | None = None

    def room(self, size: int) -> memoryview:
        """Return `size` writable bytes; the previous result becomes invalid."""
        if size > _SCRATCH_KEPT:
            return memoryview(bytearray(size))
        if size > len(self.kept):
            # Newly allocated, not resized, as views of the old memory may exist, and its bytes
            # aren't needed.
            self.kept = memoryview(bytearray(size))
        return self.kept[:size]

    def unzstd(self) -> zstandard.ZstdDecompressor:
        """Return zstd's decompressor, which is reused to save creating its tables."""
        if self._unzstd is None:
            import zstandard

            self._unzstd = zstandard.ZstdDecompressor(max_window_size=_ZSTD_LARGEST_WINDOW)
        return self._unzstd


def decompress(
    codec: int, data: bytes | bytearray | memoryview, limit: int = DECOMPRESSED_LIMIT
) -> bytes:
    """Decompress to at most `limit` bytes; raise `BadBatchError` for more, or for corrupt data."""
    return decompress_into(codec, data, Scratch(), limit).tobytes()


def unpack(codec: int, data: memoryview, scratch: Scratch, limits: Limits) -> memoryview:
    """Decompress a batch as `decompress_into` does; `BeyondLimitError` names the exceeded option.

    Bytes beyond the limit are only counted, and dropped in parts.
    """
    most, option = limits.room(len(data))
    try:
        return decompress_into(codec, data, scratch, most)
    except _TooLargeError as error:
        raise BeyondLimitError(
            f"{error}, from {len(data)} compressed bytes ({option})", option, most
        ) from None


def decompress_into(
    codec: int,
    data: bytes | bytearray | memoryview,
    scratch: Scratch,
    limit: int = DECOMPRESSED_LIMIT,
) -> memoryview:
    """Decompress as `decompress` does, into reused memory.

    The result is a view that is valid until the next call with `scratch`.

    Memory grows with the result. Data that expands to more than 64 times its size is measured
    first, so that a decompression bomb takes time up to `limit`, but no memory; valid data of this
    kind is decompressed twice.
    """
    view = memoryview(data)
    if codec not in _LOADED and 0 < codec < len(CODECS):
        _load(codec)
    if codec == _SNAPPY:
        return _unsnappy(view, scratch, limit)
    read = _READERS.get(codec)
    if read is None:
        raise BadBatchError(f"it has the unknown codec number {codec}")
    room = scratch.kept
    if len(room) > limit or not room:
        room = scratch.room(min(limit, max(_SMALLEST_ROOM, _GROWTH * len(view))))
    while (found := read(view, room, scratch)) == NO_ROOM:
        size, free = len(room), min(limit, max(_FREE_ALLOWANCE, _FREE_RATIO * len(view)))
        del room  # free memory before allocating more
        size = min(free, _GROWTH * size) if size < free else _measure(codec, view, scratch, limit)
        room = scratch.room(size)
    return room[:found]


def _measure(codec: int, data: memoryview, scratch: Scratch, limit: int) -> int:
    """Decompress only to count the bytes; return their number."""
    if codec == _LZ4:
        from odradek.record import lz4_frame

        sizes = lz4_frame.measure(data)
    else:
        sizes = map(len, _gunzip(data) if codec == _GZIP else _unzstd(data, scratch))
    total = 0
    for size in sizes:
        total += size
        if total > limit:
            break
    if total > limit:
        raise _too_large(limit)
    return total


class _TooLargeError(BadBatchError):
    """Internal error: the decompressed size exceeds the limit."""


def _too_large(limit: int) -> BadBatchError:
    return _TooLargeError(f"its records exceed {limit} bytes after decompression")


def _unsnappy(data: memoryview, scratch: Scratch, limit: int) -> memoryview:
    """Decompress snappy, after checking the sizes that its blocks claim."""
    from odradek.record import snappy_frame

    blocks = snappy_frame.blocks(data)
    size = sum(claimed for _, _, claimed in blocks)
    if size > limit:
        raise _too_large(limit)
    room = scratch.room(size)
    snappy_frame.read_into(data, blocks, room)
    return room


def _fast_zlib() -> Any:
    """Return Intel's zlib, which is 2 times (reading) or 10 times (writing) as fast as Python's.

    Return Python's zlib on rare processors, for which Intel's has no wheels.
    """
    try:
        from isal import isal_zlib
    except ImportError:
        return zlib
    return isal_zlib


def _gzip(level: int | None, data: memoryview) -> bytes:
    """Compress with gzip: with Intel's zlib up to level 3, its maximum, else with Python's."""
    library: Any = zlib
    if level in (None, _GZIP_DEFAULT):
        library = _fast_zlib()
        level = _GZIP_DEFAULT if library is zlib else _FAST_GZIP_DEFAULT
    elif level <= _FAST_GZIP_HIGHEST:
        library = _fast_zlib()
    packer = library.compressobj(level, zlib.DEFLATED, _GZIP_WINDOW)
    packed: bytes = packer.compress(data) + packer.flush()
    return packed


def _gunzip_into(data: memoryview, room: memoryview, _: Scratch) -> int:
    """Decompress gzip in one call if it is a single member of usual size, else in parts."""
    library = _fast_zlib()
    unpacker = library.decompressobj(_GZIP_WINDOW)
    try:
        found = unpacker.decompress(data, min(len(room), _FREE_ALLOWANCE) + 1)
    except (zlib.error, library.error) as error:
        raise BadBatchError(f"its gzip data is corrupt ({error})") from error
    if len(found) > len(room):
        return NO_ROOM
    if unpacker.eof and not unpacker.unused_data:
        room[: len(found)] = found
        return len(found)
    return _fill(_gunzip(data), room)


def _fill(pieces: Iterator[bytes], room: memoryview) -> int:
    total = 0
    for piece in pieces:
        if total + len(piece) > len(room):
            return NO_ROOM
        room[total : total + len(piece)] = piece
        total += len(piece)
    return total


def _gunzip(data: memoryview) -> Iterator[bytes]:
    """Decompress gzip in parts; several members may follow each other, as Java's reader allows."""
    library = _fast_zlib()
    unpacker = library.decompressobj(_GZIP_WINDOW)
    try:
        for at in range(0, len(data), _INPUT_CHUNK):
            rest: bytes | memoryview = data[at : at + _INPUT_CHUNK]
            while rest:
                if unpacker.eof:
                    unpacker = library.decompressobj(_GZIP_WINDOW)
                yield unpacker.decompress(rest, _CHUNK)
                rest = unpacker.unused_data if unpacker.eof else unpacker.unconsumed_tail
        while not unpacker.eof:
            chunk = unpacker.decompress(b"", _CHUNK)
            if not chunk:
                raise BadBatchError("its gzip data is truncated")
            yield chunk
    except (zlib.error, library.error) as error:
        raise BadBatchError(f"its gzip data is corrupt ({error})") from error


_zstd_packers: dict[int, list[zstandard.ZstdCompressor]] = {}


def _zstd(level: int, data: memoryview) -> bytes:
    """Compress with zstd; compressors are reused, but not by two threads at the same time."""
    kept = _zstd_packers.setdefault(level, [])
    try:
        packer = kept.pop()
    except IndexError:
        import zstandard

        packer = zstandard.ZstdCompressor(level=level)
    packed: bytes = packer.compress(data)
    if len(kept) < _ZSTD_PACKERS_KEPT:
        kept.append(packer)
    return packed


def _unzstd_into(data: memoryview, room: memoryview, scratch: Scratch) -> int:
    """Decompress zstd; that a frame ends too early is only noticed when its records are read."""
    import zstandard

    total = 0
    try:
        with scratch.unzstd().stream_reader(data, read_across_frames=True) as reader:
            while total < len(room) and (size := reader.readinto(room[total:])):
                total += size
            return NO_ROOM if total == len(room) and reader.read(1) else total
    except zstandard.ZstdError as error:
        raise BadBatchError(f"its zstd data is corrupt ({error})") from error


def _unzstd(data: memoryview, scratch: Scratch) -> Iterator[bytes]:
    """Decompress zstd in parts."""
    import zstandard

    try:
        with scratch.unzstd().stream_reader(data, read_across_frames=True) as reader:
            while chunk := reader.read(_CHUNK):
                yield chunk
    except zstandard.ZstdError as error:
        raise BadBatchError(f"its zstd data is corrupt ({error})") from error


def _unlz4_into(data: memoryview, room: memoryview, _: Scratch) -> int:
    from odradek.record import lz4_frame

    return lz4_frame.read_into(data, room)


_READERS: dict[int, Callable[[memoryview, memoryview, Scratch], int]] = {
    _GZIP: _gunzip_into,
    _LZ4: _unlz4_into,
    _ZSTD: _unzstd_into,
}
"""Functions, by codec, that decompress into given memory and return the size, or `NO_ROOM`."""

"""Test codecs: levels, limits, and decompression bombs."""

from __future__ import annotations

import builtins
import errno
import gzip
import sys
from typing import Any

import pytest
import zstandard
from tests.peak_memory import peak_below

from odradek.common.errors import ConfigurationError, CorruptRecordError, SystemLimitError
from odradek.record import BatchBuilder, compression, decode
from odradek.record.batch import HEADER_SIZE, BadBatchError, seal
from odradek.record.compression import (
    CODECS,
    Scratch,
    codec_number,
    compress,
    decompress,
    decompress_into,
)
from odradek.record.limits import DECOMPRESSED_LIMIT

MB = 1 << 20


def bomb(codec: str, megabytes: int) -> bytes:
    return bytes(compress(codec_number(codec), None, memoryview(bytes(MB)))) * megabytes


def batch_of(payload: bytes, codec: int) -> memoryview:
    buffer = bytearray(HEADER_SIZE) + payload
    times = {"base_timestamp": 0, "max_timestamp": 0}
    seal(buffer, attributes=codec, last_offset_delta=0, count=1, **times)
    return memoryview(buffer)


@pytest.mark.parametrize("codec", ["gzip", "lz4", "zstd"])
def test_a_decompression_bomb_uses_little_memory(codec: str) -> None:
    buffer = batch_of(bomb(codec, DECOMPRESSED_LIMIT // MB + 1), codec_number(codec))
    with (
        # Any batch may decompress to 64 times its size; the lz4 batch is large (ratio up to 255:1).
        peak_below(16 * MB + max(32 * MB, 64 * len(buffer))),
        pytest.raises(CorruptRecordError, match=r"offset 0: .*exceed 268435456 bytes"),
    ):
        decode(buffer, start_offset=0)


def test_a_decompression_bomb_in_one_zstd_frame_is_rejected() -> None:
    packer = zstandard.ZstdCompressor().compressobj()
    payload = b"".join(packer.compress(bytes(MB)) for _ in range(400)) + packer.flush()
    with peak_below(16 * MB), pytest.raises(BadBatchError, match="exceed"):
        decompress(4, payload)


@pytest.mark.parametrize("codec", CODECS[1:])
@pytest.mark.parametrize("size", [0, 1, 100_000, 3 * MB])
def test_data_within_the_limit_round_trips(codec: str, size: int) -> None:
    # Zeros are compressed to less than 1/64, so the largest size is decompressed in steps.
    for data in (bytes(size), bytes(range(256)) * (size // 256)):
        packed = compress(codec_number(codec), None, memoryview(data))
        assert decompress(codec_number(codec), packed, limit=size) == data
        if len(data) > 1:
            with pytest.raises(BadBatchError, match="exceed"):
                decompress(codec_number(codec), packed, limit=len(data) - 1)


def test_gzip_data_with_several_members_is_decompressed() -> None:
    parts = [b"a" * 9000, b"", bytes(range(256)) * 50]
    assert decompress(1, b"".join(map(gzip.compress, parts))) == b"".join(parts)


@pytest.mark.parametrize("codec", ["lz4", "zstd"])
def test_several_frames_in_one_batch_are_decompressed(codec: str) -> None:
    parts = [b"a" * 9000, b"b", bytes(range(256)) * 50]
    number = codec_number(codec)
    packed = b"".join(bytes(compress(number, None, memoryview(part))) for part in parts)
    assert decompress(number, packed) == b"".join(parts)


@pytest.mark.parametrize("codec", CODECS[1:])
def test_corrupt_compressed_data_raises_an_error(codec: str) -> None:
    packed = bytes(compress(codec_number(codec), None, memoryview(b"some text " * 50)))
    for data in (b"", b"garbage", packed + b"garbage"):
        if data or codec != "zstd":
            with pytest.raises(BadBatchError, match=codec):
                decompress(codec_number(codec), data)
    if codec in ("gzip", "lz4"):
        with pytest.raises(BadBatchError, match="is truncated"):
            decompress(codec_number(codec), packed[:-1])


@pytest.mark.parametrize("codec", CODECS[1:])
def test_truncated_compressed_data_raises_corrupt_record_error(codec: str) -> None:
    builder = BatchBuilder(MB, codec)
    for i in range(100):
        builder.append(b"key", b"value %d" % i, (), i)
    payload = bytes(builder.build()[HEADER_SIZE:])
    for kept in (0, 1, len(payload) // 2, len(payload) - 5):
        with pytest.raises(CorruptRecordError, match="batch at offset 0"):
            decode(batch_of(payload[:kept], codec_number(codec)), start_offset=0)


def test_codec_names_and_compression_levels_are_validated() -> None:
    names = (None, "none", "gzip", "snappy", "lz4", "zstd")
    assert [codec_number(name) for name in names] == [0, 0, 1, 2, 3, 4]
    assert codec_number("gzip", 9) == 1
    assert codec_number("zstd", -5) == 4
    with pytest.raises(ConfigurationError, match="must be one of none, gzip.*, not 'brotli'"):
        codec_number("brotli")
    with pytest.raises(
        ConfigurationError, match=r"compression\.gzip\.level must be 1 to 9, not 10"
    ):
        codec_number("gzip", 10)
    with pytest.raises(ConfigurationError, match=r"compression\.zstd\.level must be .*, not 23"):
        codec_number("zstd", 23)
    with pytest.raises(
        ConfigurationError, match=r"compression\.lz4\.level must be 1 to 17, not 18"
    ):
        codec_number("lz4", 18)
    assert codec_number("snappy", 99) == 2  # snappy has no levels, so any level is accepted


@pytest.mark.parametrize(
    ("codec", "low", "high"), [("gzip", 1, 9), ("lz4", 9, 12), ("lz4", 9, 1), ("zstd", 1, 19)]
)
def test_a_higher_level_compresses_better(codec: str, low: int, high: int) -> None:
    data = memoryview(b"".join(b"%d,%d;" % (i, i * i % 977) for i in range(5000)))
    number = codec_number(codec)
    assert len(compress(number, high, data)) < len(compress(number, low, data))


def test_default_compression_levels_equal_those_of_java() -> None:
    data = memoryview(b"".join(b"%d," % (i * i) for i in range(5000)))
    for codec, default in (("gzip", -1), ("lz4", 9), ("zstd", 3)):
        number = codec_number(codec)
        assert compress(number, default, data) == compress(number, None, data)


def test_without_isal_pythons_zlib_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    data = memoryview(b"some text " * 5000)
    theirs = [compress(1, level, data) for level in (None, 1)]
    monkeypatch.setitem(sys.modules, "isal", None)
    ours = [compress(1, level, data) for level in (None, 1)]
    assert theirs != ours
    for packed in (*theirs, *ours):
        assert decompress(1, bytes(packed)) == data
    with pytest.raises(BadBatchError, match="gzip data is corrupt"):
        decompress(1, b"garbage that is longer than a header")


@pytest.mark.parametrize("codec", CODECS[1:])
def test_one_decompression_buffer_is_reused_for_all_batches(codec: str) -> None:
    number, scratch = codec_number(codec), Scratch()
    contents = [b"a%d" % i * 3000 * i for i in (1, 90, 2, 0, 30)]
    sizes = []
    for content in contents:
        packed = compress(number, None, memoryview(content))
        assert decompress_into(number, packed, scratch) == content
        sizes.append(len(scratch.kept))
    assert sizes[1] >= len(contents[1])
    assert sizes[1:] == sizes[1:2] * 4
    large = bytes(20 * MB)
    packed = compress(number, None, memoryview(large))
    assert decompress_into(number, packed, scratch) == large
    assert len(scratch.kept) <= 8 * MB  # the buffer of an unusually large batch isn't kept


@pytest.mark.parametrize("codec", CODECS[1:])
def test_the_decompression_buffer_can_be_used_after_corrupt_data(codec: str) -> None:
    number, scratch = codec_number(codec), Scratch()
    content = b"".join(b"%d;" % (i * i) for i in range(30000))
    packed = bytes(compress(number, None, memoryview(content)))
    for bad in (packed[: len(packed) // 2], packed[:21], b"x" * 50):
        try:
            decompress_into(number, bad, scratch)
        except BadBatchError:
            pass
        else:
            assert codec == "zstd"  # its truncated frames are found when records are read
        assert decompress_into(number, packed, scratch) == content


@pytest.mark.parametrize("codec", CODECS[1:])
def test_a_codec_library_that_cannot_be_opened_raises_system_limit_error(
    codec: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R-TI-2: the error is raised when a batch is opened, before any record is accepted."""
    monkeypatch.setattr(compression, "_LOADED", {0})
    whole = builtins.__import__

    def refused(name: str, *more: Any) -> Any:
        if name in ("isal", "zstandard", "odradek.record"):
            raise OSError(errno.EMFILE, "Too many open files")
        return whole(name, *more)

    with monkeypatch.context() as patch:
        patch.setattr(builtins, "__import__", refused)
        with pytest.raises(SystemLimitError, match="Too many open files"):
            codec_number(codec)
    assert codec_number(codec) == CODECS.index(codec)

"""Test snappy data: xerial's chunks, single blocks, impossible sizes."""

from __future__ import annotations

import cramjam
import pytest

from odradek.record.batch import BadBatchError
from odradek.record.compression import compress, decompress
from odradek.record.snappy_frame import blocks

HEADER = b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01"
TEXT = b"".join(b"%d is a number, " % i for i in range(20_000))


def raw(data: bytes) -> bytes:
    return bytes(cramjam.snappy.compress_raw(data))


def chunk(data: bytes) -> bytes:
    return len(raw(data)).to_bytes(4, "big") + raw(data)


def test_data_is_written_in_the_chunks_of_xerial_snappy() -> None:
    written = bytes(compress(2, None, memoryview(TEXT[:100])))
    assert written == HEADER + chunk(TEXT[:100])
    written = bytes(compress(2, None, memoryview(TEXT)))
    assert written.startswith(HEADER + chunk(TEXT[: 1 << 16]))
    assert decompress(2, written) == TEXT
    assert bytes(compress(2, None, memoryview(b""))) == HEADER


@pytest.mark.parametrize(
    "written",
    [
        raw(TEXT),
        HEADER + b"".join(chunk(TEXT[at : at + 32768]) for at in range(0, len(TEXT), 32768)),
        HEADER + chunk(TEXT[:9]) + chunk(b"") + HEADER + chunk(TEXT[9:]),
        HEADER + chunk(TEXT),
    ],
)
def test_data_compressed_by_other_clients_is_decompressed(written: bytes) -> None:
    assert decompress(2, written) == TEXT


def test_highly_compressed_runs_are_accepted() -> None:
    """The check of the decompressed size must not reject valid data."""
    for data in (bytes(1 << 22), b"ab" * 99999, bytes(12), b"abcdefgh" * 200):
        assert decompress(2, raw(data)) == data


@pytest.mark.parametrize(
    ("written", "says"),
    [
        (b"", "snappy block has no size"),
        (b"\xff" * 9, "snappy block has no size"),
        (b"\x80", "snappy block has no size"),
        (b"\xff\xff\xff\xff\x0f\x00", "snappy block of 6 bytes can't contain 4294967295"),
        (b"\x05\x00a", "snappy data is corrupt"),
        (raw(TEXT)[:-1], "snappy data is corrupt"),
        (HEADER[:10], "snappy data is truncated"),
        (HEADER + b"\0\0", "snappy data is truncated"),
        (HEADER + b"\0\0\1\0abc", "snappy chunk is 256, but 3 bytes are left"),
        (HEADER + b"\xff\xff\xff\xff", "snappy chunk is 4294967295, but 0 bytes are left"),
        (HEADER + b"\0\0\0\0", "snappy block has no size"),
        (HEADER + chunk(TEXT) + b"abc", "snappy data is truncated"),
        (HEADER + chunk(TEXT) + HEADER[:-1], "snappy data is truncated"),
    ],
)
def test_corrupt_snappy_data_is_rejected(written: bytes, says: str) -> None:
    with pytest.raises(BadBatchError, match=says):
        decompress(2, written)


def test_the_size_limit_is_checked_before_decompression() -> None:
    with pytest.raises(BadBatchError, match="exceed 1000 bytes"):
        decompress(2, HEADER + chunk(bytes(600)) * 2, limit=1000)


def test_empty_chunks_are_not_decompressed() -> None:
    """A megabyte of data may contain 200,000 empty chunks."""
    written = HEADER + chunk(b"") * 1000 + chunk(TEXT[:9]) + chunk(b"") * 1000 + chunk(TEXT[9:])
    assert len(blocks(memoryview(written))) == 2
    assert decompress(2, written) == TEXT
    assert decompress(2, HEADER + chunk(b"") * 3) == b""
    with pytest.raises(BadBatchError, match="snappy data is corrupt"):
        decompress(2, HEADER + b"\0\0\0\3\0\0a")

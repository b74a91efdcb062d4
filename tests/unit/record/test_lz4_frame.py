"""Test LZ4 frames: we write frames that brokers accept, and read all that clients may write."""

from __future__ import annotations

import cramjam
import pytest

from odradek.record.batch import BadBatchError
from odradek.record.compression import compress, decompress

TEXT = b"".join(b"%d is a number, " % i for i in range(20_000))  # more than four 64 KB blocks
END = bytes(4)


def packed(data: bytes) -> bytes:
    return bytes(cramjam.lz4.compress_block(data, store_size=False))


def block(data: bytes, *, stored: bool = False, checksum: bool = False) -> bytes:
    data, size = (data, len(data) | 1 << 31) if stored else (packed(data), len(packed(data)))
    return size.to_bytes(4, "little") + data + (b"\1\2\3\4" if checksum else b"")


def frame(
    *blocks: bytes, flags: int = 0x60, sizes: int = 0x40, content: int | None = None
) -> bytes:
    more = b"" if content is None else content.to_bytes(8, "little")
    return b"\x04\x22\x4d\x18" + bytes((flags, sizes)) + more + b"?" + b"".join(blocks) + END


@pytest.mark.parametrize("level", [None, 9, 1, 5, 17])
@pytest.mark.parametrize("size", [0, 10, 1 << 16, 300_000])
def test_written_frames_have_independent_blocks(level: int | None, size: int) -> None:
    """Brokers reject linked blocks, and Java's reader allocates the largest block size."""
    written = bytes(compress(3, level, memoryview(TEXT[:size])))
    assert written[:5].hex() == "04224d1860"
    assert {0x40: 0x82, 0x50: 0xFB, 0x60: 0x51, 0x70: 0x73}[written[5]] == written[6]
    if level in (None, 9):
        assert written[5] == (0x40 if size <= 1 << 16 else 0x60)
    assert written[-4:] == END
    assert decompress(3, written) == TEXT[:size]


def test_data_larger_than_the_largest_block_round_trips() -> None:
    data = TEXT * 30
    assert len(data) > 8 << 20
    written = bytes(compress(3, None, memoryview(data)))
    assert written[4:6] == b"\x60\x70"
    assert decompress(3, written) == data


def test_incompressible_data_is_stored() -> None:
    noise = bytes(range(256))
    written = bytes(compress(3, None, memoryview(noise)))
    assert written[7:] == (256 | 1 << 31).to_bytes(4, "little") + noise + END
    assert decompress(3, written) == noise


@pytest.mark.parametrize("level", [1, 9])
@pytest.mark.parametrize("checksum", [False, True])
@pytest.mark.parametrize("linked", [False, True])
def test_frames_of_the_reference_implementation_are_decompressed(
    level: int, checksum: bool, linked: bool
) -> None:
    packer = cramjam.lz4.Compressor(level=level, content_checksum=checksum, block_linked=linked)
    packer.compress(TEXT)
    written = bytes(packer.finish())
    assert bool(written[4] & 0x20) is not linked
    assert bool(written[4] & 0x10)  # the frame has checksums of its blocks
    assert decompress(3, written) == TEXT
    assert decompress(3, written * 3) == TEXT * 3


def test_corrupt_frames_with_linked_blocks_are_rejected() -> None:
    packer = cramjam.lz4.Compressor(level=1, content_checksum=True, block_linked=True)
    packer.compress(TEXT)
    written = bytearray(packer.finish())
    with pytest.raises(BadBatchError, match="is truncated"):
        decompress(3, written[:-1])
    written[3000] ^= 0xFF
    with pytest.raises(BadBatchError, match="lz4 data is corrupt .*hecksum"):
        decompress(3, written)


def test_linked_blocks_that_exceed_the_size_limit_are_rejected() -> None:
    packer = cramjam.lz4.Compressor(level=1, block_linked=True)
    packer.compress(bytes(3 << 20))
    written = bytes(packer.finish())
    assert decompress(3, written) == bytes(3 << 20)  # the data is 250 times larger than the frame
    with pytest.raises(BadBatchError, match="exceed 3000000 bytes"):
        decompress(3, written, limit=3_000_000)


@pytest.mark.parametrize(
    "written",
    [
        frame(block(b"ab" * 50), block(b"cd" * 50)),
        frame(block(b"ab" * 50, stored=True), block(b"cd" * 50)),
        frame(block(b"ab" * 50, checksum=True), block(b"cd" * 50, checksum=True), flags=0x70),
        frame(block(b"ab" * 50 + b"cd" * 50), content=200, flags=0x68),
        frame(block(b"ab" * 50 + b"cd" * 50), sizes=0x70, flags=0x64) + b"sum?",
        frame(block(b"ab" * 50)) + frame() + frame(block(b"cd" * 50)),
        frame(block(b"", stored=True), block(b"ab" * 50 + b"cd" * 50)),
    ],
)
def test_frames_with_all_options_of_the_format_are_decompressed(written: bytes) -> None:
    assert decompress(3, written) == b"ab" * 50 + b"cd" * 50


@pytest.mark.parametrize(
    ("written", "says"),
    [
        (b"", "is truncated"),
        (b"\x04\x22\x4d\x18\x60\x40", "is truncated"),
        (frame()[:-1], "is truncated"),
        (frame(content=5, flags=0x68)[:12], "is truncated"),
        (frame(block(b"ab"), flags=0x64), "is truncated"),
        (b"garbage!", "begins with 67617262, which isn't an lz4 frame"),
        (frame(block(b"ab")) + b"garbage!", "begins with 67617262"),
        (frame(block(b"ab"), flags=0x20), "unknown flags 20 40"),
        (frame(block(b"ab"), flags=0x61), "unknown flags 61"),
        (frame(block(b"ab"), flags=0x62), "unknown flags 62"),
        (frame(block(b"ab"), sizes=0x30), "unknown flags 60 30"),
        (frame(block(b"ab"), sizes=0x41), "unknown flags 60 41"),
        (frame(block(b"ab"), content=3, flags=0x68), "has 2 bytes instead of 3"),
        (frame(b"\xff\xff\xff\x7f"), "is 2147483647, but the limit is 65536 and 4 bytes are left"),
        (frame(b"\x09\0\0\0abcd"), "is 9, but the limit is 65536 and 8 bytes are left"),
        (frame(b"\x04\0\0\0\x0f\xff\xff\xff"), "lz4 data is corrupt"),
        (
            frame(block(bytes(65537))),
            "lz4 data is corrupt",
        ),  # the block exceeds the frame's block size
    ],
)
def test_corrupt_frames_are_rejected(written: bytes, says: str) -> None:
    with pytest.raises(BadBatchError, match=says):
        decompress(3, written)

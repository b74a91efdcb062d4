"""Compress and decompress any bytes; broken streams raise a typed error or are decoded."""

from __future__ import annotations

import random

import cramjam
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.volume import examples

from odradek.record.batch import BadBatchError
from odradek.record.compression import LEVELS, Scratch, codec_number, compress, decompress_into

NAMES = st.sampled_from(["gzip", "snappy", "lz4", "zstd"])
MUTATIONS = 150
LIMIT = 1 << 20
relaxed = settings(deadline=None, max_examples=examples(60))


@st.composite
def contents(draw: st.DrawFn) -> bytes:
    """Return noise, runs and repetitions, up to a few blocks of each codec."""
    pieces = []
    for _ in range(draw(st.integers(0, 5))):
        unit = draw(st.binary(min_size=1, max_size=60))
        pieces.append(unit * draw(st.sampled_from([1, 3, 100, 2000])))
    seed = draw(st.none() | st.integers(0, 2**32))
    if seed is not None:
        pieces.append(random.Random(seed).randbytes(draw(st.integers(0, 150_000))))
    return b"".join(pieces)


def levels(name: str) -> st.SearchStrategy[int | None]:
    low, high = LEVELS.get(name, (1, 1))
    return st.none() | st.integers(max(low, -5), min(high, 12))


@relaxed
@given(contents(), NAMES, st.data())
def test_decompressed_content_is_unchanged(content: bytes, name: str, data: st.DataObject) -> None:
    codec, scratch = codec_number(name), Scratch()
    level = data.draw(levels(name))
    packed = compress(codec, level, memoryview(content))
    for _ in range(2):  # the second time with used scratch memory
        assert decompress_into(codec, bytes(packed), scratch) == content
    assert decompress_into(codec, memoryview(packed), scratch, len(content)) == content


def lz4_frame(rng: random.Random, content: bytes) -> bytes:
    """Return a frame as the lz4 library creates it: checksums, levels, linked blocks."""
    packer = cramjam.lz4.Compressor(
        level=rng.choice([1, 3, 9]),
        content_checksum=rng.random() < 0.5,
        block_linked=rng.random() < 0.5,
    )
    packer.compress(content)
    return bytes(packer.finish())


def mutated(rng: random.Random, packed: bytes) -> bytes:
    data = bytearray(packed)
    for _ in range(rng.choice([1, 1, 2, 4])):
        at = (
            rng.randrange(len(data) + 1)
            if rng.random() < 0.5
            else rng.randrange(min(24, len(data)))
        )
        match rng.randrange(5):
            case 0:
                del data[at:]
            case 1:
                data[at:at] = rng.randbytes(rng.randrange(1, 6))
            case 2:
                del data[at : at + rng.randrange(1, 9)]
            case _ if at < len(data):
                data[at] = rng.choice([0, 1, 0x7F, 0x80, 0xFF, data[at] ^ 1 << rng.randrange(8)])
        if not data:
            break
    return bytes(data)


@relaxed
@given(st.integers(0, 2**32), NAMES)
@example(3, "lz4")
def test_broken_streams_raise_or_stay_within_the_size_limit(seed: int, name: str) -> None:
    rng, codec, scratch = random.Random(seed), codec_number(name), Scratch()
    content = rng.choice([b"", b"some text " * 30, rng.randbytes(3000) * 3, bytes(200_000)])
    packed = bytes(compress(codec, None, memoryview(content)))
    if name == "lz4" and rng.random() < 0.5:
        packed = lz4_frame(rng, content)
    if name == "snappy" and rng.random() < 0.5:
        packed = bytes(cramjam.snappy.compress_raw(content))
    errors = 0
    for _ in range(MUTATIONS):
        bad = mutated(rng, packed)
        try:
            found = decompress_into(codec, bad, scratch, LIMIT)
        except BadBatchError:
            errors += 1
        else:
            assert len(found) <= LIMIT
    assert errors
    assert decompress_into(codec, packed, scratch, LIMIT) == content


@relaxed
@given(st.binary(max_size=400), NAMES, st.booleans())
def test_random_bytes_raise_or_stay_within_the_size_limit(
    noise: bytes, name: str, begins_well: bool
) -> None:
    codec, scratch = codec_number(name), Scratch()
    if begins_well:
        noise = bytes(compress(codec, None, memoryview(b"")))[:16] + noise
    try:
        found = decompress_into(codec, noise, scratch, LIMIT)
    except BadBatchError as error:
        says = str(error)
    else:
        says = f"{name} gave {len(found)} bytes"
        assert len(found) <= LIMIT
    assert name in says or "larger than" in says

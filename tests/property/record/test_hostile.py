"""Decode invalid bytes with a correct checksum: a typed error or a valid result."""

from __future__ import annotations

import random
import struct

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.volume import examples

from odradek.common.errors import CorruptRecordError
from odradek.record import DecodedRecords, decode
from odradek.record.arrow import to_record_batch
from odradek.record.batch import CRC_START, HEADER_SIZE, crc32c
from odradek.record.columns import Row
from odradek.record.compression import compress
from odradek.record.reference import encode, encode_marker

MUTATIONS = 60
EXTREMES = [0, 1, 0x7F, 0x80, 0xFF]


def rows(rng: random.Random, base: int, count: int) -> list[Row]:
    found: list[Row] = []
    for i in range(count):
        key = rng.choice([None, b"", rng.randbytes(rng.randrange(20))])
        value = rng.choice([None, rng.randbytes(rng.randrange(200)), bytes(70)])
        headers = tuple((f"h{j}", rng.choice([None, b"x" * j])) for j in range(rng.randrange(3)))
        found.append((base + i, 1_700_000_000_000 + rng.randrange(10_000), 0, key, value, headers))
    return found


def mutate(rng: random.Random, data: bytearray, low: int) -> None:
    """Change, drop, duplicate or insert bytes at `low` or later."""
    for _ in range(rng.choice([1, 1, 1, 2, 5])):
        at = rng.randrange(low, len(data))
        match rng.randrange(6):
            case 0:
                data[at] = rng.choice(EXTREMES)
            case 1:
                data[at] ^= 1 << rng.randrange(8)
            case 2:
                data[at] = rng.randrange(256)
            case 3 if len(data) > low + 9:
                del data[at : at + rng.randrange(1, 9)]
            case 4:
                data[at:at] = rng.randbytes(rng.randrange(1, 6))
            case _:
                data[at:at] = bytes((rng.choice(EXTREMES),)) * rng.randrange(1, 6)
        if len(data) <= low:
            break


def sealed(data: bytearray, *, fit_length: bool) -> bytes:
    if fit_length:
        struct.pack_into(">i", data, 8, len(data) - 12)
    struct.pack_into(">I", data, 17, crc32c(bytes(data[CRC_START:])))
    return bytes(data)


def check(found: DecodedRecords, start: int, size: int) -> None:
    """Check that a result is valid, for any input."""
    columns = found.columns
    offsets = list(columns.offsets)
    assert offsets == sorted(set(offsets))
    assert not offsets or (start <= offsets[0] and offsets[-1] < found.next_offset)
    assert 0 <= found.bytes_consumed <= size
    assert len(list(columns)) == columns.count == len(columns.timestamp_types)
    batch = to_record_batch(columns, "t", 0, include_headers=True)
    batch.validate(full=True)
    assert batch.num_rows == columns.count


def survives(buffer: bytes, rng: random.Random) -> bool:
    """Decode to the end; return whether an error was raised."""
    view, position = memoryview(buffer), rng.choice([0, 3, 7])
    aborted = rng.choice([[], [(7, 0)], [(7, 4), (8, 0)]])
    left = tuple(aborted)
    cut = rng.choice([None, 1, 4])
    for _ in range(100):
        try:
            found = decode(view, start_offset=position, aborted=left, max_records=cut)
        except CorruptRecordError as error:
            if "offset" not in str(error):
                raise AssertionError("the error names no offset") from error
            return True
        check(found, position, len(view))
        if found.finished:
            return False
        assert found.next_offset > position or found.bytes_consumed
        position, left = found.next_offset, found.aborted_left
        view = view[found.bytes_consumed :]
    raise AssertionError("decoding makes no progress")


@settings(deadline=None, max_examples=examples(120))
@given(st.integers(0, 2**32), st.sampled_from([None, None, "gzip", "snappy", "lz4", "zstd"]))
def test_mutated_batches_are_decoded_or_rejected_with_the_typed_error(
    seed: int, codec: str | None
) -> None:
    rng = random.Random(seed)
    batch = encode(
        rows(rng, 0, rng.randrange(1, 8)),
        compression=codec,
        transactional=rng.random() < 0.3,
        producer_id=7,
    )
    marker = encode_marker(8, 5, producer_id=7, producer_epoch=0, commit=False)
    good = encode(rows(rng, 9, 3))
    errors = 0
    for _ in range(MUTATIONS):
        changed = bytearray(rng.choice([batch, batch, batch, marker]))
        mutate(rng, changed, low=rng.choice([0, CRC_START, HEADER_SIZE, HEADER_SIZE]))
        if len(changed) < HEADER_SIZE:
            continue
        bad = sealed(changed, fit_length=rng.random() < 0.9)
        errors += survives(b"".join(rng.choice([[bad], [bad, good], [good, bad]])), rng)
    assert errors


@settings(deadline=None, max_examples=examples(60))
@given(st.integers(0, 2**32), st.sampled_from([1, 2, 3, 4]))
def test_mutated_records_in_valid_compression_are_decoded_or_rejected(
    seed: int, codec: int
) -> None:
    rng = random.Random(seed)
    plain = encode(rows(rng, 0, rng.randrange(1, 8)))
    errors = 0
    for _ in range(MUTATIONS):
        changed = bytearray(plain)
        mutate(rng, changed, low=HEADER_SIZE)
        packed = compress(codec, None, memoryview(changed)[HEADER_SIZE:])
        batch = changed[:HEADER_SIZE] + packed
        batch[22] |= codec
        errors += survives(sealed(batch, fit_length=True), rng)
    assert errors


@settings(deadline=None, max_examples=examples(200))
@given(st.binary(max_size=300), st.integers(0, 3))
def test_random_bytes_are_decoded_or_rejected_with_the_typed_error(
    noise: bytes, shape: int
) -> None:
    rng = random.Random(len(noise))
    buffer = bytearray(noise)
    if shape and len(buffer) > HEADER_SIZE:
        buffer[16] = 2
        if shape > 1:
            struct.pack_into(">q", buffer, 0, 5)
            struct.pack_into(">ii", buffer, 23, 3, 0)
            struct.pack_into(">i", buffer, 57, shape)
        buffer = bytearray(sealed(buffer, fit_length=True))
    survives(bytes(buffer), rng)

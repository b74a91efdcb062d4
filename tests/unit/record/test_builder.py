"""Test the batch builder: size limits, closing, and building a batch more than once."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.record.implementations import Encoding

from odradek.common.errors import IllegalStateError
from odradek.record import decode, estimate_record_size, read_header
from odradek.record.batch import CRC_START, crc32c

TIME = 1_700_000_000_000


def filled(use: Encoding, count: int = 3, compression: str | None = None) -> Any:
    builder = use.BatchBuilder(1 << 20, compression)
    for i in range(count):
        assert builder.append(b"k", b"value" * 20, (), TIME + i) == i
    return builder


def test_a_batchs_size_limit_is_exact_to_the_byte(use: Encoding) -> None:
    size = filled(use, 3).estimated_size
    for limit, expected in ((size, [0, 1, 2]), (size - 1, [0, 1, None])):
        builder = use.BatchBuilder(limit, None)
        assert [builder.append(b"k", b"value" * 20, (), TIME + i) for i in range(3)] == expected
        assert builder.estimated_size <= limit
        assert builder.count == len([e for e in expected if e is not None])


def test_the_first_record_of_a_batch_is_always_accepted(use: Encoding) -> None:
    builder = use.BatchBuilder(10, None)
    assert builder.append(None, bytes(5000), (), TIME) == 0
    assert builder.append(None, b"", (), TIME) is None
    assert decode(builder.build(), start_offset=0).columns.count == 1


@pytest.mark.parametrize("compression", [None, "gzip", "zstd"])
def test_a_batch_is_at_most_as_large_as_its_estimated_size(
    use: Encoding, compression: str | None
) -> None:
    builder = filled(use, 50, compression)
    built = builder.build()
    assert len(built) <= builder.estimated_size
    assert (len(built) == builder.estimated_size) == (compression is None)
    assert builder.max_timestamp_ms == TIME + 49


def test_a_batch_that_does_not_shrink_is_not_compressed(use: Encoding) -> None:
    builder = use.BatchBuilder(1 << 20, "gzip")
    builder.append(None, b"x", (), TIME)
    built = builder.build()
    assert len(built) == builder.estimated_size
    assert read_header(built).codec == 0
    assert decode(built, start_offset=0).columns.count == 1


def test_a_closed_or_built_batch_accepts_no_records(use: Encoding) -> None:
    builder = filled(use, 1)
    builder.close()
    assert builder.append(b"k", b"v", (), TIME) is None
    assert builder.closed
    other = filled(use, 1)
    other.build()
    assert other.append(b"k", b"v", (), TIME) is None


def test_an_empty_batch_cannot_be_built(use: Encoding) -> None:
    with pytest.raises(IllegalStateError, match="without records"):
        use.BatchBuilder(100, None).build()


@pytest.mark.parametrize("compression", [None, "zstd"])
def test_a_batch_can_be_built_again_with_another_producer_epoch_and_sequence(
    use: Encoding, compression: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    builder = filled(use, 20, compression)
    first = builder.build(producer_id=5, producer_epoch=1, base_sequence=40)
    before = bytes(first)
    monkeypatch.setattr(f"{use.module}.compress", None)  # a second compression would fail
    same = builder.build(producer_id=5, producer_epoch=1, base_sequence=40)
    other = builder.build(producer_id=5, producer_epoch=2, base_sequence=0, transactional=True)
    # A connection may still be sending the first batch.
    assert bytes(first) == before == bytes(same)
    header = read_header(other)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (5, 2, 0)
    assert header.transactional
    assert header.crc == crc32c(other[CRC_START:])
    assert list(decode(other, start_offset=0).columns) == list(
        decode(first, start_offset=0).columns
    )
    assert read_header(first).base_sequence == 40
    assert not read_header(first).transactional


@pytest.mark.parametrize("time", [-2, 2**63])
def test_invalid_timestamps_are_rejected(use: Encoding, time: int) -> None:
    builder = filled(use, 1)
    size = builder.estimated_size
    with pytest.raises(ValueError, match="timestamp_ms"):
        builder.append(None, None, (), time)
    assert (builder.count, builder.estimated_size) == (1, size)


def test_timestamps_may_decrease(use: Encoding) -> None:
    builder = use.BatchBuilder(1 << 20, None)
    times = [TIME, TIME - 100_000, TIME + 2**40, -1, 0]
    for time in times:
        builder.append(None, None, (), time)
    found = decode(builder.build(), start_offset=0)
    assert list(found.columns.timestamps_ms) == times
    assert read_header(builder.build()).max_timestamp == TIME + 2**40


def test_many_records_and_large_records_round_trip(use: Encoding) -> None:
    # Sizes and deltas of these records are larger than the table of precomputed varints.
    builder = use.BatchBuilder(1 << 30, None)
    values = [b"v"] * 5000 + [bytes(n) for n in (2047, 2048, 70_000)]
    for i, value in enumerate(values):
        builder.append(value, value, (), TIME + i * 10)
    columns = decode(builder.build(), start_offset=0).columns
    assert [(r[1], r[3], r[4]) for r in columns] == [
        (TIME + i * 10, value, value) for i, value in enumerate(values)
    ]


@pytest.mark.parametrize(
    "headers",
    [(), (("a", b"1"),), (("schlüssel\U0001f600", None), ("", b""), ("x" * 99, bytes(999)))],
)
def test_a_record_is_at_most_as_large_as_its_estimated_size(
    use: Encoding, headers: tuple[tuple[str, bytes | None], ...]
) -> None:
    for key, value in ((None, None), (b"", b""), (b"key", bytes(1 << 17))):
        builder = use.BatchBuilder(0, None)
        builder.append(key, value, headers, TIME)
        estimate = estimate_record_size(key, value, headers)
        assert builder.estimated_size - 61 <= estimate
        assert estimate <= builder.estimated_size + 200


def test_a_str_as_key_or_value_is_rejected(use: Encoding) -> None:
    builder = use.BatchBuilder(1 << 20, None)
    with pytest.raises(TypeError):
        builder.append("text", b"", (), TIME)
    assert builder.count == 0
    assert builder.append(bytearray(b"k"), memoryview(b"v"), (), TIME) == 0
    assert [r[3:5] for r in decode(builder.build(), start_offset=0).columns] == [(b"k", b"v")]


def test_a_full_batch_accepts_records_after_its_limit_is_raised(use: Encoding) -> None:
    builder = use.BatchBuilder(200, None)
    while builder.append(b"k", b"v" * 30, (), 5) is not None:
        pass
    count = builder.count
    builder.limit_bytes = 400
    assert builder.append(b"k", b"v" * 30, (), 5) == count
    size = builder.estimated_size
    view = builder.build()
    kept = bytes(view)
    builder.release()
    assert bytes(view) == kept
    assert (builder.count, builder.estimated_size, builder.closed) == (count + 1, size, True)
    assert builder.append(None, None, (), 0) is None
    with pytest.raises(IllegalStateError):
        builder.build()

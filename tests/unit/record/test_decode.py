"""Test `decode` with complete, truncated, aborted and corrupt batches."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from odradek.common.errors import CorruptRecordError
from odradek.record import DecodedRecords, decode, reference
from odradek.record.batch import CRC_START, crc32c
from odradek.record.columns import Row
from odradek.record.reference import encode, encode_marker
from odradek.record.varint import read_varint, write_varint

pytestmark = pytest.mark.usefixtures("each_decoder")


def row(offset: int, *, time: int = 0) -> Row:
    headers = (("n", b"%d" % offset),) if offset % 3 == 0 else ()
    return (offset, 1_700_000_000_000 + time + offset, 0, b"k%d" % offset, b"v%d" % offset, headers)


def log(*batches: bytes | bytearray) -> memoryview:
    """Return a buffer as the network passes it: read-only, and not a `bytes` object."""
    return memoryview(bytearray(b"".join(batches))).toreadonly()


def span(first: int, stop: int, **options: Any) -> bytes:
    return encode([row(i) for i in range(first, stop)], **options)


def offsets(found: DecodedRecords) -> list[int]:
    return [r[0] for r in found.columns]


def resealed(batch: bytes | bytearray) -> bytes:
    """Correct the checksum of a changed batch, so that decoding reaches the changed bytes."""
    copy = bytearray(batch)
    struct.pack_into(">I", copy, 17, crc32c(bytes(copy[CRC_START:])))
    return bytes(copy)


def changed(batch: bytes, layout: str, at: int, value: int) -> bytes:
    copy = bytearray(batch)
    struct.pack_into(layout, copy, at, value)
    return resealed(copy)


def with_records(records: bytes, count: int = 1, last_delta: int = 0) -> bytes:
    """Build a batch header for hand-written record bytes."""
    batch = bytearray(span(0, 1)[:61]) + records
    struct.pack_into(">i", batch, 8, len(batch) - 12)
    struct.pack_into(">i", batch, 23, last_delta)
    struct.pack_into(">i", batch, 57, count)
    return resealed(batch)


def test_an_empty_buffer_contains_no_records() -> None:
    found = decode(memoryview(b""), start_offset=7)
    assert (found.columns.count, found.next_offset, found.finished) == (0, 7, True)
    assert found.needed_bytes is None


def test_records_before_the_start_offset_and_from_the_until_offset_on_are_omitted() -> None:
    buffer = log(span(0, 5), span(5, 10, compression="zstd"), span(10, 15))
    found = decode(buffer, start_offset=3, until_offset=7)
    assert list(found.columns) == [row(i) for i in range(3, 7)]
    assert (found.next_offset, found.finished) == (7, True)
    at_border = decode(buffer, start_offset=5, until_offset=10)
    assert offsets(at_border) == list(range(5, 10))
    assert (at_border.next_offset, at_border.finished) == (10, True)


def test_decoding_ends_at_an_until_offset_that_lies_between_two_batches() -> None:
    buffer = log(span(0, 3), span(20, 23))
    found = decode(buffer, start_offset=0, until_offset=10)
    assert (offsets(found), found.next_offset, found.finished) == ([0, 1, 2], 10, True)


def test_a_compacted_batch_keeps_its_offset_range() -> None:
    rows = [row(12), row(15)]
    batch = encode(rows, base_offset=10, last_offset=19)
    found = decode(log(batch), start_offset=10)
    assert (list(found.columns), found.next_offset) == (rows, 20)
    assert decode(log(batch), start_offset=16).columns.count == 0
    assert decode(log(batch), start_offset=16).next_offset == 20


def test_a_truncated_last_batch_is_not_decoded() -> None:
    whole, last = span(0, 5), span(5, 10)
    for kept in (0, 5, 11, 12, 30, len(last) - 1):
        found = decode(log(whole, last[:kept]), start_offset=0)
        assert (found.columns.count, found.next_offset, found.finished) == (5, 5, True)
        assert (found.bytes_consumed, found.needed_bytes) == (len(whole), None)


def test_a_first_batch_larger_than_the_buffer_reports_its_size() -> None:
    batch = span(0, 50)
    found = decode(log(batch[:40]), start_offset=0)
    assert (found.columns.count, found.needed_bytes, found.next_offset) == (0, len(batch), 0)


def test_with_max_records_the_next_call_continues_in_the_middle_of_a_batch() -> None:
    buffer = log(span(0, 5), span(5, 12), span(12, 13))
    position, seen, calls = 0, [], 0
    while True:
        found = decode(buffer, start_offset=position, max_records=3)
        assert found.columns.count <= 3
        seen += offsets(found)
        position, calls = found.next_offset, calls + 1
        buffer = buffer[found.bytes_consumed :]
        if found.finished:
            break
    assert seen == list(range(13))
    assert calls == 5


def test_with_stop_after_decoding_ends_at_the_end_of_the_batch_that_reaches_it() -> None:
    batches = [span(0, 5), span(5, 12), span(12, 13)]
    found = decode(log(*batches), start_offset=0, stop_after=6)
    assert (found.columns.count, found.next_offset, found.finished) == (12, 12, False)
    assert found.bytes_consumed == len(batches[0]) + len(batches[1])
    assert [found.next_offset_after(n) for n in (0, 4, 12)] == [0, 4, 12]


def test_overlapping_batches_return_each_record_once() -> None:
    found = decode(log(span(0, 5), span(3, 8)), start_offset=0)
    assert offsets(found) == list(range(8))


def test_columns_that_are_not_requested_are_not_built() -> None:
    found = decode(
        log(span(0, 5)), start_offset=0, want_key=False, want_value=False, want_headers=False
    )
    assert (found.columns.keys, found.columns.values, found.columns.headers) == (None, None, None)
    assert list(found.columns)[3][2:] == (0, None, None, ())


def test_records_without_headers_build_no_header_column() -> None:
    assert decode(log(span(1, 3)), start_offset=0).columns.headers is None
    assert decode(log(span(3, 4)), start_offset=0).columns.headers is not None


def test_read_committed_hides_only_aborted_records() -> None:
    other: dict[str, Any] = {
        "producer_id": 8,
        "producer_epoch": 0,
        "base_sequence": 0,
        "transactional": True,
    }
    mine = {**other, "producer_id": 7}
    marker: dict[str, Any] = {"producer_epoch": 0, "timestamp_ms": 0}
    batches = [
        span(0, 2, **mine),  # aborted by the marker at offset 4
        span(2, 3, producer_id=7),  # not transactional, though of the same producer
        span(3, 4, **other),  # committed
        encode_marker(4, producer_id=7, commit=False, **marker),
        span(5, 7, **mine),  # the next transaction of the same producer, committed
        encode_marker(7, producer_id=7, commit=True, **marker),
        encode_marker(8, producer_id=8, commit=True, **marker),
        span(9, 10, **mine),  # aborted by a later marker
    ]
    aborted = [(7, 9), (7, 0)]
    found = decode(log(*batches), start_offset=0, aborted=aborted)
    assert offsets(found) == [2, 3, 5, 6]
    assert (found.control_batches, found.aborted_batches, found.next_offset) == (3, 2, 10)
    assert found.aborted_left == ((7, 9),)

    # Decode in several calls: markers read before mustn't hide later transactions.
    buffer, position, left, seen = log(*batches), 0, tuple(aborted), list[int]()
    for _ in range(20):
        found = decode(buffer, start_offset=position, aborted=left, max_records=1)
        position, left = found.next_offset, found.aborted_left
        buffer = buffer[found.bytes_consumed :]
        seen += offsets(found)
        if found.finished:
            break
    assert seen == [2, 3, 5, 6]

    everything = decode(log(*batches), start_offset=0)
    assert offsets(everything) == [0, 1, 2, 3, 5, 6, 9]


def test_a_corrupt_batch_after_valid_batches_raises_at_the_next_call() -> None:
    good = span(0, 5)
    bad = bytearray(span(5, 10))
    bad[-1] ^= 1
    buffer = log(good, bad, span(10, 12))
    found = decode(buffer, start_offset=0)
    assert (found.columns.count, found.next_offset, found.finished) == (5, 5, False)
    with pytest.raises(CorruptRecordError, match="batch at offset 5: its checksum is wrong"):
        decode(buffer[found.bytes_consumed :], start_offset=found.next_offset)


def test_no_row_of_a_batch_that_is_corrupt_at_its_end_is_returned() -> None:
    bad = span(6, 9)
    bad = changed(bad, ">i", 57, 2)  # the header's count is one too low
    found = decode(log(span(0, 5), bad), start_offset=0)
    assert list(found.columns) == [row(i) for i in range(5)]
    assert len(found.columns.offsets) == 5
    with pytest.raises(CorruptRecordError, match=r"offset 6: \d+ bytes follow its last record"):
        decode(log(bad), start_offset=0)


@pytest.mark.parametrize("codec", [None, "gzip", "zstd"])
def test_the_checksum_is_checked_even_if_no_record_of_the_batch_is_requested(
    codec: str | None,
) -> None:
    batch = span(0, 4, compression=codec)
    for at in [17, *range(CRC_START, len(batch))]:
        broken = bytearray(batch)
        broken[at] ^= 0x10
        with pytest.raises(CorruptRecordError):
            # the batch ends before the start offset
            decode(log(broken), start_offset=100)


@pytest.mark.parametrize(
    ("layout", "at", "value", "reason"),
    [
        (">b", 16, 3, "format .* is 3"),
        (">i", 8, 13, "length field contains 13"),
        (">i", 8, -1, "length field contains -1"),
        (">i", 8, 40, "length field contains 52, less than the size of a header"),
        (">i", 57, -1, "count is -1,"),
        (">i", 57, 2**31 - 1, "count is 2147483647, but it has 4"),
        (">i", 57, 5, "count is 5, but it has 4"),
        (">i", 23, -1, "last offset delta is -1"),
        (">i", 23, 2, "count is 4, but it has 3"),
        (">h", 21, 5, "unknown codec number 5"),
        (">q", 27, 2**63 - 1, "timestamp doesn't fit"),
    ],
)
def test_batch_header_fields_out_of_range_are_rejected(
    layout: str, at: int, value: int, reason: str
) -> None:
    with pytest.raises(CorruptRecordError, match=f"batch at offset 0: .*{reason}"):
        decode(log(changed(span(0, 4), layout, at, value)), start_offset=0)


@pytest.mark.parametrize("offset", [-1, 2**63 - 2])
def test_base_offsets_out_of_range_are_rejected(offset: int) -> None:
    batch = struct.pack(">q", offset) + span(0, 4)[8:]
    with pytest.raises(CorruptRecordError, match=f"batch at offset {offset}: its"):
        decode(log(batch), start_offset=0)


PLAIN = b"\x00\x00\x00\x01\x01\x00"  # attributes, timestamp, offset, null key and value, no headers


def record(body: bytes, length: int | None = None) -> bytes:
    return write_varint(len(body) if length is None else length) + body


@pytest.mark.parametrize(
    ("records", "reason"),
    [
        (record(PLAIN, 7), "a record is 7, but 6 bytes are left"),
        (record(PLAIN, -1), "a record is -1,"),
        (record(PLAIN, 0), "a record is 0,"),
        (record(PLAIN, 5) + b"\0", "a record end "),
        (record(PLAIN + b"\0"), "a record end -1 bytes"),
        (record(PLAIN) + b"\0", "1 bytes follow its last record"),
        (b"", "runs past its end"),
        (b"\xff" * 5 + PLAIN, "more than 32 bits"),
        (b"\x80" * 4, "runs past its end"),
        (record(b"\0\0\x02\x01\x01\0"), "offset delta 1 isn't in 0 to 0"),
        (record(b"\0\0\x01\x01\x01\0"), "offset delta -1 isn't"),
        (record(b"\0" + b"\xff" * 10 + b"\0\x01\x01\0"), "more than 64 bits"),
        (record(b"\0" + b"\xff" * 9 + b"\3\0\x01\x01\0"), "more than 64 bits"),
        (record(b"\0\0\0" + b"\xff" * 5 + b"\0\0"), "more than 32 bits"),
        (record(b"\0\0\0\x03\x01\0"), "is -2, but"),
        (record(b"\0\0\0\x0e\x01\0"), "is 7, but"),
        (record(b"\0\0\0\x01\x03\0"), "is -2, but"),
        (record(b"\0\0\0\x01\x10a\0"), "is 8, but"),
        (record(b"\0\0\0\x01\x01\x01"), "header count of a record is -1"),
        (record(b"\0\0\0\x01\x01\x02"), "record is 1, but 0 bytes"),
        (
            record(b"\0\0\0\x01\x01" + write_varint(2**31 - 1)),
            "header count of a record is 2147483647",
        ),
        (record(b"\0\0\0\x01\x01\x02\x01\x01"), "a header has no name"),
        (record(b"\0\0\0\x01\x01\x02\x02a\x04b"), "is 2, but 1"),
    ],
)
def test_malformed_records_are_rejected(records: bytes, reason: str) -> None:
    with pytest.raises(CorruptRecordError, match=f"batch at offset 0: .*{reason}"):
        decode(log(with_records(records)), start_offset=0)


def test_offsets_of_records_must_ascend() -> None:
    second = record(b"\0\0\x02\x01\x01\0")
    ascending = log(with_records(record(PLAIN) + second, 2, 1))
    assert offsets(decode(ascending, start_offset=0)) == [0, 1]
    with pytest.raises(CorruptRecordError, match="offset delta 0 isn't in 2 to 1"):
        decode(log(with_records(second + record(PLAIN), 2, 1)), start_offset=0)


def test_invalid_utf8_in_header_names_is_replaced() -> None:
    broken = record(b"\0\0\0\x01\x01\x02\x04\xc3(\x01")
    assert next(iter(decode(log(with_records(broken)), start_offset=0).columns))[5] == (
        ("\ufffd(", None),
    )


def test_a_control_record_without_a_type_is_rejected_if_its_producer_has_aborted() -> None:
    batch = encode([row(0)], control=True, transactional=True, producer_id=7)
    short = encode([(0, 0, 0, b"k", b"", ())], control=True, transactional=True, producer_id=7)
    assert decode(log(short), start_offset=0, aborted=[(8, 0)]).control_batches == 1
    assert decode(log(batch), start_offset=0).control_batches == 1
    with pytest.raises(CorruptRecordError, match="a control record has no type"):
        decode(log(short), start_offset=0, aborted=[(7, 0)])


def test_decoding_stops_before_the_decoded_columns_grow_too_large(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reference, "COLUMNS_LIMIT", 200)
    buffer = log(span(0, 5), span(5, 10), span(10, 15))
    seen, position = [], 0
    for _ in range(3):
        found = decode(buffer, start_offset=position)
        buffer, position = buffer[found.bytes_consumed :], found.next_offset
        assert found.columns.count == 5
        seen += offsets(found)
    assert found.finished
    assert seen == list(range(15))


def test_an_unknown_codec_after_valid_batches_raises_at_the_next_call() -> None:
    unknown = changed(span(5, 6), ">h", 21, 5)
    found = decode(log(span(0, 5), unknown), start_offset=0)
    assert (found.columns.count, found.finished) == (5, False)
    with pytest.raises(CorruptRecordError, match=r"offset 5: .*unknown codec number 5"):
        decode(log(unknown), start_offset=5)


@pytest.mark.parametrize("number", [0, -1, 63, 64, -64, -65, 2**31 - 1, -(2**31)])
def test_varints_round_trip(number: int) -> None:
    written = write_varint(number)
    assert read_varint(written, 0) == (number, len(written))


@pytest.mark.parametrize("number", [2**31, -(2**31) - 1, 2**63 - 1, -(2**63)])
def test_varints_above_32_bits_are_only_read_if_64_bits_are_allowed(number: int) -> None:
    written = write_varint(number)
    assert read_varint(written, 0, 64) == (number, len(written))
    with pytest.raises(ValueError, match="32 bits"):
        read_varint(written, 0)

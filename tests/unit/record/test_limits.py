"""R-IN-4: batches that would take far more memory than their size are rejected beforehand."""

from __future__ import annotations

import pickle

import pytest
from tests.peak_memory import peak_below

from odradek.common.errors import CorruptRecordError
from odradek.common.errors.records import RecordLimitError
from odradek.record import decode, reference
from odradek.record.batch import HEADER_SIZE, behind, seal
from odradek.record.columns import RawHeaderColumn, RawHeaders
from odradek.record.compression import codec_number, compress
from odradek.record.limits import FREE_OF_RATIO, HEADER_COST, Limits
from odradek.record.reference import encode
from odradek.record.varint import write_varint

MB = 1 << 20
pytestmark = pytest.mark.usefixtures("each_decoder")
PLAIN = b"\0\0%s\x01\x01"  # attributes, timestamp, offset, null key, null value


def record(delta: int, headers: int) -> bytes:
    """Build a record with `headers` headers; their names are empty, their values null."""
    body = PLAIN % write_varint(delta) + write_varint(headers) + b"\0\x01" * headers
    return write_varint(len(body)) + body


def sealed_batch(records: bytes, count: int = 1, codec: str = "zstd", base: int = 0) -> memoryview:
    number = codec_number(codec)
    packed = compress(number, None, memoryview(records)) if number else records
    made = bytearray(HEADER_SIZE) + packed
    times = {"base_timestamp": 0, "max_timestamp": 0}
    last = count - 1
    seal(made, attributes=number, last_offset_delta=last, count=count, base_offset=base, **times)
    return memoryview(made)


@pytest.mark.parametrize("raw", [True, False])
def test_millions_of_headers_in_a_few_bytes_are_rejected(raw: bool) -> None:
    made = sealed_batch(record(0, 8_400_000))
    assert len(made) < 2000
    with (
        peak_below(80 * MB),  # 17 MB of decompressed data, but no headers
        pytest.raises(
            RecordLimitError, match=r"offset 0 has 8400000 headers, but max.headers"
        ) as e,
    ):
        decode(made, start_offset=0, raw_headers=raw, limits=Limits(headers=10_000))
    found = (e.value.option, e.value.found, e.value.record)
    assert found == ("max.headers.per.record", 8_400_000, 0)
    assert not e.value.retriable
    again = pickle.loads(pickle.dumps(e.value))  # noqa: S301 - our own
    assert (str(again), again.option, again.record) == (str(e.value), *found[::2])


def test_headers_that_are_not_requested_are_not_limited() -> None:
    made = sealed_batch(record(0, 100_000))
    found = decode(made, start_offset=0, want_headers=False, limits=Limits(headers=10))
    assert found.columns.count == 1


def test_a_record_may_have_exactly_the_maximum_number_of_headers() -> None:
    made = sealed_batch(record(0, 10) + record(1, 11), 2)
    assert decode(made, start_offset=0, until_offset=1, limits=Limits(headers=10)).columns.count
    with pytest.raises(RecordLimitError, match="the record at offset 1 has 11 headers"):
        decode(made, start_offset=0, limits=Limits(headers=10))
    assert decode(made, start_offset=0, limits=Limits(headers=11)).columns.count == 2
    # A record before the start offset isn't checked, so a seek can skip it.
    after = sealed_batch(record(0, 11) + record(1, 1), 2)
    assert [r[0] for r in decode(after, start_offset=1, limits=Limits(headers=10)).columns] == [1]


def test_header_columns_count_towards_the_limit_of_decompressed_bytes() -> None:
    """A header of two bytes takes the memory of two offsets in the header columns."""
    records = b"".join(record(n, 100) for n in range(10))
    made = sealed_batch(records, 10)
    fits = Limits(decompressed=len(records) + 1000 * HEADER_COST)
    assert decode(made, start_offset=0, limits=fits).columns.count == 10
    less = Limits(decompressed=len(records) + 1000 * HEADER_COST - 1)
    with pytest.raises(
        RecordLimitError, match="offset 9, the batch has 1000 headers, which need 16"
    ) as caught:
        decode(made, start_offset=0, limits=less)
    error = caught.value
    assert (error.option, error.found) == ("max.decompressed.batch.bytes", 1000 * HEADER_COST)
    assert error.record == 9  # records 0 to 8 fit, and record 9 alone would
    for start, until, count in ((0, 9, 9), (9, None, 1)):
        found = decode(made, start_offset=start, until_offset=until, limits=less)
        assert found.columns.count == count
    # No header columns are built for raw headers, or if headers aren't requested.
    assert decode(made, start_offset=0, raw_headers=True, limits=less).columns.count == 10
    assert decode(made, start_offset=0, want_headers=False, limits=less).columns.count == 10
    # Of an uncompressed batch only the header columns count, because its bytes were counted when
    # it was fetched.
    plain = sealed_batch(records, 10, "none")
    assert decode(plain, start_offset=0, limits=Limits(decompressed=16_000)).columns.count == 10
    with pytest.raises(RecordLimitError, match="offset 9, the batch has 1000 headers"):
        decode(plain, start_offset=0, limits=Limits(decompressed=15_999))


@pytest.mark.slow
def test_many_empty_headers_are_rejected_before_they_fill_memory() -> None:
    """Each record is within the limit of headers; all records together exceed the memory limit.

    Batch and limits are a sixteenth of the real ones.
    """
    made = sealed_batch(b"".join(record(n, 10_000) for n in range(64)), 64)
    limits = Limits(decompressed=2 * MB, headers=10_000)
    with peak_below(7 * MB), pytest.raises(RecordLimitError, match="max.decompressed.batch"):
        decode(made, start_offset=0, limits=limits)


def test_decoding_stops_between_batches_before_header_columns_grow_too_large(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reference, "COLUMNS_LIMIT", 4000)
    both = bytes(sealed_batch(record(0, 200))) + bytes(sealed_batch(record(0, 200), base=1))
    found = decode(memoryview(both), start_offset=0)
    assert (found.columns.count, found.finished, found.batches) == (2, True, 2)
    monkeypatch.setattr(reference, "COLUMNS_LIMIT", 3000)
    found = decode(memoryview(both), start_offset=0)
    assert (found.columns.count, found.finished, found.batches) == (1, False, 1)
    found = decode(memoryview(both), start_offset=0, raw_headers=True)
    assert (found.columns.count, found.finished, found.batches) == (2, True, 2)


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_too_many_records_in_a_batch_are_rejected(codec: str) -> None:
    made = sealed_batch(b"".join(record(n, 0) for n in range(100)), 100, codec)
    assert decode(made, start_offset=0, limits=Limits(records=100)).columns.count == 100
    with pytest.raises(
        RecordLimitError, match="it has 100 records, but max.records.per.batch is 99"
    ):
        decode(made, start_offset=0, limits=Limits(records=99))


@pytest.mark.slow
@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_a_batch_that_decompresses_to_too_many_bytes_is_rejected(codec: str) -> None:
    made = encode([(5, 0, 0, None, bytes(12 * MB), ())], compression=codec)
    with (
        peak_below(8 * MB),
        pytest.raises(RecordLimitError, match=r"at offset 5: .*exceed 1048576 bytes") as caught,
    ):
        decode(memoryview(made), start_offset=5, limits=Limits(decompressed=MB))
    assert (caught.value.option, caught.value.found) == ("max.decompressed.batch.bytes", MB)
    assert caught.value.record is None
    fits = decode(memoryview(made), start_offset=5, limits=Limits(decompressed=12 * MB + 50))
    assert fits.columns.count == 1


@pytest.mark.slow
def test_the_decompression_ratio_is_only_limited_for_large_batches() -> None:
    made = encode([(0, 0, 0, None, bytes(FREE_OF_RATIO), ())], compression="zstd")
    with (
        peak_below(8 * MB),
        pytest.raises(RecordLimitError, match=r"exceed 33554432 .* \(max.decompression.ratio"),
    ):
        decode(memoryview(made), start_offset=0, limits=Limits(ratio=1000))
    assert decode(memoryview(made), start_offset=0).columns.count == 1
    small = encode([(0, 0, 0, None, bytes(FREE_OF_RATIO - 100), ())], compression="zstd")
    assert decode(memoryview(small), start_offset=0, limits=Limits(ratio=1)).columns.count == 1


def test_valid_batches_before_a_rejected_batch_are_returned() -> None:
    good = encode([(n, 0, 0, None, b"v", (("n", b"x"),)) for n in range(3)])
    both = memoryview(good + bytes(sealed_batch(record(0, 50), base=3)))
    limits = Limits(headers=10)
    for raw in (True, False):
        found = decode(both, start_offset=0, limits=limits, raw_headers=raw)
        assert (found.columns.count, found.finished, found.next_offset) == (3, False, 3)
        assert [r[5] for r in found.columns] == [(("n", b"x"),)] * 3
        with pytest.raises(RecordLimitError, match="offset 3 has 50"):
            decode(both[found.bytes_consumed :], start_offset=3, limits=limits, raw_headers=raw)


def test_raw_headers_are_parsed_when_they_are_read() -> None:
    rows = [
        (0, 0, 0, None, b"a", (("name", b"value"), ("ñ", None), ("", b""))),
        (1, 0, 0, None, b"b", ()),
        (2, 0, 0, None, b"c", (("long" * 50, bytes(300)),)),
    ]
    for compression in (None, "zstd"):
        made = memoryview(encode(rows, compression=compression))
        found = decode(made, start_offset=0, raw_headers=True).columns
        assert isinstance(found.headers, RawHeaderColumn)
        assert list(found) == rows == list(decode(made, start_offset=0).columns)
        assert [r[5] for r in found.slice(1, 3)] == [r[5] for r in rows[1:]]
        assert found.headers.lists(1, 2)[0] == ()
    many = decode(sealed_batch(record(0, 100_000)), start_offset=0, raw_headers=True).columns
    with peak_below(2 * MB):
        (headers,) = many.headers.lists(0, 1) if many.headers is not None else ((),)
    assert len(headers) == 100_000
    none = decode(memoryview(encode([rows[1]])), start_offset=0, raw_headers=True).columns
    assert none.headers is None


def test_raw_headers_behave_like_a_tuple() -> None:
    raw = RawHeaders(b"\x02a\x02b" + b"\x02c\x01" + b"\x04\xc3(\x00")
    same = (("a", b"b"), ("c", None), ("\ufffd(", b""))
    assert raw == same
    assert same == raw
    assert raw == RawHeaders(b"\x02a\x02b\x02c\x01\x04\xc3(\x00")
    assert raw != same[:2]
    assert raw != list(same)
    assert (len(raw), raw[1], raw[1:], tuple(raw)) == (3, same[1], same[1:], same)
    assert (repr(raw), hash(raw), same[0] in raw) == (repr(same), hash(same), True)
    assert pickle.loads(pickle.dumps(raw)) == same  # noqa: S301 - our own
    long = RawHeaders(b"\x02a\x81\x00\x80\x00\x82\x00b")  # varints that are longer than necessary
    assert long == (("a", None), ("", b"b"))
    match raw:
        case [("a", first), *_]:
            assert first == b"b"
        case _:
            raise AssertionError


def test_the_offset_after_a_corrupt_batch_is_read_from_the_most_reliable_header_field() -> None:
    first = encode([(n, 0, 0, None, b"v", ()) for n in range(10, 14)])
    second = encode([(20, 0, 0, None, b"v", ())])
    torn = first[:-1] + bytes([first[-1] ^ 1])
    assert behind(memoryview(first)) == 14
    assert behind(memoryview(torn)) == 14  # the header's last offset agrees with its four records
    assert behind(memoryview(torn + second)) == 20  # the next batch's offset is more reliable
    assert behind(memoryview(first + torn), len(first)) == 14
    lying = bytearray(torn)
    lying[23] = 0x40  # a last offset a billion too high would skip records
    assert behind(memoryview(lying)) is None
    assert behind(memoryview(lying + second)) == 20
    assert behind(memoryview(lying + first)) is None  # offsets that decrease are unreliable
    assert behind(memoryview(first)[:-1]) is None
    assert behind(memoryview(first)[:40]) is None
    odd = bytearray(first)
    odd[8] = 0x7F  # the batch length in the header
    assert behind(memoryview(odd)) is None


@pytest.mark.parametrize("magic", [0, 1, 3, 0x7F, 0xFF])
def test_the_offset_after_a_batch_with_a_wrong_magic_byte_is_known(magic: int) -> None:
    """An application that skips the batch with a seek needs an offset after it."""
    odd = bytearray(encode([(n, 0, 0, None, b"v", ()) for n in range(10, 60)]))
    odd[16] = magic
    with pytest.raises(CorruptRecordError):
        decode(memoryview(odd), start_offset=10)
    assert behind(memoryview(odd)) == 60
    assert behind(memoryview(bytes(odd) + encode([(70, 0, 0, None, b"v", ())]))) == 60
    odd[-1] ^= 1
    assert behind(memoryview(odd)) == (11 if magic < 2 else None)

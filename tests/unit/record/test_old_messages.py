"""Test messages of formats 0 and 1 (brokers before Kafka 0.11) with both decoders."""

from __future__ import annotations

import struct
from collections.abc import Callable

import pytest
from cramjam import lz4
from tests.fuzz.old_messages import message, sealed, wrapper
from tests.peak_memory import peak_below

from odradek.common.errors import CorruptRecordError
from odradek.common.errors.records import RecordLimitError
from odradek.record import decode, survey_batches
from odradek.record.arrow import to_record_batch
from odradek.record.batch import behind, read_header
from odradek.record.columns import Row
from odradek.record.compression import compress
from odradek.record.limits import FREE_OF_RATIO, Limits
from odradek.record.reference import encode
from odradek.record.survey import survey_batches as plain_survey

pytestmark = pytest.mark.usefixtures("each_decoder")
NO_TYPE, CREATED, APPENDED = -1, 0, 1
CODECS = {"gzip": 1, "snappy": 2, "lz4": 3}
MB = 1 << 20
LARGEST = (1 << 63) - 1
LONG = b"a value that is longer than a view"


def log(*messages: bytes | bytearray) -> memoryview:
    return memoryview(bytearray(b"".join(messages))).toreadonly()


def row(offset: int, *, time: int = 1000, kind: int = CREATED) -> Row:
    key = None if offset % 3 == 0 else b"k%d" % offset
    return offset, time, kind, key, None if offset % 4 == 1 else LONG, ()


def one(offset: int, magic: int, *, written: int | None = None, attributes: int = 0) -> bytearray:
    """Build a message of format 0 or 1 that is decoded to `row(offset)`."""
    _, time, _, key, value, _ = row(offset)
    place = offset if written is None else written
    return message(place, magic, key, value, time=time, attributes=attributes)


def old_row(offset: int) -> Row:
    """Return a row of format 0, which has no timestamps."""
    return row(offset, time=-1, kind=NO_TYPE)


def rows(buffer: memoryview, start: int = 0, **how: object) -> list[Row]:
    return list(decode(buffer, start_offset=start, **how).columns)  # type: ignore[arg-type]


def test_uncompressed_messages_with_gaps_from_compaction_are_decoded() -> None:
    buffer = log(one(3, 0), one(4, 0), one(9, 1), one(12, 1))
    found = decode(buffer, start_offset=0)
    assert list(found.columns) == [old_row(3), old_row(4), row(9), row(12)]
    assert (found.next_offset, found.finished, found.batches) == (13, True, 4)
    assert (found.bytes_consumed, found.last_leader_epoch) == (len(buffer), -1)
    assert found.columns.headers is None


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("layout", ["binary", "binary_view"])
def test_compressed_messages_are_decoded(codec: str, layout: str) -> None:
    relative = b"".join(one(20 + i, 1, written=i) for i in (0, 1, 4))
    absolute = b"".join(one(i, 0) for i in (7, 8, 11))
    buffer = log(wrapper(absolute, 11, 0, CODECS[codec]), wrapper(relative, 24, 1, CODECS[codec]))
    expected = [old_row(7), old_row(8), old_row(11), row(20), row(21), row(24)]
    assert rows(buffer, layout=layout) == expected
    assert rows(buffer, 8, layout=layout) == expected[1:]
    found = decode(buffer, start_offset=8, until_offset=21)
    assert list(found.columns) == expected[1:4]
    assert (found.next_offset, found.finished) == (21, True)
    assert rows(buffer, until_offset=20) == expected[:3]


def test_messages_in_a_compacted_wrapper_message_keep_their_offsets() -> None:
    inner = b"".join(one(40 + i, 1, written=i) for i in (3, 5))
    assert rows(log(wrapper(inner, 45, 1, 1))) == [row(43), row(45)]


def test_messages_have_the_log_append_time_of_their_wrapper_message() -> None:
    inner = one(0, 1, written=0) + one(1, 1, written=1)
    appended = wrapper(inner, 1, 1, 2, time=5000, append_time=True)
    plain = one(2, 1, attributes=8)
    created = wrapper(one(3, 1, written=0), 3, 1, 2, time=5000)
    assert rows(log(appended, plain, created)) == [
        row(0, time=5000, kind=APPENDED),
        row(1, time=5000, kind=APPENDED),
        row(2, kind=APPENDED),
        row(3),
    ]


def test_formats_may_be_mixed_in_a_response_and_in_a_wrapper_message() -> None:
    new = [(9, 7, CREATED, b"k", b"v", (("h", b"x"),)), (10, 8, CREATED, None, None, ())]
    mixed = wrapper(one(6, 0, written=0) + one(7, 1, written=1), 7, 1, 1, append_time=True, time=9)
    last = (12, 9, CREATED, b"", b"v", (("i", None),))
    buffer = log(one(5, 1), mixed, encode(new, leader_epoch=4), one(11, 1), encode([last]))
    old = [row(5), old_row(6), row(7, time=9, kind=APPENDED)]
    assert rows(buffer) == [*old, *new, row(11), last]
    assert rows(buffer, raw_headers=True) == [*old, *new, row(11), last]
    assert plain_survey(buffer, 0)[4] == [(5, -1), (9, 4), (11, -1)]


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("compressed", [False, True])
def test_old_messages_are_converted_to_arrow(magic: int, compressed: bool) -> None:
    content = [one(i, magic) for i in range(6)]
    buffer = log(wrapper(b"".join(content), 5, magic, 3)) if compressed else log(*content)
    for layout in ("binary", "binary_view"):
        columns = decode(buffer, start_offset=1, layout=layout).columns
        batch = to_record_batch(columns, "t", 2, include_headers=True)
        batch.validate(full=True)
        found = batch.to_pylist()
        expected = [(old_row if magic == 0 else row)(i) for i in range(1, 6)]
        assert [(r["offset"], r["timestampType"], r["key"], r["value"]) for r in found] == [
            (r[0], r[2], r[3], r[4]) for r in expected
        ]
        assert {int(r["timestamp"].timestamp() * 1000) for r in found} == {expected[0][1]}
        assert {r["headers"] for r in found} == {None}


def test_successive_calls_with_a_record_limit_read_all_messages() -> None:
    inner = b"".join(one(10 + i, 1, written=i) for i in range(5))
    buffer = log(one(8, 1), one(9, 1), wrapper(inner, 14, 1, 1), one(15, 1))
    position, found = 0, []
    while len(buffer):
        part = decode(buffer, start_offset=position, max_records=3)
        found += [r[0] for r in part.columns]
        position, buffer = part.next_offset, buffer[part.bytes_consumed :]
        assert part.columns.count <= 3
    assert found == list(range(8, 16))
    assert position == 16
    enough = decode(
        log(one(8, 1), wrapper(inner, 14, 1, 1), one(15, 1)), start_offset=0, stop_after=2
    )
    assert (enough.columns.count, enough.next_offset, enough.finished) == (6, 15, False)


@pytest.mark.parametrize("magic", [0, 1])
def test_only_complete_messages_of_a_truncated_buffer_are_decoded(magic: int) -> None:
    first, second = one(3, magic), wrapper(one(4, magic, written=4 * (1 - magic)), 4, magic, 1)
    whole = log(first, second)
    for end in range(len(whole) + 1):
        found = decode(whole[:end], start_offset=0)
        complete = [len(first) <= end, len(whole) <= end]
        assert [r[0] for r in found.columns] == [3, 4][: sum(complete)]
        assert found.finished
        known = end >= 12 and not complete[0]
        assert found.needed_bytes == (len(first) if known else None)
        for survey in (plain_survey, survey_batches):
            surveyed = survey(whole[:end], 0)
            at = (0, len(first), len(whole))[sum(complete)]
            assert surveyed[:4] == (found.next_offset, at, found.needed_bytes, False), end


def kafka_3160(frame: bytearray) -> bytearray:
    """Write the wrong header checksum into an lz4 frame that Kafka before 0.10 wrote."""
    at = 14 if frame[4] & 0x08 else 6
    frame[at] ^= 0x55
    return frame


@pytest.mark.parametrize("linked", [False, True])
@pytest.mark.parametrize("claims_size", [False, True])
def test_a_wrong_lz4_header_checksum_is_accepted_in_format_0(
    linked: bool, claims_size: bool
) -> None:
    inner = b"".join(one(i, 0) for i in range(3000))
    packer = lz4.Compressor(level=1, block_linked=linked, content_checksum=False)
    packer.compress(inner)
    frame = bytearray(packer.finish())
    if claims_size:
        frame[4] |= 0x08
        frame[6:6] = len(inner).to_bytes(8, "little")
    frame = kafka_3160(frame)
    assert rows(log(wrapper(b"", 2999, 0, 3, packed=bytes(frame)))) == [
        old_row(i) for i in range(3000)
    ]


BROKEN: dict[str, tuple[Callable[[bytearray], bytes | bytearray], str]] = {
    "checksum": (lambda m: m[:15] + bytes((m[15] ^ 1,)) + m[16:], "its checksum is wrong"),
    "short": (
        lambda m: m[:8] + struct.pack(">i", 20) + m[12:],
        r"its length field contains 20, less than the minimum of format 1",
    ),
    "negative offset": (
        lambda m: struct.pack(">q", -5) + m[8:],
        "its offset is negative or exceeds 64 bits",
    ),
    "largest offset": (
        lambda m: struct.pack(">q", LARGEST) + m[8:],
        "its offset is negative or exceeds 64 bits",
    ),
    "key": (
        lambda m: sealed(m[:26] + struct.pack(">i", 99) + m[30:]),
        "the length of a key, value or header is 99, but 36 bytes are left",
    ),
    "value": (
        lambda m: sealed(m[:32] + struct.pack(">i", -2) + m[36:]),
        "the length of a key, value or header is -2, but 34 bytes are left",
    ),
    "end": (lambda m: sealed(m + b"xx"), r"the fields of a record end -2 bytes from its end"),
    "nothing compressed": (
        lambda m: message(2, 1, None, None, attributes=1),
        "it is compressed, but has no value",
    ),
    "zstd": (
        lambda m: message(2, 1, None, b"x", attributes=4),
        "it has the unknown codec number 4",
    ),
    "noise": (lambda m: message(2, 1, None, b"x", attributes=1), "its gzip data is"),
    "empty set": (lambda m: wrapper(b"", 2, 1, 1), "it contains no message"),
    "cut set": (lambda m: wrapper(m[:20], 2, 1, 1), "a record runs past its end"),
    "cut message": (
        lambda m: wrapper(m[:-1], 2, 1, 1),
        "the length of a record is 58, but 57 bytes are left",
    ),
    "short inner message": (
        lambda m: wrapper(sealed(m[:30]), 2, 1, 1),
        "the length of a record is 18, but 18 bytes are left",
    ),
    "inner checksum": (
        lambda m: wrapper(m[:-1] + b"!", 2, 1, 1),
        "its checksum is wrong",
    ),
    "inner format": (
        lambda m: wrapper(sealed(m[:16] + b"\2" + m[17:]), 2, 1, 1),
        "it contains a message of format 2",
    ),
    "nested": (
        lambda m: wrapper(wrapper(m, 0, 1, 1), 2, 1, 1),
        "it contains a compressed message",
    ),
    "offsets of format 1": (
        lambda m: wrapper(one(2, 1, written=3), 2, 1, 1),
        "offset delta 3 isn't in 0 to 2",
    ),
    "offsets of format 0": (
        lambda m: wrapper(one(3, 0), 2, 0, 1),
        "offset delta 3 isn't in 0 to 2",
    ),
    "beyond the last": (
        lambda m: wrapper(one(5, 1) + m, 2, 1, 1),
        "offset delta 5 isn't in 0 to 2",
    ),
    "order": (
        lambda m: wrapper(one(1, 1) + one(0, 1) + one(2, 1), 2, 1, 1),
        "offset delta 0 isn't in 2 to 2",
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_corrupt_messages_raise_and_can_be_skipped(name: str) -> None:
    change, why = BROKEN[name]
    bad = bytearray(change(one(2, 1)))
    good = one(1, 1)
    found = decode(log(good, bad), start_offset=0)
    assert (found.columns.count, found.next_offset, found.finished) == (1, 2, False)
    buffer = log(bad, one(5, 1))
    with pytest.raises(CorruptRecordError, match=rf"record batch at offset -?\d+: .*{why}"):
        decode(buffer, start_offset=0)
    (offset,) = struct.unpack_from(">q", bad)
    assert behind(buffer) == (offset + 1 if 0 <= offset < LARGEST else None)


def test_no_row_of_a_corrupt_wrapper_is_returned() -> None:
    bad = one(3, 1, written=2)
    bad[-1] ^= 1
    inner = one(0, 1, written=0) + one(1, 1, written=1) + bad
    found = decode(log(one(5, 1), wrapper(inner, 8, 1, 1)), start_offset=0)
    assert list(found.columns) == [row(5)]
    assert not found.finished


def test_the_header_of_a_message_is_returned_as_a_batch_header() -> None:
    header = read_header(log(wrapper(one(2, 1), 2, 1, 3, time=77, append_time=True)))
    assert (header.base_offset, header.last_offset, header.count) == (2, 2, 1)
    assert (header.magic, header.codec, header.max_timestamp) == (1, 3, 77)
    assert header.log_append_time
    odd = read_header(log(message(4, 0, None, b"v", attributes=0x38)))
    assert (odd.log_append_time, odd.transactional, odd.control) == (False, False, False)


def test_a_decompression_bomb_is_rejected_before_it_uses_memory() -> None:
    inner = bytes(message(0, 1, None, bytes(100 * MB)))
    bomb = wrapper(b"", 0, 1, 1, packed=compress(1, None, memoryview(inner)))
    del inner
    with peak_below(2 * FREE_OF_RATIO), pytest.raises(RecordLimitError, match=r"max\.decomp"):
        decode(log(bomb), start_offset=0, limits=Limits(ratio=10))


def test_a_wrapper_with_too_many_messages_is_rejected() -> None:
    inner = b"".join(message(i, 1, None, None) for i in range(11))
    assert len(rows(log(wrapper(inner, 10, 1, 1)), limits=Limits(records=11))) == 11
    with pytest.raises(RecordLimitError, match=r"it has 11 records, but max\.records"):
        decode(log(wrapper(inner, 10, 1, 1)), start_offset=0, limits=Limits(records=10))

"""Test the native decoder: errors, memory, rows.

Its agreement with the Python decoder on any input is tested in tests/property/record.
"""

from __future__ import annotations

import gc
import importlib.util
import random
import re
import shutil
import struct
import sys
import threading
from array import array
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import google_crc32c
import pytest
from tests.fuzz.services import text_hash

from odradek.clients.consumer.records import ConsumerRecord
from odradek.common.errors import CorruptRecordError
from odradek.record import kernel_sources, reference
from odradek.record.arrow import arrow_columns, to_record_batch
from odradek.record.batch import CRC_START, crc32c
from odradek.record.columns import BinaryColumn, Headers, RecordColumns, Row, ViewColumn
from odradek.record.reference import encode
from odradek.record.rows import build_rows
from odradek.record.survey import survey_batches
from odradek.record.varint import write_varint

COMPILERS = [name for name in ("cc", "gcc", "clang") if shutil.which(name)]


def test_the_native_kernels_are_built_if_a_c_compiler_is_installed() -> None:
    if COMPILERS or importlib.util.find_spec("ziglang"):
        assert kernel_sources.kernel_warning() is None


if isinstance(kernel_sources.load(kernel_sources.DECODER), str):
    pytest.skip("the native kernel isn't built", allow_module_level=True)

from odradek.record import kernel  # noqa: E402 - importing the source of one that isn't built fails

NULLS = ((None, None), (b"k", None), (None, b"v"), (b"", b""), (b"key" * 9, b"value" * 30))
HEADERS: tuple[Headers, ...] = (
    (),
    (("a", b"1"),),
    (("a", None), ("ü", b"")),
    (("", b"x" * 300), ("a", None)),
)


@pytest.fixture
def empty_pool() -> Iterator[None]:
    """Empty the pool of memory blocks before the test, and restore its limit afterwards."""
    gc.collect()
    limit = kernel.pool_state()[1]
    kernel.set_pool_limit(0)
    kernel.set_pool_limit(limit)
    yield
    kernel.set_pool_limit(limit)


def row(offset: int, headers: Headers = ()) -> Row:
    key, value = NULLS[offset % len(NULLS)]
    return (offset, 1_700_000_000_000 + offset, 0, key, value, headers)


def batches(*counts: int, codec: str | None = None, headers: bool = False) -> memoryview:
    parts, at = [], 0
    for count in counts:
        rows = [row(i, HEADERS[i % len(HEADERS)] if headers else ()) for i in range(at, at + count)]
        parts.append(encode(rows, compression=codec))
        at += count
    return memoryview(b"".join(parts))


def same(buffer: memoryview, **options: Any) -> None:
    expected = reference.decode(buffer, **options)
    found = kernel.decode(buffer, **options)
    assert list(found.columns) == list(expected.columns)
    for name in ("next_offset", "finished", "batches", "bytes_consumed", "needed_bytes"):
        assert getattr(found, name) == getattr(expected, name)
    for name in ("keys", "values"):
        mine, theirs = getattr(found.columns, name), getattr(expected.columns, name)
        assert (mine is None) == (theirs is None)
        if mine is not None:
            assert bytes(mine.data) == bytes(theirs.data)
            assert bytes(mine.offsets) == bytes(theirs.offsets)
            assert (mine.validity and bytes(mine.validity)) == theirs.validity


@pytest.mark.slow
def test_rows_much_smaller_or_larger_than_earlier_rows_are_decoded() -> None:
    """Buffer sizes are estimated from the last batches; a wrong estimate must have no effect."""
    for size in (0, 1, 5_000, 3, 200_000, 90, 1):
        rows: list[Row] = [
            (i, 5, 0, b"k" * (size // 2), b"v" * size, (("h", b"x" * size),)) for i in range(70)
        ]
        for codec in (None, "lz4"):
            same(memoryview(encode(rows, compression=codec)), start_offset=0)


def with_records(records: bytes, count: int = 1, base_time: int = 0) -> memoryview:
    """Build a batch of hand-written record bytes; its base offset is 3."""
    batch = bytearray(encode([(3, base_time, 0, None, b"", ())])[:61]) + records
    struct.pack_into(">i", batch, 8, len(batch) - 12)
    struct.pack_into(">i", batch, 23, max(0, count - 1))
    struct.pack_into(">i", batch, 57, count)
    struct.pack_into(">I", batch, 17, crc32c(bytes(batch[CRC_START:])))
    return memoryview(bytes(batch))


def record(*parts: bytes, length: int | None = None) -> bytes:
    body = b"\0" + b"".join(parts)
    return write_varint(len(body) if length is None else length) + body


Z, N = write_varint(0), write_varint(-1)


def test_a_large_record_count_allocates_no_memory() -> None:
    """Memory is allocated for at most as many rows as the batch's bytes can contain."""

    def peak() -> int:
        (line,) = re.findall(r"VmPeak:\s+(\d+) kB", Path("/proc/self/status").read_text())
        return int(line) << 10

    batch = with_records(record(Z, Z, N, N, Z), count=(1 << 31) - 1)
    before = peak()
    with pytest.raises(CorruptRecordError, match="runs past its end"):
        kernel.decode(batch, start_offset=0)
    assert peak() - before < 1 << 30


def test_timestamps_that_overflow_64_bits_are_rejected() -> None:
    batch = with_records(record(write_varint(1), Z, N, N, Z), base_time=(1 << 63) - 1)
    for decode in (kernel.decode, reference.decode):
        with pytest.raises(CorruptRecordError, match="timestamp doesn't fit into 64 bits"):
            decode(batch, start_offset=0)
    batch = with_records(record(write_varint(-1), Z, N, N, Z), base_time=-(1 << 63))
    with pytest.raises(CorruptRecordError, match="timestamp doesn't fit into 64 bits"):
        kernel.decode(batch, start_offset=0)


def test_a_corrupt_batch_leaves_nothing_in_the_columns() -> None:
    """Nulls and headers of the corrupt batch that were already stored are removed again."""
    good = encode([(i, 5, 0, b"k", b"v", (("h", b"1"),)) for i in range(3)])
    bad_records = record(Z, Z, N, N, write_varint(1), b"\x02h", N) + b"\x80"
    bad = bytearray(with_records(bad_records, 2))
    for buffer in (good + bad, encode([(i, 5, 0, b"k", b"v", ()) for i in range(3)]) + bad):
        same(memoryview(buffer), start_offset=0)
        found = kernel.decode(memoryview(buffer), start_offset=0).columns
        assert found.count == 3
        assert found.keys is not None
        assert found.keys.validity is None


def test_columns_can_be_used_after_the_buffer_and_other_columns_are_deleted() -> None:
    source = bytearray(batches(900, headers=True))
    expected = list(reference.decode(memoryview(bytes(source)), start_offset=0).columns)
    columns = kernel.decode(memoryview(source), start_offset=0).columns
    source[:] = bytes(len(source))
    assert list(columns) == expected
    assert isinstance(columns.values, BinaryColumn)
    data, wanted = columns.values.data, bytes(columns.values.data)
    del columns
    for _ in range(50):
        kernel.decode(batches(1_000), start_offset=0)
    assert bytes(data) == wanted


def test_columns_are_read_only() -> None:
    columns = kernel.decode(batches(900), start_offset=0).columns
    assert isinstance(columns.values, BinaryColumn)
    for buffer in (columns.offsets, columns.values.data, columns.values.offsets):
        view = memoryview(buffer)
        assert view.readonly
        assert view.contiguous
        with pytest.raises(
            (BufferError, TypeError)
        ):  # request a writable buffer from the memory's owner
            struct.pack_into("B", view.obj, 0, 255)
    assert [memoryview(b).format for b in (columns.offsets, columns.values.offsets)] == ["q", "i"]
    assert columns.offsets[0] == 0


@pytest.mark.usefixtures("empty_pool")
def test_memory_blocks_are_returned_to_the_pool_and_reused() -> None:
    buffer = batches(5_000)
    held, limit, lent, _, misses = kernel.pool_state()
    assert held == 0 < limit
    first = kernel.decode(buffer, start_offset=0)
    assert kernel.pool_state()[0] == 0
    assert kernel.pool_state()[2] > lent + len(buffer) // 2
    assert kernel.pool_state()[4] > misses
    view = memoryview(first.columns.offsets)[3:]
    del first
    gc.collect()
    assert 0 < kernel.pool_state()[0] <= limit
    before = kernel.pool_state()[3]
    second = kernel.decode(buffer, start_offset=0)
    assert kernel.pool_state()[3] > before
    assert view[0] == 3
    assert list(second.columns.offsets) == list(range(5_000))
    del view, second
    assert kernel.pool_state()[2] == lent


@pytest.mark.usefixtures("empty_pool")
def test_the_pool_of_memory_blocks_respects_its_limit_and_frees_unused_blocks() -> None:
    small, large = batches(3_000), batches(30_000)
    kernel.set_pool_limit(1 << 20)
    for buffer in (small, large, small, large):
        found = kernel.decode(buffer, start_offset=0)
        assert kernel.pool_state()[0] <= 1 << 20
        del found
        assert 0 < kernel.pool_state()[0] <= 1 << 20
    kernel.set_pool_limit(0)
    assert kernel.pool_state()[0] == 0
    kernel.decode(small, start_offset=0)
    assert kernel.pool_state()[0] == 0


def test_several_threads_can_decode_at_once() -> None:
    sets = [
        batches(800, 20, codec=codec, headers=h) for codec in (None, "lz4") for h in (False, True)
    ]
    wanted = [list(reference.decode(one, start_offset=0).columns) for one in sets]
    wrong: list[int] = []

    def work(number: int) -> None:
        for turn in range(40):
            which = (number + turn) % len(sets)
            if list(kernel.decode(sets[which], start_offset=0).columns) != wanted[which]:
                wrong.append(which)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


@pytest.mark.parametrize("codec", [None, "lz4"])
def test_binary_views_refer_to_the_response_buffer_and_keep_it_alive(codec: str | None) -> None:
    buffer = batches(300, 40, codec=codec, headers=True)
    mixed = memoryview(bytes(batches(3)) + bytes(batches(50, codec="lz4")))
    for source, options in (
        (buffer, {}),
        (buffer, {"start_offset": 7, "until_offset": 320}),
        (buffer, {"want_key": False}),
        (mixed, {"start_offset": 1}),
        (buffer[:0], {}),
    ):
        wanted: dict[str, Any] = {"start_offset": 0, **options}
        expected = list(reference.decode(source, **wanted).columns)
        for decode in (kernel.decode, reference.decode):
            columns = decode(source, **wanted, layout="binary_view").columns
            assert list(columns) == expected
            assert isinstance(columns.values, ViewColumn)
            assert (columns.keys is None) == (options.get("want_key") is False)
            arrow = to_record_batch(columns, "t", 0, names=["value"], layout="binary_view")
            arrow.validate(full=True)
            assert arrow.column("value").to_pylist() == [row[4] for row in expected]
    values = kernel.decode(buffer, start_offset=0, layout="binary_view").columns.values
    assert isinstance(values, ViewColumn)
    if codec is None:
        assert len(values.buffers) == 1
        assert memoryview(values.buffers[0]).obj is buffer.obj
    else:
        assert values.buffers[0] == b""  # the values are in decompressed memory
    with pytest.raises(ValueError, match="unknown layout 'wide'"):
        kernel.decode(buffer, start_offset=0, layout="wide")  # type: ignore[arg-type]


@pytest.mark.parametrize("headers", [False, True])
def test_rows_are_built_as_named_tuples(headers: bool) -> None:
    buffer = batches(300, headers=headers)
    for decode in (kernel.decode, reference.decode):
        columns = decode(buffer, start_offset=0).columns.slice(7, 290)
        for epochs in (4, list(range(283))):
            found = kernel.build_rows(ConsumerRecord, "t", 1, columns, epochs)
            assert found == build_rows(ConsumerRecord, "t", 1, columns, epochs)
            assert type(found[0]) is ConsumerRecord
    bare = kernel.decode(buffer, start_offset=0, want_key=False, want_value=False).columns
    assert kernel.build_rows(ConsumerRecord, "t", 1, bare, 0)[9][4:7] == (0, None, None)
    assert kernel.build_rows(ConsumerRecord, "t", 1, bare.slice(5, 5), 0) == []


def test_a_row_keeps_only_its_own_values_alive() -> None:
    topic, columns = str(random.random()), kernel.decode(batches(50), start_offset=0).columns
    before = sys.getrefcount(topic)
    found = kernel.build_rows(ConsumerRecord, topic, 0, columns, 0)
    assert sys.getrefcount(topic) == before + 50
    kept = found.pop()
    del found
    assert sys.getrefcount(topic) == before + 1
    assert kept.value == columns.rows(49).__next__()[4]
    assert not gc.is_tracked(kept)


def test_building_rows_needs_a_named_tuple_class_and_complete_columns() -> None:
    columns = kernel.decode(batches(5), start_offset=0).columns
    for cls in (list, memoryview):  # both classes have items, but aren't named tuples
        with pytest.raises(TypeError, match="isn't a named tuple"):
            kernel.build_rows(cls, "t", 0, columns, 0)  # type: ignore[type-var]
    with pytest.raises(IndexError, match="shorter"):
        kernel.build_rows(ConsumerRecord, "t", 0, columns, [1, 2])
    with pytest.raises(IndexError, match="entries 0 to 9 of 5"):
        assert columns.values is not None
        columns.values.values(0, 9)


def test_integer_columns_are_converted_for_arrow() -> None:
    largest = ((1 << 63) - 1) // 1000
    for times, fits in (
        ([0, -1, 1_700_000_000_000, largest, -largest], True),
        ([0, largest + 1], False),
        ([-largest - 1], False),
        ([], True),
    ):
        for start in range(len(times)):
            found = kernel.microseconds(array("q", times), start, len(times) - start)
            wanted = [1000 * time for time in times[start:]]
            assert (found is not None) is (fits or max(map(abs, times[start:])) <= largest)
            assert found is None or list(found) == wanted
    assert list(kernel.wide_types(b"\0\1\0\1", 1, 3) or ()) == [1, 0, 1]
    for start, count in ((-1, 1), (0, 3), (2, 1), (1, 1 << 62), (0, -1), (2, -1)):
        with pytest.raises(IndexError, match="fewer timestamps"):
            kernel.microseconds(array("q", [1, 2]), start, count)
        with pytest.raises(IndexError, match="fewer timestamp types"):
            kernel.wide_types(b"\0\1", start, count)


def test_an_arrow_batch_returns_its_memory_to_the_pool(empty_pool: None) -> None:
    wanted, before = arrow_columns(), kernel.pool_state().lent
    columns = kernel.decode(batches(300), start_offset=0).columns
    decoded = kernel.pool_state().lent
    made = kernel.arrow_batch(columns, b"kvtpomy", "a-topic", 7)
    assert made is not None
    assert kernel.pool_state().lent > decoded > before
    del made  # frees its memory, as no Arrow array uses it
    assert kernel.pool_state().lent == decoded
    kept = [to_record_batch(columns, "a-topic", 7, wanted=wanted) for _ in range(3)]
    column = kept[0].column("offset")
    del columns
    kept.clear()
    assert kernel.pool_state().lent > decoded  # one column keeps its whole batch's memory
    thread = threading.Thread(target=lambda held: held.clear(), args=([column],))
    del column
    thread.start()
    thread.join()
    assert kernel.pool_state().lent == before


def test_the_kernel_builds_no_batch_from_columns_that_only_pyarrow_can_build() -> None:
    columns = kernel.decode(batches(9), start_offset=0).columns
    late: list[Row] = [(0, 1 << 62, 0, b"k", b"v", ())]
    views = kernel.decode(batches(9), start_offset=0, layout="binary_view").columns
    bare = kernel.decode(batches(9), start_offset=0, want_key=False).columns
    large: list[Row] = [(n, 1, 0, b"k", bytes(1 << 17), ()) for n in range(3)]
    others = RecordColumns(
        *(2, array("q", [1, 2]), array("q", [1, 2]), b"\0\0"),
        *(BinaryColumn(array("i", [0, 1, 2]), b"kk"), BinaryColumn(array("i", [0, 1, 2]), b"vv")),
        None,
    )
    for left, letters in (
        (columns.slice(3, 3), b"o"),
        (kernel.decode(memoryview(encode(late)), start_offset=0).columns, b"om"),
        (kernel.decode(memoryview(encode(large)), start_offset=0).columns, b"kv"),
        *((views, b"v"), (bare, b"k"), (others, b"kv")),
    ):
        before = kernel.pool_state().lent
        assert kernel.arrow_batch(left, letters, "t", 0) is None
        assert kernel.pool_state().lent == before


def test_if_an_arrow_batch_cannot_be_built_its_memory_is_returned_to_the_pool() -> None:
    columns = kernel.decode(batches(9), start_offset=0).columns
    before = kernel.pool_state().lent
    for kind, letters, text in (
        (ValueError, b"x", "unknown column 'x'"),
        (ValueError, b"kkkk", "a column is named twice"),
        (TypeError, None, "wanted"),
    ):
        with pytest.raises(kind, match=text):
            kernel.arrow_batch(columns, letters, "t", 0)  # type: ignore[arg-type]
    columns.count += 1000  # a row count that no decoder would return
    for letter in b"kvomy":
        with pytest.raises(IndexError, match="bytes, but needs"):
            kernel.arrow_batch(columns, bytes((letter,)), "t", 0)
    assert kernel.pool_state().lent == before


def test_native_and_python_code_return_the_same_for_the_batch_headers_in_a_response() -> None:
    rng = random.Random(3)
    whole = bytes(batches(3, 20, 1, 50, codec="zstd"))
    for cut in range(0, len(whole), 7):
        view = memoryview(whole[:cut])
        assert kernel.survey_batches(view, 2) == survey_batches(view, 2)
    for _ in range(2_000):
        changed = bytearray(whole)
        changed[rng.randrange(27)] = rng.choice((0, 1, 127, 128, 255))
        view = memoryview(changed)
        assert kernel.survey_batches(view, 0) == survey_batches(view, 0)


@pytest.mark.parametrize(
    "size", [0, 1, 7, 8, 767, 768, 769, 4031, 4032, 4033, 24_191, 24_192, 24_193, 50_001]
)
def test_crc32c_equals_that_of_google_crc32c(size: int) -> None:
    data = random.Random(size).randbytes(size + 3)
    for start in range(3):
        part = memoryview(data)[start : start + size]
        wanted = google_crc32c.value(part.tobytes())
        assert kernel.crc32c(part) == kernel.crc32c_by_table(part) == wanted


@pytest.mark.parametrize("kept", [0, 1, 7, 8, 9, 63, 64, 65, 1000])
def test_text_hashes_equal_those_of_the_python_implementation(kept: int) -> None:
    data = random.Random(kept).randbytes(kept + 40)
    offsets = array("q", [3, 3, 3 + kept, 20 + kept, 20 + kept])
    found = array("Q", [1] * 4)
    kernel.text_hashes(data, offsets, found)
    assert list(found) == [text_hash(data[a:b]) for a, b in pairwise(offsets)]


@pytest.mark.parametrize(
    "offsets", [[0, 5], [0, 3, 2, 5], [-1, 2], [4, 5, 6], [0, -(1 << 63), 0], [0, (1 << 63) - 1]]
)
def test_text_hashes_reject_offsets_out_of_bounds(offsets: list[int]) -> None:
    found = array("Q", [0] * (len(offsets) - 1))
    with pytest.raises(ValueError, match=r"entry \d isn't within the 4 bytes"):
        kernel.text_hashes(memoryview(b"12345678")[:4], array("q", offsets), found)


@pytest.mark.parametrize("count", [0, 1, 3])
def test_text_hashes_reject_a_wrong_number_of_offsets(count: int) -> None:
    with pytest.raises(ValueError, match=f"3 offsets for {count} entries"):
        kernel.text_hashes(b"1234", array("q", [0, 1, 4]), array("Q", [0] * count))


def test_raw_headers_are_never_read_beyond_their_column() -> None:
    data = b"\x02a\x02b" + b"\x02c\x01"
    ends = array("i", (0, 4, 4, 7))
    both = [(("a", b"b"),), (), (("c", None),)]
    assert kernel.header_lists(ends, data, 0, 3) == both
    assert kernel.header_lists(ends, data, 2, 3) == both[2:]
    assert kernel.header_lists(array("i", (0, 0)), b"", 0, 1) == [()]
    for start, stop in ((-1, 1), (2, 1), (0, 4), (3, 2)):
        with pytest.raises(IndexError, match=f"rows {start} to {stop} of 3"):
            kernel.header_lists(ends, data, start, stop)
    for wrong in ((-1, 4), (0, 8), (4, 0, 4), (0, 8, 7), (0, 4, -4)):
        with pytest.raises(ValueError, match="a column's offsets"):
            kernel.header_lists(array("i", wrong), data, 0, len(wrong) - 1)


@pytest.mark.parametrize(
    "raw",
    [
        b"\x80",  # the varint of the name's length doesn't end
        b"\x01\x00",  # a name of -1 bytes
        b"\x08abc",  # a name longer than the remaining bytes
        b"\x02a",  # the length of the value is missing
        b"\x02a\x03",  # a value of -2 bytes
        b"\x02a\x04b",  # a value longer than the remaining bytes
        b"\x02a\x02b" * 40 + b"\x02a\x04b",
    ],
)
def test_malformed_raw_headers_are_rejected(raw: bytes) -> None:
    ends = array("i", (0, len(raw)))
    with pytest.raises(ValueError, match="aren't the headers"):
        for each in kernel.header_lists(ends, raw + b"bcdefgh", 0, 1):
            tuple(each)  # reading the headers parses them


def test_the_row_class_for_unparsed_headers_must_be_a_named_tuple_too() -> None:
    columns = kernel.decode(batches(5), start_offset=0).columns
    for read, unread in ((ConsumerRecord, list), (list, ConsumerRecord)):
        with pytest.raises(TypeError, match="isn't a named tuple"):
            kernel.build_rows(read, "t", 0, columns, 0, unread)  # type: ignore[type-var]


@pytest.mark.parametrize("count", [16, 17])
def test_up_to_16_headers_of_a_record_are_parsed_with_the_record(count: int) -> None:
    raw = b"\x02h\x02v" * count
    (found,) = kernel.header_lists(array("i", (0, len(raw))), raw, 0, 1)
    assert (type(found) is tuple) == (count == 16)
    assert tuple(found) == (("h", b"v"),) * count

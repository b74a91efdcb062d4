"""Test the encoding of columns into batches: partitions, reasons to stop, invalid columns."""

from __future__ import annotations

import threading
from array import array
from collections.abc import Sequence
from typing import Any

import pytest
from tests.unit.record.implementations import Encoding

from odradek.common.errors import ConfigurationError, RecordTooLargeError
from odradek.record import (
    Encoded,
    InvalidRowError,
    Piece,
    SentBinary,
    SentColumns,
    SentHeaders,
    SentNumbers,
    StopReason,
    decode,
    partition_for_key,
)

NOW = 1_700_000_000_000
PLENTY = 1 << 40
Headers = tuple[tuple[str, bytes | None], ...]


def bitmap(present: Sequence[bool], start: int) -> bytes | None:
    if all(present):
        return None
    bits = bytearray((start + len(present) + 7) // 8)
    for i, there in enumerate(present, start):
        bits[i >> 3] |= there << (i & 7)
    return bytes(bits)


def binary(
    entries: Sequence[bytes | None], *, wide: bool = False, start: int = 0, gap: int = 0
) -> SentBinary:
    """Build a binary column as Arrow does; at random, as a slice of a larger column."""
    ends = array("q" if wide else "i", [0] * start + [gap])
    data = bytearray(gap)
    for entry in entries:
        data += entry or b""
        ends.append(len(data))
    present = [entry is not None for entry in entries]
    return SentBinary(ends.tobytes(), bytes(data), bitmap(present, start), start, wide)


def numbers(kind: str, entries: Sequence[int | None], start: int = 0) -> SentNumbers:
    data = array(kind, [-9] * start + [-7 if entry is None else entry for entry in entries])
    present = [entry is not None for entry in entries]
    return SentNumbers(data.tobytes(), bitmap(present, start), start)


def headers(rows: Sequence[Headers | None], *, wide: bool = False, start: int = 0) -> SentHeaders:
    entries = [entry for row in rows for entry in row or ()]
    ends = array("q" if wide else "i", [0] * (start + 1))
    for row in rows:
        ends.append(ends[-1] + len(row or ()))
    return SentHeaders(
        ends.tobytes(),
        binary([name.encode() for name, _ in entries], start=start),
        binary([value for _, value in entries], wide=wide),
        len(entries),
        bitmap([row is not None for row in rows], start),
        start,
        wide,
    )


def columns(count: int, **changes: Any) -> SentColumns:
    values: list[bytes | None] = [b"value %d" % i for i in range(count)]
    keys: list[bytes | None] = [b"key %d" % i for i in range(count)]
    return SentColumns(count, binary(values), binary(keys))._replace(**changes)


def encoder(use: Encoding, sent: SentColumns, partitions: int = 4, limit: int = 1 << 20) -> Any:
    return use.ColumnEncoder(sent, partitions, limit)


def all_rows(use: Encoding, made: Any, partitions: int = 4, **options: Any) -> list[Any]:
    """Encode all rows into one large batch per partition and return the rows of each."""
    builders = [use.BatchBuilder(1 << 24, None) for _ in range(partitions)]
    for partition, builder in enumerate(builders):
        made.use(partition, builder)
    settings: dict[str, Any] = {"timestamp_ms": NOW, "room": PLENTY}
    found = made.encode(0, made.count, **(settings | options))
    assert found[:2] == (made.count, StopReason.DONE)
    assert found.added_bytes == sum(one.estimated_size - 61 for one in builders)
    return [
        list(decode(one.build(), start_offset=0).columns) if one.count else [] for one in builders
    ]


@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("start", [0, 3, 17])
def test_encoded_rows_can_be_decoded_from_their_partitions(
    use: Encoding, start: int, wide: bool
) -> None:
    keys = [None, b"", b"k", b"key" * 50, *(b"%d" % n for n in range(40))]
    values = [b"v" * n if n % 5 else None for n in range(44)]
    lists: list[Headers | None] = [None, (), (("a", b"1"), ("ü", None))] * 14 + [(("", b""),)] * 2
    times = [NOW + n * (-1) ** n if n % 3 else None for n in range(44)]
    places = [n % 4 if n % 7 == 0 else None for n in range(44)]
    sent = SentColumns(
        44,
        binary(values, wide=wide, start=start, gap=5),
        binary(keys, wide=wide, start=start),
        headers(lists, wide=wide, start=start),
        numbers("i", places, start),
        numbers("q", times, start),
    )
    expected: list[list[Any]] = [[], [], [], []]
    for n, key in enumerate(keys):
        place = places[n]
        if place is None:
            place = 2 if key is None else partition_for_key(key, 4)
        time = times[n]
        rows = expected[place]
        at = NOW if time is None else time
        rows.append((len(rows), at, 0, key, values[n], tuple(lists[n] or ())))
    assert all_rows(use, encoder(use, sent), sticky=2, sticky_room=PLENTY) == expected


def test_without_key_value_and_header_columns_every_record_is_empty(use: Encoding) -> None:
    rows = all_rows(use, encoder(use, SentColumns(3, None)), sticky=1, sticky_room=PLENTY)
    assert rows == [[], [(i, NOW, 0, None, None, ()) for i in range(3)], [], []]


def test_encoding_zero_rows_ends_at_once(use: Encoding) -> None:
    nothing = SentBinary(b"", b"")
    sent = SentColumns(0, nothing, nothing, SentHeaders(b"", nothing, nothing, 0))
    assert encoder(use, sent).encode(0, 0, timestamp_ms=NOW, room=0) == Encoded(
        0, StopReason.DONE, -1, 0, 0, 0
    )


def test_the_encoder_stops_at_a_full_batch_and_reports_the_rows_added_to_each_batch(
    use: Encoding,
) -> None:
    sent = columns(100, partitions=numbers("i", [0, 1] * 50))
    made = encoder(use, sent)
    stop = made.encode(0, 100, timestamp_ms=NOW, room=PLENTY)
    assert stop == Encoded(0, StopReason.BATCH, 0, 36 + 5 + 7, 0, 0)
    first = use.BatchBuilder(200, None)
    assert made.use(0, first) is None
    assert made.use(1, use.BatchBuilder(1 << 20, None)) is None
    stop = made.encode(0, 100, timestamp_ms=NOW, room=PLENTY)
    assert stop[:3] == (14, StopReason.BATCH, 0)
    assert first.count == 7
    assert first.append(b"k" * 5, b"v" * 8, (), NOW) is None
    second = use.BatchBuilder(1 << 20, None)
    assert second.append(None, b"another caller's", (), NOW) == 0
    assert made.use(0, second) == Piece(0, 0, 7)
    stop = made.encode(14, 20, timestamp_ms=NOW, room=PLENTY)
    assert stop[:2] == (20, StopReason.DONE)
    assert made.pieces() == [Piece(0, 1, 3), Piece(1, 0, 10)]
    assert made.pieces() == []
    stop = made.encode(20, 24, timestamp_ms=NOW, room=PLENTY)
    # After another caller's append the encoder stops; the same batch can be passed to it again.
    assert second.append(None, b"", (), NOW) == 6
    stop = made.encode(24, 100, timestamp_ms=NOW, room=PLENTY)
    assert stop[:3] == (24, StopReason.BATCH, 0)
    assert made.use(0, second) == Piece(0, 4, 2)
    assert made.encode(24, 30, timestamp_ms=NOW, room=PLENTY).reason is StopReason.DONE
    assert made.pieces() == [Piece(0, 7, 3), Piece(1, 10, 5)]
    second.close()
    stop = made.encode(30, 100, timestamp_ms=NOW, room=PLENTY)
    assert stop[:3] == (30, StopReason.BATCH, 0)


def test_the_encoder_stops_after_the_row_that_fills_a_batch(use: Encoding) -> None:
    made = encoder(use, columns(3, keys=None))
    big = use.BatchBuilder(50, None)
    made.use(0, big)
    options: dict[str, Any] = {"timestamp_ms": NOW, "sticky": 0, "sticky_room": PLENTY}
    stop = made.encode(0, 3, room=PLENTY, **options)
    size = big.estimated_size - 61
    assert stop == Encoded(1, StopReason.FULL, 0, 0, size, size)
    exact = use.BatchBuilder(61 + 2 * size, None)
    made.use(0, exact)
    assert made.encode(0, 3, room=PLENTY, **options)[:3] == (2, StopReason.FULL, 0)
    assert exact.estimated_size == exact.limit_bytes


def test_encoding_stops_when_memory_or_the_sticky_partitions_byte_budget_is_used_up(
    use: Encoding,
) -> None:
    made = encoder(use, columns(10, keys=None))
    builder = use.BatchBuilder(1 << 20, None)
    made.use(3, builder)
    estimate = 36 + 7
    nothing = made.encode(0, 10, timestamp_ms=NOW, room=estimate - 1, sticky=3, sticky_room=1)
    assert nothing == Encoded(0, StopReason.ROOM, -1, estimate, 0, 0)
    one = made.encode(0, 10, timestamp_ms=NOW, room=estimate, sticky=3, sticky_room=99)
    assert one.row == 1
    assert one.reason is StopReason.ROOM
    two = made.encode(1, 10, timestamp_ms=NOW, room=PLENTY, sticky=3, sticky_room=15)
    assert two[:3] == (3, StopReason.STICKY, -1)
    assert two.sticky_bytes == two.added_bytes == builder.estimated_size - 61 - one.added_bytes
    assert made.encode(3, 10, timestamp_ms=NOW, room=PLENTY).reason is StopReason.STICKY


def test_with_ignore_keys_all_rows_go_to_the_sticky_partition(use: Encoding) -> None:
    made = use.ColumnEncoder(columns(5), 4, 1 << 20, ignore_keys=True)
    rows = all_rows(use, made, sticky=3, sticky_room=PLENTY)
    assert [len(one) for one in rows] == [0, 0, 0, 5]
    assert rows[3][0][3] == b"key 0"


def test_a_record_that_is_too_large_is_reported_before_any_record_is_encoded(use: Encoding) -> None:
    sent = columns(3, values=binary([b"", b"x" * 60, b""]), first_row=1000)
    assert encoder(use, sent, limit=36 + 5 + 60).count == 3
    with pytest.raises(RecordTooLargeError, match=r"row 1001: a record of up to 101 bytes .*100"):
        encoder(use, sent, limit=36 + 5 + 60 - 1)
    many = columns(1, headers=headers([(("a" * 50, b"b" * 40),)]))
    with pytest.raises(RecordTooLargeError, match="row 0: a record of up to 148"):
        encoder(use, many, limit=147)


def invalid(column: SentBinary, **changes: Any) -> SentBinary:
    return column._replace(**changes)


GOOD = binary([b"one", b"two", b"three"])
HEADED = headers([(("a", b"1"),), (("b", None), ("c", b"2")), None])
FAR = 1 << 62


@pytest.mark.parametrize("where", ["values", "keys"])
@pytest.mark.parametrize(
    ("column", "message"),
    [
        (invalid(GOOD, offsets=array("i", [0, 3, 2, 11])), "row 1: .*offsets 3 and 2"),
        (invalid(GOOD, offsets=array("i", [0, 3, 6, 12])), "row 2: .*11 bytes"),
        (invalid(GOOD, offsets=array("i", [-1, 3, 6, 11])), "row 0: .*offsets -1"),
        (invalid(GOOD, offsets=array("i", [0, -(2**31), 2**31 - 1, 11])), "row 0"),
        (invalid(GOOD, offsets=array("q", [0, 3, FAR, 11]), wide=True), "row 1: .*offsets 3 and"),
        (invalid(GOOD, offsets=array("q", [0, -FAR, 2 * FAR - 1, 11]), wide=True), "row 0"),
        (invalid(GOOD, offsets=array("q", [-FAR, FAR, 1, 11]), wide=True), "row 0"),
        (invalid(GOOD, offsets=array("i", [0, 3, 6])), "too short for 4 numbers from 0"),
        (invalid(GOOD, offsets=bytes(15)), "too short"),
        (invalid(GOOD, offsets=b""), "too short"),
        (invalid(GOOD, wide=True), "too short"),
        (invalid(GOOD, start=1), "too short for 4 numbers from 1"),
        (invalid(GOOD, start=-1), "too short"),
        (invalid(GOOD, start=FAR), "too short"),
        (invalid(GOOD, start=2 * FAR - 1), "too short"),
        (invalid(GOOD, start=-2 * FAR), "too short"),
        (invalid(GOOD, data=b"onetwo"), "row 2: .*6 bytes"),
        (invalid(GOOD, validity=b""), "bitmap is too short"),
        (invalid(binary([b""] * 3, start=6), validity=b"\xff"), "bitmap is too short"),
    ],
)
def test_invalid_binary_columns_are_rejected(
    use: Encoding, where: str, column: SentBinary, message: str
) -> None:
    with pytest.raises(InvalidRowError, match=message):
        encoder(use, columns(3, **{where: column}))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"offsets": array("i", [0, 1, 4, 3])}, "row 1: column headers: .*1 and 4"),
        ({"offsets": array("i", [0, 2, 1, 3])}, "row 1: column headers: .*2 and 1"),
        ({"offsets": array("i", [-1, 0, 1, 1])}, "row 0: column headers: .*-1 and 0"),
        ({"offsets": array("i", [0, 1, 3])}, "column headers: .*too short"),
        ({"entries": 2}, "row 1: .*2 entries"),
        ({"entries": 4}, "column headers.key: .*too short"),
        ({"entries": -1}, "headers: the number of entries is -1"),
        ({"validity": b""}, "column headers: .*bitmap"),
        ({"keys": binary([b"a", None, b"c"])}, "row 1: a header has no key"),
        ({"keys": binary([b"a", b"b", b"\xc3"])}, "row 1: the key of a header isn't UTF-8"),
        ({"keys": binary([b"a", b"\xed\xa0\x80", b"c"])}, "row 1: the key of a header isn't"),
        ({"keys": binary([b"a", b"\xc0\x80", b"c"])}, "row 1: the key of a header isn't"),
        ({"keys": binary([b"a", b"\xf5\x80\x80\x80", b"c"])}, "row 1: the key of a header isn't"),
        ({"keys": binary([b"\xc3", b"\x80", b"c"])}, "row 0: the key of a header isn't"),
        (
            {"values": invalid(binary([b"1", None, b"2"]), offsets=array("i", [0, 1, 1, 3]))},
            "row 1: column headers.value: its offsets 1 and 3",
        ),
    ],
)
def test_invalid_headers_are_rejected(use: Encoding, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidRowError, match=message):
        encoder(use, columns(3, headers=HEADED._replace(**changes)))


def test_offsets_of_null_rows_are_ignored(use: Encoding) -> None:
    odd = invalid(GOOD, offsets=array("i", [0, 3, 2, 11]), validity=b"\x01")
    rows = all_rows(use, encoder(use, columns(3, values=odd)))
    assert sorted(row[4] or b"" for one in rows for row in one) == [b"", b"", b"one"]
    lists = HEADED._replace(offsets=array("i", [0, 9, -9, 3]).tobytes(), validity=b"\0")
    assert all(
        not row[5] for one in all_rows(use, encoder(use, columns(3, headers=lists))) for row in one
    )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"partitions": numbers("i", [0, 3, 4])}, "row 2: .*partitions 0 to 3, not 4"),
        ({"partitions": numbers("i", [0, -1, 0])}, "row 1: .*not -1"),
        ({"partitions": numbers("i", [0, 1])}, "column partition: .*too short"),
        ({"timestamps_ms": numbers("q", [0, -1, -2])}, "row 2: its timestamp is -2 ms"),
        ({"timestamps_ms": numbers("q", [0, -(2**63), 0])}, "row 1: its timestamp"),
        ({"timestamps_ms": numbers("i", [0, 0, 0])}, "column timestamp: .*too short"),
    ],
)
def test_invalid_partition_and_timestamp_columns_are_rejected(
    use: Encoding, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidRowError, match=message) as caught:
        encoder(use, columns(3, **changes))
    assert caught.value.row is None or f"row {caught.value.row}:" in str(caught.value)


def test_the_partition_of_each_row_is_returned(use: Encoding) -> None:
    keys = [None if n % 3 == 0 else b"%d" % n for n in range(40)]
    named = [n % 4 if n % 5 == 0 else None for n in range(40)]
    made = encoder(use, columns(40, keys=binary(keys), partitions=numbers("i", named)))
    for partition in range(4):
        made.use(partition, use.BatchBuilder(10_000, None))
    places = array("i", [-1] * 45)
    first = made.encode(
        0, 20, timestamp_ms=NOW, room=PLENTY, sticky=3, sticky_room=20, places=places
    )
    assert first.reason is StopReason.STICKY  # no partition for rows that weren't encoded
    assert set(places[first.row :]) == {-1}
    made.encode(
        first.row,
        40,
        timestamp_ms=NOW,
        room=PLENTY,
        sticky=1,
        sticky_room=PLENTY,
        places=memoryview(places)[first.row :],
    )
    for row, (key, name) in enumerate(zip(keys, named, strict=True)):
        keyless = 3 if row < first.row else 1
        found = keyless if key is None else partition_for_key(key, 4)
        assert places[row] == (found if name is None else name)
    assert list(places[40:]) == [-1] * 5
    for bad, error in (
        (memoryview(bytes(160)).cast("i"), TypeError),
        (array("q", [0] * 40), TypeError),
        (memoryview(array("i", [0] * 80))[::2], TypeError),
        (array("i", [0] * 39), IndexError),
    ):
        with pytest.raises(error, match="places"):
            made.encode(0, 40, timestamp_ms=NOW, room=PLENTY, places=bad)


def test_invalid_arguments_of_the_column_encoder_are_rejected(use: Encoding) -> None:
    made = encoder(use, columns(3))
    for start, stop in ((-1, 2), (0, 4), (2, 1)):
        with pytest.raises(IndexError, match="of 3"):
            made.encode(start, stop, timestamp_ms=NOW, room=PLENTY)
    for partition in (-1, 4):
        with pytest.raises(IndexError, match="of 4"):
            made.use(partition, use.BatchBuilder(1000, None))
    with pytest.raises(ValueError, match="timestamp_ms"):
        made.encode(0, 3, timestamp_ms=-2, room=PLENTY)
    keyless = encoder(use, columns(3, keys=None))
    with pytest.raises(IndexError, match="partition 4 of 4"):
        keyless.encode(0, 3, timestamp_ms=NOW, room=PLENTY, sticky=4, sticky_room=1)
    with pytest.raises(ConfigurationError, match="0 partitions"):
        encoder(use, columns(3), partitions=0)
    with pytest.raises(InvalidRowError, match="rows is -1"):
        encoder(use, SentColumns(-1, None))
    with pytest.raises(InvalidRowError, match="entries is -1"):
        encoder(use, columns(0, headers=headers([])._replace(entries=-1)))


def test_a_batch_is_free_for_other_threads_while_the_encoder_writes_other_batches(
    use: Encoding,
) -> None:
    """The producer's I/O thread may use and build one batch while `encode` writes others."""
    rows = 20_000
    if not use.BatchBuilder.ATOMIC:
        rows = 500  # the Python encoder is slow, and threads take turns
    sent = columns(rows, partitions=numbers("i", [0, 1] * (rows // 2)))
    for _ in range(3):
        made = encoder(use, sent)
        first = use.BatchBuilder(1 << 20, None)
        made.use(0, first)
        made.use(1, use.BatchBuilder(1 << 30, None))
        options: dict[str, Any] = {"timestamp_ms": NOW, "room": 1 << 30}
        stop = made.encode(0, 10, **options)
        assert made.use(0, use.BatchBuilder(1 << 30, None)) == Piece(0, 0, 5)
        args = (stop.row, rows)
        thread = threading.Thread(target=made.encode, args=args, kwargs=options)
        thread.start()
        while thread.is_alive():
            first.limit_bytes += 1  # the setter raises if another thread uses the batch
        thread.join()
        assert first.build() is not None

"""Test how a fetch response is read: batch headers first, records later."""

from __future__ import annotations

import random
import struct
from typing import Any

import pytest

from odradek.clients.consumer.completed_fetch import CompletedFetch, survey
from odradek.clients.consumer.partition_state import PartitionState
from odradek.common.backoff import Backoff, ExponentialBackoff
from odradek.common.errors import CorruptRecordError
from odradek.common.types import Address, TopicPartition
from odradek.record.columns import CREATE_TIME, RecordColumns, Row
from odradek.record.reference import encode, encode_marker


def rows(first: int, count: int) -> list[Row]:
    return [
        (n, 1000 + n, CREATE_TIME, None, b"value %d" % n, ()) for n in range(first, first + count)
    ]


BATCHES = [encode(rows(10 * n, 10), leader_epoch=n // 2) for n in range(4)]
ALL = b"".join(BATCHES)


def state(position: int = 0) -> PartitionState:
    backoff = Backoff(ExponentialBackoff(0.1, 1.0), random.Random(1))
    made = PartitionState(TopicPartition("t", 0), "earliest", backoff)
    made.move_to(position)
    return made


def fetched(made: PartitionState, data: bytes, start: int = 0) -> CompletedFetch:
    view = memoryview(data)
    found = survey(view, start)
    return CompletedFetch(
        made, view, found, start=start, aborted=(), address=Address("b", 1), arrived=0.0
    )


def take(entry: CompletedFetch, most: int, **how: Any) -> RecordColumns:
    return entry.move(entry.peek(most, **how))


def test_reading_headers_of_complete_batches_returns_size_next_offset_and_epochs() -> None:
    found = survey(memoryview(ALL), 0)
    assert (found.next_offset, found.size, found.needed, found.odd) == (40, len(ALL), None, False)
    assert found.epochs == [(0, 0), (20, 1)]


@pytest.mark.parametrize("kept", [1, 11, 12, 20, 26, 27, 61, len(BATCHES[1]) - 1])
def test_a_response_truncated_in_its_second_batch_contains_the_first_batch(kept: int) -> None:
    found = survey(memoryview(BATCHES[0] + BATCHES[1][:kept]), 0)
    assert (found.next_offset, found.size, found.needed, found.odd) == (
        10,
        len(BATCHES[0]),
        None,
        False,
    )


@pytest.mark.parametrize("kept", [12, 20, 26, 27, 61, len(BATCHES[0]) - 1])
def test_a_response_truncated_in_its_first_batch_reports_the_needed_size(kept: int) -> None:
    found = survey(memoryview(BATCHES[0][:kept]), 5)
    assert (found.next_offset, found.size, found.needed) == (5, 0, len(BATCHES[0]))


@pytest.mark.parametrize("at", [8, 16, 23])
def test_reading_headers_stops_at_a_malformed_header_without_an_error(at: int) -> None:
    bad = bytearray(BATCHES[1])
    bad[at] = 0xFF  # a negative length, an unknown magic, a negative offset delta
    found = survey(memoryview(BATCHES[0] + bytes(bad)), 0)
    assert (found.next_offset, found.size, found.odd) == (10, len(BATCHES[0]), True)


def test_the_position_advances_with_each_returned_record() -> None:
    made = state(3)
    entry = fetched(made, ALL, 3)
    offsets = []
    while not entry.exhausted:
        part = take(entry, 7)
        offsets += [row[0] for row in part]
        assert made.position == offsets[-1] + 1
    assert offsets == list(range(3, 40))


def test_each_row_has_the_leader_epoch_of_its_batch() -> None:
    entry = fetched(state(), ALL)
    columns = take(entry, 100)
    assert entry.leader_epochs(columns) == [0] * 20 + [1] * 20
    assert fetched(state(), BATCHES[3]).leader_epochs(columns) == 1


MARKER = encode_marker(10, 0, producer_id=1, producer_epoch=0, commit=True)
NEWER = bytearray(MARKER)
struct.pack_into(">i", NEWER, 12, 3)
"""A transaction marker from a newer leader; the leader epoch is at byte 12 of a batch."""


@pytest.mark.parametrize("one_by_one", [True, False])
@pytest.mark.parametrize(
    ("data", "places"),
    [
        (BATCHES[0] + NEWER, (9, 0, 11, 3)),
        (
            BATCHES[0] + NEWER + encode(rows(11, 2), leader_epoch=4),
            (9, 0, 11, 4, 12, 4, 13, 4),
        ),
        (BATCHES[0] + encode(rows(25, 2), leader_epoch=2), (9, 0, 25, 2, 26, 2, 27, 2)),
    ],
    ids=["marker at the end", "marker between records", "compacted records"],
)
def test_a_position_has_the_leader_epoch_of_the_next_batch_or_else_of_the_last_batch(
    data: bytes, places: tuple[int, ...], one_by_one: bool
) -> None:
    made = state()
    entry = fetched(made, data)
    found = list[int]()
    if one_by_one:
        columns = entry.peek(100)
        for _ in entry.walk(list(columns)):
            found += [made.position or 0, made.position_epoch]
    else:
        while not entry.exhausted:
            take(entry, 1, ahead=100)
            found += [made.position or 0, made.position_epoch]
    assert tuple(found[16:]) == places


def test_a_gap_after_the_last_record_is_skipped() -> None:
    made = state()
    entry = fetched(made, encode(rows(0, 3), base_offset=0, last_offset=9))
    assert take(entry, 3).count == 3
    assert entry.exhausted
    assert made.position == 10


def test_records_are_returned_only_up_to_the_until_offset_inside_a_batch() -> None:
    made = state()
    made.until = 15
    entry = fetched(made, ALL)
    assert [row[0] for row in take(entry, 100)] == list(range(15))
    assert entry.exhausted
    assert made.finished


def test_a_corrupt_batch_raises_only_after_the_batches_before_it_were_returned() -> None:
    made = state()
    bad = bytearray(BATCHES[1])
    bad[-1] ^= 1
    entry = fetched(made, BATCHES[0] + bytes(bad) + BATCHES[2])
    assert take(entry, 100).count == 10
    assert not entry.exhausted
    with pytest.raises(CorruptRecordError, match="10"):
        take(entry, 100)
    assert made.position == 10


def test_a_seek_invalidates_fetched_data() -> None:
    made = state()
    entry = fetched(made, ALL)
    assert entry.valid
    made.move_to(5)
    assert not entry.valid


def test_the_rest_of_a_batch_can_be_read_with_columns_that_were_skipped_before() -> None:
    made = state()
    data = encode(rows(0, 6), base_offset=0) + encode(rows(6, 4), base_offset=6)
    entry = fetched(made, data)
    first = take(entry, 2, value=False, headers=False)
    whole = list(take(entry, 3))
    rest = [row for _ in range(3) if not entry.exhausted for row in take(entry, 9)]
    expected = [row for columns in (take(fetched(state(), data), 100),) for row in columns]
    assert first.count == 2
    assert [*whole, *rest] == expected[2:]
    assert all(row[4] is not None for row in [*whole, *rest])
    assert made.position == 10

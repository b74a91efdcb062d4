"""minPartitions and maxRecordsPerPartition: offset ranges are split without losing offsets."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from odradek.common.types import TopicPartition
from odradek.spark.driver.planning import KafkaOffsetRange
from odradek.spark.driver.splitting import split

A, B, C = (TopicPartition("t", n) for n in range(3))


def sizes(found: list[KafkaOffsetRange]) -> list[tuple[int, int]]:
    return [(r.tp.partition, r.size) for r in found]


def test_without_options_each_partition_is_one_task() -> None:
    ranges = [KafkaOffsetRange(A, 5, 1000), KafkaOffsetRange(B, 0, 1)]
    assert split(ranges, None, None) == ranges
    assert split([], 7, 7) == []


def test_max_records_per_partition_splits_ranges_evenly() -> None:
    found = split([KafkaOffsetRange(A, 5, 26), KafkaOffsetRange(B, 0, 10)], None, 10)
    assert found == [
        KafkaOffsetRange(A, 5, 12),
        KafkaOffsetRange(A, 12, 19),
        KafkaOffsetRange(A, 19, 26),
        KafkaOffsetRange(B, 0, 10),
    ]


def test_each_part_of_a_split_range_keeps_its_leader_epoch() -> None:
    found = split([KafkaOffsetRange(A, 5, 26, 7)], None, 10)
    assert [r.epoch for r in found] == [7, 7, 7]


def test_min_partitions_splits_ranges_in_proportion_to_their_size() -> None:
    assert sizes(split([KafkaOffsetRange(A, 1, 5)], 3, None)) == [(0, 1), (0, 1), (0, 2)]
    two = [KafkaOffsetRange(A, 1, 5), KafkaOffsetRange(B, 1, 5)]
    assert sizes(split(two, 4, None)) == [(0, 2), (0, 2), (1, 2), (1, 2)]
    skewed = [
        KafkaOffsetRange(A, 0, 10),
        KafkaOffsetRange(B, 0, 9990),
        KafkaOffsetRange(C, 0, 10000),
    ]
    assert sizes(split(skewed, 6, None)) == [
        (0, 10), (1, 4995), (1, 4995), (2, 3333), (2, 3333), (2, 3334),
    ]  # fmt: skip


def test_min_partitions_splits_only_if_needed_and_combines_with_max_records() -> None:
    two = [KafkaOffsetRange(A, 0, 100), KafkaOffsetRange(B, 0, 1)]
    assert split(two, 2, None) == two
    # The JVM connector returned the same numbers of ranges.
    mixed = [KafkaOffsetRange(A, 0, 40), KafkaOffsetRange(B, 0, 25)]
    assert len(split(mixed, None, 10)) == 7
    assert len(split(mixed, 12, 10)) == 11
    assert len(split(mixed, 7, None)) == 7
    found = split(two, 8, 50)
    assert {r.size <= 50 for r in found} == {True}
    assert len(found) == 9  # A is halved, and each half split into 4; B is 1 range


@given(
    st.lists(st.tuples(st.integers(0, 10**12), st.integers(1, 10**6)), min_size=1, max_size=8),
    st.none() | st.integers(1, 100),
    st.none() | st.integers(1000, 10**6),
)
def test_split_ranges_contain_each_offset_exactly_once(
    given_ranges: list[tuple[int, int]], min_partitions: int | None, max_records: int | None
) -> None:
    ranges = [
        KafkaOffsetRange(TopicPartition("t", n), start, start + size)
        for n, (start, size) in enumerate(given_ranges)
    ]
    found = split(ranges, min_partitions, max_records)
    assert found == sorted(found)
    for whole in ranges:
        parts = [r for r in found if r.tp == whole.tp]
        assert [r.start for r in parts] == [whole.start, *(r.until for r in parts[:-1])]
        assert parts[-1].until == whole.until
        assert all(0 < r.size <= (max_records or 10**12) for r in parts)
    assert split(ranges, min_partitions, max_records) == found

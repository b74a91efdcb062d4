"""The part of planning that needs no client: offset ranges, limits, and data losses."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.common.types import TopicPartition
from odradek.spark.checkpoint_errors import DataLossError, OptionError
from odradek.spark.driver import batch_sizing, data_loss, planning
from odradek.spark.driver.bounds import OffsetSpec
from odradek.spark.driver.offsets import EARLIEST, LATEST, Positions, StreamOffset
from odradek.spark.driver.planning import KafkaOffsetRange, TopicsSnapshot

A, B, C = (TopicPartition("t", n) for n in range(3))

lags = st.dictionaries(
    st.integers(0, 8).map(lambda n: TopicPartition("t", n)),
    st.tuples(st.integers(0, 10**12), st.integers(0, 10**12)),
    min_size=1,
)


@pytest.mark.parametrize(
    ("begins", "ends", "wanted"),
    [
        ({A: 0, B: 100, C: 7}, {A: 900, B: 200, C: 7}, {A: 9, B: 101, C: 7}),
        (
            {A: 0, B: 0},
            {A: 10**9, B: 3},
            {A: 9, B: 1},
        ),  # a partition with a small lag gets at least one offset
        ({A: 0, B: 5}, {A: 5, B: 10}, {A: 5, B: 10}),  # the lag is below the limit
    ],
)
def test_an_offset_limit_is_divided_in_proportion_to_lag(
    begins: Positions, ends: Positions, wanted: Positions
) -> None:
    assert batch_sizing.proportional_ends(10, begins, ends) == wanted


@given(lags, st.integers(1, 10**13))
def test_a_limited_batch_advances_each_partition_but_not_beyond_its_end(
    lag: dict[TopicPartition, tuple[int, int]], limit: int
) -> None:
    begins = {tp: begin for tp, (begin, _) in lag.items()}
    ends = {tp: begin + size for tp, (begin, size) in lag.items()}
    found = batch_sizing.proportional_ends(limit, begins, ends)
    moved = {tp: found[tp] - begins[tp] for tp in found}
    assert found.keys() == ends.keys()
    for tp, (_, size) in lag.items():
        assert 0 <= moved[tp] <= size
        assert moved[tp] > 0 or size == 0
    # The excess is at most one offset for each partition that was rounded up.
    assert sum(moved.values()) <= limit + len(lag)


def test_empty_ranges_are_omitted() -> None:
    found = planning.ranges({A: 5, B: 5, C: 9}, {C: 8, B: 5, A: 7}, {A: 3, B: 3})
    assert found == [KafkaOffsetRange(A, 5, 7, 3)]
    assert found[0].size == 2


def test_a_batch_starts_at_its_stored_start_or_at_the_end_of_the_last_batch() -> None:
    start = StreamOffset({A: 1, B: 2}, "c")
    end = StreamOffset({A: 5, B: 5, C: 5}, "c", begins={C: 3, B: 0})
    assert planning.batch_begins(start, end) == {A: 1, B: 0, C: 3}
    # C was added in a batch whose offset isn't in the checkpoint: its start has to be looked up.
    assert planning.batch_begins(start, StreamOffset({A: 5, C: 5}, "c")) == {A: 1}
    with pytest.raises(OptionError, match="t-2"):
        planning.batch_begins(None, StreamOffset({C: 5}, "c"))


def test_each_kind_of_loss_is_reported_with_ids_and_offsets() -> None:
    start = StreamOffset(
        {A: 10, B: 20, C: 30, TopicPartition("u", 0): 5, TopicPartition("v", 0): 1},
        "c",
        {"t": "x", "u": "1"},
    )
    now = TopicsSnapshot("c", {"t": "x", "u": "2"}, (A, B, TopicPartition("u", 0)))
    ends = {A: 10, B: 19, TopicPartition("u", 0): 1}
    losses = data_loss.find_losses(start, now, ends, lambda tp: tp.topic != "v")
    assert losses.recreated == {"u": ("1", "2")}
    assert losses.gone == (C,)
    assert losses.unasked == (TopicPartition("v", 0),)
    assert losses.shrunk == {B: (20, 19)}
    words = (
        "topic u .*topic id 1.*topic id 2.*t-2 no longer.*v-0 is in.*t-1: .* 20.* 19 .*failOnData"
    )
    assert re.search(words, str(DataLossError(losses.sentences())), re.DOTALL)


def test_a_long_list_of_losses_is_truncated() -> None:
    text = str(DataLossError([f"loss {n}." for n in range(50)]))
    assert "loss 19." in text
    assert "loss 20." not in text
    assert "30 more" in text


def test_given_offsets_must_name_exactly_the_partitions_that_are_read() -> None:
    spec = OffsetSpec("startingOffsets", None, {A: 1, C: 1})
    with pytest.raises(OptionError, match=r"startingOffsets lacks t-1\."):
        planning.check_names_all(spec, [A, B, C])
    with pytest.raises(OptionError, match=r"startingOffsets names .* t-2"):
        planning.check_names_all(spec, [A])
    planning.check_names_all(spec, [A, C])
    planning.check_names_all(OffsetSpec("startingOffsets", LATEST), [A])


BEGINS, ENDS = {A: 10, B: 10, C: 10}, {A: 20, B: 20, C: 20}


def resolved(spec: OffsetSpec) -> tuple[dict[TopicPartition, int], dict[TopicPartition, str]]:
    return planning.resolve(spec, [A, B, C], lambda: BEGINS, lambda: ENDS)


def test_offset_options_are_resolved_and_offsets_outside_the_log_reported() -> None:
    spec = OffsetSpec("startingOffsets", None, {A: LATEST, B: EARLIEST, C: 15})
    assert resolved(spec) == ({A: 20, B: 10, C: 15}, {})
    spec = OffsetSpec("startingOffsets", None, {A: 5, B: 25, C: 20})
    found, outside = resolved(spec)
    assert found == {A: 10, B: 20, C: 20}
    assert list(outside) == [A, B]
    assert "t-0: option startingOffsets is 5" in outside[A]
    for bound, wanted in ((EARLIEST, BEGINS), (LATEST, ENDS)):
        spec = OffsetSpec("startingOffsets", bound)
        assert resolved(spec) == (wanted, {})


def test_only_the_log_start_or_the_log_end_that_an_option_needs_is_looked_up() -> None:
    def forbidden() -> dict[TopicPartition, int]:
        raise AssertionError("asked")

    earliest, latest = (OffsetSpec("startingOffsets", bound) for bound in (EARLIEST, LATEST))
    assert planning.resolve(earliest, [A], lambda: BEGINS, forbidden)[0] == {A: 10}
    assert planning.resolve(latest, [A], forbidden, lambda: ENDS)[0] == {A: 20}


def test_a_timestamp_after_the_last_record_becomes_the_log_end_or_an_error() -> None:
    at_times = {A: 12, B: None}
    lax = OffsetSpec("endingTimestamp", time=1000, else_latest=True)
    assert planning.resolve_times(lax, [A, B], at_times, lambda: ENDS) == {A: 12, B: 20}
    strict = OffsetSpec("startingOffsetsByTimestamp", times={A: 5, B: 1000}, else_latest=False)
    with pytest.raises(OptionError, match=r"startingOffsetsByTimestamp: t-1 .* 1000.*Strategy"):
        planning.resolve_times(strict, [A, B], at_times, lambda: ENDS)
    with pytest.raises(OptionError, match=r"startingOffsetsByTimestamp lacks t-2\. It.*reads\.$"):
        planning.check_names_all(strict, [A, B, C])


def test_a_byte_limit_takes_the_same_fraction_of_each_partitions_lag() -> None:
    begins, ends = {A: 0, B: 100, C: 7}, {A: 1000, B: 600, C: 7}
    sizes = {A: 10.0, B: 100.0, C: None}  # 60,000 bytes in all; C has no lag
    assert batch_sizing.ends_for_bytes(6000, begins, ends, sizes) == {A: 100, B: 150, C: 7}
    assert batch_sizing.ends_for_bytes(60_000, begins, ends, sizes) == ends
    assert batch_sizing.ends_for_bytes(1, begins, ends, sizes) == {A: 1, B: 101, C: 7}


def test_partitions_without_a_size_sample_get_few_offsets_and_others_the_other_bytes() -> None:
    begins, ends = {A: 0, B: 100, C: 7}, {A: 10**9, B: 10**6, C: 8}
    limit = 30 << 20
    found = batch_sizing.ends_for_bytes(limit, begins, ends, {A: None, B: float(1 << 10), C: 1.0})
    assert found == {A: 10, B: 100 + (20 << 10) - 1, C: 8}
    assert batch_sizing.ends_for_bytes(limit, begins, ends, dict.fromkeys(ends)) == {
        A: 10,
        B: 110,
        C: 8,
    }
    little = batch_sizing.ends_for_bytes(3000, begins, ends, {A: None, B: 10.0, C: None})
    assert little == {A: 1, B: 200, C: 8}


def test_rounding_errors_in_the_shares_of_a_limit_are_tolerated() -> None:
    begins = {TopicPartition("t", n): 0 for n in range(49)}
    for limit in range(1, 50):  # rounding: as floats, 49 * (1 / 49) isn't 1
        for sizes in (dict.fromkeys(begins), dict.fromkeys(begins) | {A: 10.0**6}):
            ends = dict.fromkeys(begins, 9)
            assert batch_sizing.ends_for_bytes(limit, begins, ends, sizes) == dict.fromkeys(
                begins, 1
            )


@given(lags, st.integers(1, 10**10), st.data())
def test_batches_stay_within_the_byte_limit_and_every_partition_advances(
    given: dict[TopicPartition, tuple[int, int]], limit: int, data: st.DataObject
) -> None:
    begins = {tp: begin for tp, (begin, _) in given.items()}
    ends = {tp: begin + lag for tp, (begin, lag) in given.items()}
    size = st.none() | st.floats(1.0, 10**7)
    sizes = {tp: data.draw(size) for tp in given}
    found = batch_sizing.ends_for_bytes(limit, begins, ends, sizes)
    reckoned = {tp: sizes[tp] or float(batch_sizing.UNWEIGHED_BYTES) for tp in given}
    taken = {tp: found[tp] - begins[tp] for tp in given}
    # The one offset that each partition always gets may exceed the limit.
    assert sum((n - 1) * reckoned[tp] for tp, n in taken.items() if n > 0) <= limit * 1.000001
    assert all(0 < taken[tp] <= lag for tp, (_, lag) in given.items() if lag)
    assert all(found[tp] == ends[tp] for tp, (_, lag) in given.items() if not lag)


def test_a_batch_waits_for_min_offsets_per_trigger_or_max_trigger_delay() -> None:
    pace = batch_sizing.Pacing(least=10, longest=60.0)
    assert not pace.holds_back({A: 0}, {A: 3}, 1000.0)  # the first batch of a run
    assert pace.holds_back({A: 3}, {A: 12}, 1001.0)
    assert pace.holds_back({A: 3}, {A: 12}, 1059.0)
    assert not pace.holds_back({A: 3}, {A: 12}, 1060.0)  # maxTriggerDelay is over
    assert pace.holds_back({A: 12}, {A: 20}, 1061.0)
    assert not pace.holds_back({A: 12}, {A: 22}, 1062.0)  # minOffsetsPerTrigger is reached
    assert pace.holds_back({A: 22}, {A: 22}, 1121.0)
    assert not pace.holds_back({A: 22}, {A: 22}, 1122.0)  # no new offsets: Spark runs no batch
    assert pace.holds_back({A: 22}, {A: 23}, 1130.0)
    assert not pace.holds_back({A: 22}, {A: 23}, 1182.0)
    assert not batch_sizing.Pacing(None, 60.0).holds_back({A: 0}, {A: 1}, 0.0)

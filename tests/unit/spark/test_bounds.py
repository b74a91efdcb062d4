"""Options for a query's start and end: "earliest" or "latest" per topic, times in a wrong unit."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from odradek.common.types import TopicPartition
from odradek.spark.checkpoint_errors import OptionError
from odradek.spark.driver.bounds import ending_spec, starting_spec, time_in_words
from odradek.spark.driver.offsets import EARLIEST, LATEST
from odradek.spark.options.option_table import BATCH


@pytest.mark.parametrize("said", ['"earliest"', "-2", '"EARLIEST"'])
def test_earliest_for_a_whole_topic_starts_at_the_topics_beginning(tracker: Any, said: str) -> None:
    plan = tracker(BATCH, startingOffsets=f'{{"t":{said}}}').plan_batch()
    assert [(r.tp.partition, r.start, r.until) for r in plan.ranges] == [(0, 0, 100), (1, 10, 20)]


@pytest.mark.parametrize("said", ['"latest"', "-1"])
def test_latest_for_a_whole_topic_starts_a_stream_at_the_topics_end(
    tracker: Any, said: str
) -> None:
    offset = tracker(startingOffsets=f'{{"t":{said}}}').latest({"v": 1, "init": True})
    assert offset["o"] == {"t": {"0": 100, "1": 20}}
    assert offset["from"] == {"t": {"0": 100, "1": 20}}


def test_earliest_and_latest_are_accepted_for_a_single_partition(tracker: Any) -> None:
    given = {
        "startingOffsets": '{"t":{"0":"earliest","1":12}}',
        "endingOffsets": '{"t":{"0":7,"1":"latest"}}',
    }
    plan = tracker(BATCH, **given).plan_batch()
    assert [(r.start, r.until) for r in plan.ranges] == [(0, 7), (12, 20)]


def test_starting_offsets_by_topic_can_be_combined_with_ending_offsets_by_partition(
    tracker: Any,
) -> None:
    given = {"startingOffsets": '{"t":"earliest"}', "endingOffsets": '{"t":{"0":7,"1":11}}'}
    plan = tracker(BATCH, **given).plan_batch()
    assert [(r.start, r.until) for r in plan.ranges] == [(0, 7), (10, 11)]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"startingOffsets": '{"t":"latest"}'}, "of a batch query can't be latest"),
        ({"endingOffsets": '{"t":"earliest"}'}, r"t can't end at earliest \(-2\)"),
        ({"startingOffsets": '{"t":"soon"}'}, "topic 't' needs an object .* not 'soon'"),
        ({"startingOffsets": '{"t":5}'}, "topic 't' needs an object like"),
        ({"startingOffsets": '{"t":true}'}, "topic 't' needs an object like"),
        ({"startingOffsets": '{"t":-2,"u":-2}'}, "names topics that the query doesn't read: u"),
    ],
)
def test_invalid_offsets_for_a_whole_topic_are_rejected(
    tracker: Any, given: dict[str, str], words: str
) -> None:
    with pytest.raises(OptionError, match=words):
        tracker(BATCH, **given).plan_batch()


def test_starting_offsets_of_a_topic_named_v_are_not_mistaken_for_checkpoint_json() -> None:
    assert starting_spec({"startingoffsets": '{"v":-1}'}, "latest").topics == {"v": LATEST}
    own = starting_spec({"startingoffsets": '{"v":1,"o":{"t":{"0":3}}}'}, "latest")
    assert (own.topics, own.offsets) == ({}, {TopicPartition("t", 0): 3})
    assert starting_spec({"startingoffsets": '{"v":-2}'}, "latest").topics == {"v": EARLIEST}


def test_a_timestamp_that_looks_like_seconds_logs_a_warning(caplog: Any, tracker: Any) -> None:
    with caplog.at_level(logging.WARNING):
        starting_spec({"startingtimestamp": "1700000000000"}, "latest")
        ending_spec({"endingtimestamp": "0"})
        assert not caplog.messages
        starting_spec({"startingtimestamp": "1700000000"}, "latest")
        ending_spec({"endingoffsetsbytimestamp": '{"t":{"0":1700000000}}'})
    assert caplog.messages == [
        (
            f"option {name} is in milliseconds, and its value may be in seconds: it means "
            "1700000000 ms (1970-01-20T16:13:20.000Z)"
        )
        for name in ("startingTimestamp", "endingOffsetsByTimestamp")
    ]


def test_the_error_for_a_timestamp_after_the_last_record_shows_the_date(tracker: Any) -> None:
    with pytest.raises(OptionError, match=r"t-0 has no .* 1700000000000 ms \(2023-11-14T22:13:20"):
        tracker(BATCH, startingTimestamp="1700000000000").plan_batch()
    assert time_in_words(1_700_000_000_000_000) == "1700000000000000 ms (beyond the year 9999)"


@pytest.mark.parametrize(
    ("given", "repeated"),
    [('{"t":{"0":4,"0":5}}', "'0'"), ('{"t":{"0":4},"t":{"1":5}}', "'t'")],
)
def test_a_topic_or_partition_that_is_given_twice_is_rejected(given: str, repeated: str) -> None:
    with pytest.raises(OptionError, match=f"startingOffsets names {repeated} twice"):
        starting_spec({"startingoffsets": given}, "earliest")


def test_a_partition_number_with_leading_zeros_is_rejected() -> None:
    with pytest.raises(OptionError, match="'00' isn't a partition number"):
        starting_spec({"startingoffsets": '{"t":{"0":4,"00":1}}'}, "earliest")

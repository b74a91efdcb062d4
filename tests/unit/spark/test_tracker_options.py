"""Options in the Spark driver: patterns, times, limits, other clusters, numbers of requests."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.spark.conftest import ID_1, ID_2, ID_3, P0, P1, following

from odradek.spark.checkpoint_errors import (
    DataLossError,
    MissingTopicError,
    OptionError,
    OutageError,
)
from odradek.spark.driver.byte_rates import ByteRates
from odradek.spark.driver.offsets import SENTINEL
from odradek.spark.driver.planning import KafkaOffsetRange
from odradek.spark.driver.tracker import OffsetTracker
from odradek.spark.options.source_options import BATCH


def read(tracker: OffsetTracker, start: Any, end: Any) -> int:
    return sum(r.size for r in tracker.plan(start, end).ranges)


# -- subscribePattern ---------------------------------------------------------------------------


def test_matching_topics_are_read_and_new_ones_are_discovered(
    tracker: Any, cluster: Any, clock: Any
) -> None:
    cluster.topics["x-t"] = (ID_2, {0: (0, 5)})
    cluster.topics["u"] = (ID_3, {0: (0, 5)})
    driver = tracker(subscribePattern="t$", startingOffsets="latest")
    first = following(driver, SENTINEL)
    assert first["o"] == first["from"] == {"t": {"0": 100, "1": 20}, "x-t": {"0": 5}}
    cluster.topics["y-t"] = (ID_3, {0: (0, 7)})
    clock.at += 1
    assert following(driver, first) == first  # the discovery interval isn't over yet
    clock.at += 30
    second = following(driver, first)
    assert second["from"] == {"y-t": {"0": 0}}
    assert read(driver, first, second) == 7
    assert cluster.calls.count("list") == 2


def test_a_pattern_without_a_matching_topic_stores_an_empty_start(
    tracker: Any, cluster: Any, clock: Any
) -> None:
    first = following(tracker(subscribePattern="^new"), SENTINEL)
    assert first == {"v": 1, "cluster": "cluster-A", "o": {}, "id": {}}
    cluster.topics["new-1"] = (ID_2, {0: (0, 5)})  # created between two runs
    driver = tracker(subscribePattern="^new", startingOffsets="latest")
    second = following(driver, first)
    assert read(driver, first, second) == 5
    assert tracker(BATCH, subscribePattern="^none").plan_batch().ranges == []


# -- times --------------------------------------------------------------------------------------


def test_a_batch_reads_the_records_between_two_timestamps(tracker: Any) -> None:
    plan = tracker(BATCH, startingTimestamp="9001", endingTimestamp="15000").plan_batch()
    assert plan.ranges == [KafkaOffsetRange(P0, 10, 15), KafkaOffsetRange(P1, 10, 15)]
    plan = tracker(
        BATCH,
        startingOffsetsByTimestamp='{"t":{"0":98000,"1":12000}}',
        endingOffsetsByTimestamp='{"t":{"0":200000,"1":13000}}',
    ).plan_batch()
    assert plan.ranges == [KafkaOffsetRange(P0, 98, 100), KafkaOffsetRange(P1, 12, 13)]
    with pytest.raises(
        OptionError, match=r"startingTimestamp starts at offset 15, after offset 10"
    ):
        tracker(BATCH, startingTimestamp="15000", endingTimestamp="10000").plan_batch()


def test_a_timestamp_without_a_record_is_an_error_or_the_log_end(tracker: Any) -> None:
    with pytest.raises(OptionError, match=r"startingTimestamp: t-1 has no record .* 50000"):
        following(tracker(startingTimestamp="50000"), SENTINEL)
    lax = tracker(startingTimestamp="50000", startingOffsetsByTimestampStrategy="latest")
    assert following(lax, SENTINEL)["from"] == {"t": {"0": 50, "1": 20}}
    with pytest.raises(OptionError, match="startingOffsetsByTimestamp lacks t-1"):
        following(tracker(startingOffsetsByTimestamp='{"t":{"0":1}}'), SENTINEL)


# -- limits -------------------------------------------------------------------------------------


def test_the_second_batch_of_a_new_query_waits_for_min_offsets_per_trigger(
    tracker: Any, cluster: Any, clock: Any
) -> None:
    driver = tracker(minOffsetsPerTrigger="10", maxTriggerDelay="60s")
    first = following(driver, SENTINEL)
    cluster.topics["t"][1][0] = (0, 103)
    clock.at += 1
    assert following(driver, first) == first
    clock.at += 60
    assert following(driver, first)["o"]["t"]["0"] == 103


def test_min_offsets_per_trigger_does_not_delay_trigger_once_and_available_now(
    tracker: Any, cluster: Any, clock: Any
) -> None:
    given = {"minOffsetsPerTrigger": "10", "maxTriggerDelay": "1h"}
    offset = following(tracker(), SENTINEL)
    cluster.topics["t"][1][0] = (0, 103)
    once, now = tracker(**given), tracker(**given)
    for driver in (once, now):
        following(driver, offset)  # the first batch, which isn't held back
    cluster.topics["t"][1][0] = (0, 104)
    clock.at += 1
    assert once.latest(offset, everything=True)["o"]["t"]["0"] == 104
    now.freeze()
    assert now.latest(offset)["o"]["t"]["0"] == 104


def test_max_bytes_per_trigger_uses_the_sampled_record_sizes(
    tracker: Any, cluster: Any, clock: Any
) -> None:
    # A record has 2 to 4 bytes of key, value and headers in memory, plus the headers' offsets.
    cluster.topics["t"] = (ID_1, {0: (0, 1000), 1: (0, 9000)})
    driver = tracker(maxBytesPerTrigger="6400")
    offset: Any = dict(SENTINEL)
    read_in_all, batches = 0, 0
    weights: Any = ByteRates(cluster, clock).weigh({}, {P0: 0, P1: 0}, {P0: 1000, P1: 9000}).sizes
    assert 5 < weights[P0] < 30
    while (end := following(driver, offset)) != offset and batches < 200:
        found = driver.plan(offset, end).ranges
        assert 2000 < sum(r.size * weights[r.tp] for r in found) < 16_000 or batches > 20
        if not batches:
            one, nine = (r.size for r in found)
            assert nine == pytest.approx(9 * one, rel=0.05)
        read_in_all += sum(r.size for r in found)
        offset, batches, clock.at = end, batches + 1, clock.at + 1
    assert read_in_all == 10_000
    assert batches < 60
    everything = tracker(maxBytesPerTrigger="1k").latest(dict(SENTINEL), everything=True)
    assert everything["o"]["t"] == {"0": 1000, "1": 9000}


def test_min_partitions_and_max_records_split_ranges_into_tasks(tracker: Any) -> None:
    driver = tracker(minPartitions="5", maxRecordsPerPartition="60")
    end = following(driver, SENTINEL)
    found = driver.plan(SENTINEL, end).ranges
    assert [r.size for r in found] == [25, 25, 25, 25, 10]
    assert (
        driver.plan(SENTINEL, end).ranges
        == tracker(minPartitions="5", maxRecordsPerPartition="60").plan(SENTINEL, end).ranges
    )
    assert len(tracker(BATCH, maxRecordsPerPartition="30").plan_batch().ranges) == 5


# -- clusters, outages, timeouts ------------------------------------------------------------------


def test_a_query_continues_on_a_mirror_cluster_if_allowed(
    tracker: Any, cluster: Any, caplog: Any, clock: Any
) -> None:
    offset = following(tracker(), SENTINEL)
    cluster.cluster = "cluster-B"
    cluster.topics["t"] = (ID_2, {0: (0, 105), 1: (10, 20)})
    driver = tracker(allowClusterChange="true")
    end = following(driver, offset)
    assert read(driver, offset, end) == 5
    assert (end["cluster"], end["id"]) == ("cluster-B", {"t": ID_2})
    assert "cluster.id.expected" not in cluster.configs[-1]
    assert "cluster-A" in caplog.text
    assert "cluster-B" in caplog.text
    replayed = tracker(allowClusterChange="true").plan(SENTINEL, offset)
    assert (sum(r.size for r in replayed.ranges), replayed.cluster) == (110, "cluster-B")
    cluster.topics["t"] = (ID_1, {0: (0, 200), 1: (10, 20)})  # this cluster has another topic id
    clock.at += 60
    with pytest.raises(DataLossError, match="recreated"):
        following(driver, end)


def test_an_outage_is_logged_every_thirty_seconds_and_names_the_address(
    tracker: Any, cluster: Any, clock: Any, caplog: Any
) -> None:
    driver = tracker()
    offset = following(driver, SENTINEL)
    clock.at += 1
    begun, cluster.down_until = clock.now(), float("inf")
    with pytest.raises(OutageError, match=r"localhost:9092 \(kafka\.bootstrap\.servers\)"):
        driver.latest(offset, everything=True)
    assert 600 <= clock.now() - begun <= 611
    lines = [r for r in caplog.records if "no usable answer" in r.getMessage()]
    assert 15 <= len(lines) <= 20


def test_options_set_the_number_of_lookup_attempts_and_their_interval(
    tracker: Any, cluster: Any, clock: Any
) -> None:
    given = {"outageTolerance": "1s", "fetchOffset.numRetries": "4"}
    driver = tracker(**given, **{"fetchOffset.retryIntervalMs": "2500"})
    offset = following(driver, SENTINEL)
    clock.at, cluster.down_until = clock.at + 1, float("inf")
    cluster.calls.clear()
    clock.pauses.clear()
    with pytest.raises(OutageError):
        driver.latest(offset, everything=True)
    assert len(cluster.calls) == 4
    assert clock.pauses == [2.5] * 3


def test_a_restart_fails_if_a_subscribed_topic_is_missing(tracker: Any) -> None:
    offset = following(tracker(), SENTINEL)
    with pytest.raises(MissingTopicError, match="doesn't have nowhere"):
        following(tracker(subscribe="t,nowhere"), offset)

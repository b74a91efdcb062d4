"""Offsets in the Spark driver: stored starts, fixed ends, outages, other clusters, losses."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.spark.conftest import ID_1, ID_2, P0, P1, MemoryConsumer, following

from odradek.common.errors import ClusterIdMismatchError
from odradek.common.types import TopicPartition
from odradek.spark.checkpoint_errors import DataLossError, MissingTopicError, OutageError
from odradek.spark.driver.discovery import CONFIRM_S
from odradek.spark.driver.offsets import SENTINEL
from odradek.spark.driver.planning import KafkaOffsetRange
from odradek.spark.driver.tracker import OffsetTracker
from odradek.spark.options.source_options import BATCH

WHOLE = [KafkaOffsetRange(P0, 0, 100), KafkaOffsetRange(P1, 10, 20)]


def sizes(tracker: OffsetTracker, start: Any, end: Any) -> list[KafkaOffsetRange]:
    return tracker.plan(start, end).ranges


# -- the first batch ------------------------------------------------------------------------


def test_the_first_batchs_end_offset_contains_the_start(tracker: Any, cluster: Any) -> None:
    driver = tracker()
    end = following(driver, SENTINEL)
    assert end == {
        "v": 1,
        "cluster": "cluster-A",
        "o": {"t": {"0": 100, "1": 20}},
        "id": {"t": ID_1},
        "from": {"t": {"0": 0, "1": 10}},
    }
    assert sizes(driver, SENTINEL, end) == WHOLE


def test_a_replay_reads_the_same_ranges_after_the_log_has_changed(
    tracker: Any, cluster: Any
) -> None:
    end = following(tracker(), SENTINEL)
    cluster.topics["t"] = (ID_1, {0: (0, 500), 1: (15, 90)})
    again = tracker()
    assert sizes(again, SENTINEL, end) == WHOLE


def test_latest_is_resolved_in_the_first_spark_offset_even_without_records_to_read(
    tracker: Any, cluster: Any, clock: Any
) -> None:
    end = following(tracker(startingOffsets="latest"), SENTINEL)
    assert end["o"] == end["from"] == {"t": {"0": 100, "1": 20}}
    # Records that arrive before a restart aren't skipped, because the start is in the checkpoint.
    cluster.topics["t"] = (ID_1, {0: (0, 103), 1: (10, 20)})
    restarted = tracker(startingOffsets="latest")
    assert sizes(restarted, SENTINEL, end) == []
    after = following(restarted, end)
    assert sizes(restarted, end, after) == [KafkaOffsetRange(P0, 100, 103)]


def test_latest_is_resolved_to_an_offset_once_in_a_run(
    tracker: Any, cluster: Any, clock: Any
) -> None:
    driver = tracker(startingOffsets="latest")
    following(driver, SENTINEL)
    cluster.topics["t"] = (ID_1, {0: (0, 103), 1: (10, 20)})
    clock.at += 1
    assert following(driver, SENTINEL)["from"] == {"t": {"0": 100, "1": 20}}


def test_starting_offsets_outside_the_log_are_reported_as_data_loss(
    tracker: Any, caplog: Any
) -> None:
    given = '{"t":{"0":42,"1":5}}'
    with pytest.raises(DataLossError, match=r"t-1.* 5, .* 10 to 20"):
        following(tracker(startingOffsets=given), SENTINEL)
    end = following(tracker(startingOffsets=given, failOnDataLoss="false"), SENTINEL)
    assert end["from"] == {"t": {"0": 42, "1": 10}}
    assert "t-1" in caplog.text


def test_only_assigned_partitions_are_read(tracker: Any) -> None:
    driver = tracker(assign='{"t":[1]}')
    assert following(driver, SENTINEL)["o"] == {"t": {"1": 20}}
    with pytest.raises(MissingTopicError, match="t-7"):
        following(tracker(assign='{"t":[1,7]}'), SENTINEL)


def test_a_missing_topic_is_reported_within_thirty_seconds(
    tracker: Any, cluster: Any, clock: Any
) -> None:
    begun = clock.now()
    with pytest.raises(
        MissingTopicError, match=r"doesn't have nowhere .*UNKNOWN_TOPIC_OR_PARTITION"
    ):
        following(tracker(subscribe="t,nowhere"), SENTINEL)
    assert clock.now() - begun < 30


def test_the_error_for_a_missing_topic_suggests_an_existing_one(tracker: Any, cluster: Any) -> None:
    cluster.topics["orders"] = cluster.topics["t"]
    with pytest.raises(MissingTopicError, match=r"servers \(did you mean orders\?\)$"):
        following(tracker(subscribe="oders,t"), SENTINEL)


def test_a_new_query_waits_for_a_topic_that_appears_late(
    tracker: Any, cluster: Any, clock: Any
) -> None:
    topics, cluster.topics = cluster.topics, {}
    driver = tracker()
    clock.meanwhile = lambda: cluster.topics.update(topics)
    assert following(driver, SENTINEL)["o"] == {"t": {"0": 100, "1": 20}}


# -- the next batches -------------------------------------------------------------------------


def test_the_end_offset_equals_the_start_without_new_records(tracker: Any, clock: Any) -> None:
    driver = tracker()
    first = following(driver, SENTINEL)
    clock.at += 1
    assert driver.latest(first) == first  # also the entry "from" remains


def test_an_idle_query_looks_up_offsets_at_most_ten_times_per_second(
    tracker: Any, cluster: Any, clock: Any
) -> None:
    driver = tracker()
    offset = following(driver, SENTINEL)
    cluster.calls.clear()
    begun = clock.now()
    for _ in range(50):
        offset = following(driver, offset)
    assert cluster.calls.count("end") <= 1 + round((clock.now() - begun) * 10)
    assert clock.now() - begun > 4


def test_new_partitions_start_at_their_beginning_and_the_start_is_stored(
    tracker: Any, cluster: Any, clock: Any
) -> None:
    driver = tracker(startingOffsets="latest")
    first = following(driver, SENTINEL)
    cluster.topics["t"][1][2] = (0, 8)
    clock.at += 60
    second = following(driver, first)
    assert second["from"] == {"t": {"2": 0}}
    cluster.topics["t"][1][2] = (6, 8)  # retention deletes records before the replay
    assert sizes(tracker(), first, second) == [KafkaOffsetRange(TopicPartition("t", 2), 0, 8)]
    clock.at += 1
    assert following(driver, second) == second


def test_a_new_partition_without_its_first_records_is_data_loss(
    tracker: Any, cluster: Any, caplog: Any
) -> None:
    first = following(tracker(), SENTINEL)
    cluster.topics["t"][1][2] = (3, 8)
    with pytest.raises(DataLossError, match=r"t-2 is new .* starts at offset 3 instead of 0"):
        following(tracker(), first)
    assert following(tracker(failOnDataLoss="false"), first)["from"] == {"t": {"2": 3}}
    assert "t-2 is new" in caplog.text


def test_max_offsets_per_trigger_limits_each_batch_until_all_is_read(
    tracker: Any, clock: Any
) -> None:
    driver = tracker(maxOffsetsPerTrigger="40")
    offset: dict[str, Any] = dict(SENTINEL)
    read: dict[TopicPartition, list[KafkaOffsetRange]] = {P0: [], P1: []}
    for _ in range(10):
        end = following(driver, offset)
        if end == offset:
            break
        found = sizes(driver, offset, end)
        assert 0 < sum(r.size for r in found) <= 42
        for r in found:
            read[r.tp].append(r)
        offset = end
        clock.at += 1
    for tp, (begin, end_of_log) in ((P0, (0, 100)), (P1, (10, 20))):
        edges = [begin, *(r.until for r in read[tp])]
        assert [r.start for r in read[tp]] == edges[:-1]
        assert edges[-1] == end_of_log


def test_available_now_stops_at_the_log_ends_that_it_found_at_its_start(
    tracker: Any, cluster: Any, clock: Any
) -> None:
    driver = tracker(maxOffsetsPerTrigger="60")
    driver.freeze()
    assert driver.report() is None
    assert cluster.calls == []
    offset: dict[str, Any] = dict(SENTINEL)
    ends = []
    for _ in range(10):
        clock.at += 60
        end = following(driver, offset)
        cluster.topics["t"] = (ID_1, {0: (0, 900), 1: (10, 900), 2: (0, 900)})
        if end == offset:
            break
        ends.append(offset := end)
    assert offset["o"] == {"t": {"0": 100, "1": 20}}
    assert len(ends) == 2
    assert driver.report()["o"] == {"t": {"0": 100, "1": 20}}


def test_available_now_reads_an_uncommitted_batch_again_and_stops(
    tracker: Any, cluster: Any, clock: Any
) -> None:
    driver = tracker()
    driver.freeze()
    first = following(driver, SENTINEL)
    cluster.topics["t"] = (ID_1, {0: (0, 130), 1: (10, 25), 2: (0, 7)})
    another = tracker()
    another.freeze()
    second = following(another, first)  # Spark stored this offset, but the batch didn't end
    for _ in range(2):
        again = tracker()
        again.freeze()
        ranges = sizes(again, first, second)
        assert sorted((r.tp.partition, r.start, r.until) for r in ranges) == [
            (0, 100, 130),
            (1, 20, 25),
            (2, 0, 7),
        ]
        assert following(again, second)["o"] == second["o"]
        assert again.report()["o"] == second["o"]
        clock.at += 60


def test_a_checkpoint_of_the_jvm_connector_is_continued(tracker: Any) -> None:
    driver = tracker()
    end = following(driver, {"t": {"0": 90, "1": 20}})
    assert sizes(driver, {"t": {"0": 90, "1": 20}}, end) == [KafkaOffsetRange(P0, 90, 100)]


# -- a different cluster, a recreated topic, lost records ----------------------------------------


@pytest.mark.parametrize("how", ["restart", "replay", "available now"])
def test_a_different_cluster_is_rejected_with_both_cluster_ids(
    tracker: Any, cluster: Any, how: str
) -> None:
    offset = following(tracker(), SENTINEL)
    cluster.cluster = "cluster-B"
    driver = tracker()
    if how == "available now":
        driver.freeze()  # called before Spark passes the checkpoint's offset
    with pytest.raises(ClusterIdMismatchError, match=r"'cluster-B'.*'cluster-A'"):
        driver.plan(SENTINEL, offset) if how == "replay" else driver.latest(offset)
    assert how == "replay" or cluster.configs[-1]["cluster.id.expected"] == "cluster-A"


def test_a_recreated_topic_with_more_records_is_detected(tracker: Any, cluster: Any) -> None:
    offset = following(tracker(), SENTINEL)
    cluster.topics["t"] = (ID_2, {0: (0, 900), 1: (0, 900)})
    for ask in (tracker().latest, lambda end: tracker().plan(SENTINEL, end)):
        with pytest.raises(DataLossError, match=rf"topic t .*{ID_1}.*{ID_2}"):
            ask(offset)
    assert sizes(tracker(failOnDataLoss="false"), SENTINEL, offset) == []


def test_a_recreated_topic_is_read_from_its_beginning_if_fail_on_data_loss_is_false(
    tracker: Any, cluster: Any, caplog: Any, clock: Any
) -> None:
    offset = following(tracker(), SENTINEL)
    cluster.topics["t"] = (ID_2, {0: (0, 30), 1: (4, 900)})
    driver = tracker(failOnDataLoss="false")
    end = following(driver, offset)
    assert sizes(driver, offset, end) == [KafkaOffsetRange(P0, 0, 30), KafkaOffsetRange(P1, 4, 900)]
    assert ID_1 in caplog.text
    assert ID_2 in caplog.text
    clock.at += 1
    assert following(driver, end) == end


@pytest.mark.parametrize("fail", ["true", "false"])
def test_a_replay_loses_nothing_while_a_starting_broker_knows_no_topics(
    tracker: Any, cluster: Any, clock: Any, fail: str
) -> None:
    offset = following(tracker(), SENTINEL)
    topics, cluster.topics = cluster.topics, {}
    driver = tracker(subscribePattern="t.*", failOnDataLoss=fail)
    clock.meanwhile = lambda: len(clock.pauses) == 4 and cluster.topics.update(topics)
    assert sizes(driver, SENTINEL, offset) == WHOLE
    cluster.calls.clear()
    driver.plan(SENTINEL, offset)
    assert cluster.calls == []


def test_a_replay_reports_a_loss_after_the_confirmation_period(
    tracker: Any, cluster: Any, clock: Any
) -> None:
    offset = following(tracker(), SENTINEL)
    del cluster.topics["t"][1][1]
    begun = clock.at
    with pytest.raises(DataLossError, match=r"t-1 no longer exists"):
        tracker().plan(SENTINEL, offset)
    assert CONFIRM_S <= clock.at - begun <= CONFIRM_S + 2
    driver = tracker(failOnDataLoss="false")
    assert sizes(driver, SENTINEL, offset) == [KafkaOffsetRange(P0, 0, 100)]


def test_a_topic_removed_from_subscribe_is_not_reported_as_deleted(
    tracker: Any, cluster: Any, clock: Any
) -> None:
    cluster.topics["u"] = (ID_2, {0: (0, 5)})
    offset = following(tracker(subscribe="t,u"), SENTINEL)
    with pytest.raises(DataLossError, match="u-0 is in the checkpoint, but the options") as caught:
        tracker(subscribe="t").latest(offset)
    assert "gone" not in str(caught.value)


@pytest.mark.parametrize(
    ("change", "told", "left"),
    [
        (lambda logs: logs.pop(1), "t-1 no longer exists", {"0": 100}),
        (lambda logs: logs.update({0: (0, 60)}), r"t-0.* 100.* 60", {"0": 60, "1": 20}),
    ],
    ids=["a partition that is gone", "a log that shrank"],
)
def test_lost_records_fail_a_query_unless_fail_on_data_loss_is_false(
    tracker: Any, cluster: Any, clock: Any, change: Any, told: str, left: dict[str, int]
) -> None:
    offset = following(tracker(), SENTINEL)
    change(cluster.topics["t"][1])
    with pytest.raises(DataLossError, match=told):
        following(tracker(), offset)
    driver = tracker(failOnDataLoss="false")
    end = following(driver, offset)
    assert end["o"] == {"t": left}
    assert sizes(driver, offset, end) == []
    clock.at += 1
    assert following(driver, end) == end


def test_a_temporarily_lower_log_end_is_not_reported_as_loss(
    tracker: Any, cluster: Any, clock: Any
) -> None:
    driver = tracker()
    offset = following(driver, SENTINEL)
    cluster.topics["t"][1][0] = (0, 60)  # a new leader with an old high watermark
    clock.at += 1
    clock.meanwhile = lambda: cluster.topics["t"][1].update({0: (0, 104)})
    assert following(driver, offset)["o"]["t"]["0"] == 104


# -- leader epochs -----------------------------------------------------------------------------


def test_the_leader_epoch_of_a_position_changes_only_with_the_position(
    tracker: Any, cluster: Any, clock: Any
) -> None:
    cluster.epochs = {P0: 3, P1: 4}
    driver = tracker()
    first = following(driver, SENTINEL)
    assert first["epoch"] == {"t": {"0": 3, "1": 4}}
    cluster.epochs = {P0: 5, P1: 6}
    clock.at += 1
    assert following(driver, first) == first  # a leader election alone causes no batch
    cluster.topics["t"][1][0] = (0, 103)
    clock.at += 1
    second = following(driver, first)
    assert second["epoch"] == {"t": {"0": 5, "1": 4}}
    assert sizes(driver, first, second) == [KafkaOffsetRange(P0, 100, 103, 5)]


def test_a_position_is_compared_with_the_log_once_per_leader_election(
    tracker: Any, cluster: Any, clock: Any
) -> None:
    cluster.epochs = {P0: 3, P1: 4}
    driver = tracker()
    offset = following(driver, SENTINEL)
    assert "epochs" not in cluster.calls
    for election in range(1, 4):
        cluster.epochs[P0] += 1
        for _ in range(3):
            clock.at += 1
            assert following(driver, offset) == offset
        assert cluster.calls.count("epochs") == election


def test_records_replaced_below_the_position_are_reported_as_data_loss(
    tracker: Any, cluster: Any, clock: Any, caplog: Any
) -> None:
    cluster.epochs = {P0: 3, P1: 4}
    offset = following(tracker(), SENTINEL)
    cluster.epochs[P0], cluster.epoch_ends[P0, 3] = 5, 60
    cluster.topics["t"][1][0] = (0, 130)
    with pytest.raises(DataLossError, match=r"t-0: .* offsets 60 to 99 \(40 offsets\) were lost"):
        following(tracker(), offset)
    driver = tracker(failOnDataLoss="false")
    end = following(driver, offset)
    assert end["from"] == {"t": {"0": 60}}
    assert end["epoch"] == {"t": {"0": 5, "1": 4}}
    assert sizes(driver, offset, end) == [KafkaOffsetRange(P0, 60, 130, 5)]
    assert "60 to 99 (40 offsets)" in caplog.text
    assert clock.pauses == []  # a newer epoch proves the loss at once


def test_a_leader_without_epoch_history_is_not_reported_as_loss(
    tracker: Any, cluster: Any, clock: Any
) -> None:
    """The leader returns no end for an epoch if the log's format is older than Kafka 0.11."""
    cluster.epochs = {P0: 3, P1: 4}
    offset = following(tracker(), SENTINEL)
    cluster.epochs[P0], cluster.epoch_ends[P0, 3] = 5, -1
    assert following(tracker(), offset) == offset


def test_leader_epochs_of_a_different_cluster_or_topic_id_are_not_compared(
    tracker: Any, cluster: Any, clock: Any
) -> None:
    cluster.epochs = {P0: 3, P1: 4}
    first = following(tracker(), SENTINEL)
    cluster.cluster, cluster.epochs = "cluster-B", {P0: 9, P1: 9}
    mirror = tracker(allowClusterChange="true")
    assert following(mirror, first) == first
    assert {r.epoch for r in sizes(mirror, SENTINEL, first)} == {-1}
    cluster.cluster = "cluster-A"
    cluster.topics["t"] = (ID_2, {0: (0, 900), 1: (0, 900)})
    with pytest.raises(DataLossError, match="recreated"):
        following(tracker(), first)
    assert "epochs" not in cluster.calls


def test_ranges_of_a_batch_contain_the_leader_epochs(tracker: Any, cluster: Any) -> None:
    cluster.epochs = {P0: 3, P1: 4}
    plan = tracker(BATCH, endingOffsets='{"t":{"0":50,"1":-1}}').plan_batch()
    assert plan.ranges == [KafkaOffsetRange(P0, 0, 50, 3), KafkaOffsetRange(P1, 10, 20, 4)]


# -- outages -----------------------------------------------------------------------------------


def test_a_wrong_address_fails_within_thirty_seconds(
    tracker: Any, cluster: Any, clock: Any
) -> None:
    cluster.down_until = float("inf")
    begun = clock.now()
    with pytest.raises(OutageError, match=r"never answered before.*nobody answers"):
        following(tracker(), SENTINEL)
    assert 20 <= clock.now() - begun <= 23


def test_a_running_query_reports_no_new_offsets_during_an_outage(
    tracker: Any, cluster: Any, clock: Any
) -> None:
    driver = tracker()
    offset = following(driver, SENTINEL)
    cluster.topics["t"][1][0] = (0, 101)
    clock.at += 60
    cluster.down_until = clock.now() + 200
    while clock.now() < cluster.down_until:
        begun = clock.now()
        found = following(driver, offset)
        assert clock.now() - begun <= 11  # short, so that Spark can stop the query
    assert following(driver, offset)["o"]["t"]["0"] == 101
    assert found in (offset, following(driver, offset))


def test_an_outage_longer_than_outage_tolerance_fails_the_query(
    tracker: Any, cluster: Any, clock: Any
) -> None:
    driver = tracker(outageTolerance="60s")
    offset = following(driver, SENTINEL)
    clock.at += 60
    begun = clock.now()
    cluster.down_until = float("inf")
    while clock.now() - begun < 50:
        assert following(driver, offset) == offset
    with pytest.raises(OutageError, match="outageTolerance"):
        following(driver, offset)
    assert 60 <= clock.now() - begun <= 65


def test_a_query_restarted_during_an_outage_waits_for_its_end(
    tracker: Any, cluster: Any, clock: Any
) -> None:
    offset = following(tracker(), SENTINEL)
    cluster.down_until = clock.now() + 200
    assert sizes(tracker(), SENTINEL, offset) == WHOLE


# -- batch ---------------------------------------------------------------------------------------


def test_a_batch_query_reads_the_whole_log(tracker: Any) -> None:
    plan = tracker(BATCH).plan_batch()
    assert plan.ranges == WHOLE
    assert (plan.cluster, plan.topic_ids) == ("cluster-A", {"t": ID_1})


def test_ending_offsets_beyond_the_log_end_are_reported_as_data_loss(tracker: Any) -> None:
    given = '{"t":{"0":900,"1":-1}}'
    with pytest.raises(DataLossError, match=r"endingOffsets is 900.*0 to 100"):
        tracker(BATCH, endingOffsets=given).plan_batch()
    plan = tracker(BATCH, endingOffsets=given, failOnDataLoss="false").plan_batch()
    assert plan.ranges[0] == KafkaOffsetRange(P0, 0, 100)


def test_a_missing_topic_fails_a_batch_query(tracker: Any) -> None:
    with pytest.raises(MissingTopicError, match="nowhere"):
        tracker(BATCH, subscribe="nowhere").plan_batch()


def test_a_plan_contains_its_topics_metadata_unless_the_metadata_is_too_large(
    tracker: Any, cluster: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.topics["other"] = (ID_2, {0: (0, 5)})
    plan = tracker(BATCH).plan_batch()
    assert plan.hint["brokers"] == [[0, "h", 1]]
    assert plan.hint["topics"] == {
        "t": {"id": ID_1.replace("-", ""), "partitions": [[0, 1], [0, 1]]}
    }
    monkeypatch.setattr("odradek.spark.driver.tracker.HINT_PARTITIONS", 1)
    assert tracker(BATCH).plan_batch().hint["topics"] == {}


@pytest.mark.parametrize("stale", ["description", "metadata"])
def test_a_batch_is_planned_again_while_brokers_name_different_topic_ids(
    tracker: Any, cluster: Any, clock: Any, monkeypatch: pytest.MonkeyPatch, stale: str
) -> None:
    """The topic was recreated, and one of two brokers still has the old topic's metadata."""
    old, new = cluster.topics["t"], (ID_2, {0: (0, 3), 1: (0, 0)})
    method = "describe" if stale == "description" else "bootstrap_hint"
    ask = getattr(MemoryConsumer, method)

    def lagging(client: Any, *arguments: Any, **options: Any) -> Any:
        """Answer from the old topic until clients were renewed twice."""
        cluster.topics["t"] = old if cluster.dropped < 2 else new
        try:
            return ask(client, *arguments, **options)
        finally:
            cluster.topics["t"] = new

    monkeypatch.setattr(MemoryConsumer, method, lagging)
    cluster.topics["t"] = new
    plan = tracker(BATCH).plan_batch()
    assert plan.ranges == [KafkaOffsetRange(P0, 0, 3)]
    assert plan.topic_ids == {"t": ID_2}
    assert plan.hint["topics"]["t"]["id"] == ID_2.replace("-", "")
    assert cluster.dropped == 2


def test_a_plan_omits_metadata_with_another_topic_id(
    tracker: Any, cluster: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    stale = {"t": {"id": ID_2.replace("-", ""), "partitions": [[0, 1], [0, 1]]}}
    monkeypatch.setattr(MemoryConsumer, "bootstrap_hint", lambda _: {"topics": stale})
    plan = tracker(BATCH).plan_batch()
    assert plan.topic_ids == {"t": ID_1}
    assert plan.hint["topics"] == {}


def test_planning_reads_the_metadata_twice_for_any_number_of_ranges(
    tracker: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each read copies all metadata; a read per range would take quadratic time."""
    ask, looks = MemoryConsumer.bootstrap_hint, list[None]()

    def counted(client: MemoryConsumer) -> Any:
        looks.append(None)
        return ask(client)

    monkeypatch.setattr(MemoryConsumer, "bootstrap_hint", counted)
    plan = tracker(BATCH, minPartitions="50").plan_batch()
    assert len(plan.ranges) >= 50
    assert len(looks) == 2


def test_a_plan_contains_metadata_without_topic_ids(
    tracker: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = {"t": {"id": "0" * 32, "partitions": [[0, 1], [0, 1]]}}
    monkeypatch.setattr(MemoryConsumer, "bootstrap_hint", lambda _: {"topics": known})
    plan = tracker(BATCH).plan_batch()
    assert (plan.topic_ids, plan.hint["topics"]) == ({"t": ID_1}, known)


# -- former bugs ---------------------------------------------------------------------------------


def test_available_now_waits_for_the_start_of_an_added_partition(
    tracker: Any, cluster: Any, clock: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A response of "no new offsets" would end the query without the added partitions."""
    offset = following(tracker(), SENTINEL)
    cluster.topics["t"][1][2] = (0, 50)

    class Calls(list[str]):
        """A call log that stops all brokers when the new partition's start is looked up."""

        def append(self, what: str) -> None:
            super().append(what)
            if what == "beginning" and not cluster.down_until:
                cluster.down_until = clock.now() + 300

    monkeypatch.setattr(cluster, "calls", Calls())
    driver = tracker()
    driver.freeze()
    end = following(driver, offset)
    assert end["o"] == {"t": {"0": 100, "1": 20, "2": 50}}
    assert clock.now() >= cluster.down_until > 1000


def test_latest_resolved_before_the_log_was_truncated_becomes_the_new_log_end(
    tracker: Any, cluster: Any, clock: Any
) -> None:
    driver = tracker(startingOffsets="latest")
    assert following(driver, SENTINEL)["from"] == {"t": {"0": 100, "1": 20}}
    cluster.topics["t"] = (
        ID_1,
        {0: (0, 90), 1: (10, 20)},
    )  # truncated before Spark stored the offset
    clock.at += 1
    end = following(driver, SENTINEL)
    assert end["o"] == end["from"] == {"t": {"0": 90, "1": 20}}
    assert sizes(driver, SENTINEL, end) == []


def test_offsets_of_a_different_cluster_are_rejected(tracker: Any) -> None:
    driver = tracker()
    offset = following(driver, SENTINEL)
    assert driver.latest(offset) == offset
    foreign = {**offset, "cluster": "cluster-B"}
    with pytest.raises(ClusterIdMismatchError, match=r"cluster-B"):
        driver.latest(foreign)
    with pytest.raises(ClusterIdMismatchError, match=r"cluster-B"):
        driver.plan(offset, foreign)


# -- asynchronous progress tracking: Spark doesn't store every offset ------------------------------


def skipped(driver: OffsetTracker, cluster: Any, clock: Any, start: Any, change: Any) -> Any:
    """Plan a batch after `change` and one after more records; return the latter's end."""
    change()
    clock.at += 60
    between = following(driver, start)
    assert between != start
    for tp, (begin, end) in [(P, cluster.bounds(P)) for P in (P0, P1)]:
        cluster.topics["t"][1][tp.partition] = (begin, end + 5)
    clock.at += 60
    return following(driver, between)


def test_a_partition_added_before_an_offset_that_spark_did_not_store_is_read_from_0(
    tracker: Any, cluster: Any, clock: Any, caplog: Any
) -> None:
    driver = tracker()
    start = following(driver, SENTINEL)
    joined = TopicPartition("t", 2)
    end = skipped(driver, cluster, clock, start, lambda: cluster.topics["t"][1].update({2: (0, 8)}))
    assert "from" not in end
    assert sizes(tracker(), start, end)[2] == KafkaOffsetRange(joined, 0, 8)
    cluster.topics["t"][1][2] = (3, 8)  # retention has deleted the first records
    with pytest.raises(DataLossError, match="t-2 is new to the query"):
        tracker().plan(start, end)
    assert sizes(tracker(failOnDataLoss="false"), start, end)[2] == KafkaOffsetRange(joined, 3, 8)


def test_a_topic_recreated_before_an_offset_that_spark_did_not_store_is_detected(
    tracker: Any, cluster: Any, clock: Any, caplog: Any
) -> None:
    driver = tracker(failOnDataLoss="false")
    start = following(driver, SENTINEL)

    def change() -> None:
        cluster.topics["t"] = (ID_2, {0: (0, 126), 1: (0, 12)})

    end = skipped(driver, cluster, clock, start, change)
    caplog.clear()
    assert sizes(tracker(failOnDataLoss="false"), start, end) == [
        KafkaOffsetRange(P0, 0, 131),
        KafkaOffsetRange(P1, 0, 17),
    ]
    assert f"topic id {ID_1}" in caplog.text
    with pytest.raises(DataLossError, match=rf"{ID_1}.*{ID_2}"):
        tracker().plan(start, end)


def test_without_topic_ids_a_recreation_before_an_offset_that_was_not_stored_is_detected(
    tracker: Any, cluster: Any, clock: Any, caplog: Any
) -> None:
    """The leader epochs, which are lower than before, show that the topic was recreated."""
    cluster.epochs = {P0: 3, P1: 4}
    driver = tracker(failOnDataLoss="false")
    start = following(driver, SENTINEL)

    def change() -> None:
        cluster.epochs = {P0: 0, P1: 0}
        cluster.topics["t"] = (ID_1, {0: (0, 126), 1: (0, 12)})

    end = skipped(driver, cluster, clock, start, change)
    assert "from" not in end
    caplog.clear()
    assert sizes(tracker(failOnDataLoss="false"), start, end) == [
        KafkaOffsetRange(P0, 0, 131, 0),
        KafkaOffsetRange(P1, 0, 17, 0),
    ]
    assert "t-0: the leader epoch is now 0, below epoch 3" in caplog.text
    with pytest.raises(DataLossError, match="t-1: the leader epoch is now 0, below epoch 4"):
        tracker().plan(start, end)


def test_a_log_truncated_before_an_offset_that_spark_did_not_store_is_detected(
    tracker: Any, cluster: Any, clock: Any, caplog: Any
) -> None:
    cluster.epochs = {P0: 3, P1: 4}
    driver = tracker(failOnDataLoss="false")
    start = following(driver, SENTINEL)

    def change() -> None:
        cluster.epochs[P0], cluster.epoch_ends[P0, 3] = 5, 60
        cluster.topics["t"][1][0] = (0, 130)

    end = skipped(driver, cluster, clock, start, change)
    caplog.clear()
    found = sizes(tracker(failOnDataLoss="false"), start, end)
    assert found[0] == KafkaOffsetRange(P0, 60, 135, 5)
    assert "60 to 99 (40 offsets)" in caplog.text
    with pytest.raises(DataLossError, match="60 to 99"):
        tracker().plan(start, end)


def test_a_topic_excluded_by_a_narrower_pattern_is_not_reported_as_deleted(
    tracker: Any, cluster: Any
) -> None:
    cluster.topics["u"] = (ID_2, {0: (0, 5)})
    offset = following(tracker(subscribePattern="t|u"), SENTINEL)
    with pytest.raises(DataLossError, match="u-0 is in the checkpoint, but the options"):
        tracker(subscribePattern="t").latest(offset)

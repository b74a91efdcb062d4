"""Runs of a cached Spark plan: when their tasks plan again; each record is read once."""

from __future__ import annotations

import itertools
import logging
import pickle
import random
from typing import Any
from uuid import UUID

import pytest
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import BinaryType, StructType
from tests.unit.spark.conftest import ID_2

from odradek.common.errors import ClusterIdMismatchError
from odradek.common.types import TopicPartition
from odradek.runtime.system_clock import SystemClock
from odradek.spark.checkpoint_errors import DataLossError, MissingTopicError, OptionError
from odradek.spark.driver.discovery import UnconfirmedObservation
from odradek.spark.driver.planning import KafkaOffsetRange
from odradek.spark.driver.source import KafkaDataSource
from odradek.spark.driver.tracker import OffsetTracker
from odradek.spark.options.source_options import BATCH, parse_options
from odradek.spark.tasks import task as tasks
from odradek.spark.tasks.cached_plans import (
    LATE_MS,
    QUERY_ID,
    OldPlans,
    Share,
    is_later,
    made_at,
    plan_anew,
    shares,
)
from odradek.spark.tasks.task import KafkaInputPartition, batch_partitions, read_partition

PLANNED = 0x01A20FE49CCF
BEFORE, SAME, AFTER = (
    f"{at:012x}"[:8] + "-" + f"{at:012x}"[8:] + "-73e2-ab62-049cf331d03c"
    for at in (PLANNED - 1, PLANNED, PLANNED + 1)
)
STREAM_ID = "5e45a5e2-1061-453f-b2a6-e5c7ff33da49"
OPTIONS = {"kafka.bootstrap.servers": "localhost:1"}
TOPIC = {"subscribe": "t"}
VALUE = StructType().add("value", BinaryType())
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def test_the_creation_time_is_read_from_a_query_id() -> None:
    assert made_at(AFTER) == PLANNED + 1
    for strange in (None, "", "7", STREAM_ID):
        assert made_at(strange) is None


def test_only_a_query_created_after_the_cached_plan_plans_again() -> None:
    share = Share(PLANNED)
    later = [is_later(share, query, None) for query in (BEFORE, SAME, AFTER, None, STREAM_ID)]
    assert later == [False, False, True, False, False]


def test_a_micro_batch_plans_again_unless_its_query_id_was_created_before_the_plan() -> None:
    share = Share(PLANNED)
    assert is_later(share, STREAM_ID, "0")
    assert is_later(share, AFTER, "3")
    assert not is_later(share, BEFORE, "3")


class TasksOfAMemoryCluster:
    """Plans batches and runs their tasks one by one, with pickled partitions as in Spark."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, cluster: Any) -> None:
        self._cluster, self.out = cluster, 0
        self.told = {QUERY_ID: AFTER}
        monkeypatch.setattr(tasks, "process_clients", lambda: self)
        monkeypatch.setattr(tasks, "_property", self.told.get)
        monkeypatch.setattr(tasks, "SystemClock", lambda: cluster.clock)

    def connect(self, config: Any, hint: Any, *, fresh: bool = False) -> Any:
        assert config["cluster.id.expected"] == "cluster-A"
        self.out += 1
        client = self._cluster.connect(config)
        client.known_ids = {} if hint is None else {t: at["id"] for t, at in hint["topics"].items()}
        return client

    def release(self, client: Any) -> None:
        self.out -= 1

    def drop(self, client: Any) -> None:
        self.out -= 1

    def plan(self, **given: str) -> list[KafkaInputPartition]:
        options = parse_options({**OPTIONS, **(given or TOPIC)}, BATCH)
        tracker = OffsetTracker(options, self._cluster, self._cluster.clock)
        found = batch_partitions(tracker.plan_batch(), PLANNED)
        return [pickle.loads(pickle.dumps(p)) for p in found]  # noqa: S301 (our own bytes)

    def read(self, partitions: list[KafkaInputPartition], **given: str) -> list[int]:
        options = parse_options({**OPTIONS, **(given or TOPIC)}, BATCH)
        found: list[int] = []
        for partition in partitions:
            for batch in read_partition(options, VALUE, partition):
                found += [int(value) for value in batch.column(0).to_pylist()]
            assert self.out == 0, "a client was left checked out"
        return sorted(found)


@pytest.fixture
def spark_tasks(monkeypatch: pytest.MonkeyPatch, cluster: Any) -> TasksOfAMemoryCluster:
    return TasksOfAMemoryCluster(monkeypatch, cluster)


def test_the_first_run_reads_the_planned_ranges(spark_tasks: Any, cluster: Any) -> None:
    planned = spark_tasks.plan()
    cluster.topics["t"][1][0] = (0, 150)
    for query_id in (BEFORE, SAME, STREAM_ID):
        spark_tasks.told[QUERY_ID] = query_id
        assert spark_tasks.read(planned) == sorted([*range(100), *range(10, 20)])


def test_a_later_run_of_a_cached_plan_reads_the_current_log(spark_tasks: Any, cluster: Any) -> None:
    planned = spark_tasks.plan()
    cluster.topics["t"][1][0] = (40, 150)
    assert spark_tasks.read(planned) == sorted([*range(40, 150), *range(10, 20)])


def test_a_later_run_for_a_recreated_topic_does_not_use_the_first_runs_metadata(
    spark_tasks: Any, cluster: Any
) -> None:
    given = {**TOPIC, "outageTolerance": "60s"}  # without a limit, a failing test wouldn't end
    planned = spark_tasks.plan(**given)
    cluster.topics["t"] = (ID_2, {0: (0, 3)})
    assert spark_tasks.read(planned, **given) == [0, 1, 2]


def test_later_runs_read_each_record_once_whatever_the_tasks_and_changes_of_the_log(
    spark_tasks: Any, cluster: Any
) -> None:
    draw = random.Random(18)
    for _ in range(60):
        logs = cluster.topics["t"][1]
        logs.clear()
        for number in range(draw.randint(1, 3)):
            begin = draw.randint(0, 30)
            logs[number] = (begin, begin + draw.choice([0, 1, 30]))
        limits = {**TOPIC, "maxRecordsPerPartition": str(draw.randint(3, 20))}
        planned = spark_tasks.plan(**limits)
        for number in range(len(logs) + draw.randint(0, 2)):
            begin, end = logs.get(number, (0, 0))
            end = draw.choice([end, end + 20, draw.randint(0, 60)])  # lower if recreated
            logs[number] = (min(draw.choice([begin, begin + 7, 0]), end), end)
        wanted = sorted(itertools.chain.from_iterable(range(b, e) for b, e in logs.values()))
        assert spark_tasks.read(planned, **limits) == wanted


def test_later_runs_read_partitions_that_were_empty_in_the_first_run(
    spark_tasks: Any, cluster: Any
) -> None:
    cluster.topics["t"][1].update({0: (5, 5), 1: (10, 10)})
    planned = spark_tasks.plan()
    assert [p.wanted for p in planned] == [None]
    spark_tasks.told.clear()
    assert spark_tasks.read(planned) == []
    spark_tasks.told[QUERY_ID] = AFTER
    cluster.topics["t"][1].update({0: (5, 8), 1: (10, 12)})
    assert spark_tasks.read(planned) == [5, 6, 7, 10, 11]


def test_later_runs_check_the_offsets_in_the_options_again(spark_tasks: Any, cluster: Any) -> None:
    given = {**TOPIC, "startingOffsets": '{"t":{"0":50,"1":-2}}'}
    given["endingOffsets"] = '{"t":{"0":60,"1":-1}}'
    planned = spark_tasks.plan(**given)
    cluster.topics["t"][1].update({0: (0, 200), 1: (10, 21)})
    assert spark_tasks.read(planned, **given) == sorted([*range(50, 60), *range(10, 21)])
    cluster.topics["t"][1][0] = (55, 200)
    with pytest.raises(DataLossError, match="startingOffsets is 50"):
        spark_tasks.read(planned, **given)
    given["failOnDataLoss"] = "false"
    assert spark_tasks.read(planned, **given) == sorted([*range(55, 60), *range(10, 21)])
    cluster.topics["t"][1][2] = (0, 5)
    with pytest.raises(OptionError, match="startingOffsets lacks t-2"):
        spark_tasks.read(planned, **given)


def test_a_deleted_topic_fails_a_later_run_unless_a_pattern_selected_it(
    spark_tasks: Any, cluster: Any
) -> None:
    cluster.topics["u"] = (ID_2, {0: (0, 5)})
    pattern = {"subscribePattern": "[tu]"}
    planned, of_pattern = spark_tasks.plan(), spark_tasks.plan(**pattern)
    del cluster.topics["t"]
    with pytest.raises(MissingTopicError, match="doesn't have t "):
        spark_tasks.read(planned)
    assert spark_tasks.read(of_pattern, **pattern) == [0, 1, 2, 3, 4]


def test_only_the_first_task_of_a_later_run_looks_up_all_partitions(cluster: Any) -> None:
    options = parse_options(OPTIONS | TOPIC, BATCH)
    ranges = [KafkaOffsetRange(T0, 0, 100), KafkaOffsetRange(T1, 10, 20)]
    first, second = shares(ranges, PLANNED)
    assert (first.planned, second.planned) == (frozenset({T0, T1}), None)
    del cluster.topics["t"][1][0]  # the second task mustn't look up t-0
    anew = plan_anew(options, ranges[1], second, "cluster-A", cluster, cluster.clock)
    assert anew.ranges == [ranges[1]]


def test_each_task_of_a_later_run_resolves_earliest_and_latest_of_whole_topics_again(
    cluster: Any,
) -> None:
    cluster.topics["u"] = (str(UUID(int=2)), {0: (0, 7)})
    given = {"subscribe": "t,u", "startingOffsets": '{"t":"earliest","u":"earliest"}'}
    options = parse_options(OPTIONS | given, BATCH)
    ranges = [KafkaOffsetRange(T0, 0, 100), KafkaOffsetRange(T1, 10, 20)]
    _, second = shares(ranges, PLANNED)
    anew = plan_anew(options, ranges[1], second, "cluster-A", cluster, cluster.clock)
    assert anew.ranges == [ranges[1]]


def test_a_later_run_rejects_a_different_cluster(cluster: Any) -> None:
    options = parse_options(OPTIONS | TOPIC, BATCH)
    share = shares([KafkaOffsetRange(T0, 0, 100)], PLANNED)[0]
    with pytest.raises(ClusterIdMismatchError):
        plan_anew(options, KafkaOffsetRange(T0, 0, 100), share, "cluster-B", cluster, cluster.clock)


def test_reading_a_dataframe_long_after_it_was_planned_logs_one_warning(
    cluster: Any, caplog: pytest.LogCaptureFixture
) -> None:
    options = parse_options(OPTIONS | TOPIC, BATCH)
    wanted, share, plans = KafkaOffsetRange(T0, 0, 90), Share(PLANNED), OldPlans()
    fixed = parse_options({**OPTIONS, **TOPIC, "endingOffsets": '{"t":{"0":90,"1":20}}'}, BATCH)
    whole = KafkaOffsetRange(T0, 0, 100)
    consumer, late = cluster.connect({}), PLANNED + LATE_MS
    with caplog.at_level(logging.WARNING, "odradek.spark"):
        plans.look(options, wanted, share, consumer, late - 1)
        plans.look(fixed, wanted, share, consumer, late)
        plans.look(options, whole, share, consumer, late)
        assert caplog.messages == []
        plans.look(options, wanted, share, consumer, late + 5000)
        plans.look(options, wanted, share, consumer, late)
    (said,) = caplog.messages
    assert said.startswith("t-0 is read up to offset 90, the end of the log when")
    assert "load it again" in said


def test_planned_partitions_contain_the_time_at_which_they_were_planned(
    monkeypatch: pytest.MonkeyPatch, cluster: Any
) -> None:
    monkeypatch.setattr("odradek.spark.driver.batch_source.process_clients", lambda: cluster)
    monkeypatch.setattr("odradek.spark.driver.batch_source.SystemClock.date_ms", lambda _: PLANNED)
    source = KafkaDataSource(OPTIONS | TOPIC)
    found: list[InputPartition] = list(source.reader(source.schema()).partitions())
    told = [p.share for p in found if isinstance(p, KafkaInputPartition)]
    assert told == shares([KafkaOffsetRange(T0, 0, 100), KafkaOffsetRange(T1, 10, 20)], PLANNED)


def test_unconfirmed_losses_are_shared_by_the_tasks_of_one_plan() -> None:
    """A worker runs several queries; one mustn't use the unconfirmed losses of another."""
    options = parse_options({"kafka.bootstrap.servers": "b:1", "subscribe": "t"}, BATCH)
    doubts, clock, wanted = tasks.LostRecordChecks(), SystemClock(), KafkaOffsetRange(T0, 0, 1)

    def doubt(planned_at: int | None, of: str = "c") -> UnconfirmedObservation:
        share = None if planned_at is None else Share(planned_at)
        partition = KafkaInputPartition(wanted, of, None, None, share)
        return doubts.of_batch(options, clock, partition)

    first = doubt(1)
    assert doubt(1) is first
    assert doubt(1, "another cluster") is not first
    assert doubt(2) is not doubt(1)
    assert doubt(None) is doubt(None)

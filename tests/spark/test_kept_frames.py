"""Check that a kept frame reads the topic's current records each time, as with the JVM connector.

Spark plans a loaded frame once (`odradek.spark.tasks.cached_plans`): each test runs a plan again.
`test_parity` compares frames, views and the static side of a join with the JVM connector's;
`guide_job` runs some through Spark Connect.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from pyspark.sql import DataFrame, SparkSession
from tests.spark.conftest import Topics, numbered

SETTING = "spark.sql.python.filterPushdown.enabled"
Read = Callable[..., DataFrame]


def numbers(frame: DataFrame) -> list[int]:
    return sorted(int(row.value) for row in frame.select("value").collect())


def test_a_reused_frame_reads_current_records_after_retention_and_recreation(
    topics: Topics, read: Read
) -> None:
    topic = topics.create(1)
    topics.fill(topic, numbered(0, 10), partitions=1)
    kept = read(topic)
    assert kept.count() == 10
    topics.forget(topic, 6)
    topics.fill(topic, numbered(10, 12), partitions=1)
    assert numbers(kept) == list(range(6, 12))
    topics.delete(topic)
    topics.create(1, topic)
    topics.wait_for_one_id(topic)
    topics.fill(topic, numbered(100, 103), partitions=1)
    assert numbers(kept) == [100, 101, 102]


def test_a_cached_frame_is_fixed_and_collect_reads_new_records(topics: Topics, read: Read) -> None:
    topic = topics.create(1)
    topics.fill(topic, numbered(0, 10), partitions=1)
    cached, checked = read(topic).cache(), read(topic).localCheckpoint()
    itself = read(topic)
    assert cached.count() == checked.count() == len(itself.collect()) == 10
    topics.fill(topic, numbered(10, 15), partitions=1)
    assert cached.count() == checked.count() == 10
    assert len(itself.collect()) == 15
    cached.unpersist()
    assert cached.count() == itself.count() == 15


@pytest.mark.parametrize("setting", ["true", "false"])
def test_filters_of_one_query_do_not_affect_another(
    spark: SparkSession, topics: Topics, read: Read, setting: str
) -> None:
    topic = topics.create(2)
    topics.fill(topic, numbered(0, 10))
    spark.conf.set(SETTING, setting)
    try:
        kept = read(topic)
        one, other = kept.where("partition = 1"), kept.where("partition = 0")
        assert [one.count(), kept.count(), other.count()] == [5, 10, 5]
        both = one.union(other).groupBy("partition").count()
        assert sorted(tuple(row) for row in both.collect()) == [(0, 5), (1, 5)]
        topics.fill(topic, numbered(10, 20))
        assert [one.count(), kept.count()] == [10, 20]
    finally:
        spark.conf.unset(SETTING)

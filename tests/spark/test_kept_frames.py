"""A frame that is kept reads what its topic holds when it is run, as with the JVM connector.

Spark plans a loaded frame once (see `odradek.spark.tasks.later_runs`): each test runs a plan again.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from tests.spark.conftest import Topics, numbered, spark_options

from odradek.testing import LocalCluster

SETTING = "spark.sql.python.filterPushdown.enabled"
Read = Callable[..., DataFrame]


def numbers(frame: DataFrame) -> list[int]:
    return sorted(int(row.value) for row in frame.select("value").collect())


def test_a_frame_and_a_view(spark: SparkSession, topics: Topics, read: Read) -> None:
    topic = topics.create(2)
    topics.fill(topic, numbered(0, 10))
    kept = read(topic)
    kept.createOrReplaceTempView("kept")
    assert kept.count() == 10
    topics.fill(topic, numbered(10, 15))
    assert kept.count() == 15
    assert spark.sql("SELECT count(*) AS n FROM kept").first() == (15,)
    assert numbers(kept) == list(range(15))
    assert kept.union(kept).count() == 30
    assert kept.alias("a").join(f.broadcast(kept.alias("b")), "value").count() == 15
    assert kept.orderBy("offset").limit(20).count() == 15


def test_divided_partitions_new_ones_and_one_that_was_empty(topics: Topics, read: Read) -> None:
    topic = topics.create(2)
    topics.fill(topic, numbered(0, 10), partitions=1)
    kept = read(topic, maxRecordsPerPartition="4")
    assert numbers(kept) == list(range(10))
    topics.grow(topic, 3)
    topics.fill(topic, numbered(10, 40), partitions=3)
    assert numbers(kept) == list(range(40))


def test_a_topic_that_was_empty(topics: Topics, read: Read) -> None:
    topic = topics.create(2)
    kept = read(topic)
    assert kept.count() == 0
    topics.fill(topic, numbered(0, 10))
    assert numbers(kept) == list(range(10))


def test_a_pattern_finds_new_topics_and_lets_old_ones_go(
    spark: SparkSession, cluster: LocalCluster, topics: Topics
) -> None:
    topics.create(1, "kept-a")
    topics.create(1, "kept-b")
    topics.fill("kept-a", numbered(0, 5), partitions=1)
    topics.fill("kept-b", numbered(5, 10), partitions=1)
    reader = spark.read.format("odradek").options(**spark_options(cluster.client_config()))
    kept = reader.option("subscribePattern", "kept-.").load()
    assert numbers(kept) == list(range(10))
    topics.delete("kept-b")
    topics.create(1, "kept-c")
    topics.fill("kept-c", numbered(10, 15), partitions=1)
    assert numbers(kept) == [*range(5), *range(10, 15)]


def test_retention_and_a_topic_made_anew(topics: Topics, read: Read) -> None:
    topic = topics.create(1)
    topics.fill(topic, numbered(0, 10), partitions=1)
    kept = read(topic)
    assert kept.count() == 10
    topics.forget(topic, 6)
    topics.fill(topic, numbered(10, 12), partitions=1)
    assert numbers(kept) == list(range(6, 12))
    topics.delete(topic)
    topics.create(1, topic)
    topics.fill(topic, numbered(100, 103), partitions=1)
    assert numbers(kept) == [100, 101, 102]


def test_offsets_that_are_given_stay(topics: Topics, read: Read) -> None:
    topic = topics.create(1)
    topics.fill(topic, numbered(0, 10), partitions=1)
    kept = read(
        topic, startingOffsets=f'{{"{topic}":{{"0":2}}}}', endingOffsets=f'{{"{topic}":{{"0":8}}}}'
    )
    for _ in range(2):
        assert numbers(kept) == list(range(2, 8))
        topics.fill(topic, numbered(10, 15), partitions=1)


def test_a_cached_frame_stays_and_collect_reads_on(topics: Topics, read: Read) -> None:
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


@pytest.mark.timeout(240)
def test_through_spark_connect(cluster: LocalCluster, topics: Topics) -> None:
    topic = topics.create(2)
    topics.fill(topic, numbered(0, 10))
    program = Path(__file__).with_name("connect_job.py")
    done = subprocess.run(
        [sys.executable, str(program), topic, json.dumps(cluster.client_config())],
        capture_output=True,
        text=True,
        check=False,
        # the server's workers must find `pyspark_odradek` where this Python does
        env={**os.environ, "PYSPARK_PYTHON": sys.executable},
    )
    assert done.returncode == 0, done.stderr[:6000]
    assert json.loads(done.stdout.splitlines()[-1]) == [[10] * 3, [15] * 3]


def test_the_static_side_of_a_join_and_of_foreach_batch(
    spark: SparkSession, cluster: LocalCluster, topics: Topics, read: Read, tmp_path: Path
) -> None:
    topic, facts = topics.create(1), topics.create(1)
    topics.fill(facts, [(b"a", b"1")], partitions=1)
    static = read(facts).selectExpr("key", "value AS fact")
    reader = spark.readStream.format("odradek").options(**spark_options(cluster.client_config()))
    streamed = reader.options(subscribe=topic, startingOffsets="earliest").load()
    found: list[tuple[list[str], int]] = []

    def write(batch: DataFrame, _: int) -> None:
        found.append((sorted(bytes(r.fact).decode() for r in batch.collect()), static.count()))

    query: Any = streamed.join(static, "key").writeStream.foreachBatch(write).start()
    try:
        for batch in range(2):
            topics.fill(topic, [(b"a", b"x")], partitions=1)
            query.processAllAvailable()
            assert found[-1] == ([str(n + 1) for n in range(batch + 1)], batch + 1)
            topics.fill(facts, [(b"a", f"{batch + 2}".encode())], partitions=1)
    finally:
        query.stop()


@pytest.mark.parametrize("setting", ["true", "false"])
def test_filters_of_one_query_narrow_no_other(
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

"""Batch queries: what was produced is what is read."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

import odradek.spark
from odradek.testing import LocalCluster

Read = Callable[..., DataFrame]


def test_everything_that_was_produced_is_read(read: Read, topics: Any) -> None:
    topic = topics.create(partitions=2)
    stamp = 1_700_000_000_123
    sent = [(b"k", b"v0"), (None, b"v1"), (b"", None), (b"\xff", b"")]
    topics.fill(topic, sent, timestamp=stamp, headers=[("h", b"1"), ("h", None)])
    topics.fill(topic, [(b"plain", b"no headers")], timestamp=stamp)
    rows = read(topic, includeHeaders="true").orderBy("partition", "offset").collect()
    when = datetime.datetime.fromtimestamp(stamp / 1000, tz=datetime.UTC).replace(tzinfo=None)
    headers = [("h", b"1"), ("h", None)]
    found = [
        (r.partition, r.offset, r.key, r.value, r.headers and [tuple(h) for h in r.headers])
        for r in rows
    ]
    assert found == [
        (0, 0, b"k", b"v0", headers),
        (0, 1, b"", None, headers),
        (0, 2, b"plain", b"no headers", None),
        (1, 0, None, b"v1", headers),
        (1, 1, b"\xff", b"", headers),
    ]
    assert {r.topic for r in rows} == {topic}
    assert {r.timestampType for r in rows} == {0}
    stamps = read(topic).selectExpr("date_format(timestamp, 'yyyy-MM-dd HH:mm:ss.SSS') AS t")
    assert {r.t for r in stamps.collect()} == {when.isoformat(" ", "milliseconds")}


def test_any_columns_by_a_schema_of_the_users(read: Read, topics: Any) -> None:
    topic = topics.create(partitions=2)
    topics.fill(topic, [(None, f"{n}".encode()) for n in range(5000)])
    frame = read(topic, schema="offset bigint, value binary")
    assert frame.columns == ["offset", "value"]
    found = frame.selectExpr("count(*) n", "sum(cast(cast(value AS string) AS int)) s").collect()
    assert (found[0].n, found[0].s) == (5000, sum(range(5000)))
    assert read(topic).rdd.getNumPartitions() == 2


def test_a_range_of_offsets(read: Read, topics: Any) -> None:
    topic = topics.create(partitions=2)
    topics.fill(topic, [(None, f"{n}".encode()) for n in range(2000)])
    rows = read(
        topic,
        startingOffsets=f'{{"{topic}":{{"0":10,"1":-2}}}}',
        endingOffsets=f'{{"{topic}":{{"0":13,"1":2}}}}',
    ).collect()
    assert sorted((r.partition, r.offset) for r in rows) == [
        (0, 10), (0, 11), (0, 12), (1, 0), (1, 1),
    ]  # fmt: skip


def test_an_empty_topic_gives_no_rows(read: Read, topics: Any) -> None:
    frame = read(topics.create(partitions=1))
    assert frame.count() == 0
    assert frame.columns[:2] == ["key", "value"]


def test_the_source_can_be_registered_by_hand(
    spark: SparkSession, cluster: LocalCluster, topics: Any
) -> None:
    topic = topics.create(partitions=1)
    topics.fill(topic, [(None, b"x")] * 3, partitions=1)
    spark.dataSource.register(odradek.spark.KafkaDataSource)
    frame = (
        spark.read.format("odradek")
        .option("kafka.bootstrap.servers", cluster.bootstrap_servers)
        .option("ASSIGN", f'{{"{topic}":[0]}}')
        .load()
    )
    assert frame.count() == 3


def test_records_that_aged_out_fail_the_query_or_are_skipped(
    read: Read, topics: Any, cluster: LocalCluster
) -> None:
    topic = topics.create(partitions=1)
    topics.fill(topic, [(None, f"{n}".encode()) for n in range(100)], partitions=1)
    topics.forget(topic, 40)
    given = {"startingOffsets": f'{{"{topic}":{{"0":30}}}}'}
    with pytest.raises(PySparkException) as caught:
        read(topic, **given).collect()
    for words in (f"{topic}-0", " 30", "40 to 100", "OFFSET_OUT_OF_RANGE", "failOnDataLoss"):
        assert words in str(caught.value)
    assert read(topic, failOnDataLoss="false", **given).count() == 60


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"startingOfsets": "earliest"}, ["startingofsets", "did you mean startingOffsets"]),
        ({"subscribePattern": "t.*"}, ["exactly one of", "subscribePattern", "not 2"]),
        ({"kafka.auto.offset.reset": "latest"}, ["kafka.auto.offset.reset can't be set"]),
        ({"startingOffsets": "latest"}, ["startingOffsets of a batch query can't be latest"]),
        ({"startingOffsets": '{"x":{"0":1}}'}, ["startingOffsets lacks"]),
    ],
)
def test_refused_options_are_named(
    read: Read, topics: Any, options: dict[str, str], words: list[str]
) -> None:
    topic = topics.create(partitions=1)
    with pytest.raises(PySparkException) as caught:
        read(topic, **options).collect()
    for word in words:
        assert word in str(caught.value)

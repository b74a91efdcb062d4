"""Check the limits of Python data sources in docs/spark.md, and their workarounds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.datasource import InputPartition
from tests.spark.conftest import Topics

from odradek.spark import lag, write_batch


def counts(spark: SparkSession, topic: str, options: dict[str, str]) -> DataFrame:
    rows = spark.readStream.format("odradek").options(**options)
    read = rows.options(subscribe=topic, startingOffsets="earliest").load()
    return (
        read.groupBy("key")
        .count()
        .select("key", f.col("count").cast("string").cast("binary").alias("value"))
    )


def test_update_mode_is_rejected_and_write_batch_writes_each_batch_once(
    spark: SparkSession, topics: Topics, options: dict[str, str], tmp_path: Path
) -> None:
    source, target = topics.create(partitions=1), topics.create(partitions=1)
    topics.fill(source, [(b"a", b"1"), (b"b", b"1"), (b"a", b"1")], partitions=1)
    updates = counts(spark, source, options).writeStream.outputMode("update")
    with pytest.raises(PySparkException, match="odradek does not support Update mode"):
        updates.format("odradek").options(**options).option("topic", target).option(
            "checkpointLocation", str(tmp_path / "refused")
        ).trigger(availableNow=True).start().awaitTermination()

    sink = {**options, "topic": target}
    place = tmp_path / "done"

    def run() -> None:
        query: Any = updates.foreachBatch(
            lambda frame, batch_id: write_batch(frame, batch_id, sink)
        )
        query = query.option("checkpointLocation", str(place)).trigger(availableNow=True).start()
        query.awaitTermination()

    def written() -> list[tuple[bytes, bytes]]:
        rows = spark.read.format("odradek").options(**options, subscribe=target)
        found = rows.option("kafka.isolation.level", "read_committed").load().collect()
        return sorted((bytes(r.key), bytes(r.value)) for r in found)

    run()
    assert written() == [(b"a", b"2"), (b"b", b"1")]
    newest = max((place / "commits").glob("[0-9]*"), key=lambda p: int(p.name))
    for file in (newest, newest.with_name(f".{newest.name}.crc")):
        file.unlink()  # as after a driver that died when the rows were written
    run()
    assert written() == [(b"a", b"2"), (b"b", b"1")]
    topics.fill(source, [(b"b", b"1")], partitions=1)
    run()
    assert written() == [(b"a", b"2"), (b"b", b"1"), (b"b", b"2")]


def test_a_batch_write_without_a_mode_names_the_supported_mode(
    spark: SparkSession, topics: Topics, options: dict[str, str]
) -> None:
    rows = spark.range(3).selectExpr("cast(id as string) as value")
    with pytest.raises(
        PySparkException,
        match=r'cannot be written in the "ErrorIfExists" mode. Please use either the "Append"',
    ):
        rows.write.format("odradek").options(**options, topic=topics.create()).save()


def test_lag_is_part_of_a_querys_progress(
    spark: SparkSession, topics: Topics, options: dict[str, str], tmp_path: Path
) -> None:
    topic = topics.create(partitions=2)
    topics.fill(topic, [(b"k", b"v")] * 30, partitions=2)
    rows = spark.readStream.format("odradek").options(**options, subscribe=topic)
    rows = rows.options(startingOffsets="earliest", maxOffsetsPerTrigger="10")
    sink = rows.load().writeStream.format("noop").trigger(processingTime="0 seconds")
    query = sink.option("checkpointLocation", str(tmp_path / "c")).start()
    try:
        query.processAllAvailable()
        waiting = [lag(progress) for progress in query.recentProgress]
    finally:
        query.stop()
    behind = [sum(of_batch.values()) for of_batch in waiting]
    assert behind[:3] == [20, 10, 0]
    assert (min(waiting[0].values()), max(waiting[0].values())) == (10, 10)


def test_spark_rejects_continuous_mode_and_locations_of_python_partitions(
    spark: SparkSession, topics: Topics, options: dict[str, str], tmp_path: Path
) -> None:
    rows = spark.readStream.format("odradek").options(**options, subscribe=topics.create())
    sink = rows.load().writeStream.format("noop").option("checkpointLocation", str(tmp_path))
    with pytest.raises(PySparkException, match="(?i)continuous"):
        sink.trigger(continuous="1 second").start().awaitTermination()
    assert not [name for name in dir(InputPartition) if "locat" in name.lower()]

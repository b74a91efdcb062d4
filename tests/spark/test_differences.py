"""What docs/spark.md says that Python data sources can't do: each is so, and its cure works."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from tests.spark.conftest import Topics

from odradek.testing import LocalCluster


@pytest.fixture
def options(cluster: LocalCluster) -> dict[str, str]:
    return {f"kafka.{name}": value for name, value in cluster.client_config().items()}


def counts(spark: SparkSession, topic: str, options: dict[str, str]) -> DataFrame:
    rows = spark.readStream.format("odradek").options(**options)
    read = rows.options(subscribe=topic, startingOffsets="earliest").load()
    return (
        read.groupBy("key")
        .count()
        .select("key", f.col("count").cast("string").cast("binary").alias("value"))
    )


def test_update_mode_is_refused_and_foreach_batch_writes_its_batches(
    spark: SparkSession, topics: Topics, options: dict[str, str], tmp_path: Path
) -> None:
    source, target = topics.create(partitions=1), topics.create(partitions=1)
    topics.fill(source, [(b"a", b"1"), (b"b", b"1"), (b"a", b"1")], partitions=1)
    updates = counts(spark, source, options).writeStream.outputMode("update")
    with pytest.raises(PySparkException, match="odradek does not support Update mode"):
        updates.format("odradek").options(**options).option("topic", target).option(
            "checkpointLocation", str(tmp_path / "refused")
        ).trigger(availableNow=True).start().awaitTermination()

    def write(batch: DataFrame, _: int) -> None:
        batch.write.format("odradek").options(**options, topic=target).mode("append").save()

    query: Any = updates.foreachBatch(write).option("checkpointLocation", str(tmp_path / "done"))
    query.trigger(availableNow=True).start().awaitTermination()
    written = spark.read.format("odradek").options(**options).option("subscribe", target).load()
    assert {(bytes(r.key), bytes(r.value)) for r in written.collect()} == {
        (b"a", b"2"),
        (b"b", b"1"),
    }


def test_a_batch_write_without_a_mode_says_which_one_is_there(
    spark: SparkSession, topics: Topics, options: dict[str, str]
) -> None:
    rows = spark.range(3).selectExpr("cast(id as string) as value")
    with pytest.raises(
        PySparkException,
        match=r'cannot be written in the "ErrorIfExists" mode. Please use either the "Append"',
    ):
        rows.write.format("odradek").options(**options, topic=topics.create()).save()

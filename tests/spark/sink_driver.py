"""A driver of its own process: files joined with a table, to a topic, exactly once.

Arguments: Spark's master, topic, folder, batch or stream; a client's settings (JSON) on standard
input. The shuffle has no fixed number of tasks, so adaptive execution chooses it by the cores.
While the file `hang` exists, the second task of the batch hangs in the middle of its rows. Not a
test; run by one, which kills it.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession

from odradek.spark import KafkaDataSource, write_batch
from odradek.testing import ensure_java_environment


def dawdle(batches: Iterator[pa.RecordBatch], folder: str) -> Iterator[pa.RecordBatch]:
    """Hand the rows on; in the second task note that, and hang."""
    context = TaskContext.get()
    assert context is not None
    for batch in batches:
        yield batch
        if context.partitionId() == 1 and Path(folder, "hang").exists():
            Path(folder, "hangs").touch()
            time.sleep(600)
    Path(folder, "tasks", str(context.partitionId())).touch()


def rows(spark: SparkSession, folder: str) -> DataFrame:
    files = spark.readStream.schema("id long").parquet(f"{folder}/in")
    names = spark.read.csv(f"{folder}/names.csv", schema="k int, name string")
    joined = files.join(names, files.id % 10 == names.k).repartition("id")
    found = joined.selectExpr("concat(id, ' ', name) as value")
    return found.mapInArrow(lambda batches: dawdle(batches, folder), found.schema)


def main(master: str, topic: str, folder: str, kind: str) -> None:
    config = json.loads(sys.stdin.read())
    ensure_java_environment()
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder: Any = SparkSession.builder
    spark = (
        builder.master(master)
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.memory", "512m")
        .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
        .config("spark.log.level", "ERROR")
        .config("spark.sql.codegen.wholeStage", "false")
        .config("spark.sql.codegen.factoryMode", "NO_CODEGEN")
        .config("spark.python.daemon.module", "tests.spark.worker_daemon")
        .config("spark.sql.warehouse.dir", f"{folder}/warehouse")
        .config("spark.sql.shuffle.partitions", "12")
        .config("spark.sql.adaptive.coalescePartitions.minPartitionSize", "1b")
        .getOrCreate()
    )
    spark.dataSource.register(KafkaDataSource)
    options = {f"kafka.{name}": value for name, value in config.items()}
    options |= {"topic": topic, "delivery": "exactly_once"}
    sink = rows(spark, folder).writeStream
    if kind == "batch":
        sink = sink.foreachBatch(lambda frame, number: write_batch(frame, number, options))
    else:
        sink = sink.format("odradek").options(**options)
    place = sink.option("checkpointLocation", f"{folder}/checkpoint")
    place.trigger(availableNow=True).start().awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])

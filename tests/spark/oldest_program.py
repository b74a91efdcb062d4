"""Run a pipeline on the oldest supported Spark: write, read, decode, kill, replay.

In: a session, the options of a cluster, a topic to fill and one to copy it to, a folder. Out: the
results and errors of queries; another client checks the copy. `benchmarks.spark_jvm.queries` runs
it in the JVM connector's process; it must not import packages that Spark doesn't need.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

ROWS = 300
DEADLY_ROW = 170
"""Row at which a worker dies: in the second batch, when the first one is committed."""
SCHEMA = "id bigint, name string"
PATIENCE_S = 90


def dies_once(batches: Iterator[pa.RecordBatch], marker: str) -> Iterator[pa.RecordBatch]:
    """Yield the batches; kill the first worker that gets row `DEADLY_ROW`."""
    for batch in batches:
        ids = [json.loads(value)["id"] for value in batch.column("value").to_pylist()]
        if DEADLY_ROW in ids and not Path(marker).exists():
            yield batch.slice(0, batch.num_rows // 2)
            Path(marker).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        yield batch


def run(spark: SparkSession, case: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Run all queries and return their results and errors."""
    rows = spark.range(ROWS, numPartitions=1).selectExpr(  # one task: rows are in the order of ids
        "cast(id as string) key",
        "to_json(named_struct('id', id, 'name', concat('n', id % 7))) value",
        "cast(id % 2 as int) partition",
    )
    options = case["options"]
    writer = rows.write.format("odradek").options(**options).option("topic", case["source"])
    writer.mode("append").save()
    found = {"spark": spark.version, **_reads(spark, options, case["source"])}
    copy = Copy(spark, case, folder / "oldest")
    found["failure"] = copy.run()
    found["batches"] = copy.batches()
    found["again"] = copy.run()
    copy.forget_last_batch()
    found["replay"] = copy.run()
    found["ends"] = copy.batches()
    return found


def _reads(spark: SparkSession, options: dict[str, str], topic: str) -> dict[str, Any]:
    """Run batch reads: a pushed-down filter, and values decoded from JSON."""

    def read(**more: str) -> DataFrame:
        reader = spark.read.format("odradek").options(**options, **more)
        return reader.option("subscribe", topic).load()

    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        place = (
            read()
            .where("partition = 1 AND offset >= 100")
            .selectExpr("cast(cast(key as string) as int) id")
        )
        ids = sorted(row.id for row in place.collect())
        tasks = place.rdd.getNumPartitions()
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")
    decoded = read(valueFormat="json", valueSchema=SCHEMA).where("value.name = 'n3'")
    return {
        "ids": ids,
        "tasks": tasks,
        "decoded": sorted(row.id for row in decoded.select("value.id").collect()),
    }


class Copy:
    """Stream from one topic to the other, exactly once; can run repeatedly."""

    def __init__(self, spark: SparkSession, case: dict[str, Any], folder: Path) -> None:
        self._spark, self._case, self._folder = spark, case, folder
        folder.mkdir()

    def run(self) -> str:
        """Run to the end; return the text of the error, if any."""
        case, marker = self._case, str(self._folder / "died")
        stream = self._spark.readStream.format("odradek").options(**case["options"])
        stream = stream.option("subscribe", case["source"]).option("startingOffsets", "earliest")
        frame = stream.option("maxOffsetsPerTrigger", "100").load().select("key", "value")
        frame = frame.mapInArrow(lambda batches: dies_once(batches, marker), frame.schema)
        query = (
            frame.writeStream.format("odradek")
            .options(**case["options"], topic=case["target"], delivery="exactly_once")
            .option("checkpointLocation", str(self._folder / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        try:
            ended = query.awaitTermination(PATIENCE_S)
        except Exception as error:
            return f"{type(error).__name__}: {error}"[:2000]
        query.stop()
        return "" if ended else "it didn't end"

    def batches(self) -> list[int]:
        """Return the committed batches."""
        commits = (self._folder / "checkpoint" / "commits").iterdir()
        return sorted(int(path.name) for path in commits if path.name.isdecimal())

    def forget_last_batch(self) -> None:
        """Leave the checkpoint like a driver that dies before it logs the end of a batch."""
        last = self.batches()[-1]
        for name in (f"{last}", f".{last}.crc"):
            (self._folder / "checkpoint" / "commits" / name).unlink(missing_ok=True)

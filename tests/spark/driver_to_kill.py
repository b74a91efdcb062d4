"""Driver in its own process that copies a topic to Parquet and hangs inside its third batch.

Arguments: topic, folder; a client's settings (JSON) on standard input. This isn't a test; a test
runs it and kills it.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from odradek.testing import ensure_java_environment

HANG_AT = 1200


def hang_in_the_middle(batches: Iterator[pa.RecordBatch], marker: str) -> Iterator[pa.RecordBatch]:
    """Yield the batches; in the middle of the topic, create the marker file and hang."""
    for batch in batches:
        if any(int(value or b"0") >= HANG_AT for value in batch.column("value").to_pylist()):
            half = batch.num_rows // 2
            yield batch.slice(0, half)
            Path(marker).touch()
            time.sleep(600)
        yield batch


def main(topic: str, folder: str) -> None:
    config = json.loads(sys.stdin.read())
    ensure_java_environment()
    builder: Any = SparkSession.builder
    spark = (
        builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.pyspark.python", sys.executable)
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.memory", "512m")
        .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
        .config("spark.log.level", "ERROR")
        .config("spark.sql.warehouse.dir", f"{folder}/warehouse")
        .getOrCreate()
    )
    frame = (
        spark.readStream.format("odradek")
        .options(**{f"kafka.{name}": value for name, value in config.items()})
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", "500")
        .load()
    )
    marker = f"{folder}/in-the-middle"
    frame = frame.mapInArrow(lambda batches: hang_in_the_middle(batches, marker), frame.schema)
    query = (
        frame.writeStream.format("parquet")
        .option("path", f"{folder}/rows")
        .option("checkpointLocation", f"{folder}/checkpoint")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])

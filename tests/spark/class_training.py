"""Run small queries of each kind that our tests run, so that their classes get into an archive.

Argument: a folder. `class_archives` runs it; it imports only pyspark.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceWriter,
    InputPartition,
    SimpleDataSourceStreamReader,
    WriterCommitMessage,
)


class Numbers(DataSource):
    """Source and sink in Python."""

    @classmethod
    def name(cls) -> str:
        return "numbers"

    def schema(self) -> str:
        return "id long, value binary"

    def reader(self, schema: Any) -> DataSourceReader:
        return Reader()

    def simpleStreamReader(self, schema: Any) -> SimpleDataSourceStreamReader:  # noqa: N802
        return StreamReader()

    def writer(self, schema: Any, overwrite: bool) -> DataSourceWriter:
        return Writer()


class Reader(DataSourceReader):
    def read(self, partition: InputPartition) -> Iterator[tuple[int, bytes]]:
        return iter([(1, b"one"), (2, b"two")])


class StreamReader(SimpleDataSourceStreamReader):
    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        return {"at": 0}

    def read(self, start: dict[str, int]) -> tuple[Iterator[tuple[int, bytes]], dict[str, int]]:
        new = range(start["at"], 3)
        return iter([(n, b"x") for n in new]), {"at": 3}

    def readBetweenOffsets(  # noqa: N802
        self, start: dict[str, int], end: dict[str, int]
    ) -> Iterator[tuple[int, bytes]]:
        return iter([(n, b"x") for n in range(start["at"], end["at"])])


class Writer(DataSourceWriter):
    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        for _ in iterator:
            pass
        return WriterCommitMessage()


def same(batches: Iterator[Any]) -> Iterator[Any]:
    return batches


def queries(spark: SparkSession, folder: Path) -> None:
    spark.dataSource.register(Numbers)
    rows = spark.range(100).selectExpr("id", "cast(id as string) value", "array(id) list")
    rows.repartition(2).groupBy("value").count().orderBy("value").collect()
    rows.selectExpr("to_json(struct(id, value)) j", "encode(value, 'utf-8') b").collect()
    rows.write.partitionBy("value").parquet(str(folder / "rows"))
    spark.read.parquet(str(folder / "rows")).where("id > 5").join(rows, "id").collect()
    frame: DataFrame = spark.read.format("numbers").load()
    frame.where("id > 1").count()
    frame.mapInArrow(same, frame.schema).collect()
    frame.explain(mode="formatted")
    frame.write.format("numbers").mode("append").save()
    stream = spark.readStream.format("numbers").load().mapInArrow(same, frame.schema)
    writer = stream.writeStream.format("parquet").option("path", str(folder / "streamed"))
    query = writer.option("checkpointLocation", str(folder / "checkpoint")).start()
    query.processAllAvailable()
    query.stop()


def main() -> None:
    folder = Path(sys.argv[1]).absolute()
    builder: Any = SparkSession.builder
    for name, value in {
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "1g",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": folder.as_uri(),
        "spark.log.level": "ERROR",
    }.items():
        builder = builder.config(name, value)
    spark: SparkSession = builder.master("local[2]").getOrCreate()
    queries(spark, folder)
    spark.stop()
    gateway: Any = spark.sparkContext._gateway
    process: subprocess.Popen[bytes] = gateway.proc
    gateway.shutdown()
    assert process.stdin is not None
    process.stdin.close()  # the JVM ends then, and writes the archive
    process.wait(240)


if __name__ == "__main__":
    main()

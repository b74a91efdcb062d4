"""The Spark half of the demo: two streaming queries over `format("odradek")`.

In: a client's settings and a topic. Out: an aggregate by carrier and month, raw rows in
Parquet, and how far both have come. Must not: know that the cluster will move.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from odradek.cli.demo.data import LATE_MINUTES, PARTITIONS, TOPIC, Aggregate
from odradek.common.errors import KafkaError

ROW_SCHEMA = "row BIGINT, month INT, carrier STRING, dep_delay DOUBLE, tailnum STRING"
TABLE = "flights_by_carrier"


class PipelineError(KafkaError):
    """A streaming query ended although nobody asked it to."""


class Pipeline:
    """A Spark session and the two queries."""

    def __init__(self, config: Mapping[str, str], folder: Path, events: Path) -> None:
        from pyspark.sql import SparkSession

        os.environ["PYSPARK_PYTHON"] = sys.executable
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        self._config = {f"kafka.{name}": value for name, value in config.items()}
        self._folder = folder
        self._events = events
        self._queries: list[Any] = []
        self.log = folder / "spark.log"
        builder: Any = SparkSession.builder
        with _stderr_to(self.log):  # the JVM and its workers keep what they inherit here
            self.spark: Any = self._session(builder)
        # PySpark's handler calls the JVM from within the signal; ours ends the demo in order.
        signal.signal(signal.SIGINT, signal.default_int_handler)

    def _session(self, builder: Any) -> Any:
        return (
            builder.master("local[2]")
            .appName("odradek-demo")
            .config("spark.ui.enabled", "false")
            .config("spark.ui.showConsoleProgress", "false")
            .config("spark.sql.shuffle.partitions", "2")
            .config("spark.driver.memory", "1g")
            .config("spark.driver.host", "127.0.0.1")
            .config("spark.driver.bindAddress", "127.0.0.1")
            .config("spark.sql.warehouse.dir", str(self._folder / "warehouse"))
            .config("spark.log.level", "ERROR")
            .getOrCreate()
        )

    def start(self) -> None:
        """Start both queries from the beginning of the topic."""
        from pyspark.sql import functions as f

        source = (
            self.spark.readStream.format("odradek")
            .options(**self._config)
            .option("subscribe", TOPIC)
            .option("startingOffsets", "earliest")
            .option("eventsDir", str(self._events))
        )
        row = f.from_json(f.col("value").cast("string"), ROW_SCHEMA)
        flights = source.load().select(row.alias("flight")).select("flight.*")
        table = flights.groupBy("carrier", "month").agg(
            f.count(f.lit(1)).alias("flights"),
            f.count_if(f.col("dep_delay") > LATE_MINUTES).alias("late"),
            f.avg("dep_delay").alias("mean_delay"),
        )
        self._queries.append(
            table.writeStream.outputMode("complete")
            .format("memory")
            .queryName(TABLE)
            .option("checkpointLocation", str(self._folder / "checkpoint-table"))
            .trigger(processingTime="2 seconds")
            .start()
        )
        raw = source.load().select(
            "key",
            "value",
            "partition",
            "offset",
            "timestamp",
            f.get_json_object(f.col("value").cast("string"), "$.row").cast("long").alias("row"),
        )
        self._queries.append(
            raw.writeStream.format("parquet")
            .option("path", str(self.parquet))
            .option("checkpointLocation", str(self._folder / "checkpoint-parquet"))
            .trigger(processingTime="2 seconds")
            .start()
        )

    @property
    def parquet(self) -> Path:
        """Where the raw rows go."""
        return self._folder / "flights.parquet"

    def landed(self) -> tuple[int, int]:
        """How many records the two queries have committed (aggregate, Parquet)."""
        return self._position(0), self._position(1)

    def _position(self, index: int) -> int:
        query = self._queries[index]
        failure = query.exception()
        if failure is not None:
            raise PipelineError(f"the {('aggregate', 'Parquet')[index]} query ended: {failure}")
        progress = query.lastProgress
        if not progress:
            return 0
        return sum(_offsets(progress["sources"][0]["endOffset"]).values())

    def result(self) -> list[Aggregate]:
        """The final table."""
        rows = self.spark.sql(f"SELECT * FROM {TABLE}").collect()  # noqa: S608  # our own name
        found = [Aggregate(r.carrier, r.month, r.flights, r.late, r.mean_delay) for r in rows]
        return sorted(found, key=lambda a: (a.carrier, a.month))

    def parquet_rows(self) -> tuple[int, int]:
        """Rows in Parquet, and distinct row numbers among them."""
        frame = self.spark.read.parquet(str(self.parquet))
        row = frame.selectExpr("count(*) AS n", "count(DISTINCT row) AS distinct").collect()[0]
        return row.n, row.distinct

    def stop(self) -> None:
        """Stop the queries and Spark's processes."""
        for query in self._queries:
            query.stop()
        self.spark.stop()
        gateway = self.spark.sparkContext._gateway  # noqa: SLF001  # no other way to end the JVM
        process = getattr(gateway, "proc", None)
        gateway.shutdown()
        if process is not None:
            process.stdin.close()
            try:
                process.wait(20)
            except Exception:  # the JVM hangs: it was ours to start
                process.kill()


@contextmanager
def _stderr_to(path: Path) -> Iterator[None]:
    """Have processes that are started meanwhile write their standard error to a file."""
    sys.stderr.flush()
    kept = os.dup(2)
    try:
        with path.open("ab") as file:
            os.dup2(file.fileno(), 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def _offsets(offset: Mapping[str, Any] | str | None) -> dict[str, int]:
    """The end offsets of our topic from a query's progress."""
    parsed = json.loads(offset) if isinstance(offset, str) else dict(offset or {})
    found = parsed.get("o", {}).get(TOPIC, {})
    return {str(p): int(n) for p, n in found.items() if int(p) < PARTITIONS}

"""The Spark part of the demo: a pipeline of two flows, as `odradek pipeline` runs them.

In: a client's settings and a topic. Out: `pipeline.yml` in the output folder, the aggregate by
carrier and month, raw rows in Parquet, and the progress of both flows. Must not: know that the
cluster will move, or write a setting (it may be a secret) into the file.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from odradek.cli.demo.data import LATE_MINUTES, TOPIC, Aggregate
from odradek.cli.pipeline.document import read
from odradek.cli.pipeline.graph import Graph, end_session, session
from odradek.cli.pipeline.progress import QueryProgress
from odradek.cli.pipeline.spec import parse
from odradek.common.errors import KafkaError
from odradek.common.secret import Secret

SPEC = """\
# What the demo runs; `odradek pipeline run` runs such a file, too. The settings of the cluster
# come from the environment.
name: odradek-demo
storage: .
trigger: 2 seconds
spark:
  spark.master: local[2]
  spark.ui.enabled: false
  spark.sql.shuffle.partitions: 2
  spark.driver.memory: 1g
  spark.driver.host: 127.0.0.1
  spark.driver.bindAddress: 127.0.0.1
  spark.sql.warehouse.dir: ${{WAREHOUSE}}
  spark.log.level: ERROR
clusters:
  demo:
{settings}
sources:
  flights:
    options:
      subscribe: {topic}
      startingOffsets: earliest
      eventsDir: ${{EVENTS}}
views:
  departures: |
    SELECT from_json(CAST(value AS STRING), 'month INT, carrier STRING, dep_delay DOUBLE') AS flight
    FROM flights
  by_carrier: |
    SELECT flight.carrier, flight.month, count(1) AS flights,
           count_if(flight.dep_delay > {late}) AS late, avg(flight.dep_delay) AS mean_delay
    FROM departures GROUP BY flight.carrier, flight.month
  raw: |
    SELECT key, value, partition, offset, timestamp,
           CAST(get_json_object(CAST(value AS STRING), '$.row') AS BIGINT) AS row
    FROM flights
sinks:
  {table}:
    from: by_carrier
    format: memory
    mode: complete
  {files}:
    from: raw
    format: parquet
    options:
      path: flights.parquet
"""
TABLE = "flights_by_carrier"
FILES = "parquet"


class PipelineError(KafkaError):
    """A streaming query ended unexpectedly."""


class DemoPipeline:
    """A Spark session and the two flows."""

    def __init__(self, config: Mapping[str, Any], folder: Path, events: Path) -> None:
        os.environ["PYSPARK_PYTHON"] = sys.executable
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        self._folder = folder
        variables = {"WAREHOUSE": str(folder / "warehouse"), "EVENTS": str(events)}
        self._spec = parse(read(written(folder / "pipeline.yml", config, variables), variables))
        self._queries: dict[str, Any] = {}
        self._progress = {name: QueryProgress(name) for name in (TABLE, FILES)}
        self.log = folder / "spark.log"
        self.spark: Any = session(self._spec, self.log)
        # Replace PySpark's handler, which calls the JVM inside the signal handler.
        signal.signal(signal.SIGINT, signal.default_int_handler)

    def start(self) -> None:
        """Start both flows from the beginning of the topic."""
        graph = Graph(self._spec, self.spark, None)
        self._queries = graph.start(graph.analyse())

    @property
    def parquet(self) -> Path:
        """Path of the raw rows."""
        return self._folder / "flights.parquet"

    def landed(self) -> tuple[int, int]:
        """Return the numbers of records that the two flows have committed (aggregate, Parquet)."""
        return self._position(TABLE), self._position(FILES)

    def _position(self, name: str) -> int:
        query, progress = self._queries[name], self._progress[name]
        failure = query.exception()
        if failure is not None:
            raise PipelineError(f"flow {name} failed: {failure}")
        last = query.lastProgress
        progress.fresh(last, lambda: [last])
        return sum(progress.positions.values())

    def result(self) -> list[Aggregate]:
        """Return the final table."""
        rows = self.spark.sql(f"SELECT * FROM {TABLE}").collect()  # noqa: S608  # our own name
        found = [Aggregate(r.carrier, r.month, r.flights, r.late, r.mean_delay) for r in rows]
        return sorted(found, key=lambda a: (a.carrier, a.month))

    def parquet_rows(self) -> tuple[int, int]:
        """Return the numbers of rows in Parquet and of distinct row numbers among them."""
        frame = self.spark.read.parquet(str(self.parquet))
        row = frame.selectExpr("count(*) AS n", "count(DISTINCT row) AS distinct").collect()[0]
        return row.n, row.distinct

    def stop(self) -> None:
        """Stop the queries and Spark's processes."""
        for query in self._queries.values():
            query.stop()
        end_session(self.spark)


def written(path: Path, config: Mapping[str, Any], variables: dict[str, str]) -> Path:
    """Write the SPEC, with a variable instead of each setting's value."""
    lines = []
    for name, value in config.items():
        variable = f"DEMO_{name.upper().replace('.', '_')}"
        variables[variable] = value.reveal() if isinstance(value, Secret) else str(value)
        lines.append(f"    {name}: ${{{variable}}}")
    text = SPEC.format(
        settings="\n".join(lines), topic=TOPIC, late=LATE_MINUTES, table=TABLE, files=FILES
    )
    path.write_text(text)
    return path

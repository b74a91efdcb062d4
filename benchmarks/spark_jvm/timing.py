"""Time jobs in a Spark session, with any connector on any Spark.

In: one JSON object a line. Out: one line each, with seconds, rows and the CPU time of this process,
its JVM and its Python workers. Imports only pyspark and its dependencies, since it runs in both
environments. Must not: know which connector is faster.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, SupportsTriggerAvailableNow

Job = dict[str, Any]
TICKS = os.sysconf("SC_CLK_TCK")
COLD_BATCHES = 5
_ROW = (
    "cast(lpad(cast(id AS string), 16, '0') AS binary) key",
    "cast(lpad(cast(id AS string), 100, 'value ') AS binary) value",
)
_ROW_SCHEMA = "key binary, value binary"


class EmptySource(DataSource):
    """Python source without Kafka, with one row per task, to measure the cost of Python sources."""

    @classmethod
    def name(cls) -> str:
        return "empty"

    def schema(self) -> str:
        return "value binary"

    def streamReader(self, schema: Any) -> DataSourceStreamReader:  # noqa: N802
        return EmptyReader(int(self.options["batches"]), int(self.options["tasks"]))


class EmptyReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reader whose offset is the number of batches so far; each task returns one row."""

    def __init__(self, batches: int, tasks: int) -> None:
        self.batches, self.tasks = batches, tasks

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        return {"n": 0}

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        return None

    def getDefaultReadLimit(self) -> Any:  # noqa: N802
        return ReadAllAvailable()

    def latestOffset(self, start: dict[str, int], limit: Any) -> dict[str, int]:  # noqa: N802
        return {"n": min(start["n"] + 1, self.batches)}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        return [InputPartition(n) for n in range(self.tasks)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        import pyarrow as pa

        yield pa.RecordBatch.from_pydict({"value": pa.array([b"x"], pa.binary())})


def frame_of(spark: SparkSession, job: Job) -> DataFrame:
    """Return the rows of a topic, as a batch query."""
    reader = spark.read.format(job["format"]).options(**job["options"])
    return (reader.schema(job["schema"]) if job.get("schema") else reader).load()


def read(spark: SparkSession, job: Job) -> Job:
    """Time one batch query over all of a topic."""
    begin, cpu = time.perf_counter(), Cpu.now()
    frame = frame_of(spark, job)
    if job.get("select"):
        frame = frame.select(*job["select"])
    rows = size = None
    if job["query"] == "check":
        seen = frame.selectExpr("count(1) AS n", "sum(length(value)) AS s").collect()[0]
        rows, size = seen.n, seen.s
    elif job["query"] == "noop":
        frame.write.format("noop").mode("overwrite").save()
    elif job["query"] == "sum":
        size = frame.selectExpr("sum(length(value)) AS s").collect()[0].s
    else:
        rows = frame.count()
    seconds = time.perf_counter() - begin
    used = Cpu.now().since(cpu)
    return {"seconds": seconds, **used, "rows": rows, "value_bytes": size}


def stored(spark: SparkSession, job: Job) -> Job:
    """Store the rows for `write` as Parquet files, without timing that."""
    rows = spark.range(0, int(job["rows"]), 1, int(job["tasks"]))
    rows.selectExpr(*_ROW).write.parquet(job["folder"], compression="snappy")
    return {"rows": int(job["rows"])}


def write(spark: SparkSession, job: Job) -> Job:
    """Time the only batch of a stream from stored rows into a topic."""
    return _one_batch(spark, spark.readStream.schema(_ROW_SCHEMA).parquet(job["folder"]), job)


def unsunk(spark: SparkSession, job: Job) -> Job:
    """Time only the reading of the rows that `write` reads, with Spark's noop sink."""
    return write(spark, {**job, "format": "noop", "options": {}})


def copy(spark: SparkSession, job: Job) -> Job:
    """Time the only batch of a stream from a topic into another topic."""
    source = spark.readStream.format(job["format"]).options(**job["from"])
    rows = (source.schema(job["schema"]) if job.get("schema") else source).load()
    return _one_batch(spark, rows.select("key", "value"), job)


@contextmanager
def told(spark: SparkSession, job: Job) -> Iterator[None]:
    """Set Spark's own settings for one job, and restore them afterwards."""
    for name, value in job.get("session", {}).items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name in job.get("session", {}):
            spark.conf.unset(name)


def _one_batch(spark: SparkSession, rows: DataFrame, job: Job) -> Job:
    cpu = Cpu.now()
    with told(spark, job), tempfile.TemporaryDirectory() as folder:
        query = (
            rows.writeStream.format(job["format"])
            .options(**job["options"])
            .option("checkpointLocation", folder)
            .trigger(once=True)
            .start()
        )
        query.awaitTermination()
        batch = next(p for p in query.recentProgress if p["numInputRows"])
    return {
        "seconds": batch["durationMs"]["addBatch"] / 1000,
        **Cpu.now().since(cpu),
        "rows": batch["numInputRows"],
    }


def batches(spark: SparkSession, job: Job) -> Job:
    """Time small micro-batches one by one: the first one and the later, warm ones."""
    begin = time.perf_counter()
    source = spark.readStream.format(job["format"]).options(**job["options"]).load()
    with tempfile.TemporaryDirectory() as folder:
        sink = source.writeStream.format("noop")
        if "into" in job:
            sink = source.select("key", "value").writeStream.format(job["format"])
            sink = sink.options(**job["into"])
        query = sink.option("checkpointLocation", folder).trigger(availableNow=True).start()
        query.awaitTermination()
        seconds = time.perf_counter() - begin
        found = [p for p in query.recentProgress if p["numInputRows"]]
    took = [p["durationMs"]["triggerExecution"] / 1000 for p in found]
    stages = {
        name: statistics.median(p["durationMs"].get(name, 0) for p in found[COLD_BATCHES:]) / 1000
        for name in ("latestOffset", "queryPlanning", "addBatch", "walCommit", "commitOffsets")
    }
    return {
        "seconds": seconds,
        "batches": len(took),
        "rows": sum(p["numInputRows"] for p in found),
        "cold_s": seconds - sum(took[1:]),
        "warm_s": statistics.median(took[COLD_BATCHES:]),
        "stages_s": stages,
    }


@dataclass(frozen=True, slots=True)
class Process:
    """CPU time that one process has used so far, in seconds."""

    java: bool
    own: float
    ended_children: float
    """CPU time of ended child processes, and of their children, over their lifetimes."""


@dataclass(frozen=True, slots=True)
class Cpu:
    """CPU time of all processes in this session: the driver, its JVM, executors, workers."""

    processes: dict[tuple[int, int], Process]
    """The CPU time of each process, by process id and start time."""

    @classmethod
    def now(cls) -> Cpu:
        """Return the CPU time that all processes have used so far."""
        own, found = os.getsid(0), {}
        for stat in Path("/proc").glob("[0-9]*/stat"):
            try:
                begin, _, end = stat.read_text().rpartition(")")
            except OSError:  # the process has ended meanwhile
                continue
            fields = end.split()
            if int(fields[3]) == own:
                user, system, children, of_theirs = (int(t) / TICKS for t in fields[11:15])
                key = int(begin.split()[0]), int(fields[19])
                found[key] = Process("(java" in begin, user + system, children + of_theirs)
        return cls(found)

    def since(self, before: Cpu) -> Job:
        """Return the CPU time used since `before`.

        Spark ends idle Python workers, and sometimes their daemon, too. A parent may then be
        charged with an ended child's CPU time since the child's start: the part before `before` is
        subtracted.
        """
        nothing = Process(False, 0.0, 0.0)
        used, ended = {True: 0.0, False: 0.0}, 0.0
        for key, process in self.processes.items():
            then = before.processes.get(key, nothing)
            used[process.java] += process.own - then.own
            ended += process.ended_children - then.ended_children
        gone = [p for key, p in before.processes.items() if key not in self.processes]
        python = used[False] + max(0.0, ended - sum(p.own + p.ended_children for p in gone))
        return {"cpu_s": used[True] + python, "python_s": python}


KINDS = {
    "read": read,
    "stored": stored,
    "write": write,
    "unsunk": unsunk,
    "copy": copy,
    "batches": batches,
}


def main() -> None:
    """Run jobs from standard input; argument: a JSON object of Spark's settings."""
    builder: Any = SparkSession.builder
    for name, value in json.loads(sys.argv[1]).items():
        builder = builder.config(name, value)
    spark: SparkSession = builder.getOrCreate()
    spark.dataSource.register(EmptySource)
    print(json.dumps({"spark": spark.version, "python": sys.version.split()[0]}), flush=True)
    for line in sys.stdin:
        job = json.loads(line)
        try:
            found = KINDS[job["kind"]](spark, job)
        except Exception as error:
            found = {"error": f"{type(error).__name__}: {error}"[-1500:]}
        print(json.dumps(found), flush=True)
    spark.stop()


if __name__ == "__main__":
    main()

"""A driver that may be killed at any moment: topic → exactly-once topic → exactly-once Parquet.

In: a plan as one line of JSON on standard input, then commands: `restart NAME` (stop a query, start
it from its checkpoint) and `finish` (process the rest, count the keys, and end). Out: lines of JSON
on standard output: committed batches, failures, the keys in the Parquet files. A query that fails
is started again from its checkpoint, as in production. Not a test; `spark_soak` runs it.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable, Mapping
from queue import Empty, SimpleQueue
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from odradek.testing import ensure_java_environment

QUICK_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""JVMs that are killed soon don't profit from the second compiler."""
LOOK = 0.1
AGAIN, AGAIN_AT_MOST = 0.5, 16.0
"""Seconds until a failed query is started again; doubled at each failure until it commits a batch.
On a slow machine, on which a Python process takes longer than Spark's limit of ten seconds, more
starts would only add load."""
ATTEMPTS = 5
"""Runs of a query that processes the remaining records, once the faults are over."""


def say(event: str, **more: Any) -> None:
    sys.stdout.write(json.dumps({"event": event, **more}) + "\n")
    sys.stdout.flush()


def committed(progress: Mapping[str, Any], seen: str | None) -> bool:
    """Return whether the progress is of a new batch with records.

    Spark also reports progress of idle queries, with the number of the next batch.
    """
    return bool(progress["numInputRows"]) and progress["timestamp"] != seen


def session(plan: dict[str, Any]) -> SparkSession:
    """Create a Spark session with the plan's master and settings."""
    ensure_java_environment()
    builder: Any = SparkSession.builder
    settings = {
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "640m",
        "spark.driver.extraJavaOptions": QUICK_JVM,
        "spark.executor.extraJavaOptions": QUICK_JVM,
        "spark.executor.memory": "512m",
        "spark.task.maxFailures": "8",
        "spark.deploy.maxExecutorRetries": "-1",
        "spark.sql.shuffle.partitions": "2",
        # If Spark is killed while it writes its first offsets, a temporary file remains, because of
        # which Spark would refuse to start again.
        "spark.sql.streaming.verifyCheckpointDirectoryEmptyOnStart": "false",
        "spark.log.level": "ERROR",
        "spark.sql.warehouse.dir": f"{plan['folder']}/warehouse",
        **plan.get("settings", {}),
    }
    builder = builder.master(plan["master"]).appName("odradek-soak")
    for name, value in settings.items():
        builder = builder.config(name, value)
    made: SparkSession = builder.getOrCreate()
    return made


def source(spark: SparkSession, plan: dict[str, Any], topic: str) -> DataFrame:
    return (
        spark.readStream.format("odradek")
        .options(**{f"kafka.{name}": value for name, value in plan["config"].items()})
        .option("kafka.isolation.level", "read_committed")
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", str(plan["limit"]))
        .load()
    )


class Pipeline:
    """The queries by name, each with its checkpoint."""

    def __init__(self, spark: SparkSession, plan: dict[str, Any]) -> None:
        self._spark, self._plan = spark, plan
        self._makers: dict[str, Callable[[], Any]] = {}
        if plan["stages"] == ["copy", "land"]:
            self._makers["copy"] = self._copy
        self._makers["land"] = self._land
        self.running: dict[str, Any] = {}
        self._seen: dict[str, str] = {}
        """Time stamp of the last reported progress of each query."""
        self._again = dict.fromkeys(self._makers, AGAIN)
        self._due: dict[str, float] = {}
        """Times at which failed queries are started again."""

    @property
    def names(self) -> list[str]:
        """The queries' names, upstream first."""
        return list(self._makers)

    def _copy(self) -> Any:
        plan = self._plan
        frame = source(self._spark, plan, plan["source"]).select("key", "value")
        return (
            frame.writeStream.format("odradek")
            .options(**{f"kafka.{name}": value for name, value in plan["config"].items()})
            .option("topic", plan["target"])
            .option("delivery", "exactly_once")
            .option("transactionalIdPrefix", "soak")
            .option("checkpointLocation", f"{plan['folder']}/checkpoints/copy")
        )

    def _land(self) -> Any:
        plan = self._plan
        topic = plan["target"] if "copy" in self._makers else plan["source"]
        frame = source(self._spark, plan, topic)
        rows = frame.selectExpr("cast(key as string) key", "topic", "partition", "offset")
        return (
            rows.writeStream.format("parquet")
            .option("path", f"{plan['folder']}/rows")
            .option("checkpointLocation", f"{plan['folder']}/checkpoints/land")
        )

    def start(self, name: str, **trigger: Any) -> Any:
        """Start a query from its checkpoint."""
        query = self._makers[name]().trigger(**trigger).start()
        self.running[name] = query
        self._due.pop(name, None)
        self._seen.pop(name, None)
        say("started", query=name)
        return query

    def stop(self, name: str) -> None:
        """Stop a query, even within a batch."""
        query = self.running.pop(name, None)
        if query is not None:
            query.stop()

    def look(self) -> None:
        """Report committed batches and failures, and start failed queries again."""
        for name, query in list(self.running.items()):
            last = query.lastProgress
            if last is not None and committed(last, self._seen.get(name)):
                self._seen[name] = last["timestamp"]
                self._again[name] = AGAIN
                say("batch", query=name, batch=last["batchId"], begun=last["timestamp"])
            if not query.isActive:
                if name not in self._due:
                    say("failed", query=name, text=str(query.exception()))
                    self._again[name] = wait = min(2 * self._again[name], AGAIN_AT_MOST)
                    self._due[name] = time.monotonic() + wait / 2
                elif time.monotonic() >= self._due[name]:
                    self.start(name, processingTime=self._plan["every"])

    def finish(self) -> bool:
        """Process the remaining records; the faults are over."""
        for name in self.names:
            self.stop(name)
        for name in self.names:
            for _ in range(ATTEMPTS):
                query = self.start(name, availableNow=True)
                try:
                    query.awaitTermination()
                except Exception as error:
                    say("failed", query=name, text=str(error))
                    continue
                break
            else:
                return False
        return True


def count(spark: SparkSession, folder: str) -> None:
    """Report the number of rows of each key that plain Spark reads from the Parquet files."""
    rows = spark.read.parquet(f"{folder}/rows").groupBy("key").count().collect()
    say("counted", keys={row["key"]: row["count"] for row in rows})


def main() -> None:
    plan = json.loads(sys.stdin.readline())
    spark = session(plan)
    commands: SimpleQueue[str] = SimpleQueue()

    def listen() -> None:
        for line in sys.stdin:
            commands.put(line.strip())
        commands.put("alone")

    threading.Thread(target=listen, daemon=True).start()
    pipeline = Pipeline(spark, plan)
    for name in pipeline.names:
        pipeline.start(name, processingTime=plan["every"])
    say("up", jvm=spark.sparkContext._gateway.proc.pid)  # type: ignore[union-attr]
    while True:
        try:
            command = commands.get(timeout=LOOK)
        except Empty:
            pipeline.look()
            continue
        if command == "finish":
            finished = pipeline.finish()
            if finished:
                count(spark, plan["folder"])
            say("finished", ok=finished)
            break
        if command == "alone":
            return  # the soak has ended; Spark's JVM ends with this process
        verb, _, name = command.partition(" ")
        if verb == "restart":
            pipeline.stop(name)
            say("restarted", query=name)
            pipeline.start(name, processingTime=plan["every"])
    spark.stop()


if __name__ == "__main__":
    main()

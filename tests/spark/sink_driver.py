"""Driver in its own process: writes rows joined with a table to a topic, exactly once.

Argument: the folder of this run, with its settings in `run.json`. A shuffle without a fixed number
of tasks uses adaptive execution, which chooses the number by the cores. While the folder has a file
`halt` that names a point (`task 1`: in the middle of its rows; `ledger 1`: the task has read the
ledger; `decided`, `committed`, `written`: of the batch), the process that gets there writes its
process id to `halted` and waits; if the file says `fail`, the task fails instead. Each task's end
is a file in `ends`. This isn't a test; tests run it and kill it.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from odradek.spark import KafkaDataSource, write_batch
from odradek.spark.options.source_options import BATCH, STREAM
from odradek.spark.sink.exactly_once import Ledger
from odradek.spark.sink.ledger import DECIDED, WRITTEN, Decision
from odradek.spark.sink.sink_driver import SinkDriver
from odradek.spark.sink.sink_options import parse_sink_options
from odradek.spark.sink.writers import KafkaBatchWriter, KafkaStreamWriter
from odradek.testing import ensure_java_environment

RUN_FOLDER = "RUN_FOLDER"


def halt(point: str) -> None:
    """Wait here while the run's file `halt` names this point."""
    run = Path(os.environ[RUN_FOLDER])
    wanted = run / "halt"
    said = wanted.read_text() if wanted.exists() else ""
    if said == f"fail {point}":
        raise RuntimeError("a task that fails")
    if said == point:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)  # Spark's daemon would end this process too
        note(run / "halted", str(os.getpid()))
        while wanted.exists():
            time.sleep(0.05)


def note(path: Path, text: str) -> None:
    new = path.with_suffix(".new")
    new.write_text(text)
    new.rename(path)


class Halting:
    """Writer whose tasks and decisions halt at the point that the file `halt` names."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Any:
        """Write a task's rows, and record how that ended."""
        context = TaskContext.get()
        assert context is not None
        task, end = context.partitionId(), "written"
        read = Ledger.read

        def halting_read(at: Ledger, batch: int) -> Decision | None:
            found = read(at, batch)
            halt(f"ledger {task}")
            return found

        Ledger.read = halting_read  # type: ignore[assignment, method-assign]
        try:
            return super().write(self._halting(iterator, task))  # type: ignore[misc]
        except BaseException as error:
            end = repr(error)
            raise
        finally:
            Ledger.read = read  # type: ignore[method-assign]
            note(Path(os.environ[RUN_FOLDER], "ends", str(task)), end)

    def _halting(self, batches: Iterator[pa.RecordBatch], task: int) -> Iterator[pa.RecordBatch]:
        for batch in list(batches):  # so that a task that outlives its driver has all of its rows
            yield batch.slice(0, batch.num_rows // 2)
            halt(f"task {task}")
            yield batch.slice(batch.num_rows // 2)

    def commit(self, *given: Any) -> None:
        """Commit the batch; halt after its decision, its transactions and the log entry."""
        stored = SinkDriver.store

        def store(at: SinkDriver, decision: Decision) -> None:
            if decision.state == WRITTEN:
                halt("committed")
            stored(at, decision)
            halt(DECIDED if decision.state == DECIDED else WRITTEN)

        SinkDriver.store = store  # type: ignore[assignment, method-assign]
        try:
            super().commit(*given)  # type: ignore[misc]
        finally:
            SinkDriver.store = stored  # type: ignore[method-assign]


class BatchWriter(Halting, KafkaBatchWriter):
    """Halting writer of a batch job, and of `write_batch`."""


class StreamWriter(Halting, KafkaStreamWriter):
    """Halting writer of a streaming query."""


class Source(KafkaDataSource):
    """Data source with writers that halt."""

    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:
        """Return a batch job's halting writer."""
        return BatchWriter(parse_sink_options(dict(self.options), BATCH), schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:  # noqa: N802
        """Return a streaming query's halting writer."""
        return StreamWriter(parse_sink_options(dict(self.options), STREAM), schema)


def rows(spark: SparkSession, folder: str, run: dict[str, Any], kafka: dict[str, str]) -> DataFrame:
    names = spark.read.csv(f"{folder}/names.csv", schema="k int, name string")
    if run["ranges"]:
        reader = spark.readStream.format("odradek").options(**kafka)
        reader = reader.options(startingOffsets="earliest", minPartitions=run["ranges"])
        source = reader.load(subscribe=run["source"])
        ids = source.selectExpr("cast(cast(value as string) as long) as id")
    elif run["kind"] == "job":
        ids = spark.read.parquet(f"{folder}/in")
    else:
        ids = spark.readStream.schema("id long").parquet(f"{folder}/in")
    joined = ids.join(names, ids.id % 10 == names.k)
    if not run["ranges"]:
        joined = joined.repartition("id")
    return joined.selectExpr("concat(id, ' ', name) as value")


def main(place: str) -> None:
    run = json.loads(Path(place, "run.json").read_text())
    folder, kind = str(Path(place).parent), run["kind"]
    ensure_java_environment()
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ[RUN_FOLDER] = place
    builder: Any = SparkSession.builder
    spark = (
        builder.master(f"local[{run['cores']}]")
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
        .config("spark.sql.adaptive.enabled", run["adaptive"])
        .config("spark.sql.adaptive.streaming.stateless.enabled", run["adaptive"])
        .config("spark.sql.adaptive.coalescePartitions.minPartitionSize", "1b")
        .getOrCreate()
    )
    spark.dataSource.register(Source)
    kafka = {f"kafka.{name}": value for name, value in run["client"].items()}
    options = {**kafka, "topic": run["topic"], "delivery": "exactly_once"}
    job_id = f"nightly-{run['topic']}"
    frame = rows(spark, folder, run, kafka)
    if kind == "job":
        job = frame.write.format("odradek").options(**options, jobId=job_id, batchId=0)
        job.mode("append").save()
    else:
        if kind == "stream":
            sink = frame.writeStream.format("odradek").options(**options)
        else:
            named = {"jobId": job_id} if kind == "named batch" else {}
            sink = frame.writeStream.foreachBatch(
                lambda one, number: write_batch(one, number, {**options, **named})
            )
        sink = sink.option("checkpointLocation", f"{folder}/checkpoint")
        sink.trigger(availableNow=True).start().awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1])

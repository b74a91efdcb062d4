"""`df.write.format("odradek")` and `writeStream`: what Spark calls, on the driver and in tasks.

In: a schema and options (driver), Arrow batches (tasks). Out: commit messages with row counts.
Flow: `writer()` checks and is pickled → `write()` in each task → `commit()` or `abort()` on the
driver, in yet another process. Must not connect when it is made: Spark makes it in several
processes, for each micro-batch anew. At-least-once is here, `exactly_once` is a module of its own.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from odradek.runtime.system_clock import SystemClock
from odradek.spark.sink_clients import process_producers
from odradek.spark.sink_options import FIRST_CONTACT, SinkOptions
from odradek.spark.sink_problems import SinkContextError, SinkSchemaError
from odradek.spark.sink_schema import SinkColumns, check_columns
from odradek.spark.sink_sending import Patience, RowSender

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

logger = logging.getLogger("odradek.spark")

BATCH_ID, QUERY_ID, RUN_ID = "streaming.sql.batchId", "sql.streaming.queryId", "spark.jobGroup.id"
"""Local properties that Spark's streams give their tasks. The Python API hands on none of it."""


@dataclass(frozen=True, slots=True)
class SinkCommit(WriterCommitMessage):
    """What one task wrote; Spark carries it to the driver."""

    partition: int
    rows: int
    attempt: int


@dataclass(frozen=True, slots=True)
class Task:
    """Which task this is, as far as Spark says."""

    partition: int = 0
    attempt: int = 0
    batch: int | None = None
    """None in a batch query."""
    query: str | None = None
    run: str | None = None


def this_task(*, stream: bool) -> Task:
    """Ask Spark which task this is; a stream's must know its batch and query."""
    from pyspark import TaskContext

    context = TaskContext.get()
    if context is None:
        raise SinkContextError("the sink's write() runs outside of a Spark task")
    if not stream:
        return Task(context.partitionId(), context.attemptNumber())
    batch, query = context.getLocalProperty(BATCH_ID), context.getLocalProperty(QUERY_ID)
    if not (batch or "").isdecimal() or not query:
        raise SinkContextError(
            f"Spark doesn't tell the sink's tasks their batch ({BATCH_ID}: {batch!r}) and query "
            f"({QUERY_ID}: {query!r}) any more. These properties are internal to Spark; PySpark "
            "4.2 and 4.3 have them. Without them a retry can't be told from a new batch."
        )
    run = context.getLocalProperty(RUN_ID)
    return Task(context.partitionId(), context.attemptNumber(), int(batch or 0), query, run)


def write_rows(
    options: SinkOptions, columns: SinkColumns, task: Task, batches: Iterator[pa.RecordBatch]
) -> SinkCommit:
    """Write one task's rows at least once: all are acknowledged by all replicas in sync."""
    clients, config = process_producers(), options.producer_config()
    producer, used = clients.checkout(config, fresh=task.attempt > 0)
    patience = Patience(options.outage_tolerance, SystemClock(), producer.explain)
    known = used or bool(task.batch)  # a later batch of a query: its cluster has answered before
    sender = RowSender(
        producer,
        columns,
        patience,
        window=int(config["buffer.memory"]) // 2,
        first_contact=None if known else min(FIRST_CONTACT, options.outage_tolerance),
    )
    try:
        for batch in batches:
            if batch.num_rows:
                sender.send(batch)
        if sender.rows:
            sender.finish()
    except BaseException:
        # The next task shall not inherit what is left of this one.
        clients.drop(producer)
        raise
    return SinkCommit(task.partition, sender.rows, task.attempt)


Write = Callable[[SinkOptions, SinkColumns, Task, "Iterator[pa.RecordBatch]"], SinkCommit]


class KafkaBatchWriter(DataSourceArrowWriter):
    """Writes the rows of a batch query."""

    def __init__(self, options: SinkOptions, schema: StructType, overwrite: bool) -> None:
        if overwrite:
            raise SinkSchemaError('a topic can\'t be overwritten: write with .mode("append")')
        self._options, self._columns = options, check_columns(schema, options)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write one partition; runs in a Python worker of an executor."""
        return write_rows(self._options, self._columns, this_task(stream=False), iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """All tasks are done; their rows are in the topics already."""
        log_rows(messages, "batch query")

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """A task failed for good: what the others wrote stays."""
        _log_abort(messages, "batch query")


class KafkaStreamWriter(DataSourceStreamArrowWriter):
    """Writes the rows of a streaming query, batch after batch.

    The output mode makes no difference, as with the JVM sink: `complete` appends the whole result
    each time.
    """

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        self._options, self._columns = options, check_columns(schema, options)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write one partition of a micro-batch; runs in a Python worker of an executor."""
        return write_rows(self._options, self._columns, this_task(stream=True), iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """All tasks of the micro-batch are done; runs on the driver."""
        log_rows(messages, f"batch {batchId}")

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """A task failed for good: what the others wrote stays, and comes again on a restart."""
        _log_abort(messages, f"batch {batchId}")


def log_rows(messages: Sequence[WriterCommitMessage | None], what: str) -> None:
    """Say how many rows were written."""
    commits = [m for m in messages if isinstance(m, SinkCommit)]
    logger.info(
        "sink: %s wrote %d rows in %d tasks", what, sum(c.rows for c in commits), len(commits)
    )


def _log_abort(messages: Sequence[WriterCommitMessage | None], what: str) -> None:
    done = sum(1 for m in messages if m is not None)
    logger.warning(
        "sink: %s failed; %d of %d tasks had written their rows by then, and they stay",
        what,
        done,
        len(messages),
    )

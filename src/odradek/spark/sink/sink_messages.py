"""Describe a task of the sink, and the messages that it sends to the driver.

In: Spark's TaskContext. Out: plain data that can be pickled. Must not: guess what Spark doesn't
report; whether a batch was written before depends on it.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql.datasource import WriterCommitMessage

from odradek.clients.producer.transaction_state import PreparedTransaction
from odradek.spark.sink.ledger import PLAIN, Ticket
from odradek.spark.sink.sink_errors import SinkContextError
from odradek.spark.sink.sink_options import SinkOptions

BATCH_ID, QUERY_ID, RUN_ID = "streaming.sql.batchId", "sql.streaming.queryId", "spark.jobGroup.id"
"""Local properties that Spark's streams set for their tasks; the Python API passes on none of them.
"""


@dataclass(frozen=True, slots=True)
class SinkCommit(WriterCommitMessage):
    """Summary of one task's writes; Spark sends it to the driver."""

    partition: int
    rows: int
    attempt: int
    batch: int | None = None
    """This field and the following ones are only set with exactly_once."""
    query: str | None = None
    run: str | None = None
    digest: int = 0
    skipped: bool = False
    """Whether the task wrote nothing, because its rows had been written before."""
    topic: str = ""
    """Topic of the marker; empty for a task that has written nothing."""
    transaction: PreparedTransaction | None = None
    """The open transaction with the rows; None for a task that has written nothing."""
    ticket: Ticket = PLAIN
    """Ticket in the name of the transactional id (see `ledger`)."""
    sweeps: int = 0
    """Number of sweeps that the task read in the ledger before its transaction began."""

    @property
    def content(self) -> tuple[int, int]:
        """Number and digest of the rows."""
        return self.rows, self.digest


@dataclass(frozen=True, slots=True)
class SinkTask:
    """Query, batch, partition and attempt of a task, as far as Spark provides them."""

    partition: int = 0
    attempt: int = 0
    batch: int | None = None
    """Spark's batch id; None in a batch query."""
    query: str | None = None
    run: str | None = None

    def identity(self) -> tuple[str, int]:
        """Return query and batch; raises `SinkContextError` if one is missing."""
        if self.query is None or self.batch is None:
            raise SinkContextError(
                "exactly-once writes need the ids of the query and the batch, which this task "
                "doesn't have"
            )
        return self.query, self.batch


def stream_task() -> SinkTask:
    """Return this task of a streaming query; raises `SinkContextError` without batch and query."""
    from pyspark import TaskContext

    task, context = batch_task(), TaskContext.get()
    batch = query = run = None
    if context is not None:
        batch, query = context.getLocalProperty(BATCH_ID), context.getLocalProperty(QUERY_ID)
        run = context.getLocalProperty(RUN_ID)
    if not (batch or "").isdecimal() or not query:
        raise SinkContextError(
            f"Spark doesn't pass the sink's tasks their batch ({BATCH_ID}: {batch!r}) and query "
            f"({QUERY_ID}: {query!r}), without which a retry can't be distinguished from a new "
            "batch. These properties are internal to Spark: use PySpark 4.2 or 4.3, which have "
            "them."
        )
    return SinkTask(task.partition, task.attempt, int(batch or 0), query, run)


def batch_task(options: SinkOptions | None = None) -> SinkTask:
    """Return this task of a batch query; its query id comes from the options, if set."""
    from pyspark import TaskContext

    context = TaskContext.get()
    if context is None:
        raise SinkContextError("the sink's write() was called outside of a Spark task")
    partition, attempt = context.partitionId(), context.attemptNumber()
    if options is None or options.job_id is None:
        return SinkTask(partition, attempt)
    # `write_batch` (foreachBatch) sets the query's id as job_id; then Spark also reports the run.
    is_query = context.getLocalProperty(QUERY_ID) == options.job_id
    run = context.getLocalProperty(RUN_ID) if is_query else None
    return SinkTask(partition, attempt, options.batch_id, options.job_id, run)

"""Implement `df.write.format("odradek")` and `writeStream` on the driver and in tasks.

In: a schema and options (driver), Arrow batches (tasks). Out: commit messages with row counts.
Flow: `writer()` checks the options and is pickled → `write()` in each task → `commit()` or
`abort()` on the driver, in yet another process. Must not: connect when it is created: Spark creates
it in several processes, again for each micro-batch. At-least-once is here, `exactly_once` is a
module of its own.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from odradek.runtime.system_clock import SystemClock
from odradek.spark.sink.batch_commit import abort_batch, commit_batch
from odradek.spark.sink.encoding import encoded
from odradek.spark.sink.exactly_once import TransactionalTask
from odradek.spark.sink.sink_clients import make_producer, prepared_by, process_producers
from odradek.spark.sink.sink_errors import SinkSchemaError
from odradek.spark.sink.sink_messages import SinkCommit, SinkTask, batch_task, stream_task
from odradek.spark.sink.sink_options import AT_LEAST_ONCE, EXACTLY_ONCE, SinkOptions
from odradek.spark.sink.sink_schema import SinkColumns, check_columns
from odradek.spark.sink.sink_sending import Patience, RowSender, window_of
from odradek.spark.tasks.worker_process import task_begins

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

logger = logging.getLogger("odradek.spark")


def write_rows(
    options: SinkOptions, columns: SinkColumns, task: SinkTask, batches: Iterator[pa.RecordBatch]
) -> SinkCommit:
    """Write one task's rows at least once: all in-sync replicas have acknowledged them."""
    clients, config = process_producers(), options.producer_config()
    producer, used = clients.checkout(config, fresh=task.attempt > 0)
    patience = Patience(options.outage_tolerance, SystemClock(), producer.explain)
    known = used or bool(task.batch)  # after batch 0, the cluster must have answered before
    sender = RowSender(
        producer,
        columns,
        patience,
        window=window_of(config),
        first_contact=None if known else options.first_contact(task.attempt),
    )
    try:
        for batch in batches:
            if batch.num_rows:
                sender.send(batch)
        if sender.rows:
            sender.finish()
    except BaseException:
        # The next task must not inherit the state of a producer whose task has failed.
        clients.drop(producer)
        raise
    return SinkCommit(task.partition, sender.rows, task.attempt)


def write_task(
    options: SinkOptions, columns: SinkColumns, task: SinkTask, batches: Iterator[pa.RecordBatch]
) -> SinkCommit:
    """Write one task's rows with the guarantee of option delivery."""
    task_begins()
    if options.encodings:
        batches = encoded(batches, options.encodings)
    if options.delivery == AT_LEAST_ONCE:
        return write_rows(options, columns, task, batches)
    writer = TransactionalTask(
        *(options, columns, task),
        clients=process_producers(),
        prepared=prepared_by,
        clock=SystemClock(),
    )
    return writer.write(batches)


def finish(
    options: SinkOptions, messages: Sequence[WriterCommitMessage | None], batch: int | None
) -> None:
    """Finish a batch on the driver: with exactly_once commit it; log the number of rows."""
    if options.delivery == EXACTLY_ONCE:
        commit_batch(
            *(options, messages),
            batch=batch,
            make=make_producer,
            prepared=prepared_by,
            clock=SystemClock(),
        )
    commits = [m for m in messages if isinstance(m, SinkCommit)]
    skipped = sum(1 for c in commits if c.skipped)
    rows, tasks = sum(c.rows for c in commits), len(commits)
    logger.info(
        "sink: %s: %d row%s written by %d task%s%s",
        "batch query" if batch is None else f"batch {batch}",
        *(rows, "" if rows == 1 else "s", tasks, "" if tasks == 1 else "s"),
        f", {skipped} of which had already written their rows" if skipped else "",
    )


class KafkaBatchWriter(DataSourceArrowWriter):
    """Writer of a batch query."""

    def __init__(self, options: SinkOptions, schema: StructType, overwrite: bool) -> None:
        if overwrite:
            raise SinkSchemaError('a topic can\'t be overwritten: use .mode("append")')
        self._options, self._columns = options, check_columns(schema, options)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write one partition; called in a Python worker of an executor."""
        return write_task(self._options, self._columns, batch_task(self._options), iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Finish the query; called on the driver when all tasks have written their rows."""
        finish(self._options, messages, None)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Log the failure; with at_least_once, rows that tasks wrote remain in the topic."""
        give_up(self._options, messages, None)


class KafkaStreamWriter(DataSourceStreamArrowWriter):
    """Writer of a streaming query.

    The output mode makes no difference, as in the JVM sink: `complete` appends the whole result
    with each batch.
    """

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        self._options, self._columns = options, check_columns(schema, options)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write one partition of a micro-batch; called in a Python worker of an executor."""
        return write_task(self._options, self._columns, stream_task(), iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Finish a micro-batch; called on the driver when all tasks have written their rows."""
        finish(self._options, messages, batchId)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Log the failure; with at_least_once, rows that tasks wrote remain in the topic."""
        give_up(self._options, messages, batchId)


def give_up(
    options: SinkOptions, messages: Sequence[WriterCommitMessage | None], batch: int | None
) -> None:
    """Log on the driver that a write has failed, and abort open transactions."""
    what = "batch query" if batch is None else f"batch {batch}"
    if options.delivery == EXACTLY_ONCE:
        logger.warning("sink: %s failed; its open transactions are aborted", what)
        abort_batch(
            *(options, messages),
            batch=batch,
            make=make_producer,
            prepared=prepared_by,
            clock=SystemClock(),
        )
        return
    done = sum(1 for m in messages if m is not None)
    logger.warning(
        "sink: %s failed; the rows of %d of %d tasks had already been written and remain in the "
        "topic",
        *(what, done, len(messages)),
    )

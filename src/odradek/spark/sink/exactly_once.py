"""Write exactly once: one transaction for each task and micro-batch, with a marker of the batch.

In: one task's rows, and the batch that they belong to. Out: a commit message, and rows that
read_committed readers see once, however often Spark runs the task. The order of the steps in a task
matters:

    init_transactions  fences earlier attempts; their open transactions are aborted or committed
    read the marker    from now on, no other attempt writes it
    same batch?        replay: count and digest the rows, compare, write nothing
    earlier or none?   begin → rows → marker → commit: all of it or nothing

The marker is an offset committed with the transaction: group = transactional.id, partition 0 of the
topic, offset = batch, metadata = rows and digest. On the driver, `check_batch` checks the set of
markers; if the write failed, `end_open` ends the transactions of killed tasks. Must not: write a
row before the marker was read, or assume that a replay has the same rows.
"""

from __future__ import annotations

import contextlib
import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from odradek.clients.consumer.records import OffsetAndMetadata
from odradek.common.errors import KafkaError
from odradek.common.errors.kafka import (
    InvalidProducerEpochError,
    InvalidTransactionTimeoutError,
    ProducerFencedError,
)
from odradek.common.types import TopicPartition
from odradek.spark.sink.row_digest import MASK, VERSION, digest
from odradek.spark.sink.sink_clients import Make
from odradek.spark.sink.sink_messages import SinkCommit, SinkTask
from odradek.spark.sink.sink_options import SinkOptions
from odradek.spark.sink.sink_problems import ReplayError, SinkWriteError
from odradek.spark.sink.sink_schema import SinkColumns
from odradek.spark.sink.sink_sending import Patience, RowSender, window_of
from odradek.spark.tasks.worker_clients import Clock

if TYPE_CHECKING:
    import pyarrow as pa

    from odradek.api.producer import Producer

logger = logging.getLogger("odradek.spark")

FENCED = (ProducerFencedError, InvalidProducerEpochError)
"""Errors of coordinators and leaders for an attempt that a newer one has fenced."""
BEYOND = 16
"""Number of partitions after the last one that are searched for markers of a wider first run."""
FENCE_S = 10.0
"""Seconds for ending what killed tasks left open: a query that failed ends no later than that."""
CONTACT_S = 2.0
"""Seconds of them in which brokers must show themselves: a wrong address is to be told soon."""
SEVERAL = (
    "If one query, job or foreachBatch function writes several times, set a different sinkName "
    "for each write."
)
CLOSE_TIMEOUT = 5.0
"""Seconds for aborting what is open when a task fails; the next attempt's fence does it else."""


@dataclass(frozen=True, slots=True)
class Marker:
    """Description of a sink partition's last write, committed with its transaction."""

    batch: int
    rows: int
    digest: int | None
    """None where another release computed it in another way: only the count can be compared."""
    run: str | None
    writer: str | None = None
    """Who it is of; None where another release wrote it."""

    def stored(self) -> OffsetAndMetadata:
        """Return the marker as an offset with metadata, for the commit."""
        document = {
            "v": VERSION,
            "rows": self.rows,
            "digest": f"{self.digest or 0:016x}",
            "run": self.run,
            "writer": self.writer,
        }
        return OffsetAndMetadata(self.batch, json.dumps(document, separators=(",", ":")))


def read_marker(
    offsets: Mapping[TopicPartition, OffsetAndMetadata], group: str
) -> tuple[Marker, str] | None:
    """Return the newest marker among a group's offsets, and its topic.

    There are several if the topic changed from batch to batch. Raises `ReplayError` for offsets
    that this sink didn't write.
    """
    if not offsets:
        return None
    tp = max(offsets, key=lambda p: offsets[p].offset)
    stored = offsets[tp]
    try:
        document = json.loads(stored.metadata)
        known = document["v"] == VERSION
        rows, text, run = int(document["rows"]), str(document["digest"]), document["run"]
        number, writer = int(text, 16) if known else None, document.get("writer")
        return Marker(stored.offset, rows, number, run, writer), tp.topic
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ReplayError(
            f"group {group!r} has an offset for {tp} that isn't a marker of this sink, so another "
            "application commits to it. Set option transactionalIdPrefix to a name that nothing "
            "else uses."
        ) from error


def sink_id(options: SinkOptions, query: str, partition: int) -> str:
    """Return the transactional.id of a sink partition, which is also the group of its marker."""
    return f"{options.transactional_id_prefix}-{query}-{options.sink_name}-{partition}"


class TransactionalTask:
    """One task's transactional write, from `init_transactions` to the commit."""

    def __init__(
        self,
        options: SinkOptions,
        columns: SinkColumns,
        task: SinkTask,
        *,
        make: Make,
        clock: Clock,
    ) -> None:
        self._options, self._columns, self._task, self._clock = options, columns, task, clock
        self._query, self._batch = task.identity()
        self._id = sink_id(options, self._query, task.partition)
        self._writer = (
            f"{self._query!r} with transactionalIdPrefix {options.transactional_id_prefix!r}"
        )
        self._config = options.producer_config(self._id)
        self._producer = make(self._config)
        self._patience = Patience(options.outage_tolerance, clock, self._producer.explain)
        self._begun: float | None = None
        self._digest = 0

    def write(self, batches: Iterator[pa.RecordBatch]) -> SinkCommit:
        """Write the rows, unless the marker shows that they are already written."""
        try:
            found = self._fence()
            if found is not None and found[0].batch >= self._batch:
                return self._replay(*found, batches)
            return self._write(found, batches)
        except KafkaError as error:
            better = self._explained(error)
            if better is None:
                raise
            raise better from error
        finally:
            with contextlib.suppress(Exception):  # it may be broken: closing is a courtesy
                self._producer.close(CLOSE_TIMEOUT)

    def _fence(self) -> tuple[Marker, str] | None:
        """Make sure that no earlier attempt can write any more; then read how far they got."""
        wait, producer = self._patience.wait, self._producer
        first = None if self._batch else self._options.first_contact(self._task.attempt)
        wait(producer.cluster_id, "the cluster's first answer", at_most=first)
        wait(producer.init_transactions, f"the producer id of {self._id!r}")
        offsets = wait(
            lambda seconds: producer.committed_offsets(self._id, seconds),
            f"the marker of {self._id!r}",
        )
        found = read_marker(offsets, self._id)
        if found is not None and found[0].writer not in (None, self._writer):
            raise ReplayError(
                f"{self._where()}: this transactional.id is also used by {found[0].writer}; this "
                f"is {self._writer}. Nothing was written. Rename one of the two "
                "(transactionalIdPrefix, sinkName or jobId)."
            )
        return found

    def _write(
        self, found: tuple[Marker, str] | None, batches: Iterator[pa.RecordBatch]
    ) -> SinkCommit:
        sender = RowSender(
            self._producer, self._columns, self._patience, window=window_of(self._config)
        )
        for batch in batches:
            if batch.num_rows:
                self._begin()
                self._count(batch)
                sender.send(batch)
        topic = self._options.topic or sender.first_topic or (found[1] if found else None)
        if topic is not None:  # else there is no row, and nowhere to put a marker
            if sender.rows == 0:
                sender.meet(topic)
            self._begin()
            sender.finish()
            marker = Marker(self._batch, sender.rows, self._digest, self._task.run, self._writer)
            self._commit(topic, marker)
        return self._message(sender.rows, found[0] if found else None, skipped=False)

    def _begin(self) -> None:
        if self._begun is None:
            self._producer.begin_transaction()
            self._begun = self._clock.now()

    def _commit(self, topic: str, marker: Marker) -> None:
        wait, producer = self._patience.wait, self._producer
        offsets = {TopicPartition(topic, 0): marker.stored()}
        wait(
            lambda seconds: producer.send_offsets_to_transaction(offsets, self._id, seconds),
            f"the marker of {self._id!r} to be added to the transaction",
        )
        wait(producer.commit_transaction, f"the commit of transaction {self._id!r}")

    def _count(self, batch: pa.RecordBatch) -> None:
        self._digest = (self._digest + digest(self._columns.of_records(batch))) & MASK

    def _replay(self, marker: Marker, topic: str, batches: Iterator[pa.RecordBatch]) -> SinkCommit:
        """Check that the rows of a batch that was already written are the same; write nothing."""
        if marker.batch > self._batch:
            raise ReplayError(
                f"{self._where()}: batch {marker.batch} was already written, and batch numbers "
                "must increase. Nothing was written now. If this task is a late attempt of an "
                "older batch, ignore this error. Otherwise the checkpoint was reset or copied, or "
                "two queries run from copies of one checkpoint. To write the same data again on "
                "purpose, use a new checkpoint or another sinkName."
            )
        if self._options.topic not in (None, topic):
            raise ReplayError(
                f"{self._where()} was already written to topic {topic!r}, but is now repeated for "
                f"topic {self._options.topic!r}. Nothing was written now. {SEVERAL}"
            )
        rows = 0
        for batch in batches:
            rows += batch.num_rows
            if batch.num_rows:
                self._count(batch)
        same = rows == marker.rows and marker.digest in (None, self._digest)
        if not same:
            raise ReplayError(
                f"{self._where()} was already written with {marker.rows} "
                f"row{'' if marker.rows == 1 else 's'} (digest {marker.digest or 0:016x}), but is "
                f"now repeated with {rows} (digest {self._digest:016x}). Nothing was written now. "
                "A repeated batch must have the same rows: look for rand(), uuid() or "
                "current_timestamp(), a repartition without columns, a limit without an order, or "
                "a query, source options or numbers of partitions that were changed between the "
                f"runs. {SEVERAL} To write the new rows in addition anyway, stop the query and "
                f"delete the group {self._id!r}."
            )
        logger.info(
            "sink: %s: skipped, because its rows were already written (row count: %d)",
            self._where(),
            rows,
        )
        return self._message(rows, marker, skipped=True)

    def _message(self, rows: int, before: Marker | None, *, skipped: bool) -> SinkCommit:
        return SinkCommit(
            self._task.partition,
            rows,
            self._task.attempt,
            batch=self._batch,
            query=self._query,
            skipped=skipped,
            first_of_run=before is None or before.run is None or before.run != self._task.run,
        )

    def _where(self) -> str:
        return f"batch {self._batch}, sink partition {self._task.partition} ({self._id})"

    def _explained(self, error: KafkaError) -> KafkaError | None:
        """Say what an error of the transaction means for the query."""
        text = f"{self._where()}: {type(error).__name__}: {error}"
        timeout = float(self._config["transaction.timeout.ms"]) / 1000
        if isinstance(error, InvalidTransactionTimeoutError):
            return SinkWriteError(
                f"{text}. The sink's transaction timeout of {timeout:.0f} s is longer than the "
                "brokers allow (transaction.max.timeout.ms): set option "
                "kafka.transaction.timeout.ms to at most their limit; each task must finish its "
                "write within that time."
            )
        if self._begun is not None and self._clock.now() - self._begun >= timeout:
            return SinkWriteError(
                f"{text}. The transaction was open for {self._clock.now() - self._begun:.0f} s, "
                f"but kafka.transaction.timeout.ms is {timeout:.0f} s; it was aborted and nothing "
                "of it is visible. Use smaller batches (maxOffsetsPerTrigger), more partitions, "
                "or a longer timeout (brokers limit it with transaction.max.timeout.ms)."
            )
        if isinstance(error, FENCED) or isinstance(error.__cause__, FENCED):
            return SinkWriteError(
                f"{text}. Another attempt of this task, or another run of this query, has taken "
                "over; none of this attempt's rows are visible."
            )
        return None


def check_batch(
    options: SinkOptions, messages: Sequence[object], *, batch: int | None, make: Make, clock: Clock
) -> None:
    """Check on the driver that the tasks' commit messages make up a complete batch.

    `batch` is Spark's batch id; None in a batch query. If the first batch of a run is a replay with
    fewer tasks than before, it would omit partitions that were written; their markers are looked
    up. A replay with more tasks fails in the tasks that wrote before, if their rows differ.
    """
    if not messages:
        return
    commits = [m for m in messages if isinstance(m, SinkCommit)]
    partitions = sorted(c.partition for c in commits)
    queries = {(c.query, c.batch) for c in commits}
    whole = len(commits) == len(messages) and partitions == list(range(len(messages)))
    if not whole or len(queries) != 1 or (batch is not None and commits[0].batch != batch):
        raise ReplayError(
            f"batch {batch}: the tasks' commit messages don't form one batch: {len(messages)} "
            f"messages, partitions {partitions}, queries and batches {sorted(map(str, queries))}"
        )
    if not any(c.first_of_run and c.rows for c in commits):
        return
    producer = make(options.producer_config())
    patience = Patience(options.outage_tolerance, clock, producer.explain)
    try:
        for number in range(len(commits), len(commits) + BEYOND):
            name = sink_id(options, str(commits[0].query), number)
            _refuse_wider(patience, producer, name, commits[0])
    finally:
        with contextlib.suppress(Exception):
            producer.close(CLOSE_TIMEOUT)


def end_open(options: SinkOptions, messages: Sequence[object], *, make: Make, clock: Clock) -> None:
    """Abort on the driver the open transactions of tasks that were killed, after a failed write.

    Otherwise `read_committed` consumers would wait until the transaction times out or the query is
    restarted. Initializing a transactional id aborts its open transaction. If a new run of the
    same query already uses it, that costs an attempt but never a row. Raises nothing, because the
    write has already failed with another error.
    """
    missing = [number for number, message in enumerate(messages) if message is None]
    if not missing:
        return
    names = (m.query for m in messages if isinstance(m, SinkCommit) and m.query is not None)
    query, why, ended = options.job_id or next(names, ""), "", 0
    until = clock.now() + FENCE_S
    try:
        if not query:
            why = "no task reported the query's id"
        for number in missing if query else ():
            left = until - clock.now()
            if left <= 0.0:
                why = f"the time limit of {FENCE_S:.0f} s has passed"
                break
            name = sink_id(options, query, number)
            _fence(make(options.producer_config(name)), left, clock)
            ended += 1
    except Exception as error:  # whatever it is: Spark has to tell the user of another one
        why = f"{type(error).__name__}: {error}"
    if why:
        seconds = float(options.producer_config("")["transaction.timeout.ms"]) / 1000
        logger.warning(
            "sink: %d of %d failed tasks may have left a transaction open: later rows may stay "
            "hidden from read_committed consumers for %.0f s, or until the query runs again (%s)",
            *(len(missing) - ended, len(missing), seconds, why),
        )


def _fence(producer: Producer, seconds: float, clock: Clock) -> None:
    begin = clock.now()
    try:
        producer.cluster_id(min(CONTACT_S, seconds))
        producer.init_transactions(max(0.0, seconds - (clock.now() - begin)))
    finally:
        with contextlib.suppress(Exception):
            producer.close(CLOSE_TIMEOUT)


def _refuse_wider(patience: Patience, producer: Producer, name: str, commit: SinkCommit) -> None:
    offsets = patience.wait(
        lambda seconds: producer.committed_offsets(name, seconds), f"the marker of {name!r}"
    )
    found = read_marker(offsets, name)
    if found is not None and found[0].batch == commit.batch and found[0].rows:
        raise ReplayError(
            f"batch {commit.batch} was already written by more tasks than now: {name!r} wrote "
            f"{found[0].rows} row{'' if found[0].rows == 1 else 's'} of it. Rows that moved to "
            "other tasks may now be duplicated. Don't change the number of partitions "
            "(spark.sql.shuffle.partitions, minPartitions) until an interrupted batch is finished."
        )

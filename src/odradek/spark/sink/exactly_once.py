"""Write exactly once: tasks prepare transactions, and only the driver commits them.

In: one task's rows, and the batch that they belong to. Out: a commit message with an open
transaction, which the driver (`batch_commit`) commits or aborts. It is a two-phase commit:

1. A task sends its rows and a marker in a transaction of its own, and leaves it open.
2. The driver gets the messages of all tasks. It fences older drivers, and commits its decision (the
   list of these transactions) to the ledger in one transaction.
3. The driver commits the transactions of the list.

Before the decision no transaction of the batch can be committed, because only a driver commits, and
only a driver that no other has fenced decides. So attempts without a decision don't
matter: tasks of an earlier plan that still run, wherever they are and however many there were, can
neither commit their rows nor have them committed. After the decision the batch has exactly the
rows of the list, whatever Spark plans later: the driver of a repeated batch commits the list. If
that succeeds for all of it, the batch is complete, and the rows of the new plan are dropped,
provided that they are the same in all. If brokers have aborted a part of the list meanwhile
(timeout) and none of it is committed, the list is aborted, and the new plan is written. If a part
is committed, the rest is committed and the aborted part written again, provided that the rows of
each task are the same. Rows are the same if their number and digest are; otherwise the driver
refuses before it commits anything.

No task may abort what a list names, whenever it reads the ledger and however long it is frozen
afterwards. A transaction is aborted whenever its transactional id is initialized; brokers check the
expected epoch of KIP-360 only if none is open. So each attempt has a transactional id that no
other attempt initializes (R-TX-3):

- The attempt initializes the counter of its partition, an id under which no rows are written. The
  answer, a producer id and an epoch, is its ticket, which no other attempt gets.
- If it is the ticket after that of the last committed transaction, by the partition's marker, the
  attempt takes over the id of that transaction. Otherwise it creates an id named by its ticket.

A new id for each attempt would be enough, but brokers keep ids for 7 days and producer ids for one.
In this way a partition needs another id only after an attempt that has failed.

Must not: end a transaction that another attempt has prepared, or assume that a repeated batch has
the same rows or tasks.

Until 0.2 each task committed by itself, and a marker told a repeated task that its rows were
written. But adaptive execution planned a repeated batch with other tasks, which wrote its rows
twice (24,000 became 39,965). `exactly_once_atomic`, one producer id for all tasks, is refused:
attempt numbers begin at 0 again when a stage is retried, so two writers would use the same
sequences, and the leader acknowledges what looks like a duplicate. Tasks of one worker process
share a producer (`PreparedTransactions`): a producer for each task cost 17 to 20 ms of CPU time and
three connections with their logins, a shared one costs 7 ms.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from odradek.common.errors import KafkaError
from odradek.common.errors.kafka import (
    InvalidProducerEpochError,
    InvalidTransactionTimeoutError,
    ProducerFencedError,
)
from odradek.common.printable import sentence
from odradek.common.types import TopicPartition
from odradek.spark.sink.ledger import (
    NOTHING,
    Decision,
    Marker,
    Offsets,
    Ticket,
    read_decision,
    read_marker,
    resolve_hint,
    sink_id,
    with_ticket,
    writer_of,
)
from odradek.spark.sink.row_digest import MASK, digest
from odradek.spark.sink.sink_clients import Prepared, ProducerCache
from odradek.spark.sink.sink_errors import ReplayError, SinkWriteError
from odradek.spark.sink.sink_messages import SinkCommit, SinkTask
from odradek.spark.sink.sink_options import SinkOptions
from odradek.spark.sink.sink_schema import SinkColumns
from odradek.spark.sink.sink_sending import Patience, RowSender, window_of
from odradek.spark.tasks.worker_clients import Clock

if TYPE_CHECKING:
    import pyarrow as pa

    from odradek.api.producer import Producer

logger = logging.getLogger("odradek.spark")

FENCED = (ProducerFencedError, InvalidProducerEpochError)
"""Errors that brokers return to a task's attempt whose producer a newer attempt has fenced."""
SEVERAL = (
    "If one query, job or foreachBatch function writes several times, set a different sinkName "
    "for each write."
)
SAME_ROWS = (
    "A repeated batch must have the same rows: look for rand(), uuid() or current_timestamp(), a "
    "repartition without columns, a limit without an order, a joined table that changes, or a "
    "query, source options or numbers of partitions that were changed between the runs."
)
SMALLER = (
    "Use smaller batches (maxOffsetsPerTrigger, maxBytesPerTrigger), more executors, or a longer "
    "kafka.transaction.timeout.ms (brokers limit it with transaction.max.timeout.ms): all tasks of "
    "a batch must finish within that time."
)
TAKEN_OVER = (
    "Another attempt of this task, or another run of this query, has taken over; none of this "
    "attempt's rows are visible."
)
LATE_S = 10.0
"""A task that took at least this many seconds reads the ledger again before it ends.

If the driver has died, only the task can abort its transaction before the timeout."""
CLOSE_TIMEOUT = 5.0
"""Seconds in which a failed task tries to abort; later, the next attempt's fencing aborts."""


class Ledger:
    """Reader of one sink's decisions (see `ledger`) and markers, with a producer's connections."""

    def __init__(
        self,
        options: SinkOptions,
        query: str,
        producer: Producer,
        prepared: Prepared,
        patience: Patience,
    ) -> None:
        self._options, self._query, self._producer = options, query, producer
        self._patience = patience
        self.transactions = prepared(producer)
        self.base = sink_id(options, query, "")
        self.writer = writer_of(options, query)

    def offsets(self, group: str) -> Offsets:
        """Wait for the end of open transactions, and return a group's committed offsets."""
        return self._patience.wait(
            lambda seconds: self._producer.committed_offsets(group, seconds),
            f"the offsets of group {group!r}",
        )

    def newest(self) -> Decision | None:
        """Return the newest decision; a coordinator that is cut off may return an older one."""
        return read_decision(self.offsets, self.base)

    def read(self, batch: int) -> Decision | None:
        """Return the newest decision; raises `ReplayError` if it forbids to write this batch."""
        found = self.newest()
        if found is not None:
            self._check_writer(found.writer)
            if found.batch > batch:
                raise older(batch, found.batch)
            if found.covers(batch):
                self._check_topic(batch, found.topic)
        return found

    def markers(self, partitions: Iterable[int]) -> dict[int, tuple[Marker, str]]:
        """Return the committed markers of tasks, with their topics.

        Markers of open transactions aren't returned; those of ended transactions are.
        """
        ids = {f"{self.base}{partition}": partition for partition in partitions}
        if not ids:
            return {}
        found = self._patience.wait(
            lambda seconds: self.transactions.offsets(list(ids), seconds),
            "the tasks' progress markers",
        )
        markers = {p: read_marker(found.get(name, {}), name) for name, p in ids.items()}
        return {p: marker for p, marker in markers.items() if marker is not None}

    def ticket(self, counter: str) -> Ticket:
        """Return a counter's next ticket; aborts a transaction that release 0.2 has left open."""
        # Brokers refuse a timeout above their maximum, even without an open transaction.
        longest = float(self._options.producer_config(counter)["transaction.timeout.ms"]) / 1000
        found = self._patience.wait(
            lambda seconds: self.transactions.fence([counter], min(seconds, longest)),
            f"the next epoch of {counter!r}",
        )[counter]
        return found.producer_id, found.producer_epoch

    def end_plain(self, decision: Decision | None, partition: int) -> None:
        """Commit a decided transaction of an older release; the counter uses the same id now."""
        entries = () if decision is None else decision.unfinished
        plain = [e.transaction(self.base) for e in entries if e.is_plain]
        mine = [t for t in plain if t.transactional_id == f"{self.base}{partition}"]
        if mine:
            self._patience.wait(
                lambda seconds: self.transactions.end(mine, seconds, committed=True),
                "the commit of an earlier release's transaction",
            )

    def topic_of(self, group: str) -> str:
        """Return the topic of a group's newest offset."""
        offsets = self.offsets(group)
        return max(offsets, key=lambda p: offsets[p].offset).topic

    def _check_writer(self, writer: str | None) -> None:
        if writer not in (None, self.writer):
            raise ReplayError(
                f"the transactional ids {self.base + '…'!r} are also used by {writer}; this is "
                f"{self.writer}. Nothing was written. Rename one of the two "
                "(transactionalIdPrefix, sinkName or jobId)."
            )

    def _check_topic(self, batch: int, topic: str) -> None:
        if self._options.topic not in (None, topic):
            raise ReplayError(
                f"batch {batch} was already written to topic {topic!r}, but is now repeated for "
                f"topic {self._options.topic!r}. Nothing was written now. {SEVERAL}"
            )

    def check_marker(self, marker: Marker, topic: str, batch: int) -> None:
        """Raise if a marker of release 0.2 (which had no ledger) forbids to write this batch."""
        self._check_writer(marker.writer)
        if marker.batch > batch:
            raise older(batch, marker.batch)
        if marker.batch == batch:
            self._check_topic(batch, topic)


def first_of_run(decision: Decision | None, batch: int, run: str | None) -> bool:
    """Return whether this may be the first batch of a run, by the newest decision.

    If so, tasks of an earlier run may have left transactions open, or release 0.2 (which had no
    ledger) may have written a part of the batch. A run that Spark doesn't report counts as new.
    """
    if decision is None or decision.state == NOTHING:
        return True
    return decision.batch < batch and (run is None or decision.run != run)


def older(batch: int, written: int) -> ReplayError:
    """Return the error for a batch that follows a newer one in the ledger."""
    return ReplayError(
        f"batch {batch}: batch {written} was already written, and batch numbers must increase. "
        "Nothing was written now. If this task is a late attempt of an older batch, ignore this "
        "error. Otherwise the checkpoint was reset or copied, or two queries run from copies of "
        "one checkpoint. To write the same data again on purpose, use a new checkpoint or another "
        "sinkName."
    )


class TransactionalTask:
    """The rows that one task writes of a batch, from the first row to the prepared transaction."""

    def __init__(
        self,
        options: SinkOptions,
        columns: SinkColumns,
        task: SinkTask,
        *,
        clients: ProducerCache,
        prepared: Prepared,
        clock: Clock,
    ) -> None:
        self._options, self._columns, self._task, self._clock = options, columns, task, clock
        self._query, self._batch = task.identity()
        self._id = sink_id(options, self._query, task.partition)
        self._config = options.producer_config(self._id)
        self._clients, self._prepared = clients, prepared
        self._begun: float | None = None
        self._rows = self._digest = 0

    def write(self, batches: Iterator[pa.RecordBatch]) -> SinkCommit:
        """Write the rows and leave their transaction open; only count rows that exist already.

        A task without rows sends no request.
        """
        rows = self._counted(batches)
        first = next(rows, None)
        if first is None:
            return self._message()
        producer, used = self._clients.checkout(self._config, fresh=self._task.attempt > 0)
        try:
            patience = Patience(self._options.outage_tolerance, self._clock, producer.explain)
            ledger = Ledger(self._options, self._query, producer, self._prepared, patience)
            if used:
                ledger.transactions.use(self._id)
            else:
                contact = None if self._batch else self._options.first_contact(self._task.attempt)
                patience.wait(producer.cluster_id, "the cluster's first answer", at_most=contact)
            found = self._write(producer, patience, ledger, first, rows)
            ledger.transactions.use(self._id)  # frees the producer; the transaction remains open
            return found
        except BaseException as error:
            self._clients.drop(producer, CLOSE_TIMEOUT)
            better = self._explained(error) if isinstance(error, KafkaError) else None
            if better is None:
                raise
            raise better from error

    def _counted(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the batches that have rows, after counting and digesting their rows."""
        for batch in batches:
            if batch.num_rows:
                self._rows += batch.num_rows
                found = digest(self._columns.of_records(batch))
                self._digest = (self._digest + found) & MASK
                yield batch

    def _write(
        self,
        producer: Producer,
        patience: Patience,
        ledger: Ledger,
        first: pa.RecordBatch,
        rows: Iterator[pa.RecordBatch],
    ) -> SinkCommit:
        wait, partition, since = patience.wait, self._task.partition, self._clock.now()
        decision = ledger.read(self._batch)
        covered = decision is not None and decision.covers(self._batch)
        if decision is not None and covered and decision.finished:
            return self._skipped(rows)
        ledger.end_plain(decision, partition)
        used = created = ledger.ticket(self._id)
        marker, topic = ledger.markers([partition]).get(partition, (None, ""))
        if marker is not None:
            if first_of_run(decision, self._batch, self._task.run):
                ledger.check_marker(marker, topic, self._batch)
                if marker.batch == self._batch:
                    return self._compared(marker, rows)
            if decision is not None and covered and self._is_written(decision, marker):
                return self._skipped(rows)
            if used == (marker.used[0], marker.used[1] + 1):
                created = marker.created
        name = with_ticket(self._id, created)
        ledger.transactions.use(name)
        wait(producer.init_transactions, f"the producer id of {name!r}")
        sender = RowSender(producer, self._columns, patience, window=window_of(self._config))
        producer.begin_transaction()
        self._begun = self._clock.now()
        sender.send(first)
        for batch in rows:
            sender.send(batch)
        sender.finish()
        transaction = wait(ledger.transactions.prepare, f"the records of {self._id!r}")
        identity = transaction.producer_id, transaction.epoch
        marker = Marker(
            *(self._batch, self._rows, self._digest, self._task.run, ledger.writer, identity),
            created=created,
            used=used,
        )
        topic = self._options.topic or sender.first_topic or ""
        offsets = {TopicPartition(topic, 0): marker.stored()}
        wait(
            lambda seconds: producer.send_offsets_to_transaction(offsets, self._id, seconds),
            f"the progress marker of {self._id!r} to be added to the transaction",
        )
        if not covered and self._clock.now() - since > LATE_S:
            self._check_wanted(ledger)
        sweeps = 0 if decision is None else decision.sweeps
        return self._message(topic=topic, transaction=transaction, ticket=created, sweeps=sweeps)

    def _is_written(self, decision: Decision, marker: Marker) -> bool:
        """Return whether this task's rows of a decided batch are committed.

        If not, the task prepares its rows again, even if the driver may still commit the decided
        transaction: only a driver ends transactions.
        """
        mine = [e for e in decision.entries if e.partition == self._task.partition]
        return any(
            e.producer_id < 0 or marker.transaction == (e.producer_id, e.epoch) for e in mine
        )

    def _check_wanted(self, ledger: Ledger) -> None:
        """Raise if a driver has decided the batch meanwhile: the error aborts the transaction."""
        decision = ledger.read(self._batch)
        if decision is not None and decision.covers(self._batch):
            raise SinkWriteError(f"{self._where()}: {TAKEN_OVER}")

    def _skipped(self, rows: Iterator[pa.RecordBatch]) -> SinkCommit:
        for _ in rows:
            pass  # the generator counts the rows
        logger.info(
            "sink: %s: skipped, because its rows were already written (row count: %d)",
            self._where(),
            self._rows,
        )
        return self._message(skipped=True)

    def _compared(self, marker: Marker, rows: Iterator[pa.RecordBatch]) -> SinkCommit:
        """Check that a task repeats the rows that release 0.2 committed for it; write nothing."""
        found = self._skipped(rows)
        if found.rows != marker.rows or marker.digest not in (None, found.digest):
            raise ReplayError(
                f"{self._where()} was already written with {marker.rows} "
                f"row{'' if marker.rows == 1 else 's'} (digest {marker.digest or 0:016x}), but is "
                f"now repeated with {found.rows} (digest {found.digest:016x}). Nothing was written "
                f"now. {SAME_ROWS} {SEVERAL} {resolve_hint()}"
            )
        return found

    def _message(self, **more: object) -> SinkCommit:
        return SinkCommit(
            self._task.partition,
            self._rows,
            self._task.attempt,
            batch=self._batch,
            query=self._query,
            run=self._task.run,
            digest=self._digest,
            **more,  # type: ignore[arg-type]
        )

    def _where(self) -> str:
        return f"batch {self._batch}, sink partition {self._task.partition} ({self._id})"

    def _explained(self, error: KafkaError) -> KafkaError | None:
        """Return an error that explains how a transaction's error affects the query."""
        text = f"{self._where()}: {type(error).__name__}: {sentence(error)}"
        timeout = float(self._config["transaction.timeout.ms"]) / 1000
        if isinstance(error, InvalidTransactionTimeoutError):
            return SinkWriteError(
                f"{text} The sink's transaction timeout of {timeout:.0f} s is longer than the "
                "brokers allow (transaction.max.timeout.ms): set option "
                "kafka.transaction.timeout.ms to at most their limit; a batch must be written "
                "within that time."
            )
        if self._begun is not None and self._clock.now() - self._begun >= timeout:
            return SinkWriteError(
                f"{text} The transaction was open for {self._clock.now() - self._begun:.0f} s, "
                f"but kafka.transaction.timeout.ms is {timeout:.0f} s; it was aborted and nothing "
                f"of it is visible. {SMALLER}"
            )
        if isinstance(error, FENCED) or isinstance(error.__cause__, FENCED):
            return SinkWriteError(f"{text} {TAKEN_OVER}")
        return None

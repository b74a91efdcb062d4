"""Commit a batch on the driver, once all tasks have prepared their transactions.

In: the commit messages of all tasks. Out: a batch that is committed as a whole, or an error before
anything of this attempt was committed. `exactly_once` describes the protocol. Must not: commit a
transaction that isn't in the ledger, or abort one that is.

Whether a listed transaction is committed is decided by ending it: EndTxn(commit) also succeeds if
the transaction was committed before. If the response is that the producer is fenced, the
transaction has ended, and the marker shows how: equal producer id and epoch mean that it was
committed before another producer took over the id.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from odradek.common.errors import KafkaError
from odradek.common.errors.kafka import InvalidTxnStateError
from odradek.common.printable import sentence
from odradek.spark.sink.exactly_once import FENCED, SAME_ROWS, SEVERAL, SMALLER, first_of_run
from odradek.spark.sink.ledger import (
    ACCEPTED,
    DECIDED,
    NO_TRANSACTION,
    NOTHING,
    Decision,
    TaskEntry,
    resolve_hint,
    totals,
)
from odradek.spark.sink.sink_clients import Make, Prepared
from odradek.spark.sink.sink_driver import FENCE_S, SWEEP_S, SinkDriver, driver
from odradek.spark.sink.sink_errors import ReplayError, SinkWriteError
from odradek.spark.sink.sink_messages import SinkCommit
from odradek.spark.sink.sink_options import SinkOptions
from odradek.spark.tasks.worker_clients import Clock

if TYPE_CHECKING:
    from odradek.clients.producer.transaction_state import PreparedTransaction

logger = logging.getLogger("odradek.spark")

BEYOND = 64
"""Number of sink partitions searched for markers beyond the batch's own: a batch of release 0.2
may have had more tasks."""


def commit_batch(
    options: SinkOptions,
    messages: Sequence[object],
    *,
    batch: int | None,
    make: Make,
    prepared: Prepared,
    clock: Clock,
) -> None:
    """Commit the transactions of all tasks of a batch, as one decision of the ledger.

    `batch` is Spark's batch id; None in a batch query.
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
    query = str(commits[0].query)
    try:
        topic = next((c.topic for c in commits if c.topic), None)
        with driver(options, query, topic, make=make, prepared=prepared, clock=clock) as at:
            _Batch(options, at, commits).commit()
    except KafkaError as error:
        if not isinstance(error, (*FENCED, InvalidTxnStateError)):
            raise
        raise SinkWriteError(
            f"batch {commits[0].batch}: {type(error).__name__}: {sentence(error)} Another run of "
            "this query has taken over, or no broker could be reached while the batch was being "
            "committed. Make sure that the query runs only once, and start it again."
        ) from error


class _Batch:
    """A batch for which all tasks have sent their messages."""

    def __init__(self, options: SinkOptions, at: SinkDriver, commits: Sequence[SinkCommit]) -> None:
        self._options, self._at, self._ledger = options, at, at.ledger
        self._of = {c.partition: c for c in commits}
        first = commits[0]
        self._run, self._number = first.run, first.batch or 0
        self._prepared = [c.transaction for c in commits if c.transaction is not None]

    def commit(self) -> None:
        found = self._ledger.read(self._number)
        decided = found if found is not None and found.covers(self._number) else None
        committed: dict[int, TaskEntry] = {}
        if decided is not None and not decided.finished:
            partly = partial(self._check_same, decided)
            done = self._ledger.complete(decided, partly)
            committed = {e.partition: e for e in decided.entries if e.partition in done}
            if len(done) == len(decided.entries):
                decided = self._at.finish(decided, self._prepared)
            elif done:
                partly(len(done))
        if decided is not None and decided.finished:
            self._check_finished(decided)
            self._end_others(())
            return
        first = first_of_run(found, self._number, self._run)
        entries = self._entries(committed, by_02=first)
        new = [e for e in entries if e.partition not in committed and e.producer_id >= 0]
        if not new:
            return
        number = 0 if found is None else found.sweeps
        self._check_open(new, number)
        rows, digest = totals(c.content for c in self._of.values())
        topics = [c.topic for c in self._of.values() if c.topic]
        known = None if found is None else found.topic
        decision = Decision(
            self._number,
            self._options.topic or known or topics[0],
            DECIDED,
            tuple(entries),
            self._ledger.writer,
            self._run,
            rows,
            digest,
            sweeps=number,
        )
        self._at.store(decision)
        done = self._ledger.complete(decision, lambda _: None)
        if lost := {e.partition for e in entries} - done:
            raise SinkWriteError(
                f"batch {self._number} was to be committed, but brokers had already aborted "
                f"{len(lost)} of {len(entries)} transactions (sink partitions "
                f"{_some(lost)}): they were open for longer than kafka.transaction.timeout.ms, or "
                "another run of this query has taken over. Start the query again: it writes the "
                f"missing rows if the batch has the same rows as before. {SMALLER}"
            )
        repeated = found is not None and found.batch == self._number
        suspect = first or repeated or any(c.attempt for c in self._of.values())
        self._at.finish(decision, self._prepared, FENCE_S if suspect else SWEEP_S)
        self._end_others(entries)

    def _end_others(self, entries: Sequence[TaskEntry]) -> None:
        """Abort the tasks' transactions except those in `entries`, which the decision lists."""
        listed = {e.transaction(self._ledger.base) for e in entries}
        those = [t for t in self._prepared if t not in listed]
        if those:
            self._at.patience.wait(
                lambda seconds: self._ledger.transactions.end(those, seconds, committed=False),
                "the abort of transactions that aren't needed",
            )

    def _check_finished(self, decided: Decision) -> None:
        """Raise if the batch with this number is finished and has other rows than this attempt."""
        rows, digest = totals(c.content for c in self._of.values())
        same = rows == decided.rows and decided.digest in (None, digest)
        if same or decided.state == ACCEPTED:
            return
        raise ReplayError(
            f"batch {self._number} was already written with {decided.rows} "
            f"row{'' if decided.rows == 1 else 's'} (digest {decided.digest or 0:016x}), but is "
            f"repeated with {rows} (digest {digest:016x}). Nothing was written now. {SEVERAL} A "
            "new write of a job needs a higher batchId. If the checkpoint was restored or copied, "
            "use a new one. If this is the same batch, whose rows can't be repeated (rand(), a "
            "file that has changed), accept what was written: odradek pipeline resolve CHECKPOINT "
            "--accept-loss (a batch job: --query JOBID instead of CHECKPOINT)"
        )

    def _check_same(self, decided: Decision, committed: int) -> None:
        """Raise if this attempt has other rows or tasks than the partly committed decision."""
        before = {e.partition: e.content for e in decided.entries}
        now = {c.partition: c.content for c in self._of.values() if c.rows}
        different = {p for p in before.keys() | now.keys() if before.get(p) != now.get(p)}
        if different:
            raise ReplayError(
                f"batch {self._number} was written by {len(before)} tasks, and {committed} of "
                "their transactions are committed; the others were aborted by the brokers. The "
                "repeated batch has other rows or tasks (sink partitions "
                f"{_some(different)}). Nothing was written now. {SAME_ROWS} If only the number of "
                "tasks differs, start the query with the same number of cores and the same "
                "settings as before (with adaptive execution, the number of tasks depends on the "
                f"number of cores). {resolve_hint()}"
            )

    def _entries(self, committed: dict[int, TaskEntry], *, by_02: bool) -> list[TaskEntry]:
        """Return entries of tasks with rows: of committed transactions, or else prepared ones."""
        found = dict(committed)
        lacking = set()
        for partition, one in self._of.items():
            if partition in found or not one.rows:
                continue
            if one.transaction is not None:
                t = one.transaction
                identity = t.producer_id, t.epoch, t.version_2
                found[partition] = TaskEntry(partition, *identity, *one.content, *one.ticket)
            elif by_02:  # a task of release 0.2 has committed these rows
                found[partition] = TaskEntry(partition, *NO_TRANSACTION, *one.content)
            else:
                lacking.add(partition)
        if by_02:
            self._check_markers()
        if lacking:
            raise SinkWriteError(
                f"batch {self._number}: the tasks of sink partitions {_some(lacking)} wrote no "
                "rows because another run of this query had written them, but these rows don't "
                "exist any more. Nothing was written now. Make sure that the query runs only "
                "once, and start it again."
            )
        return [found[p] for p in sorted(found)]

    def _check_markers(self) -> None:
        """Raise if release 0.2 has committed rows for tasks that have no rows in this attempt."""
        beyond = range(len(self._of), len(self._of) + BEYOND)
        empty = [p for p, c in self._of.items() if not c.rows]
        for partition, (marker, _) in self._ledger.markers([*empty, *beyond]).items():
            if marker.batch == self._number and marker.rows:
                raise ReplayError(
                    f"batch {self._number} was already written by other tasks than now: "
                    f"{f'{self._ledger.base}{partition}'!r} wrote {marker.rows} "
                    f"row{'' if marker.rows == 1 else 's'} of it, and has no "
                    f"rows or doesn't exist now. Nothing was written now. {resolve_hint()}"
                )

    def _check_open(self, entries: Sequence[TaskEntry], sweeps: int) -> None:
        """Raise if one of these transactions has ended or may be aborted by a driver's sweep."""
        left = self._ledger.still_open(entries)
        swept = {c.partition for c in self._of.values() if c.sweeps != sweeps}
        lost = {e.partition for e in entries if e not in left or e.partition in swept}
        if lost:
            timeout = float(self._options.producer_config("")["transaction.timeout.ms"]) / 1000
            raise SinkWriteError(
                f"batch {self._number}: the transactions of {len(lost)} of {len(entries)} tasks "
                f"are not open any more (sink partitions {_some(lost)}), so nothing of the batch "
                f"was committed. Either the batch took longer than kafka.transaction.timeout.ms "
                f"({timeout:.0f} s), or another attempt of these tasks or another run of this "
                f"query has taken over. {SMALLER}"
            )


def _some(partitions: set[int]) -> str:
    shown = [str(p) for p in sorted(partitions)]
    return ", ".join(shown[:10]) + (f" and {len(shown) - 10} more" if len(shown) > 10 else "")


def abort_batch(
    options: SinkOptions,
    messages: Sequence[object],
    *,
    batch: int | None,
    make: Make,
    prepared: Prepared,
    clock: Clock,
) -> None:
    """Abort on the driver the transactions that the tasks of a failed batch have left open.

    Otherwise `read_committed` consumers would wait until the transactions time out or the query is
    restarted. Transactions of the ledger aren't aborted: a restart commits them. If a new run of
    the same query already uses the transactional ids, an attempt of it may fail, but no row is
    lost. Raises nothing, because the write has already failed with another error.
    """
    commits = [m for m in messages if isinstance(m, SinkCommit)]
    open_now = [c.transaction for c in commits if c.transaction is not None]
    missing = [number for number, message in enumerate(messages) if message is None]
    if not open_now and not missing:
        return
    queries = (c.query for c in commits if c.query is not None)
    query, why = options.job_id or next(queries, ""), "no task reported the query's id"
    number = options.batch_id if batch is None else batch
    try:
        if query:
            why = ""
            topic = next((c.topic for c in commits if c.topic), None)
            given: Any = {"make": make, "prepared": prepared, "clock": clock}
            with driver(options, query, topic, tolerance=FENCE_S, **given) as at:
                _abort(at, open_now, number)
    except Exception as error:  # Spark must report the original error
        why = f"{type(error).__name__}: {error}"
    if why:
        seconds = float(options.producer_config("")["transaction.timeout.ms"]) / 1000
        logger.warning(
            "sink: %d tasks of a failed batch may have left a transaction open: later rows may "
            "stay hidden from read_committed consumers for %.0f s, or until the query runs again "
            "(%s)",
            *(len(open_now) + len(missing), seconds, why),
        )


def _abort(at: SinkDriver, open_now: Sequence[PreparedTransaction], batch: int) -> None:
    """Abort all open transactions except those in the ledger."""
    ledger, wait = at.ledger, at.patience.wait
    found = ledger.newest()
    named = [] if found is None else [e.transaction(ledger.base) for e in found.entries]
    those = [t for t in open_now if t not in named]
    if those:
        wait(
            lambda s: ledger.transactions.end(those, s, committed=False),
            "the abort of the tasks' transactions",
        )
    topic = ledger.topic if found is None else found.topic
    if topic is None or (found is not None and found.batch > batch):
        return
    found = found or Decision(0, topic, NOTHING, (), ledger.writer)
    at.sweep(found, [*named, *open_now])

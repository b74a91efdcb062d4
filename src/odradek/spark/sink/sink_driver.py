"""Fence older drivers of a sink, read its ledger reliably, and write it.

In: the sink's options and the query's id. Out: a `SinkDriver`, with the newest decision. A
coordinator that is cut off from the other brokers still answers its clients, with outdated offsets:
a decided batch would be written twice. But it can't commit anything. So each decision names the
producer epoch that the next driver gets, and a driver with another epoch reads the ledger again,
from a coordinator that has just accepted offsets of a transaction, which the driver aborts.
Transactions that tasks left open have unknown states: before a driver aborts them, it increments
the ledger's number of sweeps, so that no other driver lists them. Must not: decide about a batch.
"""

from __future__ import annotations

import contextlib
import logging
import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from odradek.clients.consumer.records import OffsetAndMetadata
from odradek.clients.producer.transaction_state import ONGOING, PreparedTransaction
from odradek.common.errors import AbortableTransactionError, KafkaError
from odradek.common.errors.kafka import (
    TransactionalIdNotFoundError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
    UnsupportedVersionError,
)
from odradek.common.types import TopicPartition
from odradek.spark.sink.exactly_once import CLOSE_TIMEOUT, Ledger
from odradek.spark.sink.ledger import (
    WRITTEN,
    Decision,
    Offsets,
    TaskEntry,
    read_decision,
    read_marker,
    resolve_hint,
    sink_id,
)
from odradek.spark.sink.sink_clients import Make, Prepared
from odradek.spark.sink.sink_errors import ReplayError
from odradek.spark.sink.sink_options import SinkOptions
from odradek.spark.sink.sink_sending import Patience
from odradek.spark.tasks.worker_clients import Clock

if TYPE_CHECKING:
    from odradek.api.producer import Producer

logger = logging.getLogger("odradek.spark")

_TASK = re.compile(r"(\d+)(\.\d+\.\d+)?")
DRIVER = "driver"
FENCE_S = 10.0
"""Timeout in seconds for finding and aborting open transactions after a failure or restart."""
SWEEP_S = 1.0
"""Timeout in seconds for finding and aborting open transactions after a batch without a failure:
they are unlikely, and the next batch searches again."""
GONE = (UnknownTopicIdError, UnknownTopicOrPartitionError)
"""Errors that brokers return if offsets are committed for a deleted topic."""
LEDGER_TIMEOUT_MS = "30000"
"""Timeout of the transaction that stores a decision.

If a driver dies before the end of this transaction, tasks can't read the ledger for this time.
"""
CONTACT_S = 2.0
"""Seconds within which brokers must answer a driver that only cleans up after a failed batch.

With a wrong address, its error must not be delayed for longer."""


class DriverLedger(Ledger):
    """Reader of one sink's decisions for the driver, after it has fenced all other drivers."""

    topic: str | None = None
    """A topic that the sink writes to; None if it isn't known."""

    def newest(self) -> Decision | None:
        """Return the newest decision."""
        found = None
        with contextlib.suppress(ReplayError):
            found = super().newest()
            me = self.transactions.identity
            known = found.following == (me.producer_id, me.epoch) if found else me.epoch == 0
            if known:
                return found
        self.topic = self.topic or (found.topic if found else None)
        if self.topic is None:
            return super().newest()
        return read_decision(lambda group: self._certain(group, stable=True), self.base)

    def read(self, batch: int) -> Decision | None:
        """Finish an earlier batch if its decision isn't carried out; return the newest decision."""
        found = super().read(batch)
        if found is None or found.batch >= batch or not found.unfinished:
            return found

        def refuse(committed: int) -> None:
            raise ReplayError(
                f"batch {found.batch} was not finished: {len(found.entries) - committed} of "
                f"{len(found.entries)} transactions were aborted. Nothing was written now, and "
                f"nothing of batch {batch}. {resolve_hint()}"
            )

        done = len(self.complete(found, refuse))
        if 0 < done < len(found.unfinished):
            refuse(done)
        return found

    def complete(self, decision: Decision, partly: Callable[[int], None]) -> set[int]:
        """Commit all transactions of a decision; return the partitions of those that are committed.

        The result is final: all other transactions have been aborted. If brokers have aborted some
        transactions and none is committed, the rest is aborted. If some are committed and some are
        aborted, `partly` (which may raise) is called with the number of committed ones, and then
        the rest is committed.
        """
        entries = [e for e in decision.unfinished if e.producer_id >= 0]
        left = self.still_open(entries)
        done = {e.partition for e in decision.unfinished if e.producer_id < 0}
        done |= self._end([e for e in entries if e not in left], committed=True)  # ended before
        if not done and len(left) < len(entries):
            # If they stayed open, a driver that was frozen for long could still commit them.
            done, left = self._end(left, committed=False), []
        if done and len(done) + len(left) < len(decision.unfinished):
            partly(len(done))
        return done | self._end(left, committed=True)

    def still_open(self, entries: Sequence[TaskEntry]) -> list[TaskEntry]:
        """Return the entries with open transactions; all entries if brokers can't tell."""
        at = {e.transaction(self.base).transactional_id: e for e in entries}
        if not at:
            return []
        try:
            found = self._patience.wait(
                lambda seconds: self.transactions.describe(list(at), seconds),
                "the state of the tasks' transactions",
            )
        except (UnsupportedVersionError, TransactionalIdNotFoundError):  # old broker, or expired id
            return list(entries)
        states = {n: (now.state, now.producer_id, now.producer_epoch) for n, now in found.items()}
        return [e for n, e in at.items() if states[n] == (ONGOING, e.producer_id, e.epoch)]

    def _end(self, entries: Sequence[TaskEntry], *, committed: bool) -> set[int]:
        """Commit or abort the entries' transactions; return the partitions of committed ones."""
        if not entries:
            return set()
        those = {e.partition: e.transaction(self.base) for e in entries}
        ended = self._patience.wait(
            lambda seconds: self.transactions.end(
                list(those.values()), seconds, committed=committed
            ),
            "the end of the tasks' transactions",
        )
        errors = {p: ended[t.transactional_id] for p, t in those.items()}
        markers = self._last_markers([p for p, error in errors.items() if error is not None])
        return {
            p
            for p, t in those.items()
            if (committed if errors[p] is None else markers.get(p) == (t.producer_id, t.epoch))
        }

    def _last_markers(self, partitions: Sequence[int]) -> dict[int, tuple[int, int] | None]:
        """Return the last committed transaction of each sink partition, from its marker."""
        if self.topic is None:
            found = self.markers(partitions)
        else:
            # Not `stable`: attempts outside of the ledger may have open transactions, for whose
            # end this read needn't wait.
            ids = {p: f"{self.base}{p}" for p in partitions}
            read = {p: read_marker(self._certain(n, stable=False), n) for p, n in ids.items()}
            found = {p: marker for p, marker in read.items() if marker is not None}
        return {p: marker.transaction for p, (marker, _) in found.items()}

    def _certain(self, group: str, *, stable: bool) -> Offsets:
        """Return a group's offsets from a coordinator that has just accepted test offsets."""
        wait, producer, transactions = self._patience.wait, self._producer, self.transactions
        offsets = {TopicPartition(self.topic or "", 0): OffsetAndMetadata(0)}
        while True:
            producer.begin_transaction()
            try:
                wait(
                    lambda s: producer.send_offsets_to_transaction(offsets, group, s),
                    f"the coordinator of group {group!r} to accept offsets",
                )
            except AbortableTransactionError as error:
                if not isinstance(error.refusal, GONE):
                    raise
                self.topic = None  # deleted, and the sink has no other known topic
                wait(producer.abort_transaction, "the abort of these offsets")
                return self.offsets(group)
            broker = transactions.coordinator_of(group)
            wait(producer.abort_transaction, "the abort of these offsets")
            found = wait(
                lambda s: transactions.offsets_there(group, s, stable=stable),
                f"the offsets of group {group!r}",
            )
            if broker is not None and transactions.coordinator_of(group) == broker:
                return found


@dataclass(frozen=True, slots=True)
class SinkDriver:
    """The driver of one sink, after it has fenced all older ones."""

    ledger: DriverLedger
    producer: Producer
    patience: Patience

    def store(self, decision: Decision) -> None:
        """Commit a decision to the ledger, in one transaction."""
        wait, producer = self.patience.wait, self.producer
        me = self.ledger.transactions.identity
        # The coordinator increments the epoch for the next driver, and under version 2 also for
        # each transaction.
        decision = replace(decision, following=(me.producer_id, me.epoch + 1 + me.version_2))
        producer.begin_transaction()
        for group, offsets in decision.offsets(self.ledger.base).items():
            wait(
                lambda seconds, g=group, o=offsets: producer.send_offsets_to_transaction(  # type: ignore[misc]
                    o, g, seconds
                ),
                f"the ledger entry of batch {decision.batch} to be added to the transaction",
            )
        wait(
            producer.commit_transaction, f"the commit of the ledger entry of batch {decision.batch}"
        )

    def sweep(
        self, newest: Decision, spared: Iterable[PreparedTransaction], seconds: float = FENCE_S
    ) -> None:
        """Abort all open transactions of tasks except `spared`, and fence their producers.

        First `newest` is stored with a higher number of sweeps: this fails if another driver has
        taken over, and keeps later drivers from listing the aborted transactions. Raises
        `KafkaError` if brokers can't list transactions.
        """
        base, known = self.ledger.base, {one.transactional_id for one in spared}
        until = min(self.patience.until, self.patience.clock.now() + seconds)
        wait, transactions = replace(self.patience, until=until).wait, self.ledger.transactions
        found = wait(lambda s: transactions.ongoing(base, s), "the transactions that are open")
        parts = {name: _TASK.fullmatch(name.removeprefix(base)) for name in found}
        ids = [n for n, part in parts.items() if part and n not in known]
        if ids:
            self.store(replace(newest, sweeps=newest.sweeps + 1))
            wait(lambda s: transactions.fence(ids, s), "the abort of transactions of other tasks")

    def finish(
        self, decision: Decision, spared: Sequence[PreparedTransaction], seconds: float = FENCE_S
    ) -> Decision:
        """Store that all transactions of a decision are committed: later readers needn't check.

        Then abort open transactions of other attempts (of repeated stages or speculative tasks) and
        of earlier runs: rows after an open transaction are hidden until its timeout.
        """
        written = replace(decision, state=WRITTEN, entries=())
        try:
            self.store(written)
            self.sweep(written, spared, seconds)
        except KafkaError as error:
            # Another driver may have taken over. The batch is committed anyway: later readers
            # check its transactions, and the next batch searches again for open ones.
            logger.debug(
                "sink: batch %d is written, but the ledger may not say so yet, or transactions of "
                "other attempts may be open: %s",
                decision.batch,
                error,
            )
        return written


@contextmanager
def driver(
    options: SinkOptions,
    query: str,
    topic: str | None = None,
    *,
    make: Make,
    prepared: Prepared,
    clock: Clock,
    tolerance: float | None = None,
) -> Iterator[SinkDriver]:
    """Fence older drivers of this sink, and end the transaction of their decision.

    `topic` is one that the sink writes to, if the options don't name it.
    """
    config = options.producer_config(sink_id(options, query, DRIVER))
    config["transaction.timeout.ms"] = min(
        LEDGER_TIMEOUT_MS, str(config["transaction.timeout.ms"]), key=float
    )
    producer = make(config)
    until = math.inf if tolerance is None else clock.now() + tolerance
    patience = Patience(options.outage_tolerance, clock, producer.explain, until)
    try:
        if tolerance is not None:
            producer.cluster_id(min(CONTACT_S, tolerance))
        patience.wait(
            producer.init_transactions, f"the producer id of {config['transactional.id']!r}"
        )
        ledger = DriverLedger(options, query, producer, prepared, patience)
        ledger.topic = options.topic or topic
        yield SinkDriver(ledger, producer, patience)
    finally:
        with contextlib.suppress(Exception):
            producer.close(CLOSE_TIMEOUT)

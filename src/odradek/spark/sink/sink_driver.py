"""The driver of a sink: it fences older drivers, reads the ledger for certain, and writes it.

In: the sink's options and the query's id. Out: a `SinkDriver`, with the newest decision.
A coordinator that is cut off from the other brokers still answers its clients, with offsets that
are out of date: a decided batch would be written twice. It can't commit anything, though. So each
decision names the producer epoch that the next driver gets, and if a driver has got another one,
it reads the ledger again, from a coordinator that has just accepted offsets of a transaction, which
the driver aborts. Must not: decide about a batch.
"""

from __future__ import annotations

import contextlib
import logging
import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from odradek.clients.consumer.records import OffsetAndMetadata
from odradek.common.errors import AbortableTransactionError, KafkaError
from odradek.common.errors.kafka import UnknownTopicIdError, UnknownTopicOrPartitionError
from odradek.common.types import TopicPartition
from odradek.spark.sink.exactly_once import CLOSE_TIMEOUT, Ledger
from odradek.spark.sink.ledger import (
    WRITTEN,
    Decision,
    Marker,
    Offsets,
    read_decision,
    read_marker,
    sink_id,
)
from odradek.spark.sink.sink_clients import Make, Prepared
from odradek.spark.sink.sink_options import SinkOptions
from odradek.spark.sink.sink_problems import ReplayError
from odradek.spark.sink.sink_sending import Patience
from odradek.spark.tasks.worker_clients import Clock

if TYPE_CHECKING:
    from odradek.api.producer import Producer

logger = logging.getLogger("odradek.spark")

DRIVER = "driver"
GONE = (UnknownTopicIdError, UnknownTopicOrPartitionError)
"""Errors of offsets for a deleted topic."""
LEDGER_TIMEOUT_MS = "30000"
"""Transaction timeout of the decision. If a driver dies while it commits its decision, tasks can't
read the ledger for this time."""
CONTACT_S = 2.0
"""Seconds in which brokers must show themselves to a driver with little time: a wrong address is to
be told soon."""


class DriverLedger(Ledger):
    """The decisions of one sink, as its only driver reads them."""

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

    def last_markers(self, ids: list[str]) -> dict[str, Marker]:
        """Return the markers of transactional ids whose transactions have ended."""
        if self.topic is None:
            return self.markers(ids)
        # Attempts that aren't in the ledger may have a transaction open, which doesn't matter.
        markers = {n: read_marker(self._certain(n, stable=False), n) for n in ids}
        return {name: marker[0] for name, marker in markers.items() if marker is not None}

    def _certain(self, group: str, *, stable: bool) -> Offsets:
        """Return the offsets of a group from a broker that can commit offsets of it."""
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
                self.topic = None  # it was deleted, and no other topic is known
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

    def finish(self, decision: Decision, state: str = WRITTEN) -> None:
        """Note that nothing of a decision is left to do: later readers need not look again."""
        try:
            self.store(replace(decision, state=state, entries=()))
        except KafkaError as error:
            # Perhaps another driver has taken over. Later readers ask the transactions themselves.
            logger.debug(
                "sink: batch %d is written, but the ledger doesn't say so yet: %s",
                decision.batch,
                error,
            )


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

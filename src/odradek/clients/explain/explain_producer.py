"""Explain a producer: unacknowledged records, weaker guarantees, its transaction.

In: the producer's engine, read from any thread. Out: frozen dataclasses and their lines of text.
Must not: change anything, or wait.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from odradek.network.connection_state import worded

if TYPE_CHECKING:
    from odradek.clients.producer.producer_engine import ProducerEngine
    from odradek.clients.producer.transaction_manager import TransactionManager

HINTS = {
    "uninitialized": "call init_transactions() first",
    "abortable_error": "call abort_transaction() next",
    "fatal_error": "close this producer and create another one",
}
LONG = 2.0
"""Age in seconds from which a diagnosis mentions the oldest record."""


@dataclass(frozen=True, slots=True)
class RecordsExplanation:
    """Records of `send()` that aren't acknowledged yet. Times are in seconds."""

    records: int
    partitions: int
    topic: str
    """Topic of the oldest record; the following fields are about that record, too."""
    partition: int
    """Partition of the oldest record; -1 before one is chosen."""
    seconds: float
    """Age of the batch that contains the oldest record."""
    left: float
    """Time until that record times out (`delivery.timeout.ms`; `max.block.ms` before its topic is
    known, and `bootstrap.timeout.ms` before any broker was reached)."""
    attempts: int
    """Number of times that the batch was sent."""
    waits_for: str
    """Reason for the wait: a phrase that completes "waits for …"."""
    limit: str = "delivery.timeout.ms"
    """The option that sets the timeout in `left`."""

    def __str__(self) -> str:
        noun = "record isn't" if self.records == 1 else "records aren't"
        tries = f", was sent {self.attempts} times," if self.attempts > 1 else ""
        place = f"topic {self.topic}"
        if self.partition >= 0:
            place = f"partition {self.partition} of {place}"
        return (
            f"{self.records} {noun} acknowledged yet; "
            f"the oldest, for {place}, is {self.seconds:.1f} s old{tries} and waits for "
            f"{self.waits_for}; it times out in {self.left:.1f} s ({self.limit})"
        )


def explain_weaker(engine: ProducerEngine) -> str | None:
    """Return which guarantees this producer lacks, and why; None if it is idempotent."""
    identity, acks = engine.sender.identity, engine.config["acks"]
    if identity.idempotent:
        return None
    lacking: str | None = getattr(identity, "lacking", None)
    why = "as configured" if lacking is None else f"which the brokers don't support ({lacking})"
    text = f"writes without idempotence, {why}: retries may write records twice"
    if acks == 0:
        return f"{text}; acks=0: brokers don't confirm that a record was written"
    return (
        text if acks < 0 else f"{text}; acks=1: the newest records are lost if their leader fails"
    )


def explain_records(engine: ProducerEngine, now: float) -> RecordsExplanation | None:
    """Return the explanation of unacknowledged records; None without any."""
    pending = [batch for batch in engine.incomplete() if batch.count]
    if not pending:
        return None
    oldest = min(pending, key=lambda batch: batch.created_at)
    ends, limit = engine.ends(oldest)
    return RecordsExplanation(
        records=sum(batch.count for batch in pending),
        partitions=len({batch.partition for batch in pending}),
        topic=oldest.partition.topic,
        partition=oldest.partition.partition,
        seconds=max(0.0, now - oldest.created_at),
        left=max(0.0, ends - now),
        attempts=oldest.attempts,
        waits_for=engine.wait_reasons.of(oldest, now),
        limit=limit,
    )


@dataclass(frozen=True, slots=True)
class TransactionExplanation:
    """State of a producer's transactions."""

    transactional_id: str
    state: str
    """The state, with Java's name: uninitialized, initializing, ready, in_transaction,
    committing_transaction, aborting_transaction, abortable_error, fatal_error."""
    producer_id: int
    """The producer id; -1 before the producer has got one."""
    producer_epoch: int
    coordinator: int | None
    """Id of the coordinator's broker; None while it is unknown."""
    version_2: bool
    """Whether transactions use the protocol of KIP-890 (transaction version 2)."""
    pending: str | None
    """The call that timed out and is still running, else None."""
    error: str | None
    """Reason for the state abortable_error or fatal_error, else None."""

    def __str__(self) -> str:
        text = f"transactional id {self.transactional_id}: {worded(self.state)}"
        if self.state in HINTS:
            text += f" ({HINTS[self.state]})"
        if self.producer_id >= 0:
            text += f"; producer {self.producer_id}, epoch {self.producer_epoch}"
        where = "not found yet" if self.coordinator is None else f"broker {self.coordinator}"
        text += f"; coordinator: {where}"
        if self.pending is not None:
            text += f"; {self.pending}() is still running: call it again to wait for it"
        if self.error is not None:
            text += f"; {self.error}"
        return text


def explain_transaction(transactions: TransactionManager) -> TransactionExplanation:
    """Return the explanation of a producer's transactions."""
    producer_id, epoch = transactions.current
    pending, error = transactions.pending, transactions.error
    return TransactionExplanation(
        transactional_id=transactions.transactional_id,
        state=transactions.state.value,
        producer_id=producer_id,
        producer_epoch=epoch,
        coordinator=transactions.requests.coordinator.broker,
        version_2=transactions.version_2,
        pending=None if pending is None or pending.done.done else pending.name,
        error=None if error is None else f"{type(error).__name__}: {error}",
    )

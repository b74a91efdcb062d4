"""A transactional producer's part of `explain()`: where its transaction stands.

In: the engine's transaction manager, read from any thread. Out: a frozen picture and its line of
text. Must not: change anything, or wait.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from odradek.clients.producer.transaction_manager import TransactionManager

HINTS = {
    "uninitialized": "init_transactions() comes first",
    "abortable_error": "abort_transaction() comes next",
    "fatal_error": "this producer is of no use any more: close it and make another",
}


@dataclass(frozen=True, slots=True)
class TransactionExplanation:
    """One producer's transactions."""

    transactional_id: str
    state: str
    """Java's words: uninitialized, initializing, ready, in_transaction, committing_transaction,
    aborting_transaction, abortable_error, fatal_error."""
    producer_id: int
    """-1 before there is one."""
    producer_epoch: int
    coordinator: int | None
    """The id of its broker; None while it has to be found."""
    version_2: bool
    """The protocol of KIP-890."""
    pending: str | None
    """The call that goes on though its caller's time is up."""
    error: str | None
    """Why the state is one of the two error states."""

    def __str__(self) -> str:
        text = f"transactional id {self.transactional_id}: {self.state}"
        if self.state in HINTS:
            text += f" ({HINTS[self.state]})"
        if self.producer_id >= 0:
            text += f"; producer {self.producer_id}, epoch {self.producer_epoch}"
        where = "not found yet" if self.coordinator is None else f"broker {self.coordinator}"
        text += f"; coordinator: {where}"
        if self.pending is not None:
            text += f"; {self.pending}() goes on: call it again to wait for its end"
        if self.error is not None:
            text += f"; {self.error}"
        return text


def explain_transaction(transactions: TransactionManager) -> TransactionExplanation:
    """Take the picture."""
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

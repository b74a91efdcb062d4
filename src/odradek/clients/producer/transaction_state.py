"""The states of a transactional producer, as a table with Java's names (KIP-98, KIP-360).

    UNINITIALIZED -> INITIALIZING -> READY -> IN_TRANSACTION -> COMMITTING_TRANSACTION -> READY
        IN_TRANSACTION, COMMITTING_TRANSACTION -> ABORTABLE_ERROR -> ABORTING_TRANSACTION -> READY
        any state -> FATAL_ERROR, which is the end
        UNINITIALIZED, READY, IN_TRANSACTION -> UNINITIALIZED for another transactional id, which
            Java doesn't have

In: calls of the application, answers, errors. Out: the next state, or a refusal.
Must not: know requests or time.
"""

from __future__ import annotations

from enum import Enum, StrEnum
from typing import NamedTuple


class TransactionState(StrEnum):
    """States of a transactional producer, with Java's names."""

    UNINITIALIZED = "uninitialized"
    INITIALIZING = "initializing"
    """A producer id, or a new epoch, is requested."""
    READY = "ready"
    IN_TRANSACTION = "in_transaction"
    COMMITTING_TRANSACTION = "committing_transaction"
    ABORTING_TRANSACTION = "aborting_transaction"
    ABORTABLE_ERROR = "abortable_error"
    """The transaction can't be committed any more: `abort_transaction()` comes next."""
    FATAL_ERROR = "fatal_error"


class TransactionEvent(StrEnum):
    """Events of a transactional producer."""

    INITIALIZE = "initialize"
    INITIALIZED = "initialized"
    REFUSED = "be refused"
    """No producer id was assigned, for a reason that can be resolved (authorization)."""
    BEGIN = "begin"
    COMMIT = "commit"
    ABORT = "abort"
    ENDED = "end"
    FAILED = "fail"
    """An error occurred after which the transaction can only be aborted."""
    BROKEN = "break"
    """An error occurred after which the producer can't be used any more."""
    LEFT = "leave"
    """Another process ends the open transaction; the producer uses another transactional id."""


class Begun(Enum):
    """Whether the coordinator knows of the open transaction."""

    NO = "no"
    PERHAPS = "perhaps"
    """A request that begins the transaction has no response."""
    YES = "yes"


ONGOING = "Ongoing"
"""The coordinator's name for the state of an open transaction."""


class PreparedTransaction(NamedTuple):
    """An open transaction whose records are all written, so that another process can end it."""

    transactional_id: str
    producer_id: int
    epoch: int
    version_2: bool
    """Whether the transaction was begun under transaction.version 2, which EndTxn depends on."""


_S, _E = TransactionState, TransactionEvent

TRANSITIONS: dict[tuple[TransactionState, TransactionEvent], TransactionState] = {
    (_S.UNINITIALIZED, _E.INITIALIZE): _S.INITIALIZING,
    (_S.INITIALIZING, _E.INITIALIZED): _S.READY,
    (_S.INITIALIZING, _E.REFUSED): _S.UNINITIALIZED,
    (_S.READY, _E.BEGIN): _S.IN_TRANSACTION,
    (_S.IN_TRANSACTION, _E.COMMIT): _S.COMMITTING_TRANSACTION,
    (_S.IN_TRANSACTION, _E.ABORT): _S.ABORTING_TRANSACTION,
    (_S.ABORTABLE_ERROR, _E.ABORT): _S.ABORTING_TRANSACTION,
    (_S.COMMITTING_TRANSACTION, _E.ENDED): _S.READY,
    (_S.ABORTING_TRANSACTION, _E.ENDED): _S.READY,
    # A new epoch: after an abort (KIP-360), or before the first transaction of version 2 (KIP-890).
    (_S.COMMITTING_TRANSACTION, _E.INITIALIZE): _S.INITIALIZING,
    (_S.ABORTING_TRANSACTION, _E.INITIALIZE): _S.INITIALIZING,
    (_S.IN_TRANSACTION, _E.FAILED): _S.ABORTABLE_ERROR,
    (_S.COMMITTING_TRANSACTION, _E.FAILED): _S.ABORTABLE_ERROR,
    (_S.ABORTING_TRANSACTION, _E.FAILED): _S.ABORTABLE_ERROR,
    **{(state, _E.BROKEN): _S.FATAL_ERROR for state in _S},
    **{(s, _E.LEFT): _S.UNINITIALIZED for s in (_S.UNINITIALIZED, _S.READY, _S.IN_TRANSACTION)},
}

OPEN = frozenset(
    (_S.IN_TRANSACTION, _S.COMMITTING_TRANSACTION, _S.ABORTING_TRANSACTION, _S.ABORTABLE_ERROR)
)
"""A transaction was begun and hasn't ended."""


def move(state: TransactionState, event: TransactionEvent) -> TransactionState:
    """Return the state after the event; raise if the table doesn't allow it."""
    try:
        return TRANSITIONS[state, event]
    except KeyError:
        # Not a KafkaError, because this is a bug: calls in a wrong state are refused earlier.
        raise RuntimeError(f"a transaction that is {state.value} can't {event.value}") from None

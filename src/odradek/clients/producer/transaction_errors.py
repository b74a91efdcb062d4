"""Classify errors in a transaction: after some it can be aborted, others are fatal (KIP-1050).

In: an error of a coordinator, or of a batch. Out: an instance of two classes, so that users can
catch either: one for the reaction (`AbortableTransactionError`; `FatalTransactionError` if only a
new producer helps), one for the cause (`ProducerFencedError`, `TopicAuthorizationError` …). Must
not: be called for errors that are retried; those aren't raised.
"""

from __future__ import annotations

from typing import Any, TypeVar

from odradek.common.errors import AbortableTransactionError, FatalTransactionError, KafkaError
from odradek.common.errors.kafka import (
    ClusterAuthorizationError,
    FencedInstanceIdError,
    FencedMemberEpochError,
    GroupAuthorizationError,
    IllegalGenerationError,
    InvalidProducerEpochError,
    InvalidProducerIdMappingError,
    InvalidTxnStateError,
    OffsetMetadataTooLargeError,
    OperationNotAttemptedError,
    ProducerFencedError,
    StaleMemberEpochError,
    TopicAuthorizationError,
    TransactionAbortableError,
    TransactionalIdAuthorizationError,
    UnknownMemberIdError,
    UnknownProducerIdError,
    UnknownTopicIdError,
    UnsupportedVersionError,
)

T = TypeVar("T", AbortableTransactionError, FatalTransactionError)

FENCED = (ProducerFencedError, InvalidProducerEpochError)
"""Errors with which a coordinator rejects an old producer epoch.

If a partition's leader returns INVALID_PRODUCER_EPOCH, the producer isn't necessarily fenced
(KIP-588): the coordinator's response to the abort shows whether it is.
"""
NEW_EPOCH = (UnknownProducerIdError, InvalidProducerIdMappingError)
"""Errors after which an abort and a new epoch help (KIP-360)."""
ABORTABLE_ERRORS = (
    *NEW_EPOCH,
    TopicAuthorizationError,
    GroupAuthorizationError,
    OperationNotAttemptedError,
    TransactionAbortableError,
    # The group has removed this member (KIP-447): its offsets mustn't be committed.
    FencedInstanceIdError,
    UnknownMemberIdError,
    IllegalGenerationError,
    StaleMemberEpochError,
    FencedMemberEpochError,
    OffsetMetadataTooLargeError,
    UnknownTopicIdError,
)
"""Errors of coordinators after which the transaction can only be aborted.

All other errors of coordinators that aren't retriable are fatal, as in Java.
"""
FATAL_FOR_BATCHES = (
    ProducerFencedError,
    TransactionalIdAuthorizationError,
    ClusterAuthorizationError,
    UnsupportedVersionError,
)
"""Fatal errors of batches; after other errors of batches, the transaction can be aborted."""
MAYBE_COMMITTED = (
    "; an earlier request to commit the transaction may have been carried out, so the transaction "
    "may have been committed: check the output, or the group's committed offsets, before you "
    "repeat its work"
)
"""Text for errors after which the transaction may be committed.

The user's program must not simply repeat the transaction's work, as it would after an abort.
"""
MAYBE_OWN_REQUEST = "; or a request of this producer that had no answer was carried out late"
"""Text for the case that a late request of this producer caused the error.

An AddPartitionsToTxn that arrives after EndTxn opens a transaction, which the request for a new
epoch then aborts and fences.
"""
REFUSALS = (TransactionalIdAuthorizationError, ClusterAuthorizationError)
"""Errors of InitProducerId that an administrator can resolve."""


def fenced(transactional_id: str, error: KafkaError, doubt: str = "") -> FatalTransactionError:
    """Return the error of a producer whose transactional id another producer uses now."""
    text = (
        f"another producer took over transactional.id {transactional_id!r}, or a transaction was "
        f"open for longer than transaction.timeout.ms and its coordinator aborted it ({error})"
        f"{doubt}"
    )
    return fatal(ProducerFencedError(text))


def nothing_open(
    transactional_id: str, error: KafkaError, doubt: str = ""
) -> FatalTransactionError:
    """Return the error if the coordinator knows no open transaction of this producer."""
    text = (
        f"{error}: the coordinator has no open transaction of {transactional_id!r}; it aborts a "
        f"transaction that is open for longer than transaction.timeout.ms{doubt}"
    )
    return fatal(InvalidTxnStateError(text))


def no_new_epoch(transactional_id: str) -> FatalTransactionError:
    """Return the error of a producer that needs a new epoch from brokers without that feature."""
    text = (
        f"a request of {transactional_id!r} had no answer and may still be carried out, in its "
        "next transaction. Brokers before Kafka 2.5 provide no new epoch that would prevent it. "
        "Close this producer and create another one with the same transactional.id: its "
        "init_transactions() fences the request"
    )
    return fatal(UnsupportedVersionError(text))


def fatal(error: KafkaError) -> FatalTransactionError:
    """Return the error as a `FatalTransactionError`."""
    return _as(FatalTransactionError, error)


def abortable(error: KafkaError) -> AbortableTransactionError:
    """Return the error as an `AbortableTransactionError`.

    A retriable error becomes the cause of a new error, because a retry doesn't help here.
    """
    if error.retriable:
        text = f"the transaction can only be aborted: {type(error).__name__}: {error}"
        found = AbortableTransactionError(text)
        found.__cause__ = found.refusal = error
        return found
    return _as(AbortableTransactionError, error)


_classes: dict[tuple[type, type], type] = {}


def _as(kind: type[T], error: KafkaError) -> T:
    """Return an error that is an instance of `kind` and of the error's own class."""
    if isinstance(error, kind):
        return error
    made = _rebuild(kind, type(error), error.args, error.__dict__)
    made.__cause__ = error.__cause__
    return made


def _rebuild(kind: type[T], of: type[KafkaError], args: tuple[Any, ...], more: Any) -> T:
    found: type[T] | None = _classes.get((kind, of))
    if found is None:
        body = {
            "__doc__": of.__doc__,
            "__module__": of.__module__,
            "__reduce__": lambda self: (_rebuild, (kind, of, self.args, self.__dict__)),
        }
        found = _classes[kind, of] = type(of.__name__, (kind, of), body)
    made = found.__new__(found, *args)  # `__init__` may need other arguments
    made.args = args
    made.__dict__.update(more)
    return made

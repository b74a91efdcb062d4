"""Decide which Produce errors prove that nothing was appended; others leave a batch in doubt.

In: an error code, or None without a response. Out: whether the attempt may have been appended
(R-PR-1), and the text about this in errors of records. A leader checks permissions, its leadership,
the in-sync replicas, the records and the sequence, in this order, and then appends: an error of
these checks is a proof. With acks=all it then waits for replicas, and errors of that wait prove
nothing: it may lose the leadership (6), its disk (56) or the topic (3, 100), replicas may leave the
ISR (20), the request may time out (7). Some of these codes are used before the append as well, so
they prove nothing. A proof means nothing for earlier attempts: the leader checks for duplicates
last. Must not: decide what is done.
"""

from __future__ import annotations

from typing import TypeVar

from odradek.clients.producer.batch import ProducerBatch
from odradek.common.errors import BrokerError, ExplainedError, KafkaError
from odradek.common.errors import kafka as errors
from odradek.common.outage import number

E = TypeVar("E", bound=KafkaError)
_BEFORE_THE_APPEND: tuple[type[BrokerError], ...] = (
    # Errors of the request or of its sender
    errors.InvalidTopicExceptionError,
    errors.InvalidRequiredAcksError,
    errors.TopicAuthorizationError,
    errors.ClusterAuthorizationError,
    errors.TransactionalIdAuthorizationError,
    errors.UnsupportedVersionError,
    errors.InvalidRequestError,
    errors.PolicyViolationError,
    # Errors of the partition
    errors.LeaderNotAvailableError,
    errors.NotEnoughReplicasError,
    # Errors of the records
    errors.CorruptMessageError,
    errors.MessageTooLargeError,
    errors.RecordListTooLargeError,
    errors.InvalidTimestampError,
    errors.UnsupportedForMessageFormatError,
    errors.UnsupportedCompressionTypeError,
    errors.InvalidRecordError,
    # Errors of the producer's id, epoch and sequence
    errors.OutOfOrderSequenceNumberError,
    errors.InvalidProducerEpochError,
    errors.UnknownProducerIdError,
    errors.ProducerFencedError,
    # Errors of the transaction, which leaders verify with its coordinator before the append
    errors.InvalidTxnStateError,
    errors.InvalidProducerIdMappingError,
    errors.ConcurrentTransactionsError,
    errors.TransactionAbortableError,
    errors.CoordinatorLoadInProgressError,
    errors.CoordinatorNotAvailableError,
    errors.NotCoordinatorError,
)

NOT_APPENDED_CODES = frozenset(kind.code for kind in _BEFORE_THE_APPEND if kind.code is not None)
"""Error codes which prove that an attempt's batch wasn't appended, and never will be."""


def leaves_doubt(code: int | None) -> bool:
    """Return whether an attempt with this error (None: no response) may have been appended."""
    return code not in NOT_APPENDED_CODES


def in_doubt(
    batch: ProducerBatch, refusal: KafkaError, why: str = "so that nothing is written twice"
) -> KafkaError:
    """Return the error, with another text if the batch may have been written nevertheless.

    `why` completes the text "the batch isn't sent again, …".
    """
    if not batch.doubtful:
        return refusal
    which = "it was" if batch.count == 1 else "they were"
    how = (
        "an attempt wasn't acknowledged"
        if batch.recognised
        else f"{which} part of a larger batch that wasn't acknowledged, and the retry exceeded "
        "the topic's max.message.bytes"
    )
    last = "The broker said" if isinstance(refusal, BrokerError) else "The last attempt failed"
    ends = "It isn't" if batch.count == 1 else "They aren't"
    return saying(
        refusal,
        f"{counted(batch.count)} for {batch.partition} may have been written: {how}. {ends} sent "
        f"again, {why}. {last}: {refusal}",
    )


def fate(batch: ProducerBatch) -> str:
    """Return a text on whether records without an acknowledgement were sent or written."""
    times = "once" if batch.attempts == 1 else f"{batch.attempts} times"
    if batch.doubtful:
        sent = f"sent {times} and " if batch.attempts else ""
        which = "it" if batch.count == 1 else "they"
        return f"{sent}not acknowledged, so {which} may have been written"
    return f"refused {times} and not written" if batch.attempts else "not sent"


def given_up(batch: ProducerBatch, error: KafkaError) -> KafkaError:
    """Return the client's error with a text on whether the batch's records were written."""
    known = f"{counted(batch.count)} for {batch.partition} {were(batch.count)} {fate(batch)}"
    if isinstance(error, ExplainedError):
        return error.saying(known)
    return saying(error, f"{known}: {error}")


def counted(count: int) -> str:
    """Return "1 record" or "n records"."""
    return number(count, "record")


def were(count: int) -> str:
    """Return "was" or "were" for this number of records."""
    return "was" if count == 1 else "were"


def saying(error: E, text: str) -> E:
    """Return an error of the same type, with the same attributes and cause, and another text."""
    made = type(error).__new__(type(error), text)  # `__init__` may need other arguments
    made.args = (text,)
    made.__dict__.update(error.__dict__)
    made.__cause__ = error.__cause__
    return made

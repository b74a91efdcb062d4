"""Translation of Odradek's errors to aiokafka's.

In: an exception of an Odradek client. Out: the exception that aiokafka raises in the same case,
with the original as its `__cause__`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from odradek.clients.consumer.records import NoOffsetForPartitionError, NoSuchOffsetError
from odradek.common import errors as ours
from odradek.common.errors import kafka as kafka_errors
from odradek.common.errors.topics import TopicRecreatedError
from odradek.compat.aiokafka import errors as theirs

FIRST: tuple[tuple[type[Exception], type[Exception]], ...] = (
    (kafka_errors.ProducerFencedError, theirs.ProducerFenced),
    (kafka_errors.InvalidProducerEpochError, theirs.ProducerFenced),
    (ours.CommitFailedError, theirs.CommitFailedError),
    (kafka_errors.UnknownTopicIdError, theirs.UnknownTopicOrPartitionError),
)
"""aiokafka's classes for errors whose code isn't considered."""
OTHERS: tuple[tuple[type[Exception], type[Exception]], ...] = (
    (ours.ArgumentError, TypeError),
    (ours.ConfigurationError, ValueError),
    (ours.UnsupportedFeatureError, theirs.IncompatibleBrokerVersion),
    (ours.IllegalStateError, theirs.IllegalStateError),
    (ours.MechanismUnsupportedError, theirs.UnsupportedSaslMechanismError),
    (ours.SaslNotExpectedError, theirs.AuthenticationMethodNotSupported),
    (ours.AuthenticationError, theirs.AuthenticationFailedError),
    (ours.CorruptRecordError, theirs.CorruptRecordException),
    (ours.NoBrokerAvailableError, theirs.KafkaConnectionError),
    (ours.KafkaTimeoutError, theirs.KafkaTimeoutError),
    (ours.BufferExhaustedError, theirs.KafkaTimeoutError),
    (ours.DisconnectedError, theirs.KafkaConnectionError),
    (ours.ConnectionFailedError, theirs.KafkaConnectionError),
    (ours.NotKafkaError, theirs.KafkaConnectionError),
    (ours.MalformedMessageError, theirs.KafkaProtocolError),
)
"""aiokafka's classes for other errors; subclasses come first, and the first match counts."""


def translated(
    error: BaseException,
    closed: type[Exception] = theirs.ConsumerStoppedError,
    too_large: type[Exception] = theirs.RecordTooLargeError,
) -> BaseException:
    """Return aiokafka's exception for an Odradek error, and any other exception unchanged.

    `closed`, `too_large`: the exception for a closed client, and for a record beyond a limit.
    """
    if not isinstance(error, ours.KafkaError):
        return error
    made = _made(error, closed, too_large)
    made.__cause__ = error
    return made


def _made(error: ours.KafkaError, closed: type[Exception], too_large: type[Exception]) -> Exception:
    if isinstance(error, NoSuchOffsetError):
        return theirs.OffsetOutOfRangeError({tuple(error.partition): error.position})
    if isinstance(error, NoOffsetForPartitionError):
        return theirs.NoOffsetForPartitionError(tuple(error.partition))
    if isinstance(error, TopicRecreatedError) and not error.outcome:  # a commit raised it
        return theirs.CommitFailedError(str(error))
    if isinstance(error, TopicRecreatedError) and closed is theirs.ConsumerStoppedError:
        return theirs.IllegalStateError(str(error))  # a seek raised it; a retry can't help
    for kind, made in FIRST:
        if isinstance(error, kind):
            return made(str(error))
    if isinstance(error, ours.BrokerError) and error.code is not None:
        return theirs.for_code(error.code)(str(error))
    if isinstance(error, ours.ClientClosedError):
        return closed(str(error))
    if isinstance(error, ours.RecordTooLargeError):
        return too_large(str(error))
    if isinstance(error, ours.TransactionAbortedError | ours.AbortableTransactionError):
        return _reason(error, closed, too_large)
    for kind, made in OTHERS:
        if isinstance(error, kind):
            return made(str(error))
    return theirs.KafkaError(str(error))


def _reason(
    error: ours.KafkaError, closed: type[Exception], too_large: type[Exception]
) -> Exception:
    """Return aiokafka's exception for the error's cause, which ended the transaction."""
    cause = error.__cause__
    if isinstance(cause, ours.KafkaError):
        return _made(cause, closed, too_large)
    return theirs.KafkaError(str(error))


@contextmanager
def raising(
    closed: type[Exception] = theirs.ConsumerStoppedError,
    too_large: type[Exception] = theirs.RecordTooLargeError,
) -> Iterator[None]:
    """Raise Odradek's errors of this block as aiokafka's."""
    try:
        yield
    except ours.KafkaError as error:
        raise translated(error, closed, too_large) from error

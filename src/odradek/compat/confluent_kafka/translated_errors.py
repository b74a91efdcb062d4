"""Translation of Odradek's errors to confluent-kafka's codes and flags.

In: an exception of an Odradek client. Out: a `KafkaError` with its text, which says what was tried
and what to do. Must not: lose the original exception, which is the cause of the raised one.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

import odradek
from odradek.compat.confluent_kafka.kafka_error import KafkaError, KafkaException

_LOCAL: tuple[tuple[type[BaseException], int], ...] = (
    (odradek.NoBrokerAvailableError, KafkaError._TIMED_OUT),
    (odradek.KafkaTimeoutError, KafkaError._TIMED_OUT),
    (odradek.errors.ResponseTimeoutError, KafkaError._TIMED_OUT),
    (odradek.AuthenticationError, KafkaError._AUTHENTICATION),
    (odradek.errors.TlsError, KafkaError._SSL),
    (odradek.errors.DnsError, KafkaError._RESOLVE),
    (odradek.errors.ConnectionFailedError, KafkaError._TRANSPORT),
    (odradek.errors.DisconnectedError, KafkaError._TRANSPORT),
    (odradek.errors.NotKafkaError, KafkaError._TRANSPORT),
    (odradek.errors.NoSuchOffsetError, KafkaError._AUTO_OFFSET_RESET),
    (odradek.errors.NoOffsetForPartitionError, KafkaError._AUTO_OFFSET_RESET),
    (odradek.errors.LogTruncationError, KafkaError._LOG_TRUNCATION),
    (odradek.RecordTooLargeError, KafkaError.MSG_SIZE_TOO_LARGE),
    (odradek.BufferExhaustedError, KafkaError._QUEUE_FULL),
    (odradek.TransactionAbortedError, KafkaError._PURGE_QUEUE),
    (odradek.ClientClosedError, KafkaError._DESTROY),
    (odradek.errors.ClientBrokenError, KafkaError._FATAL),
    (odradek.errors.ClusterIdMismatchError, KafkaError._FATAL),
    (odradek.IllegalStateError, KafkaError._STATE),
    (odradek.errors.ClientForkedError, KafkaError._STATE),
    (odradek.errors.PartitionerError, KafkaError._INVALID_ARG),
    (odradek.ConfigurationError, KafkaError._INVALID_ARG),
    (odradek.errors.UnsupportedFeatureError, KafkaError._UNSUPPORTED_FEATURE),
    (odradek.errors.CorruptRecordError, KafkaError._BAD_MSG),
    (odradek.errors.MalformedMessageError, KafkaError._BAD_MSG),
    (odradek.errors.SystemLimitError, KafkaError._CRIT_SYS_RESOURCE),
)
"""Codes by exception class; the first class that matches counts."""

_FENCED = (KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH)


def translated(error: BaseException, *, transactional: bool = False) -> KafkaError:
    """Return the `KafkaError` for an Odradek error.

    `transactional`: the call is transactional, so the error says whether it may be retried.
    """
    code, text = code_of(error), str(error)
    if isinstance(error, odradek.errors.FatalTransactionError):
        code = KafkaError._FENCED if code in _FENCED else code
        return KafkaError(code, text, fatal=True)
    if isinstance(error, odradek.errors.AbortableTransactionError):
        return KafkaError(code, text, txn_requires_abort=True)
    ours = isinstance(error, odradek.KafkaError)
    retriable = transactional and ours and getattr(error, "retriable", False)
    return KafkaError(code, text, fatal=getattr(error, "fatal", False), retriable=retriable)


def code_of(error: BaseException) -> int:
    """Return the code for an Odradek error; if it has none, the code for its cause."""
    for kind, code in _LOCAL:
        if isinstance(error, kind):
            return code
    if isinstance(error, odradek.errors.UnknownErrorCodeError):
        return error.number
    number = getattr(error, "code", None)
    if isinstance(error, odradek.errors.BrokerError) and isinstance(number, int):
        return number
    cause = error.__cause__
    if cause is None and isinstance(error, odradek.CommitFailedError):
        return KafkaError.UNKNOWN_MEMBER_ID  # Odradek rejected the commit itself
    return KafkaError._FAIL if cause is None else code_of(cause)


def raise_error(code: int, text: str | None = None) -> NoReturn:
    """Raise a `KafkaException` of this code."""
    raise KafkaException(KafkaError(code, text))


@contextmanager
def translating(*, transactional: bool = False, unreachable: int | None = None) -> Iterator[None]:
    """Raise Odradek's errors as `KafkaException`, with the original as the cause.

    `unreachable`: the code if no broker can be reached, instead of `_TIMED_OUT`.
    """
    try:
        yield
    except odradek.NoBrokerAvailableError as error:
        found = translated(error, transactional=transactional)
        if unreachable is not None:
            found = KafkaError(unreachable, str(error))
        raise KafkaException(found) from error
    except odradek.KafkaError as error:
        raise KafkaException(translated(error, transactional=transactional)) from error

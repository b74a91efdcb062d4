"""Test that odradek's errors are translated to confluent-kafka's codes and transaction flags."""

from __future__ import annotations

import pytest

import odradek
from odradek.common.errors.kafka import ERRORS, error_for
from odradek.compat.confluent_kafka import KafkaError, KafkaException
from odradek.compat.confluent_kafka.sent_messages import delivery_error
from odradek.compat.confluent_kafka.translated_errors import code_of, translated, translating


@pytest.mark.parametrize("number", sorted(ERRORS))
def test_an_error_of_a_broker_keeps_its_error_number(number: int) -> None:
    error = error_for(number)
    found = translated(error)
    assert found.code() == number
    assert found.str() == str(error)
    assert not found.fatal()


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (odradek.KafkaTimeoutError("x"), KafkaError._TIMED_OUT),
        (odradek.NoBrokerAvailableError("x"), KafkaError._TIMED_OUT),
        (odradek.errors.ResponseTimeoutError("x"), KafkaError._TIMED_OUT),
        (odradek.errors.ConnectionRefusedByPeerError("x"), KafkaError._TRANSPORT),
        (odradek.errors.CredentialsRefusedError("x"), KafkaError._AUTHENTICATION),
        (odradek.errors.CertificateUntrustedError("x"), KafkaError._SSL),
        (odradek.errors.DnsError("x"), KafkaError._RESOLVE),
        (odradek.errors.NotKafkaError("x"), KafkaError._TRANSPORT),
        (odradek.RecordTooLargeError("x"), KafkaError.MSG_SIZE_TOO_LARGE),
        (odradek.BufferExhaustedError("x"), KafkaError._QUEUE_FULL),
        (odradek.ConfigurationError("x"), KafkaError._INVALID_ARG),
        (odradek.ArgumentError("x"), KafkaError._INVALID_ARG),
        (odradek.IllegalStateError("x"), KafkaError._STATE),
        (odradek.ClientClosedError("x"), KafkaError._DESTROY),
        (odradek.errors.UnsupportedFeatureError("x"), KafkaError._UNSUPPORTED_FEATURE),
        (odradek.errors.UnsupportedOptionError("x"), KafkaError._INVALID_ARG),
        (odradek.errors.CorruptRecordError("x"), KafkaError._BAD_MSG),
        (odradek.errors.UnknownErrorCodeError(999), 999),
        (odradek.errors.TopicRecreatedError(odradek.TopicPartition("t", 0), "x", "a", "b"), 100),
        (odradek.KafkaError("x"), KafkaError._FAIL),
    ],
)
def test_other_errors_are_translated_to_librdkafkas_codes(
    error: odradek.KafkaError, code: int
) -> None:
    assert translated(error) == code


def test_an_error_without_a_code_has_the_code_of_its_cause() -> None:
    error = odradek.CommitFailedError("x")
    error.__cause__ = error_for(25)
    assert translated(error) == KafkaError.UNKNOWN_MEMBER_ID


def test_an_error_that_ends_the_client_is_fatal() -> None:
    found = translated(odradek.errors.ClusterIdMismatchError("mine", "another", None))
    assert (found.name(), found.fatal()) == ("_FATAL", True)


class FencedError(odradek.errors.FatalTransactionError, odradek.ProducerFencedError):
    """An error with the base classes of a fenced producer's error."""


class StaleMemberError(
    odradek.errors.AbortableTransactionError, odradek.errors.IllegalGenerationError
):
    """An error with the base classes of the error for an old generation of a group member."""


def test_transaction_errors_say_whether_to_retry_or_to_abort() -> None:
    fenced, stale = translated(FencedError("x")), translated(StaleMemberError("x"))
    assert (fenced.name(), fenced.fatal(), fenced.retriable()) == ("_FENCED", True, False)
    assert (stale.name(), stale.txn_requires_abort()) == ("ILLEGAL_GENERATION", True)
    again = translated(odradek.KafkaTimeoutError("x"), transactional=True)
    assert (again.retriable(), again.txn_requires_abort(), again.fatal()) == (True, False, False)
    assert not translated(odradek.KafkaTimeoutError("x")).retriable()


@pytest.mark.parametrize(
    ("error", "name"),
    [
        (odradek.KafkaTimeoutError("x"), "_MSG_TIMED_OUT"),
        (odradek.ClientClosedError("x"), "_PURGE_QUEUE"),
        (odradek.TransactionAbortedError("x"), "_PURGE_QUEUE"),
        (error_for(87), "INVALID_RECORD"),
    ],
)
def test_the_delivery_error_of_a_message_has_a_code_for_the_reason(
    error: BaseException, name: str
) -> None:
    assert delivery_error(error).name() == name


def test_a_purged_message_that_was_already_sent_has_the_code_purge_inflight() -> None:
    assert delivery_error(odradek.ClientClosedError("x"), sent=True).name() == "_PURGE_INFLIGHT"


def test_the_translated_error_is_caused_by_the_original() -> None:
    with pytest.raises(KafkaException) as raised, translating():
        raise odradek.IllegalStateError("too early")
    assert raised.value.args[0] == KafkaError._STATE
    assert isinstance(raised.value.__cause__, odradek.IllegalStateError)
    with pytest.raises(ZeroDivisionError), translating():
        raise ZeroDivisionError
    assert code_of(ValueError()) == KafkaError._FAIL

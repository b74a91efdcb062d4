"""Test that odradek's errors are translated to aiokafka's errors for the same reason."""

from __future__ import annotations

import pytest

from odradek.clients.consumer.records import NoSuchOffsetError
from odradek.common import errors as ours
from odradek.common.errors.kafka import ERRORS, error_for
from odradek.common.errors.records import FetchTooLargeError
from odradek.common.errors.topics import TopicRecreatedError
from odradek.common.types import TopicPartition
from odradek.compat.aiokafka import errors
from odradek.compat.aiokafka.translation import raising, translated

P = TopicPartition("t", 0)


@pytest.mark.parametrize("number", [n for n in ERRORS if n not in (47, 90, 100)])
def test_an_error_of_a_broker_keeps_its_error_number(number: int) -> None:
    error = error_for(number)
    found = translated(error)
    assert type(found) is errors.for_code(number)
    assert str(error) in str(found)
    assert found.__cause__ is error


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (error_for(47), errors.ProducerFenced),
        (error_for(90), errors.ProducerFenced),
        (ours.CommitFailedError("x"), errors.CommitFailedError),
        (ours.KafkaTimeoutError("x"), errors.KafkaTimeoutError),
        (ours.NoBrokerAvailableError("x"), errors.KafkaConnectionError),
        (ours.ConnectionRefusedByPeerError("x"), errors.KafkaConnectionError),
        (ours.ResponseTimeoutError("x"), errors.KafkaConnectionError),
        (ours.NotKafkaError("x"), errors.KafkaConnectionError),
        (ours.CredentialsRefusedError("x"), errors.AuthenticationFailedError),
        (ours.MechanismUnsupportedError("x"), errors.UnsupportedSaslMechanismError),
        (ours.CorruptRecordError("x"), errors.CorruptRecordException),
        (ours.IllegalStateError("x"), errors.IllegalStateError),
        (ours.UnsupportedOptionError("x"), ValueError),
        (ours.ClientClosedError("x"), errors.ConsumerStoppedError),
        (ours.RecordTooLargeError("x"), errors.RecordTooLargeError),
        (FetchTooLargeError(P, 1, 2, 1), errors.RecordTooLargeError),
        (ours.ConfigurationError("x"), ValueError),
        (ours.ArgumentError("x"), TypeError),
        (ours.ClientBrokenError("x"), errors.KafkaError),
        (ours.UnknownErrorCodeError(999), errors.KafkaError),
        (error_for(100), errors.UnknownTopicOrPartitionError),
        (TopicRecreatedError(P, "a commit", "a", "b"), errors.CommitFailedError),
        (TopicRecreatedError(P, "a seek", "a", "b", outcome="x"), errors.IllegalStateError),
    ],
)
def test_other_errors_are_translated_to_the_matching_class_of_aiokafka(
    error: ours.KafkaError, kind: type[Exception]
) -> None:
    assert type(translated(error)) is kind


def test_errors_of_a_producer_are_translated_to_aiokafkas_producer_errors() -> None:
    closed, large = ours.ClientClosedError("x"), ours.RecordTooLargeError("x")
    of = (errors.ProducerClosed, errors.MessageSizeTooLargeError)
    assert isinstance(translated(closed, *of), errors.ProducerClosed)
    assert isinstance(translated(large, *of), errors.MessageSizeTooLargeError)
    record = TopicRecreatedError(P, "1 record", "a", "b", outcome="x")
    assert type(translated(record, *of)) is errors.UnknownTopicOrPartitionError
    offset = TopicRecreatedError(P, "an offset in a transaction", "a", "b")
    assert type(translated(offset, *of)) is errors.CommitFailedError


def test_an_abortable_transaction_error_is_translated_like_its_cause() -> None:
    aborted = ours.AbortableTransactionError("x")
    assert type(translated(aborted)) is errors.KafkaError
    aborted.__cause__ = error_for(29)
    assert isinstance(translated(aborted), errors.TopicAuthorizationFailedError)


def test_an_offset_out_of_range_error_names_the_partition() -> None:
    found = translated(NoSuchOffsetError(TopicPartition("t", 1), 7, 0, 5))
    assert isinstance(found, errors.OffsetOutOfRangeError)
    assert found.args == ({("t", 1): 7},)


def test_exceptions_other_than_kafka_errors_are_not_translated() -> None:
    with pytest.raises(ZeroDivisionError), raising():
        raise ZeroDivisionError
    with pytest.raises(errors.KafkaTimeoutError) as raised, raising():
        raise ours.KafkaTimeoutError("timed out waiting for records")
    assert isinstance(raised.value.__cause__, ours.KafkaTimeoutError)

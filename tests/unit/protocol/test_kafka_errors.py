"""Test that each of Kafka's error codes has a class (R-RT-3)."""

from __future__ import annotations

import pytest

from odradek.common import errors
from odradek.common.errors import BrokerError, UnknownErrorCodeError
from odradek.common.errors import kafka as kafka_errors
from odradek.common.errors.kafka import (
    ERRORS,
    KafkaStorageError,
    UnknownServerError,
    UnknownTopicOrPartitionError,
    error_for,
)


def test_every_code_has_its_own_class() -> None:
    assert set(ERRORS) == set(range(-1, 137)) - {0}
    assert len(set(ERRORS.values())) == len(ERRORS)
    for code, kind in ERRORS.items():
        assert issubclass(kind, BrokerError)
        assert kind.code == code
        assert kind.__name__.removesuffix("Error").lower() in kind.name.replace("_", "").lower()
        assert kind.__doc__
        assert not hasattr(errors, kind.__name__), "clashes with a hand-written error"
        assert getattr(kafka_errors, kind.__name__) is kind


@pytest.mark.parametrize(
    ("code", "retriable", "refresh"),
    [
        (1, False, False),  # OFFSET_OUT_OF_RANGE
        (3, True, True),  # UNKNOWN_TOPIC_OR_PARTITION
        (5, True, True),  # LEADER_NOT_AVAILABLE
        (6, True, True),  # NOT_LEADER_OR_FOLLOWER
        (7, True, False),  # REQUEST_TIMED_OUT
        (19, True, False),  # NOT_ENOUGH_REPLICAS
        (29, False, False),  # TOPIC_AUTHORIZATION_FAILED
        (56, True, True),  # KAFKA_STORAGE_ERROR
        (74, True, True),  # FENCED_LEADER_EPOCH
        (75, True, False),  # UNKNOWN_LEADER_EPOCH
        (78, True, False),  # OFFSET_NOT_AVAILABLE
        (100, True, True),  # UNKNOWN_TOPIC_ID
        (129, False, False),  # REBOOTSTRAP_REQUIRED
    ],
)
def test_errors_are_retriable_and_refresh_metadata_as_in_the_java_client(
    code: int, retriable: bool, refresh: bool
) -> None:
    kind = ERRORS[code]
    assert (kind.retriable, kind.refresh_metadata, kind.fatal) == (retriable, refresh, False)


def test_an_error_message_has_name_number_and_text() -> None:
    error = error_for(3)
    assert type(error) is UnknownTopicOrPartitionError
    assert str(error).startswith("UNKNOWN_TOPIC_OR_PARTITION (3): ")
    assert "\n" not in str(error_for(2))
    assert str(error_for(56, "disk full")) == "KAFKA_STORAGE_ERROR (56): disk full"
    assert type(error_for(56)) is KafkaStorageError
    assert type(error_for(-1)) is UnknownServerError


def test_an_unknown_code_becomes_an_error() -> None:
    error = error_for(9999, "too new")
    assert type(error) is UnknownErrorCodeError
    assert error.number == 9999
    assert "too new" in str(error)


def test_code_0_is_rejected() -> None:
    with pytest.raises(ValueError, match="0"):
        error_for(0)

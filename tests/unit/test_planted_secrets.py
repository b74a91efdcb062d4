"""The search for planted secrets (`tests/planted_secrets.py`) finds each kind of leak."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from tests.planted_secrets import plant, watch, with_locals, worth_looking

from odradek.common.errors import ConnectionFailedError, CredentialsRefusedError, KafkaError
from odradek.common.events import EventLog
from odradek.common.secret import Secret

TEXT = "open sesame, please"


@contextmanager
def expected_leaks() -> Iterator[list[str]]:
    """Collect the leaks that the block causes on purpose, so that they don't fail the test."""
    assert watch.active
    yield watch.found
    watch.found.clear()
    watch.planted.clear()


@pytest.mark.parametrize("text", [TEXT, base64.b64encode(TEXT.encode()).decode()])
def test_secrets_in_errors_and_events_are_found(text: str) -> None:
    with expected_leaks() as found:
        Secret(TEXT)
        KafkaError(f"the password {text} is wrong")
        assert len(found) == 1
        CredentialsRefusedError(f"not {text}")
        EventLog("c").emit(0.0, "broken", error=f"because of {text}")
        assert len(found) == 3
        assert not any(text in line for line in found), "the report shows it as well"


def test_redacted_texts_do_not_count_as_leaks() -> None:
    secret = Secret(TEXT)
    EventLog("c").emit(0.0, "broken", error=f"because of {secret}")
    ConnectionFailedError(f"not {secret!r}")
    assert watch.found == []


def test_a_planted_secret_is_found() -> None:
    with expected_leaks() as found:
        assert plant(TEXT) == TEXT
        KafkaError(TEXT)
        assert found


@pytest.mark.parametrize(
    ("text", "worth"),
    [("password", False), ("alice-secret", True), ("12345678", False), ("x", False), ("", False)],
)
def test_short_or_common_texts_are_not_searched_for(text: str, worth: bool) -> None:
    assert worth_looking(text) is worth


def test_secrets_in_local_variables_are_found() -> None:
    with pytest.raises(ValueError, match="unknown kind") as caught:
        EventLog("a client's name").emit(0.0, TEXT)
    assert f"emit: kind = '{TEXT}'" in with_locals(caught.value)

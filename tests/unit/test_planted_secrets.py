"""The search for planted secrets finds what it should: each of these would fail a test."""

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
def showing() -> Iterator[list[str]]:
    """What is shown in here on purpose isn't held against the test."""
    assert watch.active
    yield watch.found
    watch.found.clear()
    watch.planted.clear()


@pytest.mark.parametrize("text", [TEXT, base64.b64encode(TEXT.encode()).decode()])
def test_errors_and_events_are_looked_at(text: str) -> None:
    with showing() as found:
        Secret(TEXT)
        KafkaError(f"the password {text} is wrong")
        assert len(found) == 1
        CredentialsRefusedError(f"not {text}")
        EventLog("c").emit(0.0, "broken", error=f"because of {text}")
        assert len(found) == 3
        assert not any(text in line for line in found), "the report shows it as well"


def test_harmless_texts_are_not_found() -> None:
    secret = Secret(TEXT)
    EventLog("c").emit(0.0, "broken", error=f"because of {secret}")
    ConnectionFailedError(f"not {secret!r}")
    assert watch.found == []


def test_what_is_planted_by_name() -> None:
    with showing() as found:
        assert plant(TEXT) == TEXT
        KafkaError(TEXT)
        assert found


@pytest.mark.parametrize(
    ("text", "worth"),
    [("password", False), ("alice-secret", True), ("12345678", False), ("x", False), ("", False)],
)
def test_words_are_not_looked_for(text: str, worth: bool) -> None:
    assert worth_looking(text) is worth


def test_locals_of_our_frames_are_shown() -> None:
    with pytest.raises(ValueError, match="unknown kind") as caught:
        EventLog("a client's name").emit(0.0, TEXT)
    assert f"emit: kind = '{TEXT}'" in with_locals(caught.value)

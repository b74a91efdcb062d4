"""R-IN-3: test that unprintable characters from brokers are escaped in logs, errors and events."""

from __future__ import annotations

import json
import logging
import pickle
import re
import shlex
from pathlib import Path
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.common import errors
from odradek.common.errors import Attempt, ExplainedError, KafkaError, KafkaTimeoutError
from odradek.common.errors.kafka import error_for
from odradek.common.events import Event, EventLog, event_line
from odradek.common.log_filter import LOGGERS
from odradek.common.printable import (
    LONGEST,
    cleaned,
    json_escape,
    printable,
    sentence,
    shell_quoted,
    uuid_text,
)
from odradek.common.types import Address, TopicPartition
from odradek.spark.checkpoint_errors import DataLossError

HOSTILE = "\x1b]0;owned\x07\r\nINFO odradek: all is well\x9b2J\x7f\u202egnp\u2066\ud800\u2028"
UNSAFE = re.compile("[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain, grün, 漢字, 👍", "plain, grün, 漢字, 👍"),
        ("no\xa0break", "no\xa0break"),
        ("\x1b[2J", r"\x1b[2J"),
        ("a\r\nb\tc\x00\x7f", r"a\r\nb\tc\x00\x7f"),
        ("\x9b2J", r"\x9b2J"),
        ("\u202eevil\u2069\u200f\ufeff", r"\u202eevil\u2069\u200f\ufeff"),
        ("\ud800", r"\ud800"),
        ("\U000e0041", r"\U000e0041"),
    ],
)
def test_unprintable_characters_are_escaped(text: str, shown: str) -> None:
    assert printable(text) == shown
    assert printable(printable(text)) == shown
    assert json.loads(f'"{printable(text, style=json_escape)}"') == text


@given(st.text(st.characters()))
def test_printable_text_contains_no_unsafe_character(text: str) -> None:
    assert not UNSAFE.search(printable(text))
    assert not UNSAFE.search(printable(text, lines=True).replace("\n", ""))
    printable(text).encode()  # raises if a lone surrogate remains
    if not UNSAFE.search(text):
        assert len(printable(text)) >= len(text)


def test_long_texts_are_truncated() -> None:
    assert len(printable("x" * 10**6)) < LONGEST + 40
    assert len(str(KafkaError("x" * 10**6))) < LONGEST + 40


def every_error() -> list[BaseException]:
    host = Address(HOSTILE, 9092)
    return [
        KafkaError(HOSTILE),
        ExplainedError(HOSTILE, host, HOSTILE),
        errors.MechanismUnsupportedError("none", host, mechanisms=[HOSTILE]),
        errors.ClusterIdMismatchError("ours", HOSTILE, host),
        error_for(17, HOSTILE),
        error_for(9999, HOSTILE),
        error_for(29, HOSTILE).needing("READ", HOSTILE).of(HOSTILE),
        DataLossError([HOSTILE, str(TopicPartition(HOSTILE, 1))]),
        KafkaTimeoutError("late", [Attempt(host, HOSTILE, HOSTILE, 0.0)], 1.0),
    ]


@pytest.mark.parametrize("error", every_error(), ids=lambda e: type(e).__name__)
def test_error_messages_are_printable(error: BaseException) -> None:
    text = str(error)
    assert "owned" in text
    assert not UNSAFE.search(re.sub("\n  (?! )", "", text))
    assert "\nINFO" not in text


def test_an_unpickled_error_is_printable() -> None:
    late = KafkaTimeoutError("late", [Attempt(Address("b", 1), "ask", HOSTILE, 0.0)], 1.0)
    shipped = pickle.loads(pickle.dumps(late))  # noqa: S301
    assert str(shipped) == str(late)
    assert str(late).count("\n") == 1


def test_addresses_and_partitions_are_printable_and_keep_their_values() -> None:
    assert str(Address("b\n", 1)) == r"b\n:1"
    assert str(Address("::1", 1)) == "[::1]:1"
    assert Address("b\n", 1).host == "b\n"
    assert str(TopicPartition("t\x1b", 1)) == r"t\x1b-1"


def test_events_are_printable() -> None:
    found: list[Event] = []
    log = EventLog("c")
    log.listen(found.append)
    log.emit(0.0, "metadata", address=HOSTILE, brokers=[HOSTILE, 1], cluster_id=None, leaders=2)
    (event,) = found
    assert not UNSAFE.search(str(event))
    assert not UNSAFE.search(event_line(event, 0.0, "h", 1, "c").decode().rstrip("\n"))
    assert event.fields["leaders"] == 2
    assert event.fields["cluster_id"] is None


@pytest.mark.parametrize("name", LOGGERS)
def test_log_messages_are_printable(name: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, name)
    logger = logging.getLogger(name)
    logger.warning("%s said %s %d times", Address(HOSTILE, 1), HOSTILE, 3)
    logger.warning("%(who)s", {"who": HOSTILE})
    logger.warning(HOSTILE)
    logger.warning("it failed: %s", KafkaTimeoutError("late", [Attempt(None, "a", HOSTILE, 0)], 1))
    logger.warning("%r and %s", HOSTILE, "grün")
    texts = [record.getMessage() for record in caplog.records]
    assert len(texts) == 5
    for text in texts:
        assert not UNSAFE.search(text.replace("\n  ", "", 1)) or text.startswith("\\x1b]0")
        assert "\x1b" not in text
        assert "\n  a: \\x1b" in text or "\nINFO" not in text or text == texts[2]
    assert texts[0].endswith("3 times")


def test_every_logger_of_the_library_escapes_unprintable_text() -> None:
    source = Path(errors.__file__).parents[1]
    found = set()
    for path in source.rglob("*.py"):
        found |= set(re.findall(r'getLogger\("(odradek[\w.]*)"\)', path.read_text()))
    assert found <= set(LOGGERS)
    assert found


def test_texts_in_nested_data_are_escaped() -> None:
    given = {"a": ["x\n", ("y",), {1}], "b": TopicPartition("t\x1b", 1), "c": None, "d": 1.5}
    assert cleaned(given) == {
        "a": [r"x\n", ("y",), {1}],
        "b": TopicPartition(r"t\x1b", 1),
        "c": None,
        "d": 1.5,
    }


@given(st.text())
def test_a_shell_word_is_quoted_as_by_shlex(word: str) -> None:
    assert shell_quoted(word) == shlex.quote(word) or not word.isascii()
    assert shlex.split(shell_quoted(word)) == [word]


@given(st.binary(min_size=16, max_size=16))
def test_a_uuid_is_formatted_like_pythons_uuid(octets: bytes) -> None:
    assert uuid_text(octets) == str(UUID(bytes=octets))


@pytest.mark.parametrize("text", ["It failed", "It failed.", "It failed. "])
def test_a_sentence_ends_with_exactly_one_full_stop(text: str) -> None:
    assert sentence(text) == sentence(ValueError(text)) == "It failed."


def test_no_message_in_the_code_adds_a_full_stop_to_an_error() -> None:
    added = re.compile(r"""\{\w*error\w*(?:![rs])?\}\.(?:[ "']|$)""")
    texts = {path: path.read_text() for path in Path(errors.__file__).parents[2].rglob("*.py")}
    assert [path for path, text in texts.items() if added.search(text)] == []

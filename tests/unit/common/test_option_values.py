"""Test that options accept their values in the forms that applications use.

The forms are words in any case, as in Java and librdkafka, enum members and numpy scalars.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from enum import Enum, IntEnum, StrEnum
from typing import Any

import numpy as np
import pytest

from odradek.common.config import CONSUMER, PRODUCER, Config
from odradek.common.errors import ConfigurationError
from odradek.common.options.option_aliases import sealed
from odradek.common.options.table import OPTIONS
from odradek.common.options.values import Option
from odradek.common.secret import Secret

BROKER = {"bootstrap.servers": "h:1"}
CERTIFICATE = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----"
KEY = "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----"
Form = Callable[[Any], Any]


def read(option: Option, value: Any) -> Any:
    """Return a value as a client's configuration parses it."""
    given = sealed({option.name: value})
    return option.parse(option.name, given[option.name])


def member(kind: Any) -> Form:
    return lambda value: kind("Given", {"ONE": value}).ONE


def mixed(base: type) -> Form:
    """Return a function that wraps a value in an enumeration whose `str()` is `Given.ONE`."""
    return lambda value: Enum("Given", {"ONE": value}, type=base).ONE  # type: ignore[attr-defined]


TEXTS: dict[str, Form] = {
    "str, Enum": mixed(str),
    "StrEnum": member(StrEnum),
    "Enum": member(Enum),
    "numpy": np.str_,
}
CAPITALS: dict[str, Form] = {
    "upper": str.upper,
    "lower": str.lower,
    "capitalized": str.capitalize,
    "swapped": str.swapcase,
    "with spaces": lambda text: f" {text} ",
}
WHOLE: dict[str, Form] = {
    "text": str,
    "numpy's text": lambda number: np.str_(number),
    "int64": np.int64,
    "float": float,
    "float64": np.float64,
    "IntEnum": member(IntEnum),
    "int, Enum": mixed(int),
    "str, Enum": lambda number: mixed(str)(str(number)),
    "Enum": member(Enum),
}
FLAGS: dict[str, Form] = {
    "text": str,
    "upper": lambda flag: str(flag).upper(),
    "lower": lambda flag: str(flag).lower(),
    "with spaces": lambda flag: f" {flag} ",
    "numpy": np.bool_,
    "numpy's text": lambda flag: np.str_(flag),
    "str, Enum": lambda flag: mixed(str)(str(flag).lower()),
    "Enum": member(Enum),
}
FRACTIONS: dict[str, Form] = {
    "text": str,
    "float64": np.float64,
    "Enum": member(Enum),
    "str, Enum": lambda number: mixed(str)(str(number)),
}


def words(option: Option) -> Iterator[str]:
    for one in option.parse.values.split(", "):
        word = one.removeprefix("or ").split()[0].rstrip(":")
        yield {"empty": "", "by_duration": "by_duration:P7D"}.get(word, word)


def of_kind(*kinds: str) -> list[str]:
    return [name for name, option in OPTIONS.items() if option.parse.kind in kinds]


ENUMERATED = of_kind("word", "word or function")


@pytest.mark.parametrize("name", ENUMERATED)
def test_an_enumerated_option_accepts_its_words_in_any_case_and_as_enum_members(name: str) -> None:
    option = OPTIONS[name]
    for word in words(option):
        for form, given in {**CAPITALS, **TEXTS}.items():
            assert read(option, given(word)) == read(option, word), (word, form)


def test_the_list_of_enumerated_options_contains_the_important_options() -> None:
    assert len(ENUMERATED) >= 15
    assert set(ENUMERATED) >= {
        *("acks", "auto.offset.reset", "compression.type", "isolation.level", "group.protocol"),
        *("security.protocol", "sasl.mechanism", "metadata.recovery.strategy", "partitioner"),
    }


LEVELS = {"gzip": 9, "lz4": 17, "zstd": 22}
LARGEST = {f"compression.{codec}.level": level for codec, level in LEVELS.items()} | {
    "reconnect.attempts.per.second": 1000
}


@pytest.mark.parametrize("name", of_kind("integer", "milliseconds"))
def test_an_integer_option_accepts_text_and_numpy_integers(name: str) -> None:
    option, number = OPTIONS[name], LARGEST.get(name, 5000)
    for form, given in WHOLE.items():
        found = read(option, given(number))
        assert found == read(option, number), form
        assert type(found) in (int, float), form
    for value in (True, np.True_, member(Enum)(True), 1.5, np.float32(1.5), "many"):
        with pytest.raises(ConfigurationError, match="must be a whole number"):
            read(option, value)


@pytest.mark.parametrize("name", of_kind("number"))
def test_a_fractional_option_accepts_text_and_numpy_numbers(name: str) -> None:
    option = OPTIONS[name]
    for form, given in FRACTIONS.items():
        found = read(option, given(option.default))
        assert found == option.default, form
        assert type(found) is float, form
    for value in (True, np.True_, "much"):
        with pytest.raises(ConfigurationError, match="must be a number"):
            read(option, value)


@pytest.mark.parametrize("name", of_kind("boolean"))
def test_a_boolean_option_accepts_words_and_numpy_booleans(name: str) -> None:
    for form, given in FLAGS.items():
        for flag in (True, False):
            assert read(OPTIONS[name], given(flag)) is flag, form


OTHERS: dict[str, Any] = {
    "text": "a-text",
    "path": "/a/path",
    "PEM text": CERTIFICATE,
    "secret text": "a password",
    "secret PEM text": KEY,
    "secret URL": "socks5://user:password@h:1",
    "addresses": "h:1,i:2",
    "list": "range",
    "pairs": "a=b,c=d",
    "class name": "",
}
"""One value for each kind of option, except words, numbers and booleans."""
ELSEWHERE = {"function", "object", "any", "integer", "milliseconds", "number", "boolean", "word",
             "word or function"}  # fmt: skip


def test_each_kind_of_option_value_is_tested() -> None:
    assert {option.parse.kind for option in OPTIONS.values()} == OTHERS.keys() | ELSEWHERE


@pytest.mark.parametrize("name", of_kind(*OTHERS))
def test_a_text_option_accepts_enum_members_and_numpy_strings(name: str) -> None:
    option = OPTIONS[name]
    value = OTHERS[option.parse.kind]
    for form, given in TEXTS.items():
        found = read(option, given(value))
        assert found == read(option, value), form
        assert not isinstance(found, Enum), form
        assert not (isinstance(found, Secret) and isinstance(found.reveal(), Enum)), form


@pytest.mark.parametrize("name", of_kind("addresses", "list"))
def test_a_list_option_may_contain_enum_members_and_numpy_strings(name: str) -> None:
    option = OPTIONS[name]
    value = OTHERS[option.parse.kind].split(",")
    for form, given in TEXTS.items():
        assert read(option, [given(one) for one in value]) == read(option, value), form
        assert read(option, tuple(given(one) for one in value)) == read(option, value), form


@pytest.mark.parametrize(
    ("word", "meaning"),
    [
        *(("smallest", "earliest"), ("beginning", "earliest")),
        *(("largest", "latest"), ("end", "latest"), ("error", "none")),
    ],
)
def test_librdkafkas_words_for_auto_offset_reset_are_accepted_with_a_hint(
    word: str, meaning: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    for given in (word, word.upper(), mixed(str)(word)):
        found = Config(CONSUMER, {**BROKER, "auto.offset.reset": given})
        assert found["auto.offset.reset"] == meaning
    hint = f"auto.offset.reset={word} is librdkafka's word for {meaning}"
    assert [record.getMessage().lower() for record in caplog.records] == 3 * [hint]


def test_kafkas_words_for_auto_offset_reset_cause_no_hint(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    for given in ("EARLIEST", "Latest", "none"):
        Config(CONSUMER, {**BROKER, "auto.offset.reset": given})
    assert not caplog.records


def test_a_configuration_stores_plain_values_instead_of_enum_members() -> None:
    """A process that lacks the application's modules can't unpickle members of its enums."""
    given = {"acks": mixed(str)("ALL"), "linger.ms": np.int64(7), "client.id": mixed(str)("me")}
    found = Config(PRODUCER, {**BROKER, **given})
    assert found.stated["acks"] == "ALL"
    assert type(found.stated["acks"]) is str
    assert (found["acks"], found["linger.ms"], found["client.id"]) == (-1, 0.007, "me")

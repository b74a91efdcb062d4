"""Invalid topic names: the error names the option, and suggests a correction."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from odradek.spark.checkpoint_errors import OptionError
from odradek.spark.options.option_table import STREAM
from odradek.spark.options.source_options import parse_options
from odradek.spark.options.topic_names import listed_names
from odradek.spark.sink.sink_options import parse_sink_options

ADDRESS = {"kafka.bootstrap.servers": "h:1"}


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (
            {"subscribe": "'t'"},
            "option subscribe: \"'t'\" is not a valid topic name: leave out the",
        ),
        (
            {"subscribe": '"a","b"'},
            "option subscribe: '\"a\"' is not a valid .*: leave out the quotes",
        ),
        ({"subscribe": '["a","b"]'}, "'.\"a\"' is not .*: write names as plain text"),
        ({"subscribe": "[a]"}, "JSON is for option assign"),
        ({"subscribe": "a b"}, "option subscribe: 'a b' .*: separate names by commas"),
        ({"subscribe": "a;b"}, "option subscribe: 'a;b' .*: separate names by commas"),
        ({"subscribe": "flights.*"}, "use option subscribePattern for regular expressions"),
        ({"subscribe": "flüge"}, "a topic name has 1 to 249 letters"),
        ({"subscribe": "x" * 250}, "a topic name has 1 to 249 letters"),
        ({"subscribe": ".."}, "option subscribe: '..' is not a valid topic name"),
        ({"subscribe": ", ,"}, "option subscribe names no topic: list topic names"),
        ({"subscribePattern": "'t.*'"}, "option subscribePattern: .* leave out the quotes"),
        ({"assign": '{"a b":[0]}'}, "option assign: 'a b' is not a valid topic name"),
        (
            {"assign": '{"":[0]}'},
            "option assign: '' is not a valid topic name: a topic name has 1 to 249",
        ),
    ],
)
def test_errors_for_invalid_topic_names_name_the_option_and_the_fix(
    given: dict[str, str], words: str
) -> None:
    with pytest.raises(OptionError, match=words):
        parse_options({**ADDRESS, **given}, STREAM)


def test_an_invalid_topic_name_of_the_sink_is_rejected() -> None:
    with pytest.raises(
        OptionError, match="option topic: \"'t'\" is not a valid .*: leave out the quotes"
    ):
        parse_sink_options({**ADDRESS, "topic": "'t'"}, STREAM)


def test_an_extra_comma_is_ignored_with_a_warning(caplog: Any) -> None:
    with caplog.at_level(logging.WARNING):
        assert listed_names("subscribe", "b, a,b") == ("a", "b")
        assert not caplog.messages
        assert listed_names("subscribe", "a,,b,") == ("a", "b")
    [told] = caplog.messages
    assert told.startswith("option subscribe has an empty name next to a comma")

"""Names that no topic can have: the option that holds them, and what to write instead."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from odradek.spark.options.option_table import STREAM
from odradek.spark.options.source_options import parse_options
from odradek.spark.options.topic_names import listed_names
from odradek.spark.problems import OptionError
from odradek.spark.sink.sink_options import parse_sink_options

ADDRESS = {"kafka.bootstrap.servers": "h:1"}


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"subscribe": "'t'"}, "option subscribe: \"'t'\" can't be a topic's name: leave out the"),
        ({"subscribe": '"a","b"'}, "option subscribe: '\"a\"' can't be .*: leave out the quotes"),
        ({"subscribe": '["a","b"]'}, "'.\"a\"' can't be .*: names are .* as plain text"),
        ({"subscribe": "[a]"}, "JSON is for option assign"),
        ({"subscribe": "a b"}, "option subscribe: 'a b' .*: between two names stands a comma"),
        ({"subscribe": "a;b"}, "option subscribe: 'a;b' .*: between two names stands a comma"),
        ({"subscribe": "flights.*"}, "option subscribePattern takes regular expressions"),
        ({"subscribe": "flüge"}, "a topic name has 1 to 249 letters"),
        ({"subscribe": "x" * 250}, "a topic name has 1 to 249 letters"),
        ({"subscribe": ".."}, "option subscribe: '..' can't be a topic's name"),
        ({"subscribe": ", ,"}, "option subscribe names no topic: give names with commas between"),
        ({"subscribePattern": "'t.*'"}, "option subscribePattern: .* leave out the quotes"),
        ({"assign": '{"a b":[0]}'}, "option assign: 'a b' can't be a topic's name"),
        (
            {"assign": '{"":[0]}'},
            "option assign: '' can't be a topic's name: a topic name has 1 to 249",
        ),
    ],
)
def test_the_option_and_the_cure_are_named(given: dict[str, str], words: str) -> None:
    with pytest.raises(OptionError, match=words):
        parse_options({**ADDRESS, **given}, STREAM)


def test_the_sink_s_topic_as_well() -> None:
    with pytest.raises(
        OptionError, match="option topic: \"'t'\" can't be .*: leave out the quotes"
    ):
        parse_sink_options({**ADDRESS, "topic": "'t'"}, STREAM)


def test_a_comma_too_many_counts_for_nothing_and_is_told(caplog: Any) -> None:
    with caplog.at_level(logging.WARNING):
        assert listed_names("subscribe", "b, a,b") == ("a", "b")
        assert not caplog.messages
        assert listed_names("subscribe", "a,,b,") == ("a", "b")
    [told] = caplog.messages
    assert told.startswith("option subscribe has a comma without a name beside it")

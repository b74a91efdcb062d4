"""Test that option texts are whole sentences, and that the options' tables are correct.

defaults_of_others.json contains default and importance of the options that other clients have, too:
from `configDef()` of Kafka 4.4.0 and from librdkafka 2.15.0's CONFIGURATION.md, by odradek's names
("none" without a default).
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from odradek.cli.options import CHANGES_NOTHING, every_option
from odradek.common.errors import ConfigurationError
from odradek.common.options.table import GROUPS, OPTIONS
from odradek.common.options.values import Option

OTHERS = json.loads(Path(__file__).with_name("defaults_of_others.json").read_text())
FEWEST_WORDS = 6
FRAGMENT = re.compile(
    r"^(The same|Longest|Least|First|How|What|Who|Where to|Of)\b|…$"
    r"|\b(see|options|limits|two|one) (above|below)\b|\bas above\b|\bKafka's\."
)
"""First words and references that can't be understood without the surrounding page."""
BOUNDS = re.compile(r"(-?[\d.]+) (?:to (-?[\d.]+)|or more)")


def test_each_option_text_consists_of_self_contained_sentences() -> None:
    for one in every_option():
        text = one["text"]
        assert text[0].isupper(), one["name"]
        assert text.endswith((".", ".)")), one["name"]
        assert len(text.split()) >= FEWEST_WORDS, one["name"]
        assert not FRAGMENT.search(text), one["name"]
        for sentence in re.split(r"[.!?] ", text):
            assert not sentence.startswith(("And ", "But ", "Like ", "Also ")), one["name"]


def words(values: str) -> list[str]:
    return [one.split()[0].rstrip(":") for one in values.split(", ")]


def test_each_option_text_contains_its_unit_or_its_values() -> None:
    for one in OPTIONS.values():
        if one.parse.kind == CHANGES_NOTHING:
            continue
        text = one.doc.lower()
        wanted = [unit for unit in ("second", "byte") if f".{unit}s" in one.name]
        if one.parse.kind == "milliseconds":
            wanted = ["millisecond"]
        elif one.parse.kind == "boolean":
            assert "true" in text or "false" in text, one.name
        elif one.parse.kind.startswith("word"):
            wanted = words(one.parse.values)
        elif one.name.endswith((".size", ".memory")):
            wanted = ["byte"]
        assert [word for word in wanted if word.lower() not in text] == [], one.name


def refused(option: Option, value: Any) -> bool:
    try:
        option.parse(option.name, value)
    except ConfigurationError:
        return True
    return False


def test_values_are_accepted_exactly_in_the_documented_ranges() -> None:
    seen = 0
    for one in OPTIONS.values():
        found = BOUNDS.match(one.parse.values)
        if one.parse.kind in ("integer", "milliseconds", "number"):
            assert found, one.name
            step = 1 if one.parse.kind != "number" else 0.01
            low = float(found[1]) if step < 1 else int(found[1])
            special = -1 if -1 <= low - step <= 0 and "-1" in one.parse.values else None
            assert not refused(one, low), one.name
            assert special is not None or refused(one, low - step), one.name
            if found[2]:
                high = float(found[2]) if step < 1 else int(found[2])
                assert not refused(one, high), one.name
                assert refused(one, high + step), one.name
            seen += 1
        elif one.parse.kind == "word" and one.name != "auto.offset.reset":
            for word in words(one.parse.values):
                assert word == "or" or not refused(one, word), (one.name, word)
            assert refused(one, "nothing-like-it"), one.name
    assert seen > 40


def test_each_documented_default_parses_to_the_default() -> None:
    for one in OPTIONS.values():
        if one.default is None:
            assert one.default_text is None
        else:
            assert one.parse(one.name, one.default_text) == one.default, one.name


def test_defaults_and_importance_of_other_clients_are_documented_correctly() -> None:
    for one in OPTIONS.values():
        if one.parse.kind == CHANGES_NOTHING:
            continue
        ours, others = one.default_text or "none", OTHERS.get(one.name, {})
        for client, said in (("java", one.java), ("librdkafka", one.librdkafka)):
            theirs, importance = others.get(client, (ours, one.importance))
            assert said == (theirs if theirs != ours else ""), (one.name, client)
            if client == "java" or "java" not in others:
                assert one.importance == importance, one.name
        if one.java or (one.librdkafka and "java" not in others):
            assert one.why.endswith("."), one.name
        assert one.importance in ("high", "medium", "low")


def test_each_option_is_in_exactly_one_group_of_the_page() -> None:
    names = [one.name for options in GROUPS.values() for one in options]
    assert len(names) == len(set(names)) == len(OPTIONS)


@pytest.mark.parametrize("name", sorted(OTHERS))
def test_each_option_compared_with_other_clients_exists(name: str) -> None:
    assert name in OPTIONS

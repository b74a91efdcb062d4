"""Test ISO 8601 durations against the results of java.time.Duration.parse."""

from __future__ import annotations

import pytest

from odradek.common.errors import ConfigurationError
from odradek.common.options.durations import parse_duration


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("P7D", 604800),
        ("PT1H30M", 5400),
        ("pt20.345s", 20.345),
        ("PT0,5S", 0.5),
        ("P2DT3H4M", 183840),
        ("P2DT3H4M1.25S", 183841.25),
        ("PT0S", 0),
        ("+P1D", 86400),
        ("PT1H-30M", 1800),
        ("PT1M-0.5S", 59.5),
        ("-PT-6H", 21600),
        ("PT1.S", 1),
    ],
)
def test_durations_that_java_accepts_are_parsed(text: str, seconds: float) -> None:
    assert parse_duration("x", text) == seconds


@pytest.mark.parametrize(
    "text",
    [
        *["", "P", "PT", "P1DT", "7D", "P1W", "P1M", "P1Y", "P1Y2D", "PT1D", "P1H", "P1.5D"],
        *["PT.5S", "PT1S ", "PT1H1H", "PT1M1H", "PT0.1234567890S", "PT1ſ", "P٣D", "a week"],
        "P" + "9" * 30 + "D",
    ],
)
def test_durations_that_java_rejects_are_rejected(text: str) -> None:
    with pytest.raises(ConfigurationError, match="x: .* isn't a duration of days"):
        parse_duration("x", text)


@pytest.mark.parametrize("text", ["P-1D", "-PT1S", "PT-0.5S", "PT1H-61M"])
def test_negative_durations_are_rejected(text: str) -> None:
    with pytest.raises(ConfigurationError, match="x: the duration .* is negative"):
        parse_duration("x", text)


def test_durations_beyond_javas_range_are_rejected() -> None:
    with pytest.raises(ConfigurationError, match="too long"):
        parse_duration("x", "P999999999999999D")

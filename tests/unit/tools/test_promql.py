"""The small PromQL of tools/promql.py: what it reckons, and what it refuses."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.tools.loading import load_tool

promql = load_tool("promql")


def scrapes(*texts: str, target: str = "one") -> Any:
    """Scrapes that are 10 s apart, from 10 s on."""
    made = promql.Scrapes()
    for n, text in enumerate(texts, 1):
        made.add(10.0 * n, target, text)
    return made


def value(expression: str, known: Any, at: float) -> dict[str, float] | float:
    """By the values of the labels, joined."""
    found = promql.read(expression, {"c": "a.*"}).value(known, at)
    if not isinstance(found, dict):
        return float(found)
    return {
        ",".join(text for name, text in sorted(labels) if name != "instance"): each
        for labels, each in found.items()
    }


COUNTS = scrapes(*(f'n{{l="a1"}} {a}\nn{{l="b"}} {b}\n' for a, b in ((0, 5), (20, 6), (5, 7))))


@pytest.mark.parametrize(
    ("expression", "found"),
    [
        ("n", {"a1": 5, "b": 7}),
        ('n{l="b"}', {"b": 7}),
        ('n{l!="b"}', {"a1": 5}),
        ('n{l=~"$c"}', {"a1": 5}),
        ('n{l!~"$c"}', {"b": 7}),
        ("n > 6", {"b": 7}),
        ("6 < n", {"b": 7}),
        ("n == 5 or n > 6", {"a1": 5, "b": 7}),
        ("n and n < 6", {"a1": 5}),
        ("n unless n < 6", {"b": 7}),
        ("sum(n)", {"": 12}),
        ("max by (l) (n)", {"a1": 5, "b": 7}),
        ("min(n) - 1 * 2", {"": 3}),
        ("1 - n / n", {"a1": 0, "b": 0}),
        ("1 - 2 * 3 - 4", -9.0),
        # Grown by 20, begun again and grown by 5, in 20 s.
        ('rate(n{l="a1"}[1m])', {"a1": 1.25}),
        ('increase(n{l="a1"}[1m])', {"a1": 75.0}),
        ('delta(n{l="a1"}[20s])', {"a1": -30.0}),
        ("rate(n[5s])", {}),
        ("absent_here", {}),
    ],
)
def test_values(expression: str, found: object) -> None:
    assert value(expression, COUNTS, 30.0) == found


def test_a_series_that_a_scrape_lacks_has_ended() -> None:
    known = scrapes('n{l="a"} 1\n', 'n{l="b"} 2\n')
    known.add(12.0, "two", 'n{l="c"} 3\n')
    assert value("n", known, 9.0) == {}
    assert value("n", known, 15.0) == {"a": 1, "c": 3}
    assert value("n", known, 20.0) == {"b": 2, "c": 3}
    assert value("n", known, 20.0 + promql.LOOK_BACK) == {"b": 2}


@pytest.mark.parametrize(
    "expression",
    [
        *("", "n[5m]", "rate(n)", "topk(3, n)", "n offset 5m", "n and on (l) n", "n{l=b}", "sum(n"),
        *("n >", "n n", "1 > 2", "sum without (l) (n)", "histogram_quantile(0.9, n)", "(" * 500),
        *("n @ 3", "-n"),
    ],
)
def test_what_is_not_known_is_refused(expression: str) -> None:
    with pytest.raises(promql.UnknownExpressionError):
        promql.read(expression).value(COUNTS, 30.0)

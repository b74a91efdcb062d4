"""As much of PromQL as examples/monitoring has: for its tests, and for its dashboard's picture.

In: expressions, scrapes (time, target, Prometheus' text). Out: an expression's value at a time:
numbers by labels. What isn't known here is refused, never guessed. Two things differ from
Prometheus: names of metrics are dropped at once, and rates go from the first sample of the window
to the last, where Prometheus extrapolates to the window's ends. Must not: read a clock.
"""

from __future__ import annotations

import operator
import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from types import MappingProxyType
from typing import NamedTuple

from prometheus_client.parser import text_string_to_metric_families

LOOK_BACK = 300.0
"""Seconds after which a sample no longer says how it is now, as in Prometheus."""
SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}

Labels = frozenset[tuple[str, str]]
Vector = dict[Labels, float]
Value = Vector | float
Expression = Callable[["Scrapes", float], Value]

TOKEN = re.compile(
    r"\s*(?:(?P<number>\d+(?:\.\d+)?)(?![\w.])|\[(?P<range>\d+(?:ms|[smhd]))\]"
    r'|"(?P<text>[^"\\]*)"|(?P<word>[a-zA-Z_:][\w:]*)|(?P<sign>=~|!~|==|!=|>=|<=|[-+*/(){},=<>]))'
)


class UnknownExpressionError(ValueError):
    """The expression has something that isn't known here."""


@dataclass(slots=True)
class Scrapes:
    """What targets told, and when."""

    series: dict[str, dict[Labels, list[tuple[float, float]]]] = field(default_factory=dict)
    """By metric and labels: samples of (time, value), rising in time."""
    times: dict[str, list[float]] = field(default_factory=dict)
    """By target, when it was scraped: a series that a later scrape lacks has ended."""

    def add(self, time: float, target: str, text: str) -> None:
        """Take a scrape in; a target's scrapes come in their order."""
        self.times.setdefault(target, []).append(time)
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                labels = frozenset({**sample.labels, "instance": target}.items())
                found = self.series.setdefault(sample.name, {}).setdefault(labels, [])
                found.append((time, sample.value))

    def now(self, metric: str, time: float) -> Vector:
        """The newest samples."""
        found = {}
        for labels, samples in self.series.get(metric, {}).items():
            at = bisect_right(samples, time, key=lambda sample: sample[0])
            if at and samples[at - 1][0] == self._last(labels, time):
                found[labels] = samples[at - 1][1]
        return found

    def within(
        self, metric: str, start: float, stop: float
    ) -> dict[Labels, list[tuple[float, float]]]:
        """The samples of a window, its start left out."""
        return {
            labels: [sample for sample in samples if start < sample[0] <= stop]
            for labels, samples in self.series.get(metric, {}).items()
        }

    def _last(self, labels: Labels, time: float) -> float | None:
        times = self.times[dict(labels)["instance"]]
        at = bisect_right(times, time)
        return times[at - 1] if at and time - times[at - 1] <= LOOK_BACK else None


class Selector(NamedTuple):
    """`name{label="value"}[range]`; `seconds` is None for the newest samples."""

    metric: str
    matches: tuple[tuple[str, str, str], ...]
    seconds: float | None

    def fits(self, labels: Labels) -> bool:
        """Whether a series is meant."""
        known = dict(labels)
        return all(
            (re.fullmatch(text, known.get(label, "")) is not None) == (sign == "=~")
            if sign in ("=~", "!~")
            else (known.get(label, "") == text) == (sign == "=")
            for label, sign, text in self.matches
        )


@dataclass(slots=True)
class Query:
    """An expression that was read: its value at a time, and what it names."""

    value: Expression
    selectors: list[Selector]
    grouped: list[tuple[Selector, tuple[str, ...]]]
    """The labels that each selector's series are summed up by."""


def read(text: str, variables: Mapping[str, str] = MappingProxyType({})) -> Query:
    """Read an expression; `$name` is replaced. Raises `UnknownExpressionError`."""
    for name, value in variables.items():
        text = text.replace(f"${name}", value)
    reader = _Reader(text)
    value = reader.either()
    if reader.token is not None:
        raise UnknownExpressionError(f"{text}: what is {reader.token[1]!r} for?")
    return Query(value, reader.selectors, reader.grouped)


def _rate(samples: list[tuple[float, float]]) -> tuple[float, float]:
    """How much a counter grew, also through its beginnings, and in how many seconds."""
    grown = 0.0
    for (_, before), (_, after) in pairwise(samples):
        grown += after - before if after >= before else after
    return grown, samples[-1][0] - samples[0][0]


RANGES: dict[str, Callable[[list[tuple[float, float]], float], float]] = {
    "rate": lambda samples, _: _rate(samples)[0] / _rate(samples)[1],
    "increase": lambda samples, seconds: _rate(samples)[0] / _rate(samples)[1] * seconds,
    "delta": lambda samples, seconds: (
        (samples[-1][1] - samples[0][1]) / (samples[-1][0] - samples[0][0]) * seconds
    ),
}
SUMS: dict[str, Callable[[list[float]], float]] = {"sum": sum, "max": max, "min": min}
COMPARED: dict[str, Callable[[float, float], bool]] = {
    ">": operator.gt,
    "<": operator.lt,
    ">=": operator.ge,
    "<=": operator.le,
    "==": operator.eq,
    "!=": operator.ne,
}
SETS = ("and", "or", "unless")


class _Reader:
    """Reads from the loosest operator to the tightest."""

    def __init__(self, text: str) -> None:
        self.selectors: list[Selector] = []
        self.grouped: list[tuple[Selector, tuple[str, ...]]] = []
        self._text, self._at, self._depth = text, 0, 0
        self.token: tuple[str, str] | None = None
        self._next()

    def either(self) -> Expression:
        """`a or b`, of `a and b`, of comparisons."""
        left = self._both()
        while self._take("or"):
            left = _sets("or", left, self._both())
        return left

    def _both(self) -> Expression:
        left = self._compared()
        while (word := self._one_of(("and", "unless"))) is not None:
            left = _sets(word, left, self._compared())
        return left

    def _compared(self) -> Expression:
        left = self._chain(("+", "-"), lambda: self._chain(("*", "/"), self._single))
        sign = self._one_of(COMPARED)
        if sign is None:
            return left
        return _binary(sign, left, self._chain(("+", "-"), self._single))

    def _chain(self, signs: Iterable[str], inner: Callable[[], Expression]) -> Expression:
        left = inner()
        while (sign := self._one_of(signs)) is not None:
            left = _binary(sign, left, inner())
        return left

    def _single(self) -> Expression:
        self._depth += 1
        if self._depth > 50:
            raise UnknownExpressionError("too many brackets")
        try:
            return self._read_single()
        finally:
            self._depth -= 1

    def _read_single(self) -> Expression:
        kind, word = self.token or ("", "")
        self._next()
        if kind == "number":
            number = float(word)
            return lambda _, __: number
        if word == "(":
            inner = self.either()
            self._must(")")
            return inner
        if word in SUMS:
            return self._summed(SUMS[word])
        if word in RANGES:
            self._must("(")
            selector = self._selector(self._word())
            self._must(")")
            return _ranged(selector, RANGES[word])
        if kind != "word" or word in SETS or self.token == ("sign", "("):
            raise UnknownExpressionError(f"{self._text}: {word!r} isn't known here")
        return _newest(self._selector(word))

    def _summed(self, how: Callable[[list[float]], float]) -> Expression:
        by: tuple[str, ...] = ()
        if self._take("by"):
            self._must("(")
            names = [self._word()]
            while self._take(","):
                names.append(self._word())
            self._must(")")
            by = tuple(names)
        self._must("(")
        before = len(self.selectors)
        inner = self.either()
        self._must(")")
        self.grouped += [(selector, by) for selector in self.selectors[before:]]

        def value(scrapes: Scrapes, time: float) -> Vector:
            groups: dict[Labels, list[float]] = {}
            for labels, each in _vector(inner(scrapes, time)).items():
                group = frozenset(pair for pair in labels if pair[0] in by)
                groups.setdefault(group, []).append(each)
            return {group: how(values) for group, values in groups.items()}

        return value

    def _selector(self, metric: str) -> Selector:
        matches: list[tuple[str, str, str]] = []
        if self._take("{"):
            while not self._take("}"):
                label, sign = self._word(), self._one_of(("=", "!=", "=~", "!~"))
                kind, text = self.token or ("", "")
                if sign is None or kind != "text":
                    raise UnknownExpressionError(
                        f"{self._text}: {label} isn't compared with a text"
                    )
                self._next()
                matches.append((label, sign, text))
                self._take(",")
        seconds = None
        if self.token is not None and self.token[0] == "range":
            number, unit = re.fullmatch(r"(\d+)(\w+)", self.token[1]).groups()  # type: ignore[union-attr]
            seconds = int(number) * SECONDS[unit]
            self._next()
        self.selectors.append(Selector(metric, tuple(matches), seconds))
        return self.selectors[-1]

    # Tokens

    def _next(self) -> None:
        found = TOKEN.match(self._text, self._at)
        if found is None:
            if self._text[self._at :].strip():
                raise UnknownExpressionError(f"{self._text}: at {self._at} is something unknown")
            self.token = None
            return
        self._at = found.end()
        kind = found.lastgroup or ""
        self.token = kind, found[kind]

    def _take(self, word: str) -> bool:
        return self._one_of((word,)) is not None

    def _one_of(self, words: Iterable[str]) -> str | None:
        if (
            self.token is None
            or self.token[0] not in ("sign", "word")
            or self.token[1] not in words
        ):
            return None
        word = self.token[1]
        self._next()
        return word

    def _must(self, word: str) -> None:
        if not self._take(word):
            raise UnknownExpressionError(f"{self._text}: {word} is missing")

    def _word(self) -> str:
        kind, word = self.token or ("", "")
        if kind != "word":
            raise UnknownExpressionError(f"{self._text}: a name is missing")
        self._next()
        return word


def _vector(value: Value) -> Vector:
    return value if isinstance(value, dict) else {frozenset(): value}


def _newest(selector: Selector) -> Expression:
    if selector.seconds is not None:
        raise UnknownExpressionError(f"{selector.metric}: a range is for rate() and the like")

    def value(scrapes: Scrapes, time: float) -> Vector:
        found = scrapes.now(selector.metric, time)
        return {labels: each for labels, each in found.items() if selector.fits(labels)}

    return value


def _ranged(
    selector: Selector, how: Callable[[list[tuple[float, float]], float], float]
) -> Expression:
    seconds = selector.seconds
    if seconds is None:
        raise UnknownExpressionError(f"{selector.metric}: rate() and the like want a range")

    def value(scrapes: Scrapes, time: float) -> Vector:
        found = scrapes.within(selector.metric, time - seconds, time)
        return {
            labels: how(samples, seconds)
            for labels, samples in found.items()
            if selector.fits(labels) and len(samples) > 1
        }

    return value


def _sets(word: str, left: Expression, right: Expression) -> Expression:
    def value(scrapes: Scrapes, time: float) -> Vector:
        first, second = _vector(left(scrapes, time)), _vector(right(scrapes, time))
        if word == "or":
            return {**second, **first}
        return {k: each for k, each in first.items() if (k in second) == (word == "and")}

    return value


def _binary(sign: str, left: Expression, right: Expression) -> Expression:
    compare = COMPARED.get(sign)

    def value(scrapes: Scrapes, time: float) -> Value:
        a, b = left(scrapes, time), right(scrapes, time)
        if not isinstance(a, dict) and not isinstance(b, dict):
            if compare is not None:
                raise UnknownExpressionError("two numbers are compared")
            return _reckoned(sign, a, b)
        found = {}
        for labels in a if isinstance(a, dict) else _vector(b):
            x = a[labels] if isinstance(a, dict) else a
            if isinstance(b, dict) and labels not in b:
                continue
            y = b[labels] if isinstance(b, dict) else b
            if compare is None:
                found[labels] = _reckoned(sign, x, y)
            elif compare(x, y):
                found[labels] = x if isinstance(a, dict) else y
        return found

    return value


def _reckoned(sign: str, a: float, b: float) -> float:
    if sign == "/":
        return a / b if b else float("nan")
    return {"+": a + b, "-": a - b, "*": a * b}[sign]

"""Narrow a query's ranges by its WHERE clause: topic, partition, offset and timestamp.

In: the filters that Spark passes to a batch reader (all of them must hold). Out: the filters that
Spark still has to apply, and narrower ranges of offsets. Pure: the cluster is accessed through a
function argument. Must not: drop a range that may contain a requested row.

Filters on topic, partition or offset are fully applied here. A filter on the timestamp only moves
starts: a log isn't ordered by timestamp, so a lookup by time only tells which records are certainly
too old; Spark applies the filter too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from odradek.common.types import TopicPartition
from odradek.spark.driver.planning import KafkaOffsetRange
from odradek.spark.options.option_values import LONG_MAX

if TYPE_CHECKING:
    from pyspark.sql.datasource import Filter

Times = Callable[[Mapping[TopicPartition, int]], Mapping[TopicPartition, int | None]]
"""Returns each partition's first offset at or after a time in ms; None without one."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_KINDS: Mapping[str, type] = {"topic": str, "partition": int, "offset": int}


@dataclass(frozen=True, slots=True)
class Narrowing:
    """Conditions on topic, partition, offset and timestamp from a query's filters."""

    places: tuple[Filter, ...] = ()
    """Filters on topic and partition: each keeps or drops whole ranges."""
    least: int = 0
    below: int = LONG_MAX
    """End of the wanted offsets, which start at `least`."""
    since_ms: int | None = None
    """Oldest timestamp in ms of a wanted row."""

    def with_filter(self, given: Filter) -> tuple[Narrowing, bool]:
        """Return the conditions with a filter added, and whether Spark can skip this filter."""
        name, kind = _column(given)
        if name == "timestamp":
            since = _since_ms(given)
            if since is not None:
                return replace(self, since_ms=max(since, self.since_ms or 0)), False
            return self, False
        if name not in _KINDS or not _understood(given, _KINDS[name]):
            return self, False
        if name != "offset":
            return replace(self, places=(*self.places, given)), True
        bounds = _offset_bounds(kind, given)
        if bounds is None:
            return self, False
        least, below, exact = bounds
        return replace(self, least=max(self.least, least), below=min(self.below, below)), exact

    def narrowed(self, ranges: Iterable[KafkaOffsetRange], times: Times) -> list[KafkaOffsetRange]:
        """Return the parts of ranges that can contain matching rows."""
        kept = [
            replace(r, start=max(r.start, self.least), until=min(r.until, self.below))
            for r in ranges
            if all(_accepts(f, r.tp) for f in self.places)
        ]
        kept = [r for r in kept if r.start < r.until]
        if self.since_ms is None or not kept:
            return kept
        # If several records have exactly this time, a broker may return a later one. With the
        # millisecond before, no wanted record is left out.
        asked = max(0, self.since_ms - 1)
        found = times(dict.fromkeys((r.tp for r in kept), asked))
        starts = {tp: LONG_MAX if at is None else at for tp, at in found.items()}
        kept = [replace(r, start=max(r.start, starts[r.tp])) for r in kept]
        return [r for r in kept if r.start < r.until]


def narrow_by(filters: Iterable[Filter]) -> tuple[Narrowing, list[Filter]]:
    """Apply all filters; return the conditions, and the filters that Spark still has to apply."""
    narrowing, left = Narrowing(), []
    for given in filters:
        narrowing, settled = narrowing.with_filter(given)
        if not settled:
            left.append(given)
    return narrowing, left


def _column(given: Filter) -> tuple[str, str]:
    """Return the column in lower case and the filter's kind; under NOT, of the inner filter."""
    inner: Any = getattr(given, "child", given)
    path: tuple[str, ...] = getattr(inner, "attribute", ())
    name = path[0].lower() if len(path) == 1 else ""
    return name, type(given).__name__


def _understood(given: Any, kind: type) -> bool:
    """Return whether a filter is of a supported kind, with constants of the column's type."""
    inner = getattr(given, "child", given)
    value = getattr(inner, "value", None)
    constants = value if isinstance(value, (tuple, list)) else (value,)
    if type(inner).__name__ in ("IsNull", "IsNotNull"):
        return True
    return type(inner).__name__ in _TESTS and all(type(c) is kind for c in constants)


def _accepts(given: Any, tp: TopicPartition) -> bool:
    """Return whether a partition's rows match a filter on topic or partition (never null)."""
    name, kind = _column(given)
    if kind == "Not":
        return not _accepts(given.child, tp)
    if kind in ("IsNull", "IsNotNull"):
        return kind == "IsNotNull"
    here: Any = tp.topic if name == "topic" else tp.partition
    return _TESTS[kind](here, given.value)


_TESTS: Mapping[str, Callable[[Any, Any], bool]] = {
    "EqualTo": lambda here, value: here == value,
    "EqualNullSafe": lambda here, value: here == value,
    "GreaterThan": lambda here, value: here > value,
    "GreaterThanOrEqual": lambda here, value: here >= value,
    "LessThan": lambda here, value: here < value,
    "LessThanOrEqual": lambda here, value: here <= value,
    "In": lambda here, value: here in value,
    "StringStartsWith": lambda here, value: here.startswith(value),
    "StringEndsWith": lambda here, value: here.endswith(value),
    "StringContains": lambda here, value: value in here,
}


def _offset_bounds(kind: str, given: Any) -> tuple[int, int, bool] | None:
    """Return the range of offsets that a filter allows, and whether it allows all offsets in it."""
    if kind == "IsNotNull":
        return 0, LONG_MAX, True
    if kind == "IsNull":
        return 0, 0, True
    value: Any = getattr(given, "value", None)
    if kind == "In" and value:
        return min(value), max(value) + 1, len(set(value)) == 1
    if kind in ("EqualTo", "EqualNullSafe"):
        return value, value + 1, True
    if kind in ("GreaterThan", "GreaterThanOrEqual"):
        return value + (kind == "GreaterThan"), LONG_MAX, True
    if kind in ("LessThan", "LessThanOrEqual"):
        return 0, value + (kind == "LessThanOrEqual"), True
    return None


def _since_ms(given: Any) -> int | None:
    """Return the first millisecond that a timestamp may have; Kafka's resolution is a millisecond.

    None before 1970: a record without a timestamp has -1, and lookups by time skip it.
    """
    kind, value = type(given).__name__, getattr(given, "value", None)
    if not isinstance(value, datetime) or value.tzinfo is None:
        return None
    us = (value - _EPOCH) // timedelta(microseconds=1)
    if kind in ("EqualTo", "EqualNullSafe", "GreaterThanOrEqual"):
        first = -(-us // 1000)
    elif kind == "GreaterThan":
        first = us // 1000 + 1
    else:
        return None
    return first if first >= 0 else None

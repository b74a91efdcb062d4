"""Convert JSON that Python has parsed to values of Arrow's types.

In: values as `json.loads` returns them, a type. Out: values that Arrow accepts for that type, and
the values that don't fit. Must not: convert between kinds: a number isn't a boolean, and a text
isn't a number.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NANOS = re.compile(r"[.,][0-9]{6}([0-9]+)")
"""Matches a fraction of a second; the group contains the digits after the sixth."""


class _MisfitError(Exception):
    """A value can't be converted to the requested type."""


class JsonValues:
    """Converts JSON values to Arrow types."""

    def __init__(self, *, whole: bool = False) -> None:
        """Accept 1.0 as an integer if `whole`, as JSON Schema does but not Spark's `from_json`."""
        self._whole = whole

    def fitted(self, given: Any, kind: pa.DataType, problems: list[str]) -> Any:
        """Convert a value to a type; parts that don't fit are null and added to `problems`."""
        try:
            return self._fitting(given, kind, "", problems)
        except (_MisfitError, ValueError, OverflowError, RecursionError):
            problems.append(f"the value isn't {kind}")
            return None

    def struct(
        self, document: dict[str, Any], fields: list[pa.Field], where: str, problems: list[str]
    ) -> dict[str, Any]:
        """Return all fields of an object; null for those that are missing or don't fit."""
        row: dict[str, Any] = {}
        for field in fields:
            row[field.name] = None
            try:
                row[field.name] = self._fitting(
                    document.get(field.name), field.type, f"{where}{field.name}", problems
                )
            except (_MisfitError, ValueError, OverflowError, RecursionError):
                problems.append(f"field {where}{field.name} isn't {field.type}")
        return row

    def _fitting(self, given: Any, kind: pa.DataType, where: str, problems: list[str]) -> Any:
        """Return parsed JSON as a value of this type; raise if it doesn't fit."""
        import pyarrow as pa

        if given is None:
            return None
        if pa.types.is_struct(kind):
            within = f"{where}." if where else ""
            return self.struct(_of(given, dict), list(kind), within, problems)
        if pa.types.is_list(kind):
            return [
                self._fitting(each, kind.value_type, where, problems) for each in _of(given, list)
            ]
        if pa.types.is_integer(kind):
            if self._whole and type(given) is float and given.is_integer():
                given = int(given)
            bits = 1 << (kind.bit_width - 1)
            if not -bits <= _of(given, int) < bits:
                raise _MisfitError
            return given
        for test, read in _READ:
            if getattr(pa.types, test)(kind):
                return read(given, kind)
        raise _MisfitError


def _of(given: Any, kind: type) -> Any:
    if type(given) is not kind:
        raise _MisfitError
    return given


def _floating(given: Any, _: pa.DataType) -> float:
    if type(given) is str and given in ("NaN", "Infinity", "-Infinity", "INF", "-INF", "+INF"):
        return float(given)
    if type(given) not in (int, float):
        raise _MisfitError
    return float(given)


def _text(given: Any, _: pa.DataType) -> str:
    """Return parsed JSON of any type as text, as Spark's `from_json` does."""
    found = given
    if not isinstance(given, str):
        found = json.dumps(given, separators=(",", ":"), ensure_ascii=False)
    found.encode()  # ValueError for a lone surrogate, which columns can't contain
    return str(found)


def _timestamp(given: Any, kind: pa.DataType) -> datetime | int:
    found = datetime.fromisoformat(_of(given, str))
    if kind.tz is None:
        if found.tzinfo is not None:
            raise _MisfitError
    elif found.tzinfo is not None:
        found = found.astimezone(UTC)  # raise OverflowError here: Arrow would reject all rows
    found = found.replace(tzinfo=UTC)
    if kind.unit != "ns":
        return found if kind.tz is not None else found.replace(tzinfo=None)
    # Python's `datetime` holds only microseconds, so the nanoseconds are added separately.
    beyond = _NANOS.search(given)
    nanos = int(beyond[1][:3].ljust(3, "0")) if beyond else 0
    return (found - _EPOCH) // timedelta(microseconds=1) * 1000 + nanos


_READ: tuple[tuple[str, Callable[[Any, pa.DataType], Any]], ...] = (
    ("is_boolean", lambda given, _: _of(given, bool)),
    ("is_floating", _floating),
    ("is_string", _text),
    ("is_date", lambda given, _: date.fromisoformat(_of(given, str))),
    ("is_timestamp", _timestamp),
)

"""Convert JSON values as an Avro schema requires.

In: a value as `odradek consume --json` prints it, or in Avro's own JSON encoding, where the branch
of a union is named: `{"string": "JFK"}`. Out: what fastavro writes. Must not: accept a value of
another type that looks similar: a text that isn't a date isn't written as one.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
import re
import struct
from collections.abc import Callable, Mapping
from datetime import date, datetime, time
from decimal import Decimal, InvalidOperation
from typing import Any, TypeVar
from uuid import UUID

from odradek.serialization.avro.serializers import AvroSerializer
from odradek.serialization.errors import SerializationError
from odradek.serialization.schema_limits import named_types

_FLOATS = ("NaN", "Infinity", "-Infinity", "nan", "inf", "-inf")
"""Spellings of non-finite numbers, which JSON lacks, in Avro's JSON and `odradek consume`."""
_FINER = re.compile(r"[.,]\d{6}\d*[1-9]")
"""Matches fractions of a second finer than microseconds, which Python would drop."""


def _date(text: str, _: Mapping[str, Any]) -> date:
    if "-" not in text:  # `fromisoformat` also accepts 20261128
        raise ValueError("expected a date such as 2026-11-28")
    return date.fromisoformat(text)


def _moment(text: str) -> datetime:
    try:
        date.fromisoformat(text)
    except ValueError:
        return datetime.fromisoformat(text)
    raise ValueError("the time is missing")


def _instant(text: str, schema: Mapping[str, Any]) -> datetime:
    found = _moment(text)
    if found.tzinfo is None:
        raise ValueError("it must end with Z or a UTC offset")
    return _fitting(found, text, schema)


def _local(text: str, schema: Mapping[str, Any]) -> datetime:
    found = _moment(text)
    if found.tzinfo is not None:
        raise ValueError("it must not have a UTC offset, as it is a local time")
    return _fitting(found, text, schema)


def _time(text: str, schema: Mapping[str, Any]) -> time:
    if ":" not in text:
        raise ValueError("expected a time such as 10:30:00")
    found = time.fromisoformat(text)
    if found.tzinfo is not None:
        raise ValueError("it must not have a UTC offset, as it is a local time")
    return _fitting(found, text, schema)


Moment = TypeVar("Moment", datetime, time)


def _fitting(found: Moment, text: str, schema: Mapping[str, Any]) -> Moment:
    unit = schema["logicalType"].rsplit("-", 1)[1]
    if _FINER.search(text) or (unit == "millis" and found.microsecond % 1000):
        raise ValueError(f"it is more precise than {unit}")
    return found


def _decimal(text: str, schema: Mapping[str, Any]) -> Decimal:
    found = Decimal(text)
    digits, scale = schema["precision"], schema.get("scale", 0)
    if not found.is_finite() or (found and found.adjusted() + 1 + scale > digits):
        raise ValueError(
            f"at most {digits} digits are allowed, {scale} of them after the decimal point"
        )
    return found


def _uuid(text: str, _: Mapping[str, Any]) -> UUID:
    return UUID(text)


_LOGICAL: dict[str, Callable[[str, Mapping[str, Any]], Any]] = {
    "int-date": _date,
    "int-time-millis": _time,
    "long-time-micros": _time,
    "long-timestamp-millis": _instant,
    "long-timestamp-micros": _instant,
    "long-local-timestamp-millis": _local,
    "long-local-timestamp-micros": _local,
    "bytes-decimal": _decimal,
    "fixed-decimal": _decimal,
    "string-uuid": _uuid,
}
"""Converters of texts to values, by base type and logical type.

A JSON number isn't converted, because it already has Avro's encoding.
"""
RECORDS = ("record", "error")
_BITS = {"int": 31, "long": 63}
_LARGEST_FLOAT = 3.4028235677973362e38
"""Largest number that is rounded to a finite 32-bit float."""
_LESS_EXACT = {"map": 1, "double": 2, "float": 3}
_NESTED = (*RECORDS, "array", "map")
_OF_JSON: dict[str, type | tuple[type, ...]] = {
    "null": type(None),
    "boolean": bool,
    "int": int,
    "long": int,
    "float": (int, float, str),
    "double": (int, float, str),
    "string": str,
    "enum": str,
    "bytes": (str, dict),
    "fixed": (str, dict),
    "array": list,
    "map": dict,
    "record": dict,
    "error": dict,
}
"""Python types of JSON values that are accepted for each Avro type."""


class AvroLines(AvroSerializer):
    """Serializes JSON values by the schema in the registry."""

    def payload(self, value: Any, parsed: Any) -> bytes:
        """Encode the value as Avro. Raises `SerializationError`, which names the field."""
        return super().payload(of_json(value, parsed), parsed)


def of_json(value: Any, schema: Any) -> Any:
    """Convert a JSON value to a value that fastavro can write. Raises `SerializationError`."""
    try:
        return _Values(named_types(schema)).made(value, schema, "value")
    except RecursionError:
        raise SerializationError("the value is nested too deeply") from None


class _Values:
    """Converts JSON values by a schema; `names` are its named types."""

    def __init__(self, names: Mapping[str, Any]) -> None:
        self._names = names
        self._tried: dict[tuple[int, int], Any] = {}
        """Cached results for nested unions, by id() of the value (dict or list) and the schema."""

    def made(self, value: Any, schema: Any, where: str) -> Any:
        """Convert a value; `where` is its path, for error messages."""
        if isinstance(schema, list):
            return self._branch(value, schema, where)
        schema, kind = self._resolved(schema)
        if not _says(value, kind, schema):
            raise SerializationError(f"{where} must be {_name(schema, kind)}, not {_shown(value)}")
        if kind in RECORDS:
            return self._record(value, schema, where)
        if kind == "array":
            items = schema["items"]
            return [self.made(one, items, f"{where}[{n}]") for n, one in enumerate(value)]
        if kind == "map":
            values = schema["values"]
            return {name: self.made(one, values, f"{where}.{name}") for name, one in value.items()}
        return _scalar(value, schema, kind, where)

    def _resolved(self, schema: Any) -> tuple[Mapping[str, Any], str]:
        """Return the schema as a dict, and its type."""
        if isinstance(schema, str):
            schema = self._names.get(schema, {"type": schema})
        if isinstance(schema, list):
            raise SerializationError("the schema has a union directly inside a union")
        kind = schema["type"]
        return (schema, kind) if isinstance(kind, str) else self._resolved(kind)

    def _record(self, value: dict[str, Any], schema: Mapping[str, Any], where: str) -> Any:
        fields = {one["name"]: one for one in schema["fields"]}
        strange = sorted(value.keys() - fields.keys())
        if strange:
            raise SerializationError(
                f"{where} has no field {strange[0]!r} in the schema; the fields are "
                f"{', '.join(fields)}"
            )
        missing = [n for n, one in fields.items() if n not in value and "default" not in one]
        if missing:
            raise SerializationError(
                f"{where} lacks the field {missing[0]!r}, which has no default"
            )
        return {
            n: self.made(value[n], one["type"], f"{where}.{n}")
            if n in value
            else self._default(one["default"], one["type"])
            for n, one in fields.items()
        }

    def _default(self, value: Any, schema: Any) -> Any:
        """Convert a default in a schema, where bytes are written as text in ISO 8859-1."""
        if isinstance(schema, list):
            for one, kind in map(self._resolved, schema):
                if _says(value, kind, one):
                    return _name(one, kind), self._default(value, one)
        else:
            schema, kind = self._resolved(schema)
            if kind in ("bytes", "fixed") and isinstance(value, str):
                return value.encode("latin-1", "replace")
            if kind in RECORDS and isinstance(value, dict):
                return {
                    one["name"]: self._default(
                        value.get(one["name"], one.get("default")), one["type"]
                    )
                    for one in schema["fields"]
                }
            if kind == "array" and isinstance(value, list):
                return [self._default(one, schema["items"]) for one in value]
            if kind == "map" and isinstance(value, dict):
                return {n: self._default(one, schema["values"]) for n, one in value.items()}
        return value

    def _branch(self, value: Any, union: list[Any], where: str) -> tuple[str, Any]:
        """Convert a union's value by the named or first matching branch; raise if ambiguous."""
        branches = sorted(map(self._resolved, union), key=lambda one: _exactness(value, *one))
        bare: tuple[str, Any] | None = None
        why: dict[str, None] = {}
        for schema, kind in branches:
            try:
                bare = self._of_branch(value, schema, kind, where)
                break
            except SerializationError as error:
                why[str(error)] = None
        if isinstance(value, dict) and len(value) == 1:
            ((tag, inner),) = value.items()
            for schema, kind in branches:
                if tag != _name(schema, kind):
                    continue
                try:
                    named = self._of_branch(inner, schema, kind, where)
                except SerializationError:
                    if bare is None:
                        raise
                    break
                if bare is None:
                    return named
                raise SerializationError(
                    f"{where} is ambiguous: it may be {tag}, or {bare[0]} with a field "
                    f"{tag!r}. Name the branch as in {{{json.dumps(bare[0])}: …}}, or leave "
                    f"{tag!r} out"
                )
        if bare is None:
            raise SerializationError("; or ".join(why))
        return bare

    def _of_branch(
        self, value: Any, schema: Mapping[str, Any], kind: str, where: str
    ) -> tuple[str, Any]:
        """Return the branch's name and the value, so that fastavro uses exactly this branch."""
        if not (isinstance(value, dict | list) and kind in _NESTED):
            return _name(schema, kind), self.made(value, schema, where)
        key = id(value), id(schema)
        if key not in self._tried:
            try:
                self._tried[key] = self.made(value, schema, where)
            except SerializationError as error:
                self._tried[key] = error
        found = self._tried[key]
        if isinstance(found, SerializationError):
            raise found
        return _name(schema, kind), found


def _exactness(value: Any, schema: Mapping[str, Any], kind: str) -> int:
    """Rank branches that accept the same value: lossless ones come first.

    Among lossless ones, a branch comes first if `odradek consume` would print this value for it:
    texts for logical types, numbers and bytes for other types.
    """
    if kind in _LESS_EXACT:
        return _LESS_EXACT[kind]
    return 0 if isinstance(value, str) or _logical(schema, kind) is None else 1


def _logical(
    schema: Mapping[str, Any], kind: str
) -> Callable[[str, Mapping[str, Any]], Any] | None:
    return _LOGICAL.get(f"{kind}-{schema.get('logicalType')}")


def _says(value: Any, kind: str, schema: Mapping[str, Any]) -> bool:
    if isinstance(value, str) and _logical(schema, kind) is not None:
        return True
    if isinstance(value, bool):
        return kind == "boolean"
    return isinstance(value, _OF_JSON.get(kind, object))


def _scalar(value: Any, schema: Mapping[str, Any], kind: str, where: str) -> Any:
    logical = _logical(schema, kind)
    try:
        if logical is not None and isinstance(value, str):
            return logical(value, schema)
        if kind in ("float", "double"):
            return _float(value, kind)
        if kind in ("bytes", "fixed"):
            return _bytes(value, schema, kind)
    except (ValueError, OverflowError, InvalidOperation) as error:
        why = f": {error}" if str(error) and not isinstance(error, InvalidOperation) else ""
        raise SerializationError(
            f"{where} must be {_name(schema, kind)}, not {_shown(value)}{why}"
        ) from None
    if kind in _BITS and not -(1 << _BITS[kind]) <= value < 1 << _BITS[kind]:
        raise SerializationError(f"{where} must be {kind}, but {value} is too large")
    if kind == "enum" and value not in schema["symbols"]:
        raise SerializationError(
            f"{where} must be one of {', '.join(schema['symbols'])}, not {_shown(value)}"
        )
    return value


def _float(value: Any, kind: str) -> float:
    if isinstance(value, str) and value not in _FLOATS:
        raise ValueError
    found = float(value)
    if kind == "float" and math.isfinite(found) and abs(found) > _LARGEST_FLOAT:
        raise OverflowError("too large for a float")
    if isinstance(value, int) and value != (found if kind == "double" else _rounded(found)):
        raise ValueError("it can't be represented exactly")
    return found


def _rounded(value: float) -> float:
    """Round a number to a 32-bit float."""
    return float(struct.unpack("f", struct.pack("f", value))[0])


def _bytes(value: Any, schema: Mapping[str, Any], kind: str) -> bytes:
    """Return the bytes that `odradek consume` prints as a text (UTF-8) or as `{"base64": …}`."""
    try:
        if isinstance(value, dict) and len(value) > 1:
            raise KeyError
        found = (
            value.encode("utf-8")
            if isinstance(value, str)
            else base64.b64decode(value["base64"], validate=True)
        )
    except (KeyError, TypeError, binascii.Error):
        raise ValueError('expected a string, or {"base64": "…"}') from None
    if kind == "fixed" and len(found) != schema["size"]:
        raise ValueError(f"it must have {schema['size']} bytes, not {len(found)}")
    return found


def _name(schema: Mapping[str, Any], kind: str) -> str:
    """Return the name of a union's branch."""
    return str(schema.get("name", kind))


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}…"

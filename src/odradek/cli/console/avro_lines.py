"""Values of JSON as an Avro schema wants them.

In: a value as `odradek consume --json` shows it, or as Avro's own JSON encoding has it, where the
branch of a union is named: `{"string": "JFK"}`. Out: what fastavro writes. Must not: take a value
for another one that looks like it: a text that is no date isn't written as one.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Mapping
from datetime import date, datetime, time
from decimal import Decimal, InvalidOperation
from typing import Any
from uuid import UUID

from odradek.serialization.avro import AvroSerializer
from odradek.serialization.errors import SerializationError

_LOGICAL: dict[str, Callable[[str], Any]] = {
    "date": date.fromisoformat,
    "time-millis": time.fromisoformat,
    "time-micros": time.fromisoformat,
    "timestamp-millis": datetime.fromisoformat,
    "timestamp-micros": datetime.fromisoformat,
    "timestamp-nanos": datetime.fromisoformat,
    "local-timestamp-millis": datetime.fromisoformat,
    "local-timestamp-micros": datetime.fromisoformat,
    "decimal": Decimal,
    "uuid": UUID,
}
"""What texts of logical types become; a number stays what Avro has for it."""
RECORDS = ("record", "error")
_BITS = {"int": 31, "long": 63}
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
"""How JSON says a value of each type."""


class AvroLines(AvroSerializer):
    """Writes values of JSON by the schema that the registry has."""

    def payload(self, value: Any, parsed: Any) -> bytes:
        """The value as Avro. Raises `SerializationError`, which names the field that is wrong."""
        return super().payload(of_json(value, parsed), parsed)


def of_json(value: Any, schema: Any) -> Any:
    """What fastavro writes for a value of JSON. Raises `SerializationError`."""
    names: dict[str, Any] = {}
    for one in schema if isinstance(schema, list) else [schema]:
        if isinstance(one, dict):
            names |= one.get("__named_schemas", {})
    return _Values(names).made(value, schema, "it")


class _Values:
    """Makes values by a schema whose named types are these."""

    def __init__(self, names: Mapping[str, Any]) -> None:
        self._names = names

    def made(self, value: Any, schema: Any, where: str) -> Any:
        """The value; `where` it is, for errors."""
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
        """The schema as an object, and its kind."""
        if isinstance(schema, str):
            schema = self._names.get(schema, {"type": schema})
        kind = schema["type"]
        return (schema, kind) if isinstance(kind, str) else self._resolved(kind)

    def _record(self, value: dict[str, Any], schema: Mapping[str, Any], where: str) -> Any:
        fields = {one["name"]: one for one in schema["fields"]}
        strange = sorted(value.keys() - fields.keys())
        if strange:
            raise SerializationError(
                f"{where} has no field {strange[0]!r}; there are {', '.join(fields)}"
            )
        missing = [n for n, one in fields.items() if n not in value and "default" not in one]
        if missing:
            raise SerializationError(f"{where} lacks the field {missing[0]!r}, without a default")
        return {n: self.made(one, fields[n]["type"], f"{where}.{n}") for n, one in value.items()}

    def _branch(self, value: Any, union: list[Any], where: str) -> Any:
        branches = [self._resolved(one) for one in union]
        if isinstance(value, dict) and len(value) == 1:
            ((tag, inner),) = value.items()
            for schema, kind in branches:
                if tag == _name(schema, kind):
                    return self._of_branch(inner, schema, kind, where)
        why: dict[str, None] = {}
        for schema, kind in branches:
            try:
                return self._of_branch(value, schema, kind, where)
            except SerializationError as error:
                why[str(error)] = None
        raise SerializationError("; or ".join(why))

    def _of_branch(self, value: Any, schema: Mapping[str, Any], kind: str, where: str) -> Any:
        found = self.made(value, schema, where)
        return (schema["name"], found) if kind in RECORDS else found


def _says(value: Any, kind: str, schema: Mapping[str, Any]) -> bool:
    if schema.get("logicalType") in _LOGICAL and isinstance(value, str):
        return True
    if isinstance(value, bool):
        return kind == "boolean"
    return isinstance(value, _OF_JSON.get(kind, object))


def _scalar(value: Any, schema: Mapping[str, Any], kind: str, where: str) -> Any:
    logical = _LOGICAL.get(schema.get("logicalType", ""))
    try:
        if logical is not None and isinstance(value, str):
            return logical(value)
        if kind in ("float", "double"):
            return float(value)
        if kind in ("bytes", "fixed"):
            return _bytes(value)
    except (ValueError, OverflowError, InvalidOperation) as error:
        why = f": {error}" if str(error) and not isinstance(error, InvalidOperation) else ""
        raise SerializationError(
            f"{where} must be {_name(schema, kind)}, not {_shown(value)}{why}"
        ) from None
    if kind in _BITS and not -(1 << _BITS[kind]) <= value < 1 << _BITS[kind]:
        raise SerializationError(f"{where} must be {kind}, and {value} is too large for one")
    if kind == "enum" and value not in schema["symbols"]:
        raise SerializationError(
            f"{where} must be one of {', '.join(schema['symbols'])}, not {_shown(value)}"
        )
    return value


def _bytes(value: Any) -> bytes:
    """As `odradek consume` shows them: a text's UTF-8, or `{"base64": …}`."""
    if isinstance(value, str):
        return value.encode("utf-8")
    try:
        return base64.b64decode(value["base64"], validate=True)
    except (KeyError, TypeError, binascii.Error):
        raise ValueError('a text, or {"base64": "…"}') from None


def _name(schema: Mapping[str, Any], kind: str) -> str:
    """As a union's branch is called."""
    return str(schema.get("name", kind))


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}…"

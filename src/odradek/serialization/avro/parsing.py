"""Parse Avro schemas as Java reads them, together with the schemas that they reference.

In: a schema and a registry, or its JSON. Out: the schema as fastavro parses it, with the definition
of each type that it names. Must not: reject a schema for an invalid logical type or default: Avro's
specification ignores such logical types, and only a reader that needs the default would fail.
"""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

from odradek.serialization.errors import InvalidSchemaError
from odradek.serialization.extras import fastavro
from odradek.serialization.registry.references import referred
from odradek.serialization.registry.schemas import AVRO, Schema

if TYPE_CHECKING:
    from odradek.serialization.registry.client import SchemaRegistryClient

BASE_TYPES = {
    "date": ("int",),
    "time-millis": ("int",),
    "time-micros": ("long",),
    "timestamp-millis": ("long",),
    "timestamp-micros": ("long",),
    "local-timestamp-millis": ("long",),
    "local-timestamp-micros": ("long",),
    "decimal": ("bytes", "fixed"),
    "uuid": ("string",),
}
"""The types that each logical type may annotate."""
_DEFAULTS: dict[str, type] = {
    "null": type(None),
    "boolean": bool,
    "int": int,
    "long": int,
    "bytes": str,
    "string": str,
    "fixed": str,
    "enum": str,
    "array": list,
    "map": dict,
    "record": dict,
    "error": dict,
}
"""Python types of JSON defaults, by Avro type; defaults of floats and doubles are numbers."""
_KINDS = frozenset((*_DEFAULTS, "float", "double"))
"""Values of `type` in a complete schema; `{"type": …}` with another value only wraps a schema."""


def parsed_avro(schema: Schema, registry: SchemaRegistryClient) -> Any:
    """Return a schema as fastavro parses it, with its references. Raises `InvalidSchemaError`."""
    named: dict[str, Any] = {}
    for _, one in referred(schema, registry):
        _parsed(one.schema, named)
    found = _parsed(schema, named)
    return parsed_document(_complete(found, named)) if schema.references else found


def _parsed(schema: Schema, named: dict[str, Any]) -> Any:
    return parsed_document(json_of(schema), named)


def json_of(schema: Schema) -> Any:
    """Return the schema as parsed JSON. Raises `InvalidSchemaError`."""
    if schema.schema_type != AVRO:
        raise InvalidSchemaError(
            f"the schema has type {schema.schema_type}, not AVRO", None, "Check the topic."
        )
    try:
        return json.loads(schema.schema_str)
    except (ValueError, RecursionError) as error:
        raise _invalid(error) from None


def parsed_document(document: Any, named: dict[str, Any] | None = None) -> Any:
    """Return a schema's JSON as fastavro parses it; changes the given JSON in place.

    `named`: the types that it may use; its own types are added. Raises `InvalidSchemaError`.
    """
    parse = fastavro().parse_schema  # a missing package isn't the schema's fault
    try:
        return parse(_corrected(document), named_schemas={} if named is None else named)
    # fastavro may raise any exception for an untrusted schema.
    except Exception as error:
        raise _invalid(error) from None


def _invalid(error: Exception) -> InvalidSchemaError:
    return InvalidSchemaError(
        f"the text isn't a valid Avro schema: {type(error).__name__}: {error}", None, ""
    )


def _corrected(document: Any) -> Any:
    """Return a schema without parts that Avro's rules ignore or allow, but fastavro rejects.

    These are logical types, defaults, and `{"type": …}` around another schema or a name.
    """
    root = [_bare(document)]
    waiting = root.copy()
    while waiting:
        one = waiting.pop()
        if isinstance(one, list):
            one[:] = map(_bare, one)
            waiting += one
        if not isinstance(one, dict):
            continue
        if _is_ignored(one):
            del one["logicalType"]
        fields = one.get("fields")
        for field in fields if isinstance(fields, list) else ():
            if isinstance(field, dict) and "type" in field:
                field["type"] = _bare(field["type"])
                _correct_default(field)
                waiting.append(field["type"])
        for inner in ("items", "values"):
            if inner in one:
                one[inner] = _bare(one[inner])
                waiting.append(one[inner])
    return root[0]


def _bare(one: Any) -> Any:
    """Return the schema or name that `{"type": …}` wraps, else the schema itself."""
    while isinstance(one, dict):
        kind = one.get("type")
        if kind is None or (isinstance(kind, str) and kind in _KINDS):
            break
        one = kind
    return one


def _is_ignored(one: dict[str, Any]) -> bool:
    """Return whether a logical type annotates a type that it can't, or is an invalid decimal."""
    name, kind = one.get("logicalType"), one.get("type")
    if not isinstance(name, str) or name not in BASE_TYPES:
        return False
    if kind not in BASE_TYPES[name] or name != "decimal":
        return kind not in BASE_TYPES[name]
    digits, scale, size = one.get("precision"), one.get("scale", 0), one.get("size")
    if type(digits) is not int or type(scale) is not int or not 0 <= scale <= digits > 0:
        return True
    return type(size) is int and kind == "fixed" and digits > math.log10(2) * (8 * size - 1)


def _correct_default(field: dict[str, Any]) -> None:
    if "default" not in field:
        return
    default, kind = field["default"], field.get("type")
    if not _fits(default, kind):
        del field["default"]
    elif isinstance(kind, dict) and kind.get("type") in ("float", "double"):
        field["default"] = float(default)  # fastavro rejects integers such as 0 here


def _fits(default: Any, kind: Any) -> bool:
    """Return whether a default's JSON may belong to a type; True for a type used by name."""
    if isinstance(kind, list):
        return any(_fits(default, one) for one in kind)
    if isinstance(kind, dict):
        kind = kind.get("type")
    if kind in ("float", "double"):
        return type(default) in (int, float) and abs(default) < 1 << 1023
    wanted = _DEFAULTS.get(kind) if isinstance(kind, str) else None
    return wanted is None or type(default) is wanted


def _complete(parsed: Any, named: dict[str, Any]) -> Any:
    """Return a schema with the definition of each type in the place of its first use.

    fastavro only finds types that are defined elsewhere if the whole schema is a record.
    """
    root = [parsed]
    waiting: list[tuple[Any, Any]] = [(root, 0)]
    defined: set[str] = set()
    while waiting:
        holder, at = waiting.pop()
        one = holder[at]
        if isinstance(one, str):
            if one in defined or one not in named:
                continue
            one = named[one]
        places: list[tuple[Any, Any]] = []
        if isinstance(one, list):
            one = one.copy()
            places = [(one, number) for number in range(len(one))]
        elif one.get("name") in defined:
            one = one["name"]
        else:
            one = {key: value for key, value in one.items() if not key.startswith("__")}
            if "name" in one:
                defined.add(one["name"])
                if "." not in one["name"]:
                    one["namespace"] = ""  # otherwise it inherits the enclosing type's namespace
            if "fields" in one:
                one["fields"] = [field.copy() for field in one["fields"]]
                places = [(field, "type") for field in one["fields"]]
            places += [(one, inner) for inner in ("items", "values") if inner in one]
        holder[at] = one
        waiting += reversed(places)
    return root[0]

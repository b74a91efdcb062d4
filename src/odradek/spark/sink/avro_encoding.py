"""Write keys and values as Avro, in Confluent's wire format.

In: a column of the types that the source reads of the same schema. Out: bytes, written by fastavro.
Must not: write a number that doesn't fit its schema, or drop a column that the schema doesn't have:
both are errors before the first row is sent.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from odradek.serialization import (
    AvroSerializer,
    RegisteredSchema,
    Schema,
    SchemaRegistryClient,
)
from odradek.serialization.avro.parsing import parsed_avro
from odradek.serialization.schema_limits import named_types
from odradek.serialization.wire_format import SchemaId
from odradek.spark.checkpoint_errors import OptionError
from odradek.spark.registries import shared_client
from odradek.spark.sink.column_check import check_type
from odradek.spark.sink.encoding import Encoding, Write
from odradek.spark.sink.sink_errors import SinkSchemaError
from odradek.spark.values.avro_schema import avro_schema, texts_referred

if TYPE_CHECKING:
    import pyarrow as pa

MEMBER = "member"
"""Prefix of the fields of a union's struct, as in Spark."""
UUID_TEXT = re.compile("[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_Shape = Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class AvroEncoding(Encoding):
    """How a column is encoded as Avro."""

    text: str | None = None
    """Text of the schema, which the subject must contain; None: use the subject's `version`."""

    def chosen(self, registry: SchemaRegistryClient) -> RegisteredSchema:
        """Return the schema to write with. Raises `SchemaRegistryError`."""
        if self.text is None:
            return Encoding.chosen(self, registry)
        return registry.lookup_schema(self.subject, Schema(self.text))

    def writer(self, name: str, given: pa.DataType) -> Write:
        """Return the function that encodes a column; see `Encoding`."""
        from odradek.spark.values.schema import arrow_type

        registry = shared_client(self.query, self.settings)
        found = self.registered(registry)
        parsed = parsed_avro(found.schema, registry)
        others = texts_referred(found.schema, registry)
        whence = f"the schema of subject {self.subject}"
        try:
            read = avro_schema(found.schema.schema_str, whence, record=False, others=others)
        except OptionError as error:
            raise SinkSchemaError(str(error)) from None
        named = named_types(parsed)
        lacking = set(_lacking(parsed, named, name))
        check_type(arrow_type(read.spark), given, name, lacking.__contains__)
        shape = _shape(parsed, named)
        write = AvroSerializer(registry, found.schema).payload
        prefix = SchemaId(found.schema_id).prefix()
        return lambda value: prefix + write(value if shape is None else shape(value), parsed)


def _branches(parsed: list[Any]) -> list[Any]:
    """Return the types of a union other than null."""
    return [one for one in parsed if one != "null"]


def _is_struct(held: list[Any]) -> bool:
    """Return whether Spark represents a union as a struct with a member for each branch.

    A union of int and long is a long instead, and one of float and double a double.
    """
    return len(held) > 1 and set(held if all(isinstance(one, str) for one in held) else ()) not in (
        {"int", "long"},
        {"float", "double"},
    )


def _lacking(parsed: Any, named: Mapping[str, Any], where: str) -> Iterator[str]:
    """Yield the fields that a column needn't have: those with defaults, and members of unions."""
    if isinstance(parsed, str):
        if parsed in named:
            yield from _lacking(named[parsed], named, where)
    elif isinstance(parsed, list):
        held = _branches(parsed)
        for at, one in enumerate(held):
            place = f"{where}.{MEMBER}{at}" if _is_struct(held) else where
            yield place
            yield from _lacking(one, named, place)
    elif parsed["type"] in ("record", "error"):
        for one in parsed["fields"]:
            place = f"{where}.{one['name']}"
            if "default" in one:
                yield place
            yield from _lacking(one["type"], named, place)
    elif parsed["type"] in ("array", "map"):
        inner, of = ("items", "items") if parsed["type"] == "array" else ("values", "values")
        yield from _lacking(parsed[inner], named, f"{where}'s {of}")
    elif isinstance(parsed["type"], dict | list):
        yield from _lacking(parsed["type"], named, where)


def _shape(parsed: Any, named: Mapping[str, Any]) -> _Shape | None:
    """Return a function that converts Spark's value to fastavro's; None if they are equal.

    The two values differ for a union of several types, for which Spark has a struct with a member
    for each type, of which one is set. UUIDs are validated, because fastavro would write any text.
    """
    if isinstance(parsed, str):
        return _shape(named[parsed], named) if parsed in named else None
    if isinstance(parsed, list):
        return _union(parsed, named)
    if parsed["type"] in ("record", "error"):
        fields = {one["name"]: _shape(one["type"], named) for one in parsed["fields"]}
        changed = [(name, shape) for name, shape in fields.items() if shape is not None]
        lacking = {
            one["name"]: _default(one["type"], one["default"], named)
            for one in parsed["fields"]
            if "default" in one
        }
        return _record(changed, lacking) if changed or lacking else None
    if parsed["type"] == "array":
        item = _shape(parsed["items"], named)
        return None if item is None else lambda given: [_made(item, one) for one in given]
    if parsed["type"] == "map":
        value = _shape(parsed["values"], named)
        return None if value is None else lambda given: {k: _made(value, given[k]) for k in given}
    if parsed["type"] == "string" and parsed.get("logicalType") == "uuid":
        return _uuid
    return _shape(parsed["type"], named) if isinstance(parsed["type"], dict | list) else None


def _uuid(given: str) -> str:
    if UUID_TEXT.fullmatch(given) is None:
        raise ValueError("not an RFC 4122 UUID")
    return given


def _made(shape: _Shape, given: Any) -> Any:
    return None if given is None else shape(given)


def _record(changed: list[tuple[str, _Shape]], lacking: Mapping[str, Any]) -> _Shape:
    def made(given: dict[str, Any]) -> dict[str, Any]:
        more = {n: shape(given[n]) for n, shape in changed if given.get(n) is not None}
        return {**lacking, **given, **more}

    return made


def _default(parsed: Any, given: Any, named: Mapping[str, Any]) -> Any:
    """Return a default for fastavro, which would write the JSON text of bytes unchanged."""
    if isinstance(parsed, list):
        return _default(parsed[0], given, named)  # a union's default belongs to its first type
    if isinstance(parsed, str):
        if parsed in named:
            return _default(named[parsed], given, named)
        return given.encode("latin-1") if parsed == "bytes" else given
    kind = parsed["type"]
    if kind in ("record", "error"):
        own = {one["name"]: one["default"] for one in parsed["fields"] if "default" in one}
        types = {one["name"]: one["type"] for one in parsed["fields"]}
        return {n: _default(types[n], one, named) for n, one in {**own, **given}.items()}
    if kind == "array":
        return [_default(parsed["items"], one, named) for one in given]
    if kind == "map":
        return {key: _default(parsed["values"], one, named) for key, one in given.items()}
    if kind == "fixed":
        return given.encode("latin-1")
    return given if kind == "enum" else _default(kind, given, named)


def _union(parsed: list[Any], named: Mapping[str, Any]) -> _Shape | None:
    held = _branches(parsed)
    if not _is_struct(held):
        return _shape(held[0], named) if len(held) == 1 else None
    members = [(f"{MEMBER}{at}", _name(one), _shape(one, named)) for at, one in enumerate(held)]

    def made(given: dict[str, Any]) -> Any:
        there = [one for one in members if given.get(one[0]) is not None]
        if len(there) != 1:
            raise ValueError(f"{len(there)} members of a union are set instead of one")
        (member, name, shape) = there[0]
        value = given[member]
        return name, value if shape is None else shape(value)

    return made


def _name(branch: Any) -> str:
    """Return the name by which fastavro distinguishes a branch."""
    if isinstance(branch, str):
        return branch
    return str(branch.get("name", branch["type"]))

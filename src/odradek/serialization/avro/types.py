"""Arrow types of Avro schemas.

In: a schema as fastavro has parsed it. Out: the Arrow type of a column of its values. Must not:
guess: a union of several types has no column type.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from odradek.serialization.avro.parsing import BASE_TYPES
from odradek.serialization.avro.safe_schemas import LARGEST_DECIMAL128
from odradek.serialization.errors import InvalidSchemaError
from odradek.serialization.schema_limits import MOST_DIGITS, AvroLimits, named_types

if TYPE_CHECKING:
    import pyarrow as pa

DEEPEST = 64
"""Maximum nesting depth of types; a deeper schema counts as recursive."""
MOST_TYPES = 20_000
"""Maximum number of nested types of a column; each takes about 100 µs, and memory per call."""
LOGICAL_TYPES: dict[str, tuple[str, ...]] = {
    "date": ("date32",),
    "time-millis": ("time32", "ms"),
    "time-micros": ("time64", "us"),
    "timestamp-millis": ("timestamp", "ms", "UTC"),
    "timestamp-micros": ("timestamp", "us", "UTC"),
    "local-timestamp-millis": ("timestamp", "ms"),
    "local-timestamp-micros": ("timestamp", "us"),
}
"""By logical type (except decimals): pyarrow's function that creates its type, and arguments."""
LARGEST_DECIMAL256 = 76
"""Digits of Arrow's decimal256."""
TEXTS = f"Pass text_decimals=True (up to {MOST_DIGITS} digits). "


def arrow_type(parsed: Any, *, text_decimals: bool = False) -> pa.DataType:
    """Return the column type of a schema. Raises `InvalidSchemaError` if it has none.

    A record is a struct of nullable fields, an array a list, and a map a map with string keys.
    Enums and UUIDs are strings, fixed is binary of its size, and a union of null and another type
    is that type. Dates, times, timestamps (UTC; local ones without a zone) and decimals have
    Arrow's types. `text_decimals`: decimals that decimal128 can't hold are strings.
    """
    AvroLimits(parsed)
    return _Types(named_types(parsed), text_decimals=text_decimals).of(parsed, 0)


class _Types:
    """Creates one type; it may be huge for a short schema that repeats named types."""

    def __init__(self, named: dict[str, Any], *, text_decimals: bool) -> None:
        self._named, self._text_decimals = named, text_decimals
        self._made = 0

    def of(self, parsed: Any, depth: int) -> pa.DataType:
        self._made += 1
        if self._made > MOST_TYPES:
            raise _refused(f"it has more than {MOST_TYPES} nested types")
        if depth > DEEPEST:
            raise _refused("it is recursive")
        if isinstance(parsed, list):
            kinds = [one for one in parsed if one != "null"]
            if len(kinds) == 1:
                return self.of(kinds[0], depth + 1)
            raise _refused("it has a union of several types")
        if isinstance(parsed, str):
            return self._plain(parsed, depth)
        logical = self._logical(parsed)
        if logical is not None:
            return logical
        return self._compound(parsed["type"], parsed, depth + 1)

    def _compound(self, kind: Any, parsed: Any, depth: int) -> pa.DataType:
        import pyarrow as pa

        if kind in ("record", "error"):
            return pa.struct(
                [(one["name"], self.of(one["type"], depth)) for one in parsed["fields"]]
            )
        if kind == "array":
            return pa.list_(self.of(parsed["items"], depth))
        if kind == "map":
            return pa.map_(pa.string(), self.of(parsed["values"], depth))
        if kind == "enum":
            return pa.string()
        if kind == "fixed":
            return pa.binary(parsed["size"])
        return self.of(kind, depth)

    def _plain(self, kind: str, depth: int) -> pa.DataType:
        import pyarrow as pa

        plain = {
            "null": pa.null(),
            "boolean": pa.bool_(),
            "int": pa.int32(),
            "long": pa.int64(),
            "float": pa.float32(),
            "double": pa.float64(),
            "bytes": pa.binary(),
            "string": pa.string(),
        }
        found = plain.get(kind)
        if found is not None:
            return found
        if kind in self._named:
            return self.of(self._named[kind], depth + 1)
        raise _refused(f"the type {kind} is unknown")

    def _logical(self, parsed: dict[str, Any]) -> pa.DataType | None:
        """Return the Arrow type of a logical type; None if it doesn't annotate its base type."""
        import pyarrow as pa

        name, kind = parsed.get("logicalType"), parsed["type"]
        if kind not in BASE_TYPES.get(str(name), ()):
            return None
        if name != "decimal":
            made = LOGICAL_TYPES.get(str(name))
            return None if made is None else getattr(pa, made[0])(*made[1:])
        digits, scale = parsed["precision"], parsed.get("scale", 0)
        if digits <= LARGEST_DECIMAL128:
            return pa.decimal128(digits, scale)
        if self._text_decimals and digits <= MOST_DIGITS:
            return pa.string()
        if digits <= LARGEST_DECIMAL256:
            return pa.decimal256(digits, scale)
        raise _refused(f"it has a decimal of {digits} digits", TEXTS)


def _refused(why: str, cure: str = "") -> InvalidSchemaError:
    return InvalidSchemaError(
        f"the Avro schema has no equivalent Arrow type: {why}",
        None,
        f"{cure}Use a reader schema without this part, or read the records as objects.",
    )

"""Arrow types of JSON Schemas.

In: a schema as JSON. Out: the type of a column of its values; values without an Arrow type remain
strings of JSON. The types are the same as in Odradek's source for Spark. Must not: follow
references to other schemas, or loop in a schema that refers to itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from odradek.serialization.avro.types import MOST_TYPES
from odradek.serialization.errors import InvalidSchemaError

if TYPE_CHECKING:
    import pyarrow as pa

DEEPEST = 32
"""Maximum nesting depth of types; deeper values remain strings of JSON."""
_PLAIN = {"string": "string", "integer": "int64", "number": "float64", "boolean": "bool_"}
"""Names of pyarrow's type functions by JSON Schema type."""


def json_type(document: Any) -> pa.DataType:
    """Return the type of a column of values that a JSON Schema describes.

    An object with `properties` is a struct of them, an array with one kind of `items` a list;
    integers are `int64`, numbers `float64`; a union of null and one type is that type. All other
    schemas, such as objects without properties, are strings of JSON. Raises `InvalidSchemaError`
    for a schema with too many types.
    """
    return _Types(document).of(document, 0)


class _Types:
    """Converts one JSON Schema to an Arrow type; counts the types to limit their number."""

    def __init__(self, whole: Any) -> None:
        self._whole = whole
        self._made = 0

    def of(self, schema: Any, depth: int) -> pa.DataType:
        import pyarrow as pa

        self._made += 1
        if self._made > MOST_TYPES:
            raise InvalidSchemaError(f"the schema has more than {MOST_TYPES} types", None, "")
        schema = plain_schema(schema, self._whole)
        if not isinstance(schema, dict) or depth > DEEPEST:
            return pa.string()
        kind = schema.get("type")
        if isinstance(kind, list):
            kinds = [one for one in kind if one != "null"]
            kind = kinds[0] if len(kinds) == 1 else None
        properties = schema.get("properties")
        if kind in ("object", None) and isinstance(properties, dict) and properties:
            return pa.struct([(name, self.of(one, depth + 1)) for name, one in properties.items()])
        if kind == "array" and isinstance(schema.get("items"), dict):
            return pa.list_(self.of(schema["items"], depth + 1))
        made: pa.DataType = getattr(pa, _PLAIN.get(str(kind), "string"))()
        return made


def plain_schema(schema: Any, whole: Any) -> Any:
    """Follow a schema's `$ref`; replace a union of null and another schema by the other schema."""
    for _ in range(DEEPEST):
        if not isinstance(schema, dict):
            return schema
        pointer = schema.get("$ref")
        choices = schema.get("oneOf") or schema.get("anyOf")
        if isinstance(pointer, str) and pointer.startswith("#"):
            schema = whole
            for part in pointer.split("/")[1:]:
                name = part.replace("~1", "/").replace("~0", "~")
                schema = schema.get(name) if isinstance(schema, dict) else None
        elif isinstance(choices, list):
            there = [one for one in choices if one != {"type": "null"}]
            if len(there) != 1:
                return None
            schema = there[0]
        else:
            return schema
    return None

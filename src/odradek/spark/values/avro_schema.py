"""Translate a user's Avro schema to Spark's type, and to the forms with which its bytes are read.

In: the schema's JSON, from an option or a registry. Out: the `StructType` that Spark's Avro reader
creates for it, all fields nullable, and two plain forms for decoding. Must not: read values.

Each named type is written out where it is used, in a separate namespace, and without parts that
Arrow handles faster or for which fastavro is ambiguous; the encoding that it describes doesn't
change: logical types are left out (Arrow applies them to whole columns), a map is an array of its
entries, and each branch of a union of several types is a record with one field, which names the
branch.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from odradek.serialization.avro.types import MOST_TYPES
from odradek.serialization.registry.references import referred
from odradek.spark.checkpoint_errors import OptionError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import DataType

    from odradek.serialization import Schema, SchemaRegistryClient

MOST_DIGITS = 38
"""Maximum number of digits of Spark's and Arrow's decimals."""
BRANCH = "of_"
"""Prefix of the names of records that represent a union's branches."""
_GIVEN_DEFAULT = "odradek.default"
_PRIMITIVES = {
    "null": ("NullType", "null"),
    "boolean": ("BooleanType", "bool_"),
    "int": ("IntegerType", "int32"),
    "long": ("LongType", "int64"),
    "float": ("FloatType", "float32"),
    "double": ("DoubleType", "float64"),
    "bytes": ("BinaryType", "binary"),
    "string": ("StringType", "string"),
}
"""Names of the classes in pyspark and of the functions in pyarrow."""
_TIMES = {
    "timestamp-millis": ("TimestampType", "ms", "UTC"),
    "timestamp-micros": ("TimestampType", "us", "UTC"),
    "local-timestamp-millis": ("TimestampNTZType", "ms", None),
    "local-timestamp-micros": ("TimestampNTZType", "us", None),
}
_ONE_NUMBER = {frozenset(("int", "long")): "long", frozenset(("float", "double")): "double"}
"""Unions that Spark reads as the wider of their two types."""


@dataclass(frozen=True, slots=True)
class AvroSchema:
    """An Avro schema as parsed by fastavro, as a Spark type, and as an Arrow type."""

    parsed: Any
    """Schema that fastavro reads with."""
    spark: DataType
    raw: pa.DataType
    """Type of fastavro's values before they are converted to Spark's types."""


def texts_referred(schema: Schema, registry: SchemaRegistryClient) -> tuple[str, ...]:
    """Return the texts of all schemas that a schema references, as `avro_schema` takes them.

    Raises `SchemaRegistryError`.
    """
    return tuple(dict.fromkeys(one.schema.schema_str for _, one in referred(schema, registry)))


def avro_schema(
    text: str, where: str, *, record: bool = True, others: Sequence[str] = ()
) -> AvroSchema:
    """Parse a schema.

    `where` names its source, for errors. `record`: whether it must be a record. `others`: texts of
    the schemas that it references, in the order of their dependencies.
    """
    from fastavro.schema import SchemaParseException, UnknownType, parse_schema
    from pyspark.sql import types as t

    walk = _Walk(where)
    try:
        referred_to = [json.loads(one) for one in others]
        given = json.loads(text)
    except RecursionError:
        raise OptionError(f"{where} is nested too deeply") from None
    except ValueError as error:
        raise OptionError(f"{where} isn't JSON: {error}") from None
    try:
        for one in referred_to:
            walk.type(one, "", "")
        found = walk.type(given, "", "")
        is_record = isinstance(found.spark, t.StructType) and not isinstance(found.reading, list)
        if record and not is_record:
            raise OptionError(f"{where} must be a record schema")
        parsed: Any = parse_schema(found.reading)
    except RecursionError:
        raise OptionError(f"{where} is nested too deeply") from None
    except (SchemaParseException, UnknownType) as error:
        raise OptionError(f"{where} isn't a usable schema: {error}") from None
    _put_defaults(parsed)
    return AvroSchema(parsed, found.spark, found.raw)


def _put_defaults(parsed: Any) -> None:
    """Set the fields' defaults as values; fastavro would use the JSON as the value."""
    if isinstance(parsed, dict):
        if _GIVEN_DEFAULT in parsed:
            parsed["default"] = parsed.pop(_GIVEN_DEFAULT)
        for name, inner in parsed.items():
            if name != "default":
                _put_defaults(inner)
    elif isinstance(parsed, list):
        for inner in parsed:
            _put_defaults(inner)


def _same(given: Any) -> Any:
    return given


@dataclass(frozen=True, slots=True)
class _Type:
    """One type of a schema, in the forms that readers of its values need."""

    reading: Any
    spark: DataType
    raw: pa.DataType
    takes_bytes: bool = True
    """Whether each value takes at least one byte."""
    default: Callable[[Any], Any] = _same
    """Converts a default's JSON into a value."""


class _Walk:
    """Translation of one schema, recursively from its root."""

    def __init__(self, option: str) -> None:
        self._option = option
        self._named: dict[str, tuple[dict[str, Any], str]] = {}
        self._open: list[str] = []
        self._numbers = itertools.count(1)
        self._met = 0

    def type(self, schema: Any, space: str, where: str) -> _Type:
        """Read one type; `space` is the namespace around it."""
        self._met += 1
        if self._met > MOST_TYPES:
            raise self._wrong(where, f"there are more than {MOST_TYPES} nested types")
        if isinstance(schema, list):
            return self._union(schema, space, where)
        if isinstance(schema, str):
            if schema in _PRIMITIVES:
                return _primitive(schema, {})
            return self._known(schema, space, where)
        if not isinstance(schema, dict) or "type" not in schema:
            raise self._wrong(where, f"{json.dumps(schema)} isn't a type")
        kind = schema["type"]
        if "spark.sql.catalyst.type" in schema or schema.get("logicalType") == "custom-decimal":
            raise self._wrong(where, "Spark's own types (intervals) are not supported")
        if isinstance(kind, dict | list):
            return self.type(kind, space, where)
        if isinstance(kind, str) and kind in _PRIMITIVES:
            return self._with_digits(_primitive(kind, schema), schema, where)
        if kind == "array":
            return self._array(schema, space, where)
        if kind == "map":
            return self._map(schema, space, where)
        if kind in ("record", "enum", "fixed"):
            full = _full_name(schema, space)
            # The same type may be visited again if a type that contains it is referenced by name.
            if not full or self._named.get(full, (schema,))[0] is not schema:
                raise self._wrong(
                    where, f"{full} is defined twice" if full else f"a {kind} has no name"
                )
            self._named[full] = (schema, space)
            return self._definition(full, where)
        return self._known(kind, space, where)

    def _known(self, name: Any, space: str, where: str) -> _Type:
        candidates = (f"{space}.{name}", name) if space and "." not in str(name) else (name,)
        for full in candidates:
            if full in self._open:
                raise self._wrong(
                    where, f"the record {full} is recursive, which a Spark column can't represent"
                )
            if full in self._named:
                return self._definition(full, where)
        raise self._wrong(where, f"type {name!r} isn't defined")

    def _definition(self, full: str, where: str) -> _Type:
        schema, _ = self._named[full]
        kind = schema["type"]
        if kind == "record":
            self._open.append(full)
            found = self._record(schema, full.rpartition(".")[0], where)
            self._open.pop()
            return found
        import pyarrow as pa
        from pyspark.sql import types as t

        named = self._header(schema)
        if kind == "enum":
            symbols = schema.get("symbols")
            if not isinstance(symbols, list) or not all(isinstance(s, str) for s in symbols):
                raise self._wrong(where, f"the enum {full} needs a list of symbols")
            more = {"default": schema["default"]} if "default" in schema else {}
            return _Type({**named, "symbols": symbols, **more}, t.StringType(), pa.string())
        size = schema.get("size")
        if not isinstance(size, int) or size < 0:
            raise self._wrong(where, f"the fixed type {full} needs a size")
        plain = _Type({**named, "size": size}, t.BinaryType(), pa.binary(), size > 0, _latin)
        return self._with_digits(plain, schema, where)

    def _header(self, schema: dict[str, Any], name: str = "") -> dict[str, Any]:
        """Return the common fields of a named type: its own name, in a unique namespace.

        Readers' and writers' types are matched by names without namespaces.
        """
        made = {
            "type": schema["type"],
            "name": name or schema["name"].rpartition(".")[2],
            "namespace": f"t{next(self._numbers)}",
        }
        aliases = schema.get("aliases")
        if isinstance(aliases, list):
            made["aliases"] = [str(alias).rpartition(".")[2] for alias in aliases]
        return made

    def _record(self, schema: dict[str, Any], space: str, where: str) -> _Type:
        import pyarrow as pa
        from pyspark.sql import types as t

        name, fields = schema["name"], schema.get("fields")
        if not isinstance(fields, list) or not all(
            isinstance(f, dict) and isinstance(f.get("name"), str) and "type" in f for f in fields
        ):
            raise self._wrong(
                where, f"the record {name} needs a list of fields with names and types"
            )
        if not fields:
            raise self._wrong(where, f"the record {name} has no field")
        if len({field["name"] for field in fields}) < len(fields):
            raise self._wrong(where, f"the record {name} has two fields of the same name")
        types: dict[str, _Type] = {}
        reading: list[dict[str, Any]] = []
        defaults: dict[str, Any] = {}
        for field in fields:
            inside = f"{where}.{field['name']}" if where else field["name"]
            found = types[field["name"]] = self.type(field["type"], space, inside)
            made: dict[str, Any] = {"name": field["name"], "type": found.reading}
            if isinstance(field.get("aliases"), list):
                made["aliases"] = field["aliases"]
            if "default" in field:
                made[_GIVEN_DEFAULT] = defaults[field["name"]] = self._default(
                    found, field["default"], inside
                )
            reading.append(made)

        def default(given: Any) -> Any:
            return defaults | {key: types[key].default(value) for key, value in given.items()}

        return _Type(
            {**self._header(schema), "fields": reading},
            t.StructType([t.StructField(key, found.spark) for key, found in types.items()]),
            pa.struct([(key, found.raw) for key, found in types.items()]),
            any(found.takes_bytes for found in types.values()),
            default,
        )

    def _default(self, found: _Type, given: Any, where: str) -> Any:
        try:
            return found.default(given)
        except (TypeError, AttributeError, KeyError, ValueError):
            shown = json.dumps(given)
            raise self._wrong(
                where, f"the default {shown} doesn't match the field's type"
            ) from None

    def _array(self, schema: dict[str, Any], space: str, where: str) -> _Type:
        import pyarrow as pa
        from pyspark.sql import types as t

        item = self.type(schema.get("items"), space, where)
        if not item.takes_bytes:
            # An array of items without bytes could claim 2**60 items in ten bytes.
            raise self._wrong(where, "an array whose items take no bytes is not supported")
        return _Type(
            {"type": "array", "items": item.reading},
            t.ArrayType(item.spark),
            pa.list_(item.raw),
            default=lambda given: [item.default(each) for each in given],
        )

    def _map(self, schema: dict[str, Any], space: str, where: str) -> _Type:
        import pyarrow as pa
        from pyspark.sql import types as t

        value = self.type(schema.get("values"), space, where)
        entry = self._header({"type": "record"}, "entry")
        entry["fields"] = [
            {"name": "key", "type": "string"},
            {"name": "value", "type": value.reading},
        ]
        return _Type(
            {"type": "array", "items": entry},
            t.MapType(t.StringType(), value.spark),
            pa.list_(pa.struct([("key", pa.string()), ("value", value.raw)])),
            default=lambda given: [
                {"key": key, "value": value.default(each)} for key, each in given.items()
            ],
        )

    def _union(self, schema: list[Any], space: str, where: str) -> _Type:
        branches = [(each, self.type(each, space, where)) for each in schema]
        if any(isinstance(found.reading, list) for _, found in branches):
            raise self._wrong(where, "a union can't contain another union")
        held = [(each, found) for each, found in branches if found.reading != "null"]
        if not held:
            raise self._wrong(where, "a union with null as its only type is not supported")
        names = [found.reading for _, found in held]
        plain = all(isinstance(name, str) for name in names)
        wider = _ONE_NUMBER.get(frozenset(names)) if plain and len(names) == 2 else None
        if wider or len(held) == 1:
            inner = _primitive(wider, {}) if wider else held[0][1]
            first = branches[0][1].default
            return _Type(
                [found.reading for _, found in branches], inner.spark, inner.raw, default=first
            )
        return self._members(branches, where)

    def _members(self, branches: list[tuple[Any, _Type]], where: str) -> _Type:
        import pyarrow as pa
        from pyspark.sql import types as t

        held = [found for _, found in branches if found.reading != "null"]
        names = [f"member{n}" for n in range(len(held))]
        reading: list[Any] = []
        member = iter(names)
        for _, found in branches:
            if found.reading == "null":
                reading.append("null")
                continue
            field: dict[str, Any] = {"name": next(member), "type": found.reading}
            # The reader's union may have its branches in another order, so that the field of the
            # same branch has another name there: the aliases make them match.
            field["aliases"] = names
            branch = f"{BRANCH}{_kind(found)}"
            reading.append({**self._header({"type": "record"}, branch), "fields": [field]})
        kinds = [_kind(found) for found in held]
        if len(set(kinds)) < len(kinds):
            raise self._wrong(
                where, f"a union has two branches of the same name ({', '.join(kinds)})"
            )
        first = branches[0][1]
        return _Type(
            reading,
            t.StructType([t.StructField(n, f.spark) for n, f in zip(names, held, strict=True)]),
            pa.struct([(n, f.raw) for n, f in zip(names, held, strict=True)]),
            default=lambda given: None if given is None else {"member0": first.default(given)},
        )

    def _with_digits(self, plain: _Type, schema: dict[str, Any], where: str) -> _Type:
        """Mark bytes that are a valid decimal; by Avro's rules, invalid ones are plain bytes."""
        if schema.get("logicalType") != "decimal" or schema["type"] not in ("bytes", "fixed"):
            return plain
        digits, scale = schema.get("precision"), schema.get("scale", 0)
        if not isinstance(digits, int) or not isinstance(scale, int) or not 0 <= scale <= digits:
            return plain
        room = math.inf
        if schema["type"] == "fixed":
            room = math.floor(math.log10(2) * (8 * schema["size"] - 1))
        if not 0 < digits <= room:
            return plain
        if digits > MOST_DIGITS:
            raise self._wrong(
                where, f"Spark's decimals have at most {MOST_DIGITS} digits, not {digits}"
            )
        from pyspark.sql.types import DecimalType

        spark = DecimalType(digits, scale)
        return _Type(plain.reading, spark, plain.raw, plain.takes_bytes, plain.default)

    def _wrong(self, where: str, why: str) -> OptionError:
        return OptionError(f"{self._option}: {f'field {where}: ' if where else ''}{why}")


def _primitive(name: str, schema: dict[str, Any]) -> _Type:
    import pyarrow as pa
    from pyspark.sql import types as t

    spark, raw = _PRIMITIVES[name]
    kind, logical = getattr(pa, raw)(), schema.get("logicalType")
    if name == "int" and logical == "date":
        spark = "DateType"
    elif name == "long" and isinstance(logical, str) and logical in _TIMES:
        spark, unit, zone = _TIMES[logical]
        kind = pa.timestamp(unit, zone)
    return _Type(
        name, getattr(t, spark)(), kind, name != "null", _latin if name == "bytes" else _same
    )


def _kind(found: _Type) -> str:
    """Return the kind of a type; each branch of a union must have a different kind."""
    if isinstance(found.reading, str):
        return found.reading
    plain = "map" if found.spark.typeName() == "map" else found.reading["type"]
    return str(found.reading.get("name", plain))


def _latin(given: str) -> bytes:
    return given.encode("latin-1")


def _full_name(schema: dict[str, Any], space: str) -> str:
    name = schema.get("name")
    if not isinstance(name, str) or not name:
        return ""
    if "." in name:
        return name
    around = schema.get("namespace", space)
    return f"{around}.{name}" if around else name

"""Arrow types of Protobuf messages, and the conversion of their values.

In: a message's descriptor. Out: the type of its column, and a function that converts a message to a
Python value for it. The types are the same as in Odradek's source for Spark. Must not: loop in a
recursive message, which a column can't represent.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from odradek.serialization.avro.types import DEEPEST, MOST_TYPES
from odradek.serialization.errors import InvalidSchemaError

if TYPE_CHECKING:
    import pyarrow as pa

TIMESTAMP = "google.protobuf.Timestamp"
MOST_SECONDS = 9_223_372_036_853
"""Maximum number of seconds whose microseconds fit in 64 bits."""
UNSIGNED = ("UINT64", "FIXED64")
_PLAIN = {
    "INT32": "int32", "SINT32": "int32", "SFIXED32": "int32",
    "INT64": "int64", "SINT64": "int64", "SFIXED64": "int64",
    "UINT32": "int64", "FIXED32": "int64",
    "FLOAT": "float32", "DOUBLE": "float64", "BOOL": "bool_",
    "STRING": "string", "ENUM": "string", "BYTES": "binary",
}  # fmt: skip
"""Names of pyarrow's type functions by Protobuf type, except messages and 64-bit unsigned."""


@dataclass(frozen=True, slots=True)
class ProtobufType:
    """The Arrow type of a message or field, and the function that converts its values."""

    kind: pa.DataType
    value: Callable[[Any], Any]


def protobuf_type(descriptor: Any, *, empty: bool = True) -> ProtobufType:
    """Return the type of a column of this message. Raises `InvalidSchemaError` if it has none.

    A message is a struct of its fields, in the order of their declaration. A field that isn't set
    is null if the message can tell, otherwise it has its default. A map is a map, an enum its name
    (or digits, for a number without a name), an unsigned number has the next larger type
    (`decimal128(20)` for 64 bits), and `google.protobuf.Timestamp` is in microseconds in UTC. With
    `empty`, messages without fields are allowed in it.
    """
    return _Types(empty).struct(descriptor, ())


def is_map(field: Any) -> bool:
    """Return whether a field is a map, which Protobuf declares as repeated entry messages."""
    inner = field.message_type
    return inner is not None and bool(inner.GetOptions().map_entry)


def is_timestamp(descriptor: Any) -> bool:
    """Return whether a message is the real `google.protobuf.Timestamp`, by name and fields."""
    if descriptor.full_name != TIMESTAMP:
        return False
    found = [
        (one.number, one.name, type_name(one), one.is_repeated)
        for one in sorted(descriptor.fields, key=lambda field: field.number)
    ]
    return found == [(1, "seconds", "INT64", False), (2, "nanos", "INT32", False)]


def type_name(field: Any) -> str:
    """Return Protobuf's name of a field's type, such as `INT32` or `MESSAGE`."""
    from google.protobuf.descriptor_pb2 import FieldDescriptorProto

    return str(FieldDescriptorProto.Type.Name(field.type)).removeprefix("TYPE_")


class _Types:
    """Types of one column."""

    def __init__(self, empty: bool) -> None:
        self._empty = empty
        self._made = 0

    def struct(self, descriptor: Any, around: tuple[str, ...]) -> ProtobufType:
        import pyarrow as pa

        name = descriptor.full_name
        if name in around:
            raise InvalidSchemaError(
                f"the message {name} is recursive, which a column can't represent", None, ""
            )
        if len(around) > DEEPEST:
            raise InvalidSchemaError(
                f"messages are nested more than {DEEPEST} levels deep", None, ""
            )
        columns = []
        for one in descriptor.fields:
            self._made += 1
            if self._made > MOST_TYPES:
                raise InvalidSchemaError(f"the message has more than {MOST_TYPES} types", None, "")
            columns.append((one, self._field(one, (*around, name))))
        if not columns and not self._empty:
            raise InvalidSchemaError(f"the message {name} has no field", None, "")

        def value(message: Any) -> dict[str, Any]:
            return {
                one.name: None
                if one.has_presence and not message.HasField(one.name)
                else column.value(getattr(message, one.name))
                for one, column in columns
            }

        return ProtobufType(pa.struct([(one.name, c.kind) for one, c in columns]), value)

    def _field(self, one: Any, around: tuple[str, ...]) -> ProtobufType:
        import pyarrow as pa

        if is_map(one):
            key = self._single(one.message_type.fields_by_name["key"], around)
            item = self._single(one.message_type.fields_by_name["value"], around)
            return ProtobufType(
                pa.map_(key.kind, item.kind),
                lambda found: {key.value(each): item.value(found[each]) for each in found},
            )
        single = self._single(one, around)
        if not one.is_repeated:
            return single
        return ProtobufType(
            pa.list_(single.kind), lambda found: [single.value(each) for each in found]
        )

    def _single(self, one: Any, around: tuple[str, ...]) -> ProtobufType:
        """Return the type of a field's single value, even if the field is repeated."""
        import pyarrow as pa

        if one.message_type is not None:
            if is_timestamp(one.message_type):
                return ProtobufType(pa.timestamp("us", "UTC"), _micros)
            return self.struct(one.message_type, around)
        kind = type_name(one)
        if kind in UNSIGNED:
            return ProtobufType(pa.decimal128(20, 0), Decimal)
        if kind == "ENUM":
            names = enum_names(one.enum_type)
            return ProtobufType(pa.string(), lambda found: names.get(found, str(found)))
        return ProtobufType(getattr(pa, _PLAIN[kind])(), lambda found: found)


def enum_names(enum: Any) -> dict[int, str]:
    """Return the name of each number of an enum; for aliases, the name that Protobuf writes."""
    return {number: each.name for number, each in enum.values_by_number.items()}


def _micros(found: Any) -> int:
    """Return a timestamp in microseconds. Raises `ValueError` for one that columns can't hold."""
    if abs(found.seconds) > MOST_SECONDS:
        raise ValueError(f"a column can't represent the timestamp {found.seconds} s")
    return int(found.seconds * 1_000_000 + found.nanos // 1000)

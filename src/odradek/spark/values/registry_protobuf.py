"""Protobuf keys and values whose schemas a registry has, as columns.

In: a column of framed Protobuf. Out: a struct column of one message's fields; what other versions
of the message have besides is left out, and what they lack has its default, as Protobuf says.
Must not: take bytes of another message for this one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from odradek.common.errors import IllegalStateError
from odradek.serialization import (
    DeserializationError,
    InvalidSchemaError,
    SchemaNotFoundError,
    SchemaRegistryClient,
)
from odradek.serialization.protobuf_messages import messages_at
from odradek.serialization.wire_format import SchemaId, schema_of
from odradek.spark.problems import OptionError
from odradek.spark.values.decoding import ValueDecodeError
from odradek.spark.values.protobuf_files import described, message_named

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import DataType, StructType

TIMESTAMP = "google.protobuf.Timestamp"
MOST_SECONDS = 9_223_372_036_853
"""Seconds whose microseconds have 64 bits."""
_PLAIN = {
    "INT32": "IntegerType", "SINT32": "IntegerType", "SFIXED32": "IntegerType",
    "INT64": "LongType", "SINT64": "LongType", "SFIXED64": "LongType",
    "UINT32": "LongType", "FIXED32": "LongType",
    "FLOAT": "FloatType", "DOUBLE": "DoubleType", "BOOL": "BooleanType",
    "STRING": "StringType", "ENUM": "StringType", "BYTES": "BinaryType",
}  # fmt: skip
UNSIGNED = ("UINT64", "FIXED64")


@dataclass(frozen=True, slots=True)
class RegistryProtobufFormat:
    """How a column is decoded; plain data, so it travels to tasks."""

    settings: Mapping[str, Any] = field(repr=False)
    """Of the registry's client; not in repr, since they may hold a secret."""
    subject: str
    """Whose latest version has the message."""
    message: str | None = None
    """Its full name; None: the file's first."""
    files: tuple[bytes, ...] = ()
    """Descriptors of the file and of those that it imports, which come before it."""
    corrupt: str | None = None
    """The field that gets the bytes of what doesn't fit."""
    fail_fast: bool = False

    def resolved(self) -> RegistryProtobufFormat:
        """The same with the message's file. Raises `SchemaRegistryError` and `OptionError`."""
        registry = SchemaRegistryClient(self.settings)
        files = described(registry.get_latest_version(self.subject), registry)
        found = replace(self, files=files)
        found.schema()  # whether it can be used
        return found

    def descriptor(self) -> Any:
        """What Protobuf knows of the message. Raises `OptionError`."""
        if not self.files:
            raise IllegalStateError("the message's file isn't looked up yet")
        return message_named(self.files, self.message, self.subject)

    def schema(self) -> DataType:
        """Give the type of the decoded column."""
        from pyspark.sql import types as t

        found = message_type(self.descriptor())
        if self.corrupt is None:
            return found
        if self.corrupt in found.fieldNames():
            raise OptionError(
                f"option columnNameOfCorruptRecord is {self.corrupt}, which is a field already"
            )
        return t.StructType([*found.fields, t.StructField(self.corrupt, t.BinaryType())])

    def decoder(self, target: pa.StructType) -> RegistryProtobufDecoder:
        """Make what decodes the values of one task."""
        return RegistryProtobufDecoder(target, self)


def message_type(descriptor: Any) -> StructType:
    """The type of a column of this message. Raises `OptionError` where there is none."""
    found: StructType = _struct(descriptor, ()).kind
    return found


@dataclass(frozen=True, slots=True)
class _Column:
    """A field's type, and what makes a value of Python's of it."""

    kind: Any
    value: Callable[[Any], Any]


def _struct(descriptor: Any, around: tuple[str, ...]) -> _Column:
    from pyspark.sql import types as t

    name = descriptor.full_name
    if name in around:
        raise OptionError(f"the message {name} holds itself, which no column of Spark can do")
    columns = [(one, _field(one, (*around, name))) for one in descriptor.fields]
    if not columns:
        raise OptionError(f"the message {name} has no field")

    def value(message: Any) -> dict[str, Any]:
        return {
            one.name: None
            if one.has_presence and not message.HasField(one.name)
            else column.value(getattr(message, one.name))
            for one, column in columns
        }

    return _Column(t.StructType([t.StructField(one.name, c.kind) for one, c in columns]), value)


def _field(one: Any, around: tuple[str, ...]) -> _Column:
    from pyspark.sql import types as t

    inner = one.message_type
    if inner is not None and inner.GetOptions().map_entry:
        key = _single(inner.fields_by_name["key"], around)
        item = _single(inner.fields_by_name["value"], around)
        return _Column(
            t.MapType(key.kind, item.kind),
            lambda found: [(key.value(each), item.value(found[each])) for each in found],
        )
    single = _single(one, around)
    if not one.is_repeated:
        return single
    return _Column(t.ArrayType(single.kind), lambda found: [single.value(each) for each in found])


def _single(one: Any, around: tuple[str, ...]) -> _Column:
    """Of one value, repeated or not."""
    from google.protobuf.descriptor_pb2 import FieldDescriptorProto
    from pyspark.sql import types as t

    if one.message_type is not None:
        if one.message_type.full_name == TIMESTAMP:
            return _Column(t.TimestampType(), _micros)
        return _struct(one.message_type, around)
    kind = FieldDescriptorProto.Type.Name(one.type).removeprefix("TYPE_")
    if kind in UNSIGNED:
        from decimal import Decimal

        return _Column(t.DecimalType(20, 0), Decimal)
    if kind == "ENUM":
        names = {number: each.name for number, each in one.enum_type.values_by_number.items()}
        return _Column(t.StringType(), lambda found: names.get(found, str(found)))
    return _Column(getattr(t, _PLAIN[kind])(), lambda found: found)


def _micros(found: Any) -> int:
    """A timestamp's microseconds. Raises `ValueError` for one that Spark can't hold."""
    if abs(found.seconds) > MOST_SECONDS:
        raise ValueError(f"a timestamp of {found.seconds} s is none that Spark can hold")
    return int(found.seconds * 1_000_000 + found.nanos // 1000)


class RegistryProtobufDecoder:
    """Decodes a column of one task; each schema is asked for once in a process."""

    def __init__(self, target: pa.StructType, form: RegistryProtobufFormat) -> None:
        from google.protobuf.message_factory import GetMessageClass

        descriptor = form.descriptor()
        self._registry = SchemaRegistryClient(form.settings)
        self._target, self._form = target, form
        self._name, self._class = descriptor.full_name, GetMessageClass(descriptor)
        self._value = _struct(descriptor, ()).value
        self._checked: dict[SchemaId, str | None] = {}
        """What is wrong with the message that a schema and its indexes mean."""
        self.bad: dict[int, str] = {}

    def decode(self, values: pa.Array) -> pa.Array:
        """Give the struct of each value; null where one is null, a struct of nulls where it is bad.

        Raises `ValueDecodeError` with FAILFAST, and `SchemaRegistryError` where the registry can't
        be asked.
        """
        import pyarrow as pa

        from odradek.spark.values.schema import nullable_struct

        self.bad = {}
        rows: list[Any] = []
        for row, data in enumerate(values.to_pylist()):
            try:
                rows.append(None if data is None else self._read(data))
            except (DeserializationError, ValueError) as error:
                self.bad[row] = str(error)
                rows.append(None if self._form.corrupt is None else {self._form.corrupt: data})
        if self.bad and self._form.fail_fast:
            raise ValueDecodeError(*next(iter(self.bad.items())))
        return nullable_struct(pa.array(rows, self._target), values)

    def _read(self, data: bytes) -> dict[str, Any]:
        from google.protobuf.message import DecodeError

        of, at = schema_of(data, indexed=True)
        if of not in self._checked:
            self._checked[of] = self._wrong(of)
        why = self._checked[of]
        if why is not None:
            raise DeserializationError(why)
        message = self._class()
        try:
            message.ParseFromString(data[at:])
        except DecodeError as error:
            raise DeserializationError(f"it isn't a {self._name}: {error}") from None
        return self._value(message)  # type: ignore[no-any-return]  # a struct's is a dict

    def _wrong(self, of: SchemaId) -> str | None:
        if of.id is None:
            return "it names its schema by GUID, which columns don't know"
        try:
            names = messages_at(self._registry.get_schema(of.id), of.indexes or (0,))
        except (SchemaNotFoundError, InvalidSchemaError) as error:
            return str(error)
        if self._name in names:
            return None
        said = " or ".join(sorted(names)) or f"message {list(of.indexes or ())}, of none"
        return f"its schema {of.id} says that it is {said}, not {self._name}"

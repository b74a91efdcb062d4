"""Keys and values written as Protobuf by the descriptors that a registry has.

In: a column of the types that the source reads of the same message. Out: bytes, in Confluent's wire
format. Must not: write a field that the message doesn't have, or choose between several of a oneof;
a null is a field that isn't there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from odradek.serialization import SchemaRegistryClient
from odradek.serialization.protobuf import message_indexes
from odradek.serialization.protobuf_types import TIMESTAMP, UNSIGNED
from odradek.serialization.wire_format import SchemaId
from odradek.spark.problems import OptionError
from odradek.spark.sink.column_check import check_type
from odradek.spark.sink.encoding import Encoding, Write
from odradek.spark.sink.sink_problems import SinkSchemaError
from odradek.spark.values.registry_protobuf import files_of, message_of, message_type

if TYPE_CHECKING:
    import pyarrow as pa

MICROS = 1_000_000
_Shape = Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class ProtobufEncoding(Encoding):
    """How a column is written as Protobuf."""

    message: str | None = None
    """Its full name; None: the file's first."""

    def writer(self, name: str, given: pa.DataType) -> Write:
        """Make what writes a column; see `Encoding`."""
        from google.protobuf.message_factory import GetMessageClass

        from odradek.spark.values.schema import arrow_type

        registry = SchemaRegistryClient(self.settings)
        found = self.registered(registry)
        try:
            descriptor = message_of(files_of(found, registry), self.message, self.subject)
            wanted = arrow_type(message_type(descriptor))
        except OptionError as error:
            raise SinkSchemaError(str(error)) from None
        check_type(wanted, given, name, lambda _: True)
        shape, made = _message(descriptor), GetMessageClass(descriptor)
        prefix = SchemaId(found.schema_id, None, message_indexes(descriptor)).prefix()
        return lambda value: prefix + made(**shape(value)).SerializeToString()


def _message(descriptor: Any) -> _Shape:
    """What makes the arguments of a message's class of a struct."""
    shapes = {one.name: _field(one) for one in descriptor.fields}
    choices = [{one.name for one in choice.fields} for choice in descriptor.oneofs]

    def made(given: dict[str, Any]) -> dict[str, Any]:
        there = {n: shapes[n](one) for n, one in given.items() if one is not None}
        for choice in choices:  # a message would keep the one that it is given last
            if len(choice & there.keys()) > 1:
                raise ValueError("several fields of a oneof are there")
        return there

    return made


def _field(one: Any) -> _Shape:
    inner = one.message_type
    if inner is not None and inner.GetOptions().map_entry:
        item = _single(inner.fields_by_name["value"])
        key = _single(inner.fields_by_name["key"])
        return lambda given: {key(each): item(given[each]) for each in given}
    single = _single(one)
    return (lambda given: [single(each) for each in given]) if one.is_repeated else single


def _single(one: Any) -> _Shape:
    from google.protobuf.descriptor_pb2 import FieldDescriptorProto

    if one.message_type is not None:
        return _timestamp if one.message_type.full_name == TIMESTAMP else _message(one.message_type)
    kind = FieldDescriptorProto.Type.Name(one.type).removeprefix("TYPE_")
    if kind in UNSIGNED:
        return int
    if kind == "ENUM":
        # A number that the enum has no name for is read as its digits.
        return lambda given: int(given) if given.lstrip("-").isdecimal() else given
    return lambda given: given


def _timestamp(given: Any) -> dict[str, int]:
    """A moment as the fields of `google.protobuf.Timestamp`."""
    from datetime import UTC, datetime, timedelta

    micros = (given - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
    seconds, rest = divmod(micros, MICROS)
    return {"seconds": seconds, "nanos": rest * 1000}

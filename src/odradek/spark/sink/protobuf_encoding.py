"""Write keys and values as Protobuf with the descriptors of a registry.

In: a column of the types that the source reads of the same message. Out: bytes, in Confluent's wire
format. Must not: write a field that the message doesn't have, or choose between several fields of a
oneof; a null means that the field isn't set.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from odradek.serialization.protobuf.serializers import message_indexes
from odradek.serialization.protobuf.shapes import message_shape
from odradek.serialization.wire_format import SchemaId
from odradek.spark.checkpoint_errors import OptionError
from odradek.spark.registries import shared_client
from odradek.spark.sink.column_check import check_type
from odradek.spark.sink.encoding import Encoding, Write
from odradek.spark.sink.sink_errors import SinkSchemaError
from odradek.spark.values.registry_protobuf import files_of, message_of, message_type

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class ProtobufEncoding(Encoding):
    """How a column is encoded as Protobuf."""

    message: str | None = None
    """Its full name; None: the file's first."""

    def writer(self, name: str, given: pa.DataType) -> Write:
        """Return the function that encodes a column; see `Encoding`."""
        from google.protobuf.message_factory import GetMessageClass

        from odradek.spark.values.schema import arrow_type

        registry = shared_client(self.query, self.settings)
        found = self.registered(registry)
        try:
            descriptor = message_of(files_of(found, registry), self.message, self.subject)
            wanted = arrow_type(message_type(descriptor))
        except OptionError as error:
            raise SinkSchemaError(str(error)) from None
        check_type(wanted, given, name, lambda _: True)
        shape, made = message_shape(descriptor), GetMessageClass(descriptor)
        prefix = SchemaId(found.schema_id, None, message_indexes(descriptor)).prefix()
        return lambda value: prefix + made(**shape(value)).SerializeToString()

"""Write keys and values as JSON with a JSON Schema, in Confluent's wire format.

In: a column of any type. Out: the bytes that Spark's `to_json` returns, framed. Each value is
validated with its schema. Must not: round a number: decimals keep all of their digits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from odradek.common.errors import ConfigurationError
from odradek.serialization import JSONSerializer
from odradek.serialization.json.serializers import json_of
from odradek.serialization.json.shapes import JsonShapes
from odradek.serialization.wire_format import SchemaId
from odradek.spark.registries import shared_client
from odradek.spark.sink.encoding import Encoding, Write
from odradek.spark.sink.sink_errors import SinkSchemaError

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class JsonEncoding(Encoding):
    """How a column is encoded as JSON."""

    def writer(self, name: str, given: pa.DataType) -> Write:
        """Return the function that encodes a column; see `Encoding`."""
        registry = shared_client(self.query, self.settings)
        found = self.registered(registry)
        schema, prefix = found.schema, SchemaId(found.schema_id).prefix()
        document = json_of(schema)
        try:
            shape = JsonShapes(document).of(given, document, name)
        except ConfigurationError as error:
            raise SinkSchemaError(str(error)) from None
        write = JSONSerializer(schema, registry).payload
        return lambda value: prefix + write(shape(value), schema)

"""Decode JSON values that begin with the id of a schema in a registry.

In: a column of framed JSON. Out: a struct column by option valueSchema or the subject's JSON
Schema, by the rules of Spark's `from_json`. Must not: validate values with their JSON Schema, or
contact the registry in a task: JSON can be read without the schema that it was written with.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from odradek.common.errors import IllegalStateError
from odradek.serialization import InvalidSchemaError, SchemaRegistryClient
from odradek.serialization.json.types import json_type
from odradek.serialization.registry.rules import READ, check_rules
from odradek.serialization.registry.schemas import JSON
from odradek.serialization.wire_format import ID_SIZE
from odradek.spark.checkpoint_errors import OptionError
from odradek.spark.values.decoding import CORRUPT, JsonDecoder, ValueDecodeError
from odradek.spark.values.value_schema import value_schema

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import DataType, StructType

UNFRAMED = "the value doesn't start with a zero byte and a 4-byte schema id"


@dataclass(frozen=True, slots=True)
class RegistryJsonFormat:
    """How a column of framed JSON is decoded; can be pickled for tasks."""

    settings: Mapping[str, Any] = field(repr=False)
    """Settings of the registry's client; not in repr, since they may contain a secret."""
    subject: str
    """Subject whose latest version defines the fields, unless `schema_text` does."""
    schema_text: str | None = None
    """Schema in the form of option valueSchema; None until `resolved` has looked it up."""
    corrupt: bool = False
    """Whether a field receives the text of values that can't be decoded."""
    fail_fast: bool = False

    def resolved(self) -> RegistryJsonFormat:
        """Return the same format with the fields, looked up in the registry if not given.

        Raises `SchemaRegistryError`, and `OptionError` for a schema without fields.
        """
        found = self
        if self.schema_text is None:
            latest = SchemaRegistryClient(self.settings).get_latest_version(self.subject)
            check_rules(latest.schema, READ)
            whence = f"version {latest.version} of subject {self.subject}"
            if latest.schema.schema_type != JSON:
                raise OptionError(f"{whence} has type {latest.schema.schema_type}, not JSON")
            fields = struct_of(latest.schema.schema_str, whence)
            found = replace(self, schema_text=fields.json())
        found.schema()  # only checks the schema
        return found

    def schema(self) -> DataType:
        """Return the type of the decoded column."""
        from pyspark.sql import types as t

        if self.schema_text is None:
            raise IllegalStateError("the fields haven't been looked up yet")
        found = value_schema(self.schema_text)
        if self.corrupt and CORRUPT not in found.fieldNames():
            return t.StructType([*found.fields, t.StructField(CORRUPT, t.StringType())])
        return found

    def decoder(self, target: pa.StructType) -> RegistryJsonDecoder:
        """Return the decoder for the values of one task."""
        return RegistryJsonDecoder(target, fail_fast=self.fail_fast)


class RegistryJsonDecoder:
    """Decodes the framed JSON values of one task."""

    def __init__(self, target: pa.StructType, *, fail_fast: bool) -> None:
        self._json = JsonDecoder(target, fail_fast=False)
        self._target, self._fail_fast = target, fail_fast
        self.bad: dict[int, str] = {}

    def decode(self, values: pa.Array) -> pa.Array:
        """Return a struct for each value; null for a null value.

        Raises `ValueDecodeError` with FAILFAST.
        """
        import pyarrow as pa
        import pyarrow.compute as pc

        size = pc.binary_length(values)
        zero = pc.starts_with(values, pattern=b"\0")
        framed = pc.and_(pc.greater_equal(size, ID_SIZE), zero)
        # Don't use binary_slice, which fails for some columns with short values.
        rest = pc.binary_replace_slice(values, 0, ID_SIZE, b"")
        payload = pc.if_else(framed, rest, pa.scalar(None, values.type))
        # from_json treats an empty text as none, and no serializer writes one.
        empty = pc.and_(framed, pc.equal(size, ID_SIZE))
        found = self._json.decode(payload)
        bad = {at: UNFRAMED for at, one in enumerate(framed.to_pylist()) if one is False}
        bad |= {at: "the JSON text is empty" for at, one in enumerate(empty.to_pylist()) if one}
        self.bad = dict(sorted((bad | self._json.bad).items()))
        if self.bad and self._fail_fast:
            raise ValueDecodeError(*next(iter(self.bad.items())))
        if not bad:
            return found
        columns = found.flatten()
        for at, one in enumerate(self._target):
            if one.name == CORRUPT:
                texts = columns[at].to_pylist()
                for row in bad:
                    texts[row] = values[row].as_py().decode(errors="replace")
                columns[at] = pa.array(texts, one.type)
        return pa.StructArray.from_arrays(columns, fields=list(self._target), mask=values.is_null())


def struct_of(text: str, whence: str) -> StructType:
    """Return the Spark type of a JSON Schema; fields without a type of their own are JSON text.

    Raises `OptionError`.
    """
    from pyspark.sql.pandas.types import from_arrow_type
    from pyspark.sql.types import StructType

    try:
        found = from_arrow_type(json_type(json.loads(text)))
    except (ValueError, RecursionError) as error:
        raise OptionError(f"{whence} isn't JSON: {error}") from None
    except InvalidSchemaError as error:
        raise OptionError(f"{whence}: {error}") from None
    if not isinstance(found, StructType):
        raise OptionError(
            f"{whence} doesn't describe an object with properties: set valueSchema, or leave "
            "keyFormat out to read keys as bytes"
        )
    return found

"""Avro with a schema registry: records as dicts, framed as Confluent's serializers do.

In: objects, or bytes with a schema's id. Out: bytes, or objects. fastavro encodes and decodes; with
a reader's schema, records of older and newer schemas are converted to it (schema evolution). Must
not: ignore bytes after the value.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from typing import Any

from odradek.common.errors import ConfigurationError
from odradek.common.secret import private
from odradek.serialization.avro.parsing import parsed_avro
from odradek.serialization.avro.reading import AvroReading, is_bytes
from odradek.serialization.avro.safe_schemas import guarded
from odradek.serialization.context import SerializationContext
from odradek.serialization.errors import SchemaRegistryError, SerializationError
from odradek.serialization.extras import fastavro
from odradek.serialization.framing import (
    READING,
    WRITING,
    Framer,
    FromDict,
    ToDict,
    Unframer,
    read_settings,
)
from odradek.serialization.registry.client import SchemaRegistryClient
from odradek.serialization.registry.schema_cache import Kept, kept
from odradek.serialization.registry.schemas import AVRO, RegisteredSchema, Schema
from odradek.serialization.schema_limits import check_written, may_nest
from odradek.serialization.wire_format import ID_SIZE, schema_of


def given_schema(schema: str | Schema, kind: str) -> Schema:
    """Return the schema that a program passed. Raises `ConfigurationError` if it isn't one."""
    if not isinstance(schema, str | Schema):
        raise ConfigurationError(
            f"schema_str must be a string or a Schema, not {type(schema).__name__}"
        )
    return schema if isinstance(schema, Schema) else Schema(schema, kind)


def given_function(name: str, function: Any) -> Any:
    """Return the program's `to_dict` or `from_dict`, or None. Raises `ConfigurationError`."""
    if function is not None and not callable(function):
        raise ConfigurationError(
            f"{name} must be a function, not {type(function).__name__}; pass settings as conf="
        )
    return function


def _name(parsed: Any) -> str | None:
    """Return the full name of a record; None for other types."""
    return parsed.get("name") if isinstance(parsed, dict) else None


def _with_bytes(value: Any) -> Any:
    """Return a value with bytes in place of bytearrays and memoryviews, which fastavro rejects."""
    if isinstance(value, bytearray | memoryview):
        return bytes(value)
    if isinstance(value, Mapping):
        return {name: _with_bytes(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return (list if isinstance(value, list) else tuple)(map(_with_bytes, value))
    return value


class AvroSerializer:
    r"""Serialize objects to Avro, framed with their schema id.

    `schema_str`: an Avro schema as a string, or a `Schema` (with references); None with
    `use.latest.version`.
    `to_dict(obj, context)`: converts an object to a value that Avro can write: a dict for a record.
    `conf`: `auto.register.schemas` (false: the schema must be registered already),
    `use.latest.version` (false), `normalize.schemas` (false), `subject.name.strategy` (TOPIC,
    RECORD, TOPIC_RECORD, or a function), `schema.id.location` (prefix; header writes the schema's
    GUID to a header instead).

    Call it with an object and a `SerializationContext`; None returns None. Raises
    `SerializationError`, and `SchemaRegistryError` if the schema isn't available.

    >>> serialize = AvroSerializer(registry, '"string"', conf={"auto.register.schemas": True})
    >>> serialize("JFK", SerializationContext("flights", MessageField.VALUE))
    b'\x00\x00\x00\x00\x01\x06JFK'
    """

    @private
    def __init__(
        self,
        schema_registry_client: SchemaRegistryClient,
        schema_str: str | Schema | None = None,
        to_dict: ToDict | None = None,
        conf: Mapping[str, Any] | None = None,
    ) -> None:
        """Check schema and settings without connecting to the registry."""
        self._framer = Framer(schema_registry_client, read_settings(conf, WRITING))
        self._registry = schema_registry_client
        self._to_dict = given_function("to_dict", to_dict)
        self._write = fastavro().schemaless_writer
        self._schema: Schema | None = None
        self._parsed: Kept[Schema, Any] = Kept(self._framer.cache)
        self._guarded: dict[int, tuple[Any, Any, bool]] = {}
        """By id() of a schema: that schema, its copy for fastavro, and whether values may be nested
        too deeply."""
        if schema_str is not None:
            self._schema = given_schema(schema_str, AVRO)
        elif not self._framer.takes_latest:
            raise SerializationError("schema_str is required unless use.latest.version is true")

        if self._schema is not None and not self._schema.references:
            self._parsed_of(self._schema)

    def __call__(self, obj: Any, ctx: SerializationContext | None = None) -> bytes | None:
        """Serialize an object; return None for None."""
        return None if obj is None else self.checked(obj, ctx, None)

    def checked(
        self, obj: Any, ctx: SerializationContext | None, check: Callable[[Any, Any], None] | None
    ) -> bytes:
        """Serialize an object that isn't None, after an additional check.

        `check(value, schema)`, if given, is called with the value after `to_dict` and the parsed
        schema, and raises an error to reject the value.
        """
        found = self._registered(ctx)
        parsed = self._parsed_of(found.schema)
        value = obj if self._to_dict is None else self._to_dict(obj, ctx)
        if check is not None:
            check(value, parsed)
        return self._framer.framed(self.payload(value, parsed), found, ctx)

    def payload(self, value: Any, parsed: Any) -> bytes:
        """Return a value as Avro, without framing."""
        if is_bytes(parsed):
            if not isinstance(value, bytes | bytearray | memoryview):
                raise SerializationError(
                    f"the schema has type bytes, but the value is a {type(value).__name__}"
                )
            return bytes(value)
        found = self._guarded.get(id(parsed))
        if found is None:
            made = (parsed, guarded(parsed), may_nest(parsed))
            found = kept(self._guarded, id(parsed), made)
        if found[2]:
            check_written(value)
        stream = io.BytesIO()
        try:
            try:
                self._write(stream, found[1], value)
            except (TypeError, ValueError):
                stream = io.BytesIO()
                self._write(stream, found[1], _with_bytes(value))
        # fastavro may raise any exception for a program's value.
        except Exception as error:
            raise SerializationError(
                f"the data doesn't match its Avro schema: {type(error).__name__}: {error}"
            ) from error
        return stream.getvalue()

    def _registered(self, ctx: SerializationContext | None) -> RegisteredSchema:
        schema = self._schema
        name = None if schema is None else _name(self._parsed_of(schema))
        return self._framer.registered(self._framer.subject(ctx, name), lambda: schema)

    def _parsed_of(self, schema: Schema) -> Any:
        known = self._parsed.known()
        found = known.get(schema)
        if found is None:
            try:
                found = kept(known, schema, parsed_avro(schema, self._registry))
            except SchemaRegistryError as error:
                raise error.blameless() from error.__cause__
        return found


class AvroDeserializer:
    """Deserialize framed Avro to dicts and other Python values.

    `schema_str`: the reader schema, with which records of all versions are read. If None, each
    record is read with its writer schema, or with `use.latest.version` as the subject's latest
    version.
    `from_dict(value, context)`: converts the value to an object.
    `return_record_name`: return a record in a union as a pair of its name and value.

    Logical types become Python objects, as in fastavro: `datetime`, `date`, `time`, `Decimal`,
    `UUID`.

    Call it with bytes and a `SerializationContext`; None returns None. Raises
    `DeserializationError`, and `SchemaRegistryError` if the schema isn't available.
    """

    @private
    def __init__(
        self,
        schema_registry_client: SchemaRegistryClient,
        schema_str: str | Schema | None = None,
        from_dict: FromDict | None = None,
        return_record_name: bool = False,
        conf: Mapping[str, Any] | None = None,
    ) -> None:
        """Check schema and settings without connecting to the registry."""
        self._unframer = Unframer(schema_registry_client, read_settings(conf, READING))
        self._registry = schema_registry_client
        self._from_dict = given_function("from_dict", from_dict)
        self._names = return_record_name
        self._reading = AvroReading()
        self._reader: Schema | None = None
        if schema_str is not None:
            self._reader = given_schema(schema_str, AVRO)
        self._writers: Kept[bytes, tuple[Any, Schema]] = Kept(self._unframer.cache)
        self._parsed: Kept[Schema, Any] = Kept(self._unframer.cache)
        if self._reader is not None and not self._reader.references:
            self._wanted(None, None, self._reader)

    def __call__(self, data: bytes | None, ctx: SerializationContext | None = None) -> Any:
        """Deserialize bytes to an object; return None for None."""
        if data is None:
            return None
        data = bytes(data)  # the program may pass a bytearray
        prefix, at = data[:ID_SIZE], ID_SIZE
        writers = self._writers.known()
        known = None if ctx is not None and ctx.headers else writers.get(prefix)
        if known is None:
            of, at = schema_of(data, ctx)
            schema = self._unframer.schema(of)
            known = self._parsed_of(schema), schema
            if at == ID_SIZE:
                kept(writers, prefix, known)
        written = known[0]
        found = self._decoded(data[at:], written, self._wanted(ctx, *known))
        return found if self._from_dict is None else self._from_dict(found, ctx)

    def _wanted(self, ctx: SerializationContext | None, written: Any, schema: Schema) -> Any:
        """Return the reader schema."""
        try:
            if self._reader is not None:
                return self._parsed_of(self._reader)
            if self._unframer.takes_latest:
                return self._parsed_of(self._unframer.latest(ctx, _name(written), schema))
        except SchemaRegistryError as error:
            raise error.blameless() from error.__cause__
        return None

    def _decoded(self, payload: bytes, written: Any, wanted: Any) -> Any:
        if is_bytes(written):
            return payload
        return self._reading.value(payload, written, wanted, self._names)

    def _parsed_of(self, schema: Schema) -> Any:
        known = self._parsed.known()
        found = known.get(schema)
        if found is None:
            found = kept(known, schema, parsed_avro(schema, self._registry))
        return found

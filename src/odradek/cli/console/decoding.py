"""Decode bytes of a key or value: text, JSON, Avro, Protobuf, numbers.

In: the word of `--decode-key` or `--decode-value`, for Avro a schema's file, or a schema registry.
Out: a function from bytes to a plain value, and that value's text.
"""

from __future__ import annotations

import base64
import json
import math
import struct
from collections.abc import Callable
from datetime import date, time, timedelta
from decimal import Decimal
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID

from odradek.cli.console.properties import read_text, refuse
from odradek.cli.console.waiting import REGISTRY, telling_at_first
from odradek.common.errors import ConfigurationError

if TYPE_CHECKING:
    from odradek.serialization.registry.client import SchemaRegistryClient

Decoder = Callable[[bytes], Any]
_REGISTRY = "--formatter-property schema.registry.url=URL"


class Decoding(StrEnum):
    """Values of `--decode-key` and `--decode-value`."""

    JSON = "json"
    AVRO = "avro"
    PROTOBUF = "protobuf"
    STRING = "string"
    HEX = "hex"
    INT = "int"
    LONG = "long"
    NONE = "none"


class WireFormat(StrEnum):
    """Header before an Avro value: none, or the header of Confluent's serializers."""

    PLAIN = "plain"
    CONFLUENT = "confluent"


class FormatError(Exception):
    """A record can't be decoded or formatted as requested."""


def registry_of(settings: dict[str, str]) -> SchemaRegistryClient | None:
    """Return the registry's client, and remove its settings from `settings`."""
    from odradek.serialization.registry.client import SchemaRegistryClient
    from odradek.serialization.registry.settings import NAMES

    own = {name: settings.pop(name) for name in NAMES if name in settings}
    try:
        return SchemaRegistryClient(own) if own else None
    except ConfigurationError as error:
        refuse(str(error))


def decoder(
    kind: Decoding | None,
    schema: Path | None,
    form: WireFormat,
    *,
    part: str,
    registry: SchemaRegistryClient | None = None,
) -> Decoder | None:
    """Return the decoder of a part ("key" or "value"); None leaves the bytes unchanged.

    With a registry, Avro, JSON and Protobuf are decoded by the schema id in each record.
    """
    if registry is not None and kind in REGISTERED:
        if schema is not None:
            refuse(f"--{part}-schema and schema.registry.url can't be given together")
        return _registered(kind, registry)
    if schema is not None and kind is not Decoding.AVRO:
        refuse(f"--{part}-schema needs --decode-{part} avro")
    if kind is None or kind is Decoding.NONE:
        return None
    if kind is Decoding.PROTOBUF:
        refuse(f"--decode-{part} protobuf needs a schema registry: {_REGISTRY}")
    if kind is Decoding.AVRO:
        if schema is None:
            refuse(
                f"--decode-{part} avro needs --{part}-schema FILE: an Avro schema, as JSON; or "
                + _REGISTRY
            )
        return _avro(schema, form)
    return _DECODERS[kind]


def as_bytes(value: Any) -> bytes:
    """Return the output for a decoded value: strings unchanged, all other values as JSON."""
    if isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode("utf-8", "surrogatepass")
    return json.dumps(plain(value), ensure_ascii=False).encode("utf-8", "surrogatepass")


def plain(value: Any) -> Any:
    """Convert a value for JSON; bytes that aren't UTF-8 become `{"base64": …}`."""
    if isinstance(value, dict):
        return {str(name): plain(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    if isinstance(value, bytes):
        return bytes_or_text(value)
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, date | time):
        return value.isoformat()
    if isinstance(value, Decimal | UUID | timedelta):
        return str(value)
    return value


def bytes_or_text(data: bytes) -> str | dict[str, str]:
    """Convert bytes for JSON: to a text if they are UTF-8, else to `{"base64": …}`."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


def _json(data: bytes) -> Any:
    try:
        return json.loads(data)
    except RecursionError:
        raise FormatError("JSON: it is nested too deeply") from None
    except ValueError as error:
        why = (
            f"it starts with a zero byte, as in Confluent's wire format: use {_REGISTRY}"
            if data[:1] == b"\0"
            else error
        )
        raise FormatError(f"JSON: {why}") from None


def _registered(kind: Decoding, registry: SchemaRegistryClient) -> Decoder:
    from odradek.common.errors import MissingExtraError
    from odradek.serialization.errors import (
        DeserializationError,
        SchemaRegistryError,
        blames_record,
    )

    name, reader = REGISTERED[kind]
    try:
        read = reader(registry)
    except MissingExtraError as error:
        refuse(str(error))

    def decode(data: bytes) -> Any:
        try:
            return read(data)
        except (DeserializationError, SchemaRegistryError) as error:
            if not blames_record(error):
                raise
            raise FormatError(f"{name}: {error}") from None

    return telling_at_first(decode, REGISTRY)


def _registered_avro(registry: SchemaRegistryClient) -> Decoder:
    from odradek.serialization.avro.serializers import AvroDeserializer

    return AvroDeserializer(registry)


def _registered_json(registry: SchemaRegistryClient) -> Decoder:
    from odradek.serialization.json.serializers import JSONDeserializer

    return JSONDeserializer(None, None, registry, {"validate": False})


def _registered_protobuf(registry: SchemaRegistryClient) -> Decoder:
    """Return a decoder to Protobuf's JSON mapping, with default values, as in Confluent's tool."""
    from odradek.serialization.errors import DeserializationError
    from odradek.serialization.extras import protobuf
    from odradek.serialization.protobuf.files import message_of
    from odradek.serialization.registry.schema_cache import kept
    from odradek.serialization.wire_format import SchemaId, schema_of

    protobuf()
    from google.protobuf.json_format import MessageToDict
    from google.protobuf.message_factory import GetMessageClass

    classes: dict[SchemaId, Any] = {}

    def read(data: bytes) -> Any:
        of, at = schema_of(data, indexed=True)
        made = classes.get(of)
        if made is None:
            made = GetMessageClass(message_of(of, registry))
            kept(classes, of, made)
        message = made()
        try:
            message.ParseFromString(data[at:])
            return MessageToDict(message, always_print_fields_with_no_presence=True)
        except Exception as error:  # Protobuf raises several classes
            raise DeserializationError(
                f"not a valid {message.DESCRIPTOR.full_name}: {error}"
            ) from None

    return read


REGISTERED: dict[Decoding, tuple[str, Callable[[SchemaRegistryClient], Decoder]]] = {
    Decoding.AVRO: ("Avro", _registered_avro),
    Decoding.JSON: ("JSON", _registered_json),
    Decoding.PROTOBUF: ("Protobuf", _registered_protobuf),
}
"""Formats that are read with a schema registry: name and reader."""


def _number(name: str, code: str) -> Decoder:
    size = struct.calcsize(code)

    def decode(data: bytes) -> int:
        if len(data) != size:
            raise FormatError(f"{name} needs {size} bytes, not {len(data)}")
        return int(struct.unpack(code, data)[0])

    return decode


def _avro(path: Path, form: WireFormat) -> Decoder:
    from odradek.common.errors import MissingExtraError
    from odradek.serialization.avro.parsing import parsed_document
    from odradek.serialization.avro.reading import AvroReading
    from odradek.serialization.errors import DeserializationError, InvalidSchemaError
    from odradek.serialization.wire_format import schema_of

    try:
        schema = parsed_document(json.loads(read_text(path)))
    except MissingExtraError:
        refuse("Avro needs the package fastavro: pip install 'odradek[avro]'")
    except (ValueError, RecursionError) as error:
        refuse(f"{path} isn't an Avro schema: {type(error).__name__}: {error}")
    except InvalidSchemaError as error:
        refuse(f"{path}: {error}")
    framed, reading = form is WireFormat.CONFLUENT, AvroReading()

    def decode(data: bytes) -> Any:
        begin = 0
        if framed:
            try:
                _, begin = schema_of(data)
            except DeserializationError as error:
                raise FormatError(f"Avro: {error}") from None
        try:
            return reading.value(data[begin:], schema)
        except (DeserializationError, InvalidSchemaError) as error:
            raise FormatError(f"Avro: {error}{_hint(data)}") from None

    def _hint(data: bytes) -> str:
        if framed or data[:1] != b"\0":
            return ""
        return (
            " (it starts with a zero byte, as in Confluent's wire format: use --avro-wire-format "
            "confluent)"
        )

    return decode


_DECODERS: dict[Decoding, Decoder] = {
    Decoding.JSON: _json,
    Decoding.STRING: lambda data: data.decode(errors="replace"),
    Decoding.HEX: bytes.hex,
    Decoding.INT: _number("int", ">i"),
    Decoding.LONG: _number("long", ">q"),
}

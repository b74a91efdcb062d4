"""Encode lines of JSON as Avro, JSON with a schema, or Protobuf, with a schema registry.

In: the value of `--encode-key` or `--encode-value`, optionally a schema file, a registry. Out: a
function from the bytes of a line to the bytes of a record. Must not: register a schema without
`auto.register.schemas`.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from odradek.cli.console.lines import LineError, ParsedLine
from odradek.cli.console.properties import read_text, refuse
from odradek.cli.console.waiting import REGISTRY, telling_at_first

if TYPE_CHECKING:
    from odradek.serialization.context import SerializationContext
    from odradek.serialization.registry.client import SchemaRegistryClient

Encoder = Callable[[bytes], bytes]
PARTS = ("key", "value")
SERIALIZERS = (
    "auto.register.schemas",
    "use.latest.version",
    "normalize.schemas",
    "subject.name.strategy",
)
"""Settings of serializers, except those of the registry client."""
SETTINGS = (*SERIALIZERS, "key.message", "value.message")
"""All settings; *.message is the full name of a Protobuf message (default: the file's first)."""
_WELL_KNOWN = "google.protobuf."
"""Package of messages with a special JSON form: a Timestamp is a text, for example."""
_BASE64 = re.compile("[A-Za-z0-9+/_-]*={0,2}")
_REGISTRY = "--reader-property schema.registry.url=URL"


class LineFormat(StrEnum):
    """Values of `--encode-key` and `--encode-value`."""

    AVRO = "avro"
    JSON = "json"
    PROTOBUF = "protobuf"


class LineEncoder:
    """Encodes key and value of a line; a part without an encoder is unchanged."""

    def __init__(self, encoders: Mapping[str, Encoder]) -> None:
        self._encoders = encoders

    def __call__(self, line: ParsedLine) -> ParsedLine:
        """Return the line with its parts encoded; null remains null. Raises `LineError`."""
        made: dict[str, Any] = {}
        for part, encode in self._encoders.items():
            data = getattr(line, part)
            if data is not None:
                made[part] = encode(data)
        return replace(line, **made) if made else line


def line_encoder(
    params: Mapping[str, Any],
    settings: dict[str, str],
    registry: SchemaRegistryClient | None,
    topic: str,
) -> LineEncoder:
    """Return the encoder for the flags; removes the serializers' settings from `settings`."""
    conf = {name: settings.pop(name) for name in SERIALIZERS if name in settings}
    messages = {part: settings.pop(f"{part}.message", None) for part in PARTS}
    wanted = {part: params.get(f"encode_{part}") for part in PARTS}
    for part, kind in wanted.items():
        if kind is None and params.get(f"{part}_schema") is not None:
            refuse(f"--{part}-schema needs --encode-{part} avro or json")
        if messages[part] is not None and kind is not LineFormat.PROTOBUF:
            refuse(f"{part}.message needs --encode-{part} protobuf")
        if kind is not None and registry is None:
            refuse(f"--encode-{part} {kind.value} needs a schema registry: {_REGISTRY}")
    if registry is None or not any(wanted.values()):
        if registry is not None or conf:
            refuse("schema.registry.url and its settings need --encode-key or --encode-value")
        return LineEncoder({})
    if wanted["key"] is not None and settings.get("parse.key", "").strip().lower() != "true":
        refuse("--encode-key needs --reader-property parse.key=true: otherwise lines have no keys")
    encoded = [part for part in PARTS if wanted[part] is not None]
    if _registers(conf) and not any(params.get(f"{part}_schema") for part in encoded):
        refuse(
            "auto.register.schemas=true needs the schema to register: "
            + " or ".join(f"--{part}-schema FILE" for part in encoded)
            + ", for avro or json"
        )
    made: dict[str, Encoder] = {}
    for part, kind in wanted.items():
        if kind is not None:
            schema = _schema(kind, params.get(f"{part}_schema"), messages[part], part)
            made[part] = _encoder(kind, schema, conf, registry, topic, part)
    return LineEncoder(made)


def _registers(conf: Mapping[str, str]) -> bool:
    return conf.get("auto.register.schemas", "").lower() == "true"


def _schema(kind: LineFormat, path: Path | None, message: str | None, part: str) -> str | None:
    """Return the schema's text or the Protobuf message's name; None: the latest schema."""
    if kind is LineFormat.PROTOBUF:
        if path is not None:
            refuse(
                f"--{part}-schema is only for avro and json: protobuf uses the registered schema"
            )
        return message
    if path is None:
        return None
    return read_text(path)


def _encoder(
    kind: LineFormat,
    schema: str | None,
    conf: Mapping[str, str],
    registry: SchemaRegistryClient,
    topic: str,
    part: str,
) -> Encoder:
    from odradek.common.errors import KafkaError
    from odradek.serialization.context import MessageField, SerializationContext

    if (schema is None or kind is LineFormat.PROTOBUF) and "use.latest.version" not in conf:
        without = "auto.register.schemas" if _registers(conf) else ""  # no schema to register
        conf = {name: conf[name] for name in conf if name != without} | {
            "use.latest.version": "true"
        }
    try:
        write = _WRITERS[kind](registry, schema, conf)
    except KafkaError as error:  # e.g. for a missing schema or package
        refuse(str(error))
    context = SerializationContext(topic, MessageField(part))

    def encode(data: bytes) -> bytes:
        value = _value(data, part)
        try:
            return write(value, context) or b""
        except KafkaError as error:
            raise LineError(f"the {part} can't be encoded as {kind.value}: {error}") from None

    return telling_at_first(encode, REGISTRY)


def _value(data: bytes, part: str) -> Any:
    def constant(name: str) -> NoReturn:
        raise ValueError(f"{name} is not JSON")

    def number(text: str) -> float:
        found = float(text)
        if math.isinf(found):
            raise ValueError(f"the number {text[:20]} is too large")
        return found

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            twice = Counter(name for name, _ in pairs).most_common(1)[0][0]
            raise ValueError(f"duplicate name {twice[:60]!r} in an object")
        return found

    try:
        value = json.loads(
            data, parse_constant=constant, parse_float=number, object_pairs_hook=once
        )
    except RecursionError:
        raise LineError(f"the {part} is nested too deeply") from None
    except ValueError as error:
        raise LineError(f"the {part} isn't JSON: {_fault(data, error)}") from None
    if value is None:
        raise LineError(
            f"the {part} is JSON's null; for a record with a null {part}, write the text of "
            "null.marker"
        )
    return value


def _fault(data: bytes, error: ValueError) -> str:
    """Return JSON's error without its line number, which would confuse: it is always 1."""
    if not data.strip():
        return "it is empty"
    if isinstance(error, json.JSONDecodeError):
        return f"{error.msg} at column {error.pos + 1}"
    return str(error)


Writer = Callable[[Any, "SerializationContext"], bytes | None]


def _avro(registry: SchemaRegistryClient, schema: str | None, conf: Mapping[str, str]) -> Writer:
    from odradek.cli.console.avro_lines import AvroLines

    return AvroLines(registry, schema, conf=conf)


def _json(registry: SchemaRegistryClient, schema: str | None, conf: Mapping[str, str]) -> Writer:
    from odradek.serialization.json.serializers import JSONSerializer

    return JSONSerializer(schema, registry, conf=conf)


def _protobuf(registry: SchemaRegistryClient, name: str | None, conf: Mapping[str, str]) -> Writer:
    """Return a writer from Protobuf's JSON mapping, by the latest registered file.

    Without a name, the first message of the file is written.
    """
    from odradek.serialization.errors import SerializationError
    from odradek.serialization.extras import protobuf
    from odradek.serialization.framing import WRITING, Framer, read_settings
    from odradek.serialization.protobuf.files import described, message_named
    from odradek.serialization.protobuf.serializers import message_indexes
    from odradek.serialization.registry.schema_cache import kept

    protobuf()
    from google.protobuf.json_format import ParseDict
    from google.protobuf.message_factory import GetMessageClass

    framer = Framer(registry, read_settings(conf, WRITING))
    classes: dict[int, Any] = {}

    def write(value: Any, context: SerializationContext) -> bytes:
        subject = framer.subject(context, None)
        found = framer.registered(subject, lambda: None)
        made = classes.get(found.schema_id)
        if made is None:
            files = described(found.schema, found.schema_id, f"{subject}.proto", registry)
            named = message_named(files, name, f"subject {subject}")
            made = kept(classes, found.schema_id, GetMessageClass(named))
        whole = made.DESCRIPTOR.full_name
        if not isinstance(value, dict) and not whole.startswith(_WELL_KNOWN):
            raise SerializationError(f"not a valid {whole}: it must be an object")
        try:
            _check_base64(value, made.DESCRIPTOR)
            # Only serializing reports a missing required field.
            payload = ParseDict(value, made()).SerializeToString()
        except Exception as error:  # Protobuf's or Python's for a wrong type
            why = " ".join(str(error).split())  # the error's text may have several lines
            raise SerializationError(f"not a valid {whole}: {why}") from None
        return framer.framed(payload, found, context, message_indexes(made.DESCRIPTOR))

    return write


def _check_base64(value: Any, descriptor: Any) -> None:
    """Raise `ValueError` for invalid base64, because Protobuf would skip invalid characters."""
    if not isinstance(value, dict):
        return
    fields = {name: one for one in descriptor.fields for name in (one.json_name, one.name)}
    for name, given in value.items():
        field = fields.get(name)
        if field is None:
            continue
        items, inner = given if isinstance(given, list) else [given], field.message_type
        if inner is not None and inner.GetOptions().map_entry and isinstance(given, dict):
            field = inner.fields_by_name["value"]
            items, inner = list(given.values()), field.message_type
        for one in items:
            if inner is not None and inner.full_name != "google.protobuf.BytesValue":
                _check_base64(one, inner)
            elif inner is None and field.type != field.TYPE_BYTES:
                break
            elif isinstance(one, str) and not _BASE64.fullmatch(one):
                raise ValueError(f"{name} is of type bytes, which must be base64")


_WRITERS: dict[
    LineFormat, Callable[[SchemaRegistryClient, str | None, Mapping[str, str]], Writer]
] = {LineFormat.AVRO: _avro, LineFormat.JSON: _json, LineFormat.PROTOBUF: _protobuf}

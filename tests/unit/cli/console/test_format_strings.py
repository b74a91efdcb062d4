"""Test kcat's format strings, and the decoding of keys and values (Avro, JSON, Protobuf)."""

from __future__ import annotations

import io
import json
import struct
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fastavro
import pytest
from google.protobuf import any_pb2
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from tests.registry_server import registry_server
from tests.unit.cli.console.test_formatting import BARE, HOSTILE, RECORD

from odradek.cli.console.decoding import (
    Decoding,
    FormatError,
    WireFormat,
    as_bytes,
    decoder,
    registry_of,
)
from odradek.cli.console.format_strings import TOKENS, FormatString
from odradek.cli.console.formatting import JsonFormatter, RecordFormatter
from odradek.cli.console.properties import UsageError
from odradek.serialization import (
    MessageField,
    ProtobufSerializer,
    Schema,
    SchemaRegistryClient,
    SerializationContext,
)

PLAIN = WireFormat.PLAIN
REGISTERING = {"auto.register.schemas": True}
SCHEMA = {
    "type": "record",
    "name": "flight",
    "fields": [
        {"name": "origin", "type": "string"},
        {"name": "miles", "type": "int"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "raw", "type": "bytes"},
    ],
}


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (r"%t [%p] %o: %k=%s\n", b"t [3] 42: k=v\n"),
        (r"%K %S %T %h\t%%\x41\\\0\r", b"1 1 1700000000000 a=1,b=\t%A\\\0\r"),
        ("", b""),
        ("ü%s", "üv".encode()),
    ],
)
def test_a_format_string_is_applied_to_a_record(text: str, line: bytes) -> None:
    assert FormatString(text).line(RECORD) == line


def test_missing_keys_and_values_are_printed_as_empty_and_their_sizes_as_minus_1() -> None:
    assert FormatString(r"%k|%s|%K|%S|%h|%T").line(BARE) == b"||-1|-1||-1"
    assert FormatString("%k %s", null=b"NULL").line(BARE) == b"NULL NULL"


def test_every_token_of_kcats_format_strings_is_supported() -> None:
    for letter in TOKENS:
        assert FormatString(f"%{letter}").line(RECORD)


def test_control_characters_of_records_are_escaped_in_formatted_output() -> None:
    """R-IN-3: the format string may contain control characters, but data of records may not."""
    shown = FormatString(r"\x1b%k%h%s\n", escaped=True).line(HOSTILE)
    assert shown.startswith(b"\x1b")
    assert shown[1:-1].decode().replace("\t", "").isprintable()


@pytest.mark.parametrize(
    ("kind", "data", "found", "text"),
    [
        (Decoding.JSON, b'{"a": [1, "\xc3\xbc"]}', {"a": [1, "ü"]}, '{"a": [1, "ü"]}'),
        (Decoding.JSON, b'"a"', "a", "a"),
        (Decoding.STRING, b"a\xff", "a\ufffd", "a\ufffd"),
        (Decoding.HEX, b"\x00\xff", "00ff", "00ff"),
        (Decoding.INT, struct.pack(">i", -7), -7, "-7"),
        (Decoding.LONG, struct.pack(">q", 2**40), 2**40, str(2**40)),
    ],
)
def test_a_value_is_decoded_for_each_kind_of_output(
    kind: Decoding, data: bytes, found: Any, text: str
) -> None:
    decode = decoder(kind, None, PLAIN, part="value")
    assert decode is not None
    assert decode(data) == found
    assert as_bytes(found).decode() == text
    record = RECORD._replace(value=data)
    assert RecordFormatter({}, None, decode).line(record).decode() == f"{text}\n"
    assert FormatString("%s", None, decode).line(record).decode() == text
    assert json.loads(JsonFormatter(None, decode).line(record))["value"] == found


@pytest.mark.parametrize(
    ("kind", "data", "says"),
    [
        (Decoding.JSON, b"{", "JSON: Expecting property name"),
        (Decoding.JSON, b"\xff", "JSON: "),
        (Decoding.JSON, b"9" * 5000, "JSON: Exceeds the limit"),
        (Decoding.JSON, b"[" * 100_000, "JSON: it is nested too deep"),
        (Decoding.INT, b"123", "int needs 4 bytes, not 3"),
        (Decoding.LONG, b"1234", "long needs 8 bytes, not 4"),
    ],
)
def test_data_that_cannot_be_decoded_raises_an_error(
    kind: Decoding, data: bytes, says: str
) -> None:
    decode = decoder(kind, None, PLAIN, part="value")
    assert decode is not None
    with pytest.raises(FormatError, match=says):
        decode(data)


def test_without_a_decode_flag_the_bytes_are_unchanged() -> None:
    assert decoder(Decoding.NONE, None, PLAIN, part="key") is None
    assert decoder(None, None, PLAIN, part="key") is None


@pytest.fixture
def schema(tmp_path: Path) -> Path:
    place = tmp_path / "flight.avsc"
    place.write_text(json.dumps(SCHEMA))
    return place


def datum() -> bytes:
    stream = io.BytesIO()
    flight = {"origin": "JFK", "miles": 1400, "at": 1000, "raw": b"\xff"}
    fastavro.schemaless_writer(stream, SCHEMA, flight)
    return stream.getvalue()


@pytest.mark.parametrize(
    ("form", "header"), [(PLAIN, b""), (WireFormat.CONFLUENT, b"\0\0\0\0\x07")], ids=str
)
def test_avro_data_is_decoded_with_and_without_confluents_header(
    schema: Path, form: WireFormat, header: bytes
) -> None:
    decode = decoder(Decoding.AVRO, schema, form, part="value")
    record = RECORD._replace(value=header + datum())
    assert json.loads(JsonFormatter(None, decode).line(record))["value"] == {
        "origin": "JFK",
        "miles": 1400,
        "at": "1970-01-01T00:00:01+00:00",
        "raw": {"base64": "/w=="},
    }


def test_invalid_avro_raises_an_error_with_the_reason(schema: Path) -> None:
    plain = decoder(Decoding.AVRO, schema, PLAIN, part="value")
    framed = decoder(Decoding.AVRO, schema, WireFormat.CONFLUENT, part="value")
    assert plain is not None
    assert framed is not None
    with pytest.raises(FormatError, match="1 byte left over after the Avro value$"):
        plain(datum() + b"x")
    with pytest.raises(FormatError, match="a zero byte, .*: use --avro-wire-format confluent"):
        plain(b"\0\0\0\0\x07" + datum())
    with pytest.raises(FormatError, match="doesn't start with a zero byte"):
        framed(datum())
    for end in range(len(datum())):
        with pytest.raises(FormatError, match="Avro: "):
            plain(datum()[:end])


@pytest.fixture
def registry() -> Iterator[SchemaRegistryClient]:
    with registry_server() as server:
        found = registry_of({"schema.registry.url": server.url})
        assert found is not None
        yield found


def test_a_registry_provides_the_schema_of_each_record(registry: SchemaRegistryClient) -> None:
    numbers = [
        registry.register_schema(f"s{n}", Schema(json.dumps({**SCHEMA, "aliases": ["F"] * n})))
        for n in range(2)
    ]
    decode = decoder(Decoding.AVRO, None, PLAIN, part="value", registry=registry)
    assert decode is not None
    for number in numbers:
        record = RECORD._replace(value=b"\0" + number.to_bytes(4, "big") + datum())
        assert json.loads(JsonFormatter(None, decode).line(record))["value"]["miles"] == 1400
    of_json = registry.register_schema("j", Schema('{"type": "object"}', "JSON"))
    with pytest.raises(FormatError, match="Avro: the schema has type JSON"):
        decode(b"\0" + of_json.to_bytes(4, "big") + b"{}")
    with pytest.raises(FormatError, match="Avro: the data doesn't start with a zero"):
        decode(datum())
    with pytest.raises(FormatError, match="Avro: .*HTTP 404"):
        decode(b"\0\0\0\0\x63" + datum())


def test_json_with_a_schema_id_is_decoded(registry: SchemaRegistryClient) -> None:
    number = registry.register_schema("j", Schema('{"required": ["a"]}', "JSON"))
    data = b"\0" + number.to_bytes(4, "big") + b'{"b": 1}'
    decode = decoder(Decoding.JSON, None, PLAIN, part="value", registry=registry)
    assert decode is not None
    assert decode(data) == {"b": 1}, "shown as it is, also where it doesn't fit"
    alone = decoder(Decoding.JSON, None, PLAIN, part="value")
    assert alone is not None
    with pytest.raises(FormatError, match="a zero byte, .*: use .*schema.registry.url=URL"):
        alone(data)


def flights(*more: str) -> Any:
    """Return a message class as protoc generates it, with more fields in later versions."""
    file = FileDescriptorProto(name="flights.proto", package="air", syntax="proto3")
    file.message_type.add(name="Before")
    message = file.message_type.add(name="Flight")
    number, text = FieldDescriptorProto.TYPE_INT64, FieldDescriptorProto.TYPE_STRING
    message.field.add(name="air_miles", number=1, type=number, label=1)
    for at, name in enumerate(more, 2):
        message.field.add(name=name, number=at, type=text, label=1)
    message.field.add(name="any", number=9, type=11, label=1, type_name=".google.protobuf.Any")
    file.dependency.append("google/protobuf/any.proto")
    pool = DescriptorPool()
    pool.AddSerializedFile(any_pb2.DESCRIPTOR.serialized_pb)
    pool.AddSerializedFile(file.SerializeToString())
    return GetMessageClass(pool.FindMessageTypeByName("air.Flight"))


def test_protobuf_is_decoded_by_the_registrys_schema(registry: SchemaRegistryClient) -> None:
    decode = decoder(Decoding.PROTOBUF, None, PLAIN, part="value", registry=registry)
    assert decode is not None
    context = SerializationContext("flights", MessageField.VALUE)
    for made, shown in (
        (flights()(air_miles=1400), {"airMiles": "1400"}),
        (flights("origin")(origin="BER"), {"airMiles": "0", "origin": "BER"}),
    ):
        framed = ProtobufSerializer(type(made), registry, REGISTERING)(made, context)
        assert framed is not None
        record = RECORD._replace(value=framed)
        assert json.loads(JsonFormatter(None, decode).line(record))["value"] == shown
        with pytest.raises(FormatError, match=r"Protobuf: not a valid air\.Flight"):
            decode(framed + b"\xff")
    unknown = flights("origin")(any={"type_url": "x/y.Z", "value": b"1"})
    framed = ProtobufSerializer(type(unknown), registry, REGISTERING)(unknown, context)
    assert framed is not None
    with pytest.raises(FormatError, match=r"Protobuf: .*y\.Z"):
        decode(framed)
    with pytest.raises(FormatError, match=r"Protobuf: its schema \d+ has no message \[7\]"):
        decode(framed[:5] + b"\2\x0e" + framed[7:])
    with pytest.raises(FormatError, match="Protobuf: the data doesn't start with a zero"):
        decode(b"flights")
    of_json = registry.register_schema("j", Schema('{"type": "object"}', "JSON"))
    with pytest.raises(FormatError, match="Protobuf: the schema has type JSON"):
        decode(b"\0" + of_json.to_bytes(4, "big") + b"\0")


def test_a_registry_has_no_effect_on_a_key_that_is_decoded_as_a_string(
    registry: SchemaRegistryClient,
) -> None:
    decode = decoder(Decoding.STRING, None, PLAIN, part="key", registry=registry)
    assert decode is not None
    assert decode(b"k") == "k"
    settings = {"print.key": "true"}
    assert registry_of(settings) is None
    assert settings == {"print.key": "true"}


def test_an_unusable_schema_file_is_rejected(tmp_path: Path) -> None:
    place = tmp_path / "wrong.avsc"
    for text, says in (("{", "isn't an Avro schema: JSON"), ('{"type": "x"}', "UnknownType")):
        place.write_text(text)
        with pytest.raises(UsageError, match=says):
            decoder(Decoding.AVRO, place, PLAIN, part="key")
    with pytest.raises(UsageError, match="nix can't be read: No such file"):
        decoder(Decoding.AVRO, tmp_path / "nix", PLAIN, part="key")


def test_the_error_without_fastavro_has_the_pip_command(
    schema: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "fastavro", None)
    with pytest.raises(UsageError, match=r"pip install 'odradek\[avro\]'"):
        decoder(Decoding.AVRO, schema, PLAIN, part="key")

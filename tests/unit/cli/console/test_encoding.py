"""Test the encoding of JSON lines with a registry's schemas; `consume` prints the same JSON."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import fastavro
import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from tests.registry_server import registry_server
from tests.unit.cli.console.test_format_strings import REGISTERING, flights

from odradek.cli.console import waiting
from odradek.cli.console.avro_lines import of_json
from odradek.cli.console.decoding import Decoding, FormatError, WireFormat, decoder, plain
from odradek.cli.console.encoding import LineFormat
from odradek.cli.console.lines import LineError, ParsedLine
from odradek.cli.console.produce import parser_of
from odradek.cli.console.properties import UsageError
from odradek.errors import SerializationError
from odradek.serialization import (
    MessageField,
    ProtobufSerializer,
    Schema,
    SchemaRegistryClient,
    SerializationContext,
)

FLIGHT = {
    "type": "record",
    "name": "air.Flight",
    "fields": [
        {"name": "to", "type": "string"},
        {"name": "miles", "type": ["null", "int", "double"], "default": None},
        {"name": "raw", "type": ["null", "bytes"], "default": None},
        {"name": "at", "type": [{"type": "long", "logicalType": "timestamp-millis"}, "null"]},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}, "default": 0},
        {"name": "hour", "type": ["null", {"type": "int", "logicalType": "time-millis"}]},
        {
            "name": "price",
            "type": {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2},
        },
        {"name": "id", "type": {"type": "string", "logicalType": "uuid"}},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["JET", "PROP"]}},
        {"name": "stops", "type": {"type": "array", "items": "air.Flight"}},
        {"name": "fuel", "type": {"type": "map", "values": ["double", "null"]}},
        {"name": "next", "type": ["null", "air.Flight", "string"], "default": None},
        {"name": "mark", "type": {"type": "fixed", "name": "Mark", "size": 2}},
    ],
}
FULL: dict[str, Any] = {
    "to": "JFK",
    "miles": 1400,
    "raw": {"base64": "//8="},
    "at": "2026-11-28T10:00:00+00:00",
    "day": "2026-11-28",
    "hour": "10:30:00",
    "price": "12.50",
    "id": "12345678-1234-5678-1234-567812345678",
    "kind": "JET",
    "stops": [],
    "fuel": {"start": 1.5, "end": None},
    "next": None,
    "mark": "ok",
}


@pytest.fixture
def registry() -> Iterator[SchemaRegistryClient]:
    with registry_server() as server:
        yield SchemaRegistryClient({"schema.registry.url": server.url})


@pytest.fixture
def schema(tmp_path: Path) -> Path:
    place = tmp_path / "flight.avsc"
    place.write_text(json.dumps(FLIGHT))
    return place


def parser(registry: SchemaRegistryClient, *words: str, **flags: Any) -> Callable[[bytes], Any]:
    (url,) = registry_url(registry)
    return parser_of(
        {"reader_property": [f"schema.registry.url={url}", *words], **flags}, "flights"
    )


def registry_url(registry: SchemaRegistryClient) -> tuple[str]:
    return (repr(registry).split()[-1].rstrip(">"),)


def there_and_back(registry: SchemaRegistryClient, parse: Any, kind: str, value: Any) -> Any:
    line: ParsedLine = parse(json.dumps(value).encode())
    read = decoder(Decoding(kind), None, WireFormat.PLAIN, part="value", registry=registry)
    assert read is not None
    assert line.value is not None
    return plain(read(line.value))


def test_the_json_that_consume_prints_for_avro_can_be_produced_again(
    registry: SchemaRegistryClient, schema: Path
) -> None:
    parse = parser(
        registry, "auto.register.schemas=true", encode_value=LineFormat.AVRO, value_schema=schema
    )
    assert there_and_back(registry, parse, "avro", FULL) == FULL
    inner = {**FULL, "stops": [FULL], "next": FULL, "miles": 0.5}
    assert there_and_back(registry, parse, "avro", inner) == inner
    latest = parser(registry, encode_value=LineFormat.AVRO)
    assert there_and_back(registry, latest, "avro", inner) == inner, "by what is registered"
    without = {name: one for name, one in FULL.items() if name not in ("miles", "day", "next")}
    shown = there_and_back(registry, latest, "avro", without)
    assert (shown["miles"], shown["day"]) == (None, "1970-01-01")


def test_avros_own_json_encoding_is_accepted(registry: SchemaRegistryClient, schema: Path) -> None:
    parse = parser(
        registry, "auto.register.schemas=true", encode_value=LineFormat.AVRO, value_schema=schema
    )
    tagged = {**FULL, "miles": {"double": 3}, "next": {"string": "a"}, "at": {"long": 1}}
    shown = there_and_back(registry, parse, "avro", tagged)
    assert (shown["miles"], shown["next"]) == (3.0, "a")
    assert shown["at"] == "1970-01-01T00:00:00.001000+00:00"
    named = {**FULL, "next": {"air.Flight": FULL}}
    assert there_and_back(registry, parse, "avro", named)["next"] == FULL


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"to": 5}, "value.to must be string, not 5"),
        (
            {"miles": True},
            "value.miles must be null, not True; or value.miles must be int, not True",
        ),
        ({"day": 1 << 40}, "value.day must be int, but 1099511627776 is too large"),
        ({"price": "dear"}, "value.price must be bytes, not 'dear'"),
        ({"price": "1.2345"}, "Scale provided"),
        ({"id": "x"}, "value.id must be string, not 'x': badly formed"),
        ({"day": "soon-ish"}, "value.day must be int, not 'soon-ish': Invalid isoformat"),
        ({"day": "20261128"}, "value.day must be int, .* a date such as 2026-11-28"),
        ({"hour": "1030.5"}, "value.hour must be int, .* a time such as 10:30:00"),
        (
            {"fuel": {"a": (1 << 53) + 1}},
            "value.fuel.a must be double, .* can't be represented exactly",
        ),
        ({"kind": "SHIP"}, "value.kind must be one of JET, PROP, not 'SHIP'"),
        ({"stops": [{**FULL, "to": None}]}, r"value.stops\[0\].to must be string, not None"),
        ({"fuel": {"a": "much"}}, "value.fuel.a must be double, not 'much'"),
        ({"raw": {"base64": "?"}}, "value.raw must be bytes, not .*a string, or"),
        ({"mark": "long"}, "value.mark must be air.Mark, not 'long': it must have 2 bytes, not 4"),
        ({"at": "2026-11-28T10:00:00"}, "value.at must be long, .* it must end with Z"),
        ({"at": "2026-11-28"}, "value.at must be long, .* the time is missing"),
        (
            {"at": "2026-11-28T10:00:00.0001Z"},
            "value.at must be long, .* it is more precise than millis",
        ),
        (
            {"at": "2026-11-28T10:00:00.0000001Z"},
            "value.at must be long, .* more precise than millis",
        ),
        ({"hour": "10:30:00+01:00"}, "value.hour must be int, .* it must not have a UTC offset"),
        (
            {"price": "12345.5"},
            "value.price must be bytes, .* at most 6 digits are allowed, 2 of them after",
        ),
        ({"price": "1e999999999"}, "value.price must be bytes, .* at most 6 digits"),
        ({"price": "NaN"}, "value.price must be bytes, .* at most 6 digits"),
        ({"fuel": {"a": "1_0"}}, "value.fuel.a must be double, not '1_0'"),
        ({"raw": {"base64": "AA==", "x": 1}}, "value.raw must be bytes, not .*a string, or"),
        ({"form": 1}, "value has no field 'form' in the schema; the fields are to"),
        ({"to": ...}, "value lacks the field 'to'"),
    ],
)
def test_the_error_names_the_field_whose_value_does_not_fit_the_schema(
    changed: dict[str, Any], why: str
) -> None:
    value = {**FULL, **changed}
    value = {name: one for name, one in value.items() if one is not ...}
    parsed = fastavro.parse_schema(FLIGHT)
    with pytest.raises((SerializationError, ValueError), match=why):
        fastavro.schemaless_writer(io.BytesIO(), parsed, of_json(value, parsed))


def logical(kind: str, name: str) -> dict[str, str]:
    return {"type": kind, "logicalType": name}


def union_of(branch: Any, value: Any, *others: Any) -> Any:
    """Encode a value with `of_json`; return the branch index and the value that fastavro reads."""
    parsed = fastavro.parse_schema([branch, *others])
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, parsed, of_json(value, parsed))
    data = stream.getvalue()
    return data[0] // 2, fastavro.schemaless_reader(io.BytesIO(data), parsed, None)


TEXTS = {"type": "map", "values": "string"}
ONE = {"type": "record", "name": "One", "fields": [{"name": "string", "type": "string"}]}
PAIR = [{"type": "fixed", "name": name, "size": 2} for name in ("F", "G")]


@pytest.mark.parametrize(
    ("union", "value", "found"),
    [
        (["int", "long"], {"long": 5}, (1, 5)),
        (["double", "float"], {"float": 0.5}, (1, 0.5)),
        (["bytes", "string"], {"string": "x"}, (1, "x")),
        ([logical("int", "date"), "string"], {"string": "2024-01-02"}, (1, "2024-01-02")),
        ([logical("int", "date"), "string"], "hello", (1, "hello")),
        (PAIR, {"G": "ab"}, (1, b"ab")),
        ([PAIR[0], "string"], "abc", (1, "abc")),
        (["double", "string"], "5", (1, "5")),
        (["double", "string"], "NaN", (1, "NaN")),
        (["double", "long"], (1 << 60) + 1, (1, (1 << 60) + 1)),
        (["float", "double"], 0.1, (1, 0.1)),
        (["null", TEXTS], {"map": "x"}, (1, {"map": "x"})),
        (["null", TEXTS], {"null": "x"}, (1, {"null": "x"})),
        ([logical("long", "time-micros"), "int"], 5, (1, 5)),
        ([logical("long", "local-timestamp-micros"), "string"], "2024-01-02", (1, "2024-01-02")),
        ([TEXTS, ONE], {"string": "x"}, (1, {"string": "x"})),
        (["string", TEXTS], {"map": {"string": "x"}}, (1, {"string": "x"})),
        (["null", {"type": "string", "logicalType": "date"}], "x", (1, "x")),
    ],
)
def test_a_json_value_selects_the_right_branch_of_an_avro_union(
    union: list[Any], value: Any, found: Any
) -> None:
    assert union_of(union[0], value, *union[1:]) == found


@pytest.mark.parametrize("other", [TEXTS, ONE])
def test_a_value_that_fits_two_branches_of_a_union_is_rejected(other: Any) -> None:
    with pytest.raises(
        SerializationError, match="value is ambiguous: it may be string, or (map|One) with"
    ):
        union_of("string", {"string": "x"}, other)


def test_numbers_and_times_that_a_type_cannot_hold_are_rejected() -> None:
    with pytest.raises(
        SerializationError, match=r"value must be float, not 1e\+300: too large for a float"
    ):
        of_json(1e300, "float")
    assert of_json(3.4028234663852886e38, "float") == 3.4028234663852886e38
    assert of_json(1 << 24, "float") == 1 << 24
    with pytest.raises(SerializationError, match="can't be represented exactly"):
        of_json((1 << 24) + 1, "float")
    with pytest.raises(SerializationError, match="value must be long, not '2024"):
        of_json("2024-01-02T03:04:05Z", logical("long", "timestamp-nanos"))
    with pytest.raises(SerializationError, match="not have a UTC offset"):
        of_json("2024-01-02T03:04:05Z", logical("long", "local-timestamp-micros"))


def test_default_values_of_bytes_fields_are_decoded() -> None:
    mark = {"type": "fixed", "name": "Mark", "size": 1}
    inner = {"type": "record", "name": "In", "fields": [{"name": "z", "type": "bytes"}]}
    fields = [
        {"name": "a", "type": "bytes", "default": "\u00ff"},
        {"name": "b", "type": [mark, "null"], "default": "\u00fe"},
        {"name": "c", "type": {"type": "array", "items": inner}, "default": [{"z": "\u00fd"}]},
        {"name": "d", "type": {"type": "map", "values": "int"}, "default": {"x": 1}},
    ]
    parsed = fastavro.parse_schema({"type": "record", "name": "R", "fields": fields})
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, parsed, of_json({}, parsed))
    stream.seek(0)
    assert fastavro.schemaless_reader(stream, parsed, None) == {
        "a": b"\xff", "b": b"\xfe", "c": [{"z": b"\xfd"}], "d": {"x": 1}
    }  # fmt: skip


def test_each_branch_of_nested_unions_is_tried_once() -> None:
    tail = [{"name": "n", "type": ["null", "A", "B"]}, {"name": "x", "type": "string"}]
    inner = {"type": "record", "name": "B", "fields": tail}
    fields = [{"name": "n", "type": ["null", "A", inner]}, {"name": "x", "type": "int"}]
    parsed = fastavro.parse_schema({"type": "record", "name": "A", "fields": fields})
    value: Any = {"n": None, "x": 1.5}
    for n in range(60):  # trying each combination would take 2**60 attempts
        value = {"n": value, "x": "s" if n % 2 else 1}
    with pytest.raises(SerializationError, match="must be null"):
        of_json(value, parsed)
    for _ in range(300):
        value = {"n": value, "x": 1}
    with pytest.raises(SerializationError, match="nested too deep"):
        of_json(value, parsed)


def test_a_json_value_is_validated_by_its_schema(registry: SchemaRegistryClient) -> None:
    registry.register_schema("flights-value", Schema('{"required": ["to"]}', "JSON"))
    parse = parser(registry, encode_value=LineFormat.JSON)
    assert there_and_back(registry, parse, "json", {"to": "JFK"}) == {"to": "JFK"}
    with pytest.raises(LineError, match="the value can't be encoded as json: .*required"):
        parse(b"{}")


def test_an_invalid_json_schema_is_not_registered(
    registry: SchemaRegistryClient, tmp_path: Path
) -> None:
    place = tmp_path / "flight.json"
    place.write_text('{"type": "record"}')
    flags = {"encode_value": LineFormat.JSON, "value_schema": place}
    with pytest.raises(UsageError, match="the JSON schema isn't usable"):
        parser(registry, "auto.register.schemas=true", **flags)
    assert registry.get_subjects() == []


def test_protobuf_is_encoded_by_the_registered_schema(registry: SchemaRegistryClient) -> None:
    made = flights("origin")
    context = SerializationContext("flights", MessageField.VALUE)
    ProtobufSerializer(made, registry, REGISTERING)(made(), context)
    parse = parser(registry, encode_value=LineFormat.PROTOBUF)
    with pytest.raises(LineError, match=r"not a valid air\.Before: .*airMiles"):
        parse(b'{"airMiles": "5"}')
    for line in (b"5", b"[]", b'""', b"true"):
        with pytest.raises(LineError, match=r"not a valid air\.Before: it must be an object"):
            parse(line)
    named = parser(registry, "value.message=air.Flight", encode_value=LineFormat.PROTOBUF)
    shown = {"airMiles": "5", "origin": "JFK"}
    assert there_and_back(registry, named, "protobuf", shown) == shown
    with pytest.raises(LineError, match=r"has no message air\.None; its messages are air\.Before"):
        parser(registry, "value.message=air.None", encode_value=LineFormat.PROTOBUF)(b"{}")


def test_the_error_says_if_the_registry_has_no_descriptor_of_a_protobuf_schema(
    registry: SchemaRegistryClient,
) -> None:
    text = 'syntax = "proto3"; message Raw { bytes raw = 1; }'
    registry.register_schema("flights-value", Schema(text, "PROTOBUF"))
    parse = parser(registry, encode_value=LineFormat.PROTOBUF)
    with pytest.raises(LineError, match="no descriptor .*which is needed to decode the message"):
        parse(b"{}")


def test_bytes_fields_of_protobuf_must_be_base64(registry: SchemaRegistryClient) -> None:
    file = FileDescriptorProto(name="raw.proto", syntax="proto3")
    message = file.message_type.add(name="Raw")
    for name in ("ByName", "Others"):
        entry = message.nested_type.add(name=f"{name}Entry", options={"map_entry": True})
        entry.field.add(name="key", number=1, type=9, label=1)
        of = {"type_name": ".Raw"} if name == "Others" else {}
        entry.field.add(name="value", number=2, type=11 if of else 12, label=1, **of)
    for number, (name, kind, label, type_name) in enumerate((
        ("raw", 12, 1, ""),
        ("many", 12, 3, ""),
        ("by_name", 11, 3, ".Raw.ByNameEntry"),
        ("inner", 11, 1, ".Raw"),
        ("others", 11, 3, ".Raw.OthersEntry"),
        ("text", 9, 1, ""),
    ), 1):  # fmt: skip
        message.field.add(name=name, number=number, type=kind, label=label)
        if type_name:
            message.field[-1].type_name = type_name
    pool = DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    made = GetMessageClass(pool.FindMessageTypeByName("Raw"))
    context = SerializationContext("flights", MessageField.VALUE)
    ProtobufSerializer(made, registry, REGISTERING)(made(), context)
    parse = parser(registry, encode_value=LineFormat.PROTOBUF)
    good = {"raw": "//8=", "many": ["_-8="], "inner": {"raw": "AA=="}, "text": "not so"}
    assert parse(json.dumps(good).encode()).value is not None
    for bad in (
        {"raw": "not so"},
        {"many": ["AA==", "@@"]},
        {"byName": {"a": "@@"}},
        {"by_name": {"a": "@@"}},
        {"inner": {"raw": "@@"}},
        {"others": {"a": {"raw": "@@"}}},
    ):
        with pytest.raises(LineError, match="is of type bytes, which must be base64"):
            parse(json.dumps(bad).encode())
    odd: dict[str, Any]
    for odd in ({"raw": 5}, {"raw": "A"}, {"inner": 5}, {"others": {"a": 1}}, {"others": []}):
        with pytest.raises(LineError, match="not a valid Raw: "):
            parse(json.dumps(odd).encode())


def test_a_missing_required_field_of_protobuf_is_reported(registry: SchemaRegistryClient) -> None:
    file = FileDescriptorProto(name="old.proto", package="old", syntax="proto2")
    file.message_type.add(name="Must").field.add(name="x", number=1, type=5, label=2)
    text = base64.b64encode(file.SerializeToString()).decode()
    registry.register_schema("flights-value", Schema(text, "PROTOBUF"))
    parse = parser(registry, encode_value=LineFormat.PROTOBUF)
    with pytest.raises(LineError, match=r"not a valid old\.Must: .*required"):
        parse(b"{}")
    assert parse(b'{"x": 1}').value[-2:] == b"\x08\x01"


def test_a_line_that_is_not_json_is_rejected(registry: SchemaRegistryClient) -> None:
    registry.register_schema("flights-value", Schema("{}", "JSON"))
    parse = parser(registry, encode_value=LineFormat.JSON)
    for line, why in (
        (b"JFK", "the value isn't JSON: Expecting value at column 1$"),
        (b'{"to": }', "the value isn't JSON: Expecting value at column 8$"),
        (b"", "the value isn't JSON: it is empty$"),
        (b" ", "the value isn't JSON: it is empty$"),
        (b"NaN", "NaN is not JSON"),
        (b"null", "null.marker"),
        (b"[" * 100_000, "nested too deep"),
        (b'"\xff"', "isn't JSON"),
        (b"[1e400]", "the number 1e400 is too large"),
        (b'[{"to": 1, "at": 1, "to": 2}]', "duplicate name 'to' in an object"),
        (
            b"{%s}" % b",".join(b'"%d": 0' % (n % 99_999) for n in range(10**5)),
            "duplicate name '0'",
        ),
    ):
        with pytest.raises(LineError, match=why):
            parse(line)


def test_a_value_schema_is_registered_even_if_the_key_schema_exists(
    registry: SchemaRegistryClient, schema: Path
) -> None:
    registry.register_schema("flights-key", Schema('"string"'))
    parse = parser(
        registry,
        *("parse.key=true", "key.separator=|", "auto.register.schemas=true"),
        encode_key=LineFormat.AVRO,
        encode_value=LineFormat.AVRO,
        value_schema=schema,
    )
    assert parse(b'"JFK"|' + json.dumps(FULL).encode()).key[-4:] == b"\x06JFK"
    assert set(registry.get_subjects()) == {"flights-key", "flights-value"}


def test_the_error_for_a_proto_text_schema_says_how_to_register_a_descriptor(
    registry: SchemaRegistryClient,
) -> None:
    registry.register_schema("flights-value", Schema('syntax = "proto3";', "PROTOBUF"))
    parse = parser(registry, encode_value=LineFormat.PROTOBUF)
    with pytest.raises(
        LineError, match="no descriptor .*Register the schema with a ProtobufSerializer"
    ):
        parse(b"{}")


def test_decoding_data_of_another_schema_type_raises_an_error_that_names_both_types(
    registry: SchemaRegistryClient,
) -> None:
    """If Avro data is decoded as JSON, the schema's type explains more than a syntax error."""
    registry.register_schema("flights-value", Schema('"string"'))
    line: ParsedLine = parser(registry, encode_value=LineFormat.AVRO)('"ÿ"'.encode())
    read = decoder(Decoding.JSON, None, WireFormat.PLAIN, part="value", registry=registry)
    assert read is not None
    assert line.value is not None
    with pytest.raises(FormatError, match="JSON: the schema has type AVRO, not JSON"):
        read(line.value)
    with pytest.raises(FormatError, match="JSON: the data isn't valid JSON"):
        read(b"\0\0\0\0\x63{")  # a schema with id 99 doesn't exist
    registry.register_schema("flights-value", Schema("{}", "JSON"))
    with pytest.raises(FormatError, match="JSON: the data isn't valid JSON: Expecting property"):
        read(b"\0\0\0\0\x02{")


def test_a_slow_registry_is_reported_only_at_the_first_request(
    registry: SchemaRegistryClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []

    def telling(text: str, after: float) -> AbstractContextManager[None]:
        told.append(text)
        return nullcontext()

    monkeypatch.setattr(waiting, "telling_of_waiting", telling)
    registry.register_schema("flights-value", Schema("{}", "JSON"))
    parse = parser(registry, encode_value=LineFormat.JSON)
    assert there_and_back(registry, parse, "json", 5) == 5
    assert told == [waiting.REGISTRY] * 2, "written, and read"
    parse(b"5")
    assert told == [waiting.REGISTRY] * 2


def test_keys_are_encoded_and_the_null_marker_is_a_null_key(registry: SchemaRegistryClient) -> None:
    registry.register_schema("flights-key", Schema('"string"'))
    words = ("parse.key=true", "null.marker=-", "key.separator=:")
    parse = parser(registry, *words, encode_key=LineFormat.AVRO)
    line = parse(b'"JFK":as it is')
    assert (line.key[-4:], line.value) == (b"\x06JFK", b"as it is")
    assert parse(b"-:x").key is None


def test_a_schema_that_is_not_registered_raises_an_error(registry: SchemaRegistryClient) -> None:
    parse = parser(registry, encode_value=LineFormat.AVRO)
    with pytest.raises(LineError, match="the value can't be encoded as avro: .*HTTP 404"):
        parse(b"1")


@pytest.mark.parametrize(
    ("flags", "words", "why"),
    [
        ({"encode_value": LineFormat.AVRO}, None, "--encode-value avro needs a schema registry"),
        ({"value_schema": Path("x")}, [], "--value-schema needs --encode-value avro or json"),
        ({}, [], "need --encode-key or --encode-value"),
        (
            {"encode_key": LineFormat.AVRO},
            [],
            "--encode-key needs .*parse.key=true",
        ),
        (
            {"encode_value": LineFormat.PROTOBUF, "value_schema": Path("x")},
            [],
            "is only for avro and json",
        ),
        ({"encode_value": LineFormat.AVRO, "value_schema": Path("/nix")}, [], "/nix can't be read"),
        ({"encode_value": LineFormat.AVRO}, ["use.latest.version=false"], "schema_str is required"),
        (
            {"encode_value": LineFormat.AVRO},
            ["auto.register.schemas=true"],
            "auto.register.schemas=true needs .*: --value-schema FILE, for avro or json",
        ),
        ({"encode_value": LineFormat.AVRO}, ["normalize.schemas=5"], "must be true or false"),
        ({"encode_value": LineFormat.AVRO}, ["value.message=x"], "needs --encode-value protobuf"),
    ],
)
def test_contradictory_flags_are_rejected(
    flags: dict[str, Any], words: list[str] | None, why: str
) -> None:
    given = [] if words is None else ["schema.registry.url=http://127.0.0.1:1", *words]
    with pytest.raises(UsageError, match=why):
        parser_of({"reader_property": given, **flags}, "flights")

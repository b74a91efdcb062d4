"""Lines of JSON as records of a schema registry, and what `odradek consume` makes of these."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import fastavro
import pytest
from tests.registry_server import registry_server
from tests.unit.cli.console.test_format_strings import REGISTERING, flights

from odradek import (
    MessageField,
    ProtobufSerializer,
    Schema,
    SchemaRegistryClient,
    SerializationContext,
    SerializationError,
)
from odradek.cli.console import waiting
from odradek.cli.console.avro_lines import of_json
from odradek.cli.console.decoding import Decoding, FormatError, WireFormat, decoder, plain
from odradek.cli.console.encoding import LineFormat
from odradek.cli.console.lines import LineError, ParsedLine
from odradek.cli.console.produce import parser_of
from odradek.cli.console.properties import UsageError

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


def test_what_consume_shows_of_avro_can_be_written(
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


def test_avros_own_json_is_read_too(registry: SchemaRegistryClient, schema: Path) -> None:
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
        ({"to": 5}, "it.to must be string, not 5"),
        ({"miles": True}, "it.miles must be null, not True; or it.miles must be int, not True"),
        ({"day": 1 << 40}, "it.day must be int, and 1099511627776 is too large for one"),
        ({"price": "dear"}, "it.price must be bytes, not 'dear'"),
        ({"price": "1.2345"}, "Scale provided"),
        ({"id": "x"}, "it.id must be string, not 'x': badly formed"),
        ({"day": "soon"}, "it.day must be int, not 'soon': Invalid isoformat"),
        ({"kind": "SHIP"}, "it.kind must be one of JET, PROP, not 'SHIP'"),
        ({"stops": [{**FULL, "to": None}]}, r"it.stops\[0\].to must be string, not None"),
        ({"fuel": {"a": "much"}}, "it.fuel.a must be double, not 'much'"),
        ({"raw": {"base64": "?"}}, "it.raw must be bytes, not .*a text, or"),
        ({"mark": "long"}, "does not match schema size"),
        ({"form": 1}, "it has no field 'form'; there are to, miles"),
        ({"to": ...}, "it lacks the field 'to'"),
    ],
)
def test_what_does_not_fit_is_named(changed: dict[str, Any], why: str) -> None:
    value = {**FULL, **changed}
    value = {name: one for name, one in value.items() if one is not ...}
    parsed = fastavro.parse_schema(FLIGHT)
    with pytest.raises((SerializationError, ValueError), match=why):
        fastavro.schemaless_writer(io.BytesIO(), parsed, of_json(value, parsed))


def test_json_with_a_schema(registry: SchemaRegistryClient) -> None:
    registry.register_schema("flights-value", Schema('{"required": ["to"]}', "JSON"))
    parse = parser(registry, encode_value=LineFormat.JSON)
    assert there_and_back(registry, parse, "json", {"to": "JFK"}) == {"to": "JFK"}
    with pytest.raises(LineError, match="its value can't be written as json: .*required"):
        parse(b"{}")


def test_protobuf_by_what_is_registered(registry: SchemaRegistryClient) -> None:
    made = flights("origin")
    context = SerializationContext("flights", MessageField.VALUE)
    ProtobufSerializer(made, registry, REGISTERING)(made(), context)
    parse = parser(registry, encode_value=LineFormat.PROTOBUF)
    with pytest.raises(LineError, match=r"it isn't a air\.Before: .*airMiles"):
        parse(b'{"airMiles": "5"}')
    named = parser(registry, "value.message=air.Flight", encode_value=LineFormat.PROTOBUF)
    shown = {"airMiles": "5", "origin": "JFK"}
    assert there_and_back(registry, named, "protobuf", shown) == shown
    with pytest.raises(LineError, match=r"has no message air\.None; there are: air\.Before"):
        parser(registry, "value.message=air.None", encode_value=LineFormat.PROTOBUF)(b"{}")


def test_lines_that_are_no_json(registry: SchemaRegistryClient) -> None:
    registry.register_schema("flights-value", Schema("{}", "JSON"))
    parse = parser(registry, encode_value=LineFormat.JSON)
    for line, why in (
        (b"JFK", "its value isn't JSON: Expecting value at column 1$"),
        (b'{"to": }', "its value isn't JSON: Expecting value at column 8$"),
        (b"", "its value isn't JSON: there is nothing$"),
        (b" ", "its value isn't JSON: there is nothing$"),
        (b"NaN", "NaN is no JSON"),
        (b"null", "null.marker"),
        (b"[" * 100_000, "nested too deep"),
        (b'"\xff"', "isn't JSON"),
    ):
        with pytest.raises(LineError, match=why):
            parse(line)


def test_one_part_is_registered_beside_one_that_is(
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


def test_protobuf_of_a_text_alone_says_what_it_lacks(registry: SchemaRegistryClient) -> None:
    registry.register_schema("flights-value", Schema('syntax = "proto3";', "PROTOBUF"))
    parse = parser(registry, encode_value=LineFormat.PROTOBUF)
    with pytest.raises(LineError, match="no descriptor .*Register it by a ProtobufSerializer"):
        parse(b"{}")


def test_what_is_of_another_kind_says_so(registry: SchemaRegistryClient) -> None:
    """Bytes of Avro are no JSON, but why they are none is of no use to who reads them as JSON."""
    registry.register_schema("flights-value", Schema('"string"'))
    line: ParsedLine = parser(registry, encode_value=LineFormat.AVRO)('"ÿ"'.encode())
    read = decoder(Decoding.JSON, None, WireFormat.PLAIN, part="value", registry=registry)
    assert read is not None
    assert line.value is not None
    with pytest.raises(FormatError, match="JSON: the schema is of type AVRO, not JSON"):
        read(line.value)
    with pytest.raises(FormatError, match="JSON: it isn't JSON"):
        read(b"\0\0\0\0\x63{")  # nobody knows schema 99
    registry.register_schema("flights-value", Schema("{}", "JSON"))
    with pytest.raises(FormatError, match="JSON: it isn't JSON: Expecting property"):
        read(b"\0\0\0\0\x02{")


def test_the_first_of_each_tells_that_it_waits_for_the_registry(
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


def test_keys_too_and_null_stays_null(registry: SchemaRegistryClient) -> None:
    registry.register_schema("flights-key", Schema('"string"'))
    words = ("parse.key=true", "null.marker=-", "key.separator=:")
    parse = parser(registry, *words, encode_key=LineFormat.AVRO)
    line = parse(b'"JFK":as it is')
    assert (line.key[-4:], line.value) == (b"\x06JFK", b"as it is")
    assert parse(b"-:x").key is None


def test_a_registry_without_the_schema_ends_it(registry: SchemaRegistryClient) -> None:
    parse = parser(registry, encode_value=LineFormat.AVRO)
    with pytest.raises(LineError, match="its value can't be written as avro: .*HTTP 404"):
        parse(b"1")


@pytest.mark.parametrize(
    ("flags", "words", "why"),
    [
        ({"encode_value": LineFormat.AVRO}, None, "--encode-value avro needs a schema registry"),
        ({"value_schema": Path("x")}, [], "--value-schema is for --encode-value avro or json"),
        ({}, [], "are for --encode-key, --encode-value"),
        (
            {"encode_key": LineFormat.AVRO},
            [],
            "--encode-key needs .*parse.key=true",
        ),
        (
            {"encode_value": LineFormat.PROTOBUF, "value_schema": Path("x")},
            [],
            "is for avro and json",
        ),
        ({"encode_value": LineFormat.AVRO, "value_schema": Path("/nix")}, [], "/nix can't be read"),
        ({"encode_value": LineFormat.AVRO}, ["use.latest.version=false"], "schema_str is missing"),
        (
            {"encode_value": LineFormat.AVRO},
            ["auto.register.schemas=true"],
            "auto.register.schemas=true needs .*: --value-schema FILE, of avro or json",
        ),
        ({"encode_value": LineFormat.AVRO}, ["normalize.schemas=5"], "must be true or false"),
        ({"encode_value": LineFormat.AVRO}, ["value.message=x"], "is for --encode-value protobuf"),
    ],
)
def test_wrong_uses(flags: dict[str, Any], words: list[str] | None, why: str) -> None:
    given = [] if words is None else ["schema.registry.url=http://127.0.0.1:1", *words]
    with pytest.raises(UsageError, match=why):
        parser_of({"reader_property": given, **flags}, "flights")

"""Test hostile schemas and data: no crash, no endless decoding, no huge types.

Any application that may write to a topic or register a schema can create such schemas and data.
fastavro decodes in C and recurses as deep as the data is nested.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
import tracemalloc
from collections.abc import Callable
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from fastavro import parse_schema
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.fuzz.avro import without_kernel
from tests.registry_server import RegistryServer
from tests.time_limits import HANG_S
from tests.volume import examples

from odradek.common.types import FREE_THREADS
from odradek.errors import (
    DeserializationError,
    InvalidSchemaError,
    RegistryUnreachableError,
    SerializationError,
)
from odradek.runtime.hosts.in_thread import at_hand
from odradek.runtime.rest_client import NoAnswerError, RestAnswer, RestServers
from odradek.serialization import (
    AvroDeserializer,
    AvroSerializer,
    JSONDeserializer,
    JSONSerializer,
    MessageField,
    Schema,
    SchemaReference,
    SchemaRegistryClient,
    SerializationContext,
    arrow_to_avro,
    avro_to_arrow,
    schema_limits,
)
from odradek.serialization.avro.reading import AvroReading
from odradek.serialization.columns import column_room
from odradek.serialization.context import NO_WAITING
from odradek.serialization.protobuf.messages import messages_at
from odradek.serialization.registry import references
from odradek.serialization.schema_limits import JsonLimits
from odradek.serialization.wire_format import varint

INT = {"name": "x", "type": "int", "default": 1}
VALUE = SerializationContext("t", MessageField.VALUE)
REGISTER = {"auto.register.schemas": True}
EXPONENT = 60
SMALL_STACK = (640 if FREE_THREADS else 512) << 10
"""Size in bytes of a thread's stack that is small for fastavro.

Without a GIL, fastavro's writer needs 3.4 KiB per dict, but CPython raises an error at the end of
the stack.
"""
FIELD = {"name", "type", "default"}


def record(name: str, *fields: Any) -> dict[str, Any]:
    listed = [
        one
        if isinstance(one, dict) and one.keys() <= FIELD and "name" in one
        else {"name": f"f{at}", "type": one}
        for at, one in enumerate(fields)
    ]
    return {"type": "record", "name": name, "fields": listed}


def field(kind: Any, name: str = "n") -> dict[str, Any]:
    return {"name": name, "type": kind}


CHAINS = {
    "union": (record("N", field(["null", "N"])), b"\2", b"\0"),
    "array": (record("N", field({"type": "array", "items": "N"})), b"\2", b"\0"),
    "map": (record("N", field({"type": "map", "values": ["null", "N"]})), b"\2\0\2", b"\0"),
    "two": (record("N", field(record("M", field(["null", "N"])))), b"\2", b"\0"),
}
"""Recursive schemas; the bytes for one more level of nesting, and those that end a value."""


def doubled(depth: int, *innermost: Any) -> dict[str, Any]:
    """Return a schema whose values contain 2**depth records."""
    found = record("R0", *innermost)
    for at in range(1, depth):
        found = record(f"R{at}", field(found, "a"), field(f"R{at - 1}", "b"))
    return found


def client(server: RegistryServer, *schemas: Any) -> SchemaRegistryClient:
    server.schemas += [{"schema": json.dumps(one)} for one in schemas]
    return SchemaRegistryClient({"schema.registry.url": server.url})


def framed(payload: bytes = b"", number: int = 1) -> bytes:
    return b"\0" + number.to_bytes(4, "big") + payload


def in_time(call: Callable[[], Any], seconds: float = 20.0) -> Any:
    """Return the result or error of a call; fail if the call takes too long."""
    found: list[Any] = []

    def run() -> None:
        try:
            found.append(call())
        except BaseException as error:
            found.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    assert found, "it doesn't end"
    if isinstance(found[0], BaseException):
        raise found[0]
    return found[0]


@pytest.mark.parametrize("chain", CHAINS)
def test_a_value_that_is_nested_too_deeply_is_rejected_without_a_crash(
    server: RegistryServer, chain: str
) -> None:
    schema, deeper, end = CHAINS[chain]
    registry = client(server, schema)
    read = AvroDeserializer(registry)
    with pytest.raises(DeserializationError, match="more than 400 levels deep"):
        read(framed(deeper * 100_000 + end * 100_001))
    deep = framed(deeper * 1000 + end * (1001 if chain == "array" else 1))
    found = avro_to_arrow(pa.array([deep]), registry, json.dumps(record("N", INT)))
    assert "more than 400 levels deep" in found.errors[0]


@pytest.mark.parametrize("chain", CHAINS)
def test_a_value_of_the_maximum_depth_is_decoded_in_a_thread_with_a_small_stack(chain: str) -> None:
    """A stack overflow would end the process, so the test runs in a subprocess."""
    schema, deeper, end = CHAINS[chain]
    per = 3 if chain in ("map", "two") else 2
    many = schema_limits.DEEPEST_VALUE // per - 1
    code = f"""
import threading
from fastavro import parse_schema
from odradek.serialization.avro.reading import AvroReading
written = parse_schema({schema!r})
data = {deeper!r} * {many} + {end!r} * {many + 1 if chain in ("array", "map") else 1}
threading.stack_size(512 * 1024)
read = []
thread = threading.Thread(target=lambda: read.append(AvroReading().value(data, written, written)))
thread.start()
thread.join()
assert read
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=HANG_S)


@pytest.mark.parametrize("depth", [None, 10_000, 151])
def test_a_value_that_is_nested_too_deeply_is_not_written(
    server: RegistryServer, depth: int | None
) -> None:
    """If the depth is None, the value contains itself."""
    write = AvroSerializer(
        client(server), json.dumps(record("N", field(["null", "N"]))), conf=REGISTER
    )
    value: dict[str, Any] = {"n": None}
    last = value
    for _ in range(depth or 0):
        value = {"n": value}
    if depth is None:
        last["n"] = last
    with pytest.raises(SerializationError, match="more than 150 levels deep"):
        write(value, VALUE)
    column = arrow_to_avro(pa.array([{"n": None}]), write, "t")
    assert column.values.to_pylist() == [framed(b"\0")]


def test_a_value_of_the_maximum_depth_is_encoded_in_a_thread_with_a_small_stack() -> None:
    code = f"""
import threading
from odradek.serialization import AvroSerializer, SchemaRegistryClient
schema = {json.dumps(json.dumps(record("N", field(["null", "N"]))))}
write = AvroSerializer(SchemaRegistryClient({{"url": "http://localhost:1"}}), schema)
value = {{"n": None}}
for _ in range({schema_limits.DEEPEST_WRITTEN - 2}):
    value = {{"n": value}}
threading.stack_size({SMALL_STACK})
written = []
parsed = write._parsed_of(write._schema)
thread = threading.Thread(target=lambda: written.append(write.payload(value, parsed)))
thread.start()
thread.join()
assert len(written[0]) == {schema_limits.DEEPEST_WRITTEN - 1}
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=HANG_S)


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        ({"type": "array", "items": "null"}, "take no bytes"),
        (record("R", {"type": "array", "items": record("E")}, "int"), "take no bytes"),
        ({"type": "array", "items": {"type": "fixed", "name": "F", "size": 0}}, "take no bytes"),
        (record("N", field("N")), "always contains itself"),
        (record("N", "int", field(record("M", field("N")))), "always contains itself"),
        (doubled(EXPONENT), "empty values"),
        (
            [record("R0", "int"), *(record(f"R{at}", f"R{at - 1}") for at in range(1, 500))],
            "more than 400 levels deep",
        ),
    ],
)
def test_schemas_whose_values_would_be_endless_or_empty_are_rejected(
    server: RegistryServer, schema: Any, why: str
) -> None:
    registry = client(server, schema)
    data = framed(varint(1 << 40) + b"\0\0")
    with pytest.raises(InvalidSchemaError, match=why):
        in_time(lambda: AvroDeserializer(registry)(data))
    found = in_time(lambda: avro_to_arrow(pa.array([data]), registry, json.dumps("int")))
    assert why in found.errors[0]


def test_a_short_schema_with_millions_of_nested_types_is_rejected(server: RegistryServer) -> None:
    wide = record("Q", field(doubled(25, "int"), "a"), INT)
    registry = client(server, wide)
    with pytest.raises(InvalidSchemaError, match="nested types"):
        in_time(lambda: avro_to_arrow(pa.array([framed()]), registry))
    reader = json.dumps(record("Q", INT))
    assert in_time(lambda: avro_to_arrow(pa.array([framed()]), registry, reader)).errors


@pytest.mark.parametrize("native", [True, False])
def test_short_data_cannot_use_much_memory_in_columns(
    server: RegistryServer, monkeypatch: pytest.MonkeyPatch, native: bool
) -> None:
    """A null or enum symbol may take thousands of bytes; only rows with many are rejected."""
    monkeypatch.setattr(column_room, "FREE", 1 << 20)
    nulls = [field(["null", "double"], f"f{at}") for at in range(500)]
    word = {"type": "enum", "name": "E", "symbols": ["A", "B" * 20_000]}
    wide = record("W", *nulls)
    schema = record("R", field({"type": "array", "items": ["null", wide]}, "w"), field(
        {"type": "map", "values": ["null", word]}, "m"))  # fmt: skip
    registry = client(server, schema)
    good = framed(b"\2\0\0" + b"\2\2a\2\0\0")
    lists = framed(varint(2000) + bytes(2001) + b"\0")
    keys = b"".join(b"\6%03d\2\2" % at for at in range(500))
    maps = framed(b"\0" + varint(500) + keys + b"\0")
    rows = pa.array([good, lists, good, maps, lists, good])
    with nullcontext() if native else without_kernel():
        read = avro_to_arrow(rows, registry)
        assert list(read.errors) == [1, 3, 4]
        assert "in columns" in read.errors[1]
        assert read.values.drop_null().to_pylist() == [{"w": [None], "m": [("a", "A")]}] * 3
        assert pa.total_allocated_bytes() < 20 << 20
        with pytest.raises(InvalidSchemaError, match="fewer rows"):
            avro_to_arrow(pa.array([good] + [None] * 1000), registry, json.dumps(wide))


def doubled_json(depth: int, to: str = "#/$defs/a") -> dict[str, Any]:
    """Return a JSON schema whose validator checks a value 2**depth times."""
    made = {f"a{at}": {"anyOf": [{"$ref": f"{to}{at - 1}"}] * 2} for at in range(1, depth)}
    return {"$ref": f"{to}{depth - 1}", "$defs": {"a0": {"type": "integer"}} | made}


def nested_ids(depth: int) -> Any:
    """Return a JSON schema with nested ids; only some drafts treat them as base URIs."""
    found: Any = {}
    for at in range(depth):
        found = {"id": f"d{at}/", "properties": {"a": found}}
    return found


@pytest.mark.parametrize(
    ("schema", "value", "why"),
    [
        (doubled_json(EXPONENT), 5, "10000000 checks or more"),
        (doubled_json(EXPONENT) | {"$id": "http://a/b.json"}, 5, "checks or more"),
        (doubled_json(EXPONENT, "#/%24defs/a") | {"id": "x"}, 5, "checks or more"),
        (doubled_json(8), 5, None),
        ({"properties": {"a": {"allOf": [{"$ref": "#"}] * 2}}}, 40, "checks or more"),
        ({"properties": {"a": {"allOf": [{"$ref": "#"}] * 2}}}, 3, None),
        ({"additionalProperties": {"$ref": "#"}, "properties": {"a": {"$ref": "#"}}}, 40, "checks"),
        ({"properties": {"a": {"$ref": "#"}, "b": {"$ref": "#"}}}, 400, None),
        ({"allOf": [{"$ref": "#"}]}, 5, "refers to itself"),
        (nested_ids(40), 5, "too many nested ids"),
        (nested_ids(4), 5, None),
        ({"$ref": "#/$defs/a/enum/1", "$defs": {"a": {"enum": [1, {}]}}}, 5, None),
        ({"$ref": "#n", "$defs": {"n": {"$anchor": "n", "not": {"$ref": "m#/x"}},
          "m": {"$id": "m", "x": {"type": "string"}}}}, 3, None),
        ({"$ref": "https://json-schema.org/draft/2020-12/schema"}, 3, None),
    ],
)  # fmt: skip
def test_json_schemas_with_exponentially_many_checks_are_rejected(
    server: RegistryServer, schema: Any, value: int, why: str | None
) -> None:
    """Test serializer and deserializer; a `value` other than 5 is the depth of a nested object."""
    server.schemas = [{"schema": json.dumps(schema), "schemaType": "JSON"}]
    registry = SchemaRegistryClient({"schema.registry.url": server.url})
    data: Any = value
    if value != 5:
        data = {}
        for _ in range(value):
            data = {"a": data}
    reads = JSONDeserializer(schema_registry_client=registry)
    payload = framed(json.dumps(data).encode())

    def writes() -> Any:
        return JSONSerializer(json.dumps(schema), registry, conf=REGISTER)(data, VALUE)

    if why is None:
        assert in_time(lambda: reads(payload)) == data
        return
    for call in (lambda: reads(payload), writes):
        with pytest.raises((SerializationError, DeserializationError, InvalidSchemaError)) as found:
            in_time(call)
        assert why in str(found.value)


WIDE = 12_000


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        (
            {
                "properties": {f"p{at}": {} for at in range(WIDE)},
                "patternProperties": {f"q{at}": {} for at in range(WIDE)},
            },
            "500000 ways",
        ),
        (
            {"enum": list(range(200_000)), "allOf": [{"$ref": "#/enum/199999"}] * 500},
            None,
        ),
        ({"enum": [{}], "$ref": "#/enum/00"}, "doesn't exist"),
        ({"enum": [{}], "$ref": "#/enum/1"}, "doesn't exist"),
        ({"enum": [{}], "$ref": f"#/enum/{'9' * 5000}"}, "doesn't exist"),
    ],
)
def test_counting_the_checks_of_a_schema_is_fast(schema: Any, why: str | None) -> None:
    """Comparing all properties with all patterns once took gigabytes of memory."""

    def count() -> str | None:
        return JsonLimits(schema, {}).check(5)

    if why is None:
        assert in_time(count) is None
        return
    with pytest.raises(InvalidSchemaError, match=why):
        in_time(count)


def test_references_with_exponentially_many_checks_are_rejected(server: RegistryServer) -> None:
    for at in range(EXPONENT):
        refs = [{"name": f"s{at - 1}.json", "subject": f"s{at - 1}", "version": 1}] if at else []
        kind: Any = {"allOf": [{"$ref": f"s{at - 1}.json"}] * 2} if at else {"type": "integer"}
        server.schemas.append(
            {"schema": json.dumps(kind), "references": refs, "schemaType": "JSON"}
        )
        server.subjects[f"s{at}"] = [at + 1]
    read = JSONDeserializer(schema_registry_client=client(server))
    with pytest.raises(DeserializationError, match="checks or more"):
        in_time(lambda: read(framed(b"5", EXPONENT)))
    assert read(framed(b"5", 4)) == 5


def test_a_value_too_deep_for_the_validator_does_not_end_the_process(
    server: RegistryServer,
) -> None:
    writes = JSONSerializer('{"items": {"$ref": "#"}}', client(server), conf=REGISTER)
    value: list[Any] = []
    for _ in range(100_000):
        value = [value]
    with pytest.raises(SerializationError, match="RecursionError|recursion|Stack overflow"):
        writes(value, VALUE)


def test_repeated_and_circular_references_are_requested_once(
    server: RegistryServer,
) -> None:
    for at in range(EXPONENT):
        refs = [{"name": f"R{at - 1}", "subject": f"s{at - 1}", "version": 1}] * 2 if at else []
        kind: Any = f"R{at - 1}" if at else "int"
        server.schemas.append({"schema": json.dumps(record(f"R{at}", kind)), "references": refs})
        server.subjects[f"s{at}"] = [at + 1]
    server.schemas[0]["references"] = [
        {"name": "last", "subject": f"s{EXPONENT - 1}", "version": 1}
    ]
    registry = client(server)
    with pytest.raises(InvalidSchemaError, match="UnknownType"):
        in_time(lambda: AvroDeserializer(registry)(framed(b"\2", EXPONENT)))
    server.schemas[0]["references"] = []
    registry = SchemaRegistryClient(
        {"schema.registry.url": server.url.replace("localhost", "127.0.0.1")}
    )
    found = in_time(lambda: AvroDeserializer(registry)(framed(b"\2", EXPONENT)))
    for _ in range(EXPONENT):
        found = found["f0"]
    assert found == 1


def test_requests_for_references_share_the_timeout_of_one_call(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The clock advances ten seconds with each response; the timeout of a call is 30 s."""
    now = [0.0]

    def slow(_: Any, url: str, method: str, path: str, data: Any, deadline: float) -> RestAnswer:
        now[0] += 10
        if now[0] > deadline:
            raise NoAnswerError("late")
        refs = [{"name": "R", "subject": f"s{now[0]}", "version": 1}]
        return RestAnswer(url, 200, {"schema": '"int"', "references": refs, "id": 1, "version": 1})

    monkeypatch.setattr(RestServers, "_asked", slow)
    registry = SchemaRegistryClient({"schema.registry.url": "http://slow"})
    monkeypatch.setattr(registry._servers, "_clock", SimpleNamespace(now=lambda: now[0]))
    with pytest.raises(RegistryUnreachableError, match="late"):
        references.referred(Schema('"int"', references=(SchemaReference("R", "s", 1),)), registry)
    assert now[0] == 40

    async def reads() -> None:
        """Fetch each schema in another thread, as the asyncio clients do."""
        token = NO_WAITING.set(True)
        try:
            for at in range(10):
                registry.get_version(f"of a loop {at}", 1)
        finally:
            NO_WAITING.reset(token)

    now[0] = 0
    with pytest.raises(RegistryUnreachableError, match="late"):
        asyncio.run(at_hand(reads))
    assert now[0] == 40
    registry.get_version("the next call has its own time", 1)


def test_the_number_of_references_of_a_schema_is_limited(
    server: RegistryServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(references, "MOST_REFERENCES", 3)
    for at in range(6):
        refs = [{"name": f"r{at + 1}", "subject": f"s{at + 1}", "version": 1}] if at < 5 else []
        server.schemas.append({"schema": "{}", "schemaType": "JSON", "references": refs})
        server.subjects[f"s{at}"] = [at + 1]
    registry = client(server)
    with pytest.raises(InvalidSchemaError, match="more than 3 other schemas"):
        JSONDeserializer(None, None, registry)(framed(b"1"))
    assert JSONDeserializer(None, None, registry)(framed(b"1", 4)) == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    "text",
    [
        "{" * 200_000,
        '"' + "\\" * 300_000 + "\n" + '"\\' * 200_000,
        "/*" * 300_000,
        "'\\'" * 200_001,
    ],
)
def test_a_proto_file_of_unclosed_brackets_is_parsed_in_linear_time(text: str) -> None:
    file = "message A {} " + text
    assert in_time(lambda: messages_at(Schema(file, "PROTOBUF"), (0,))) == {"A"}


def test_a_proto_file_is_parsed_once_for_all_message_indexes() -> None:
    """Each record of eight bytes may name another index, and parsing the file is slow."""
    file = Schema("".join(f"message M{n} {{ int32 a = 1; }} " for n in range(2000)), "PROTOBUF")
    found = in_time(lambda: [messages_at(file, (n,)) for n in range(3000)])
    assert found[1999:2001] == [{"M1999"}, set()]


def test_braces_of_a_oneof_do_not_end_the_message() -> None:
    text = 'message A { oneof o { string a = 1 [(x) = "}\\"}"]; } message B {} } message C {}'
    for indexes, name in (((0, 0), "A.B"), ((1,), "C")):
        assert messages_at(Schema(text, "PROTOBUF"), indexes) == {name}


@given(st.sampled_from(sorted(CHAINS)), st.binary(max_size=40), st.integers(0, 250))
@settings(max_examples=examples(200), deadline=None)
def test_random_data_of_recursive_schemas_is_decoded_or_rejected(
    chain: str, data: bytes, steps: int
) -> None:
    from fastavro import parse_schema

    schema, deeper, end = CHAINS[chain]
    reading, written = AvroReading(), parse_schema(schema)
    for payload in (data, deeper * steps + data, deeper * steps + end * (steps + 1)):
        try:
            reading.value(payload, written)
        except DeserializationError:
            continue


FIXED_SIZES = {
    "boolean": "boolean",
    "double": "double",
    "fixed": {"type": "fixed", "name": "F", "size": 3},
    "record": record("P", "float", "float"),
}


@pytest.mark.parametrize("items", FIXED_SIZES)
def test_a_skipped_array_is_checked_for_its_number_of_items(
    server: RegistryServer, items: str
) -> None:
    written = record("N", field({"type": "array", "items": FIXED_SIZES[items]}, "a"), INT)
    registry = client(server, written)
    read = AvroDeserializer(registry, json.dumps(record("N", INT)))
    with pytest.raises(DeserializationError, match="it is truncated"):
        read(framed(varint(1 << EXPONENT) + b"\1"))
    column = pa.array([framed(varint(1 << EXPONENT) + b"\1")], pa.binary())
    assert list(avro_to_arrow(column, registry, json.dumps(record("N", INT))).errors) == [0]
    assert read(framed(b"\0\2")) == {"x": 1}


@pytest.mark.parametrize(
    ("payload", "why"),
    [
        (b"\xff" * 100_000, "a number has too many bytes"),
        (b"\x00\x03" * 300, "no such branch"),
    ],
)
def test_overlong_numbers_and_negative_union_branches_are_rejected(
    payload: bytes, why: str
) -> None:
    """Decoding a varint of 100,000 bytes would take minutes."""
    node = {
        "type": "record",
        "name": "Node",
        "fields": [{"name": "n", "type": "long"}, {"name": "next", "type": ["null", "Node"]}],
    }
    with pytest.raises(DeserializationError, match=why):
        AvroReading().value(payload, parse_schema(node))


@pytest.mark.slow
def test_references_in_a_json_schema_are_counted_before_they_are_stored(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each of 600 definitions refers to 600 others: 360,000 references in 50 KB."""
    monkeypatch.setattr(schema_limits, "MOST_WAYS", 50_000)
    count = 600
    chain = {f"n{at}": {"$ref": "x", "$dynamicRef": f"#/$defs/n{at + 1}"} for at in range(count)}
    leaves = {f"l{at}": {"$id": "x"} for at in range(count)}
    schema = {"$defs": {**chain, f"n{count}": {}, **leaves}, "$ref": "#/$defs/n0"}
    tracemalloc.start()
    try:
        with pytest.raises(InvalidSchemaError):
            JsonLimits(schema, {})
        assert tracemalloc.get_traced_memory()[1] < 10_000_000
    finally:
        tracemalloc.stop()

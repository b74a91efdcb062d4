"""R-IN-4: the work of a deserializer grows linearly with the size of a record.

Each case creates bytes of a size, as a peer may send. Work is counted in lines of Python, and in
processor time where C libraries work: a quadratic conversion takes 64 times as much for 8 times the
bytes.
"""

from __future__ import annotations

import gc
import json
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from decimal import Decimal
from types import FrameType
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2, struct_pb2
from tests.fuzz.avro import without_kernel
from tests.volume import third

from odradek.common.errors import KafkaError
from odradek.serialization import (
    AvroDeserializer,
    AvroSerializer,
    JSONDeserializer,
    MessageField,
    PlainJSONDeserializer,
    PlainJSONSerializer,
    ProtobufDeserializer,
    Schema,
    SchemaRegistryClient,
    SerializationContext,
    StringDeserializer,
    avro_to_arrow,
    json_to_arrow,
    plain_json_to_arrow,
    protobuf_to_arrow,
)
from odradek.serialization.wire_format import VALUE_HEADER, varint

FEW, TIMES = 1 << 14, 8
"""Bytes of the smaller input, and the factor of the larger one."""
MOST = 24
"""Allowed factor of work for the larger input: 8 is linear, 64 quadratic."""
LEAST_S = 0.002
"""Processor time below which differences are noise."""
FRAME = b"\0\0\0\0\1"
VALUE = SerializationContext("t", MessageField.VALUE)
Case = Callable[[int], Callable[[], object]]


class Registry(SchemaRegistryClient):
    """A registry that has one schema, under each id."""

    def __init__(self, schema: Any, kind: str) -> None:
        super().__init__({"schema.registry.url": "http://127.0.0.1:1"})
        self._schema_of_all = Schema(json.dumps(schema), kind)

    def get_schema(self, schema_id: int, fmt: str | None = None) -> Schema:
        return self._schema_of_all

    def get_schema_by_guid(self, guid: str) -> Schema:
        return self._schema_of_all


def record(*kinds: Any) -> dict[str, Any]:
    fields = [{"name": f"f{at}", "type": kind} for at, kind in enumerate(kinds)]
    return {"type": "record", "name": "R", "fields": fields}


def sized(data: bytes) -> bytes:
    return varint(len(data)) + data


def avro(kind: Any, payload: Callable[[int], bytes]) -> dict[str, Case]:
    """Return cases: objects, objects of a reader without the field, columns of one or many rows."""
    registry = Registry(record(kind), "AVRO")
    without = json.dumps(record() | {"fields": [{"name": "g", "type": "int", "default": 1}]})

    def objects(size: int) -> Callable[[], object]:
        read, data = AvroDeserializer(registry), FRAME + payload(size)
        return lambda: read(data, VALUE)

    def left_out(size: int) -> Callable[[], object]:
        read, data = AvroDeserializer(registry, without), FRAME + payload(size)
        return lambda: read(data, VALUE)

    def column(size: int) -> Callable[[], object]:
        rows = pa.array([FRAME + payload(size)])
        return lambda: avro_to_arrow(rows, registry)

    def by_library(size: int) -> Callable[[], object]:
        rows = pa.array([FRAME + payload(256)] * (size // 256))

        def run() -> None:
            with without_kernel():
                avro_to_arrow(rows, registry)

        return run

    return {
        "objects": objects,
        "left out": left_out,
        "column": column,
        "rows": by_library,
    }


def many(items: Callable[[int], bytes], each: int) -> Callable[[int], bytes]:
    """Encode an array or a map in one block."""
    return lambda size: (
        varint(size // each) + b"".join(items(at) for at in range(size // each)) + b"\0"
    )


def blocks(item: bytes) -> Callable[[int], bytes]:
    """Encode an array or a map with a block for each item."""
    return lambda size: (b"\2" + item) * (size // (1 + len(item))) + b"\0"


DIGITS = {"type": "bytes", "logicalType": "decimal", "precision": 10**7, "scale": 3}
AVRO: dict[str, tuple[Any, Callable[[int], bytes]]] = {
    "decimal": (DIGITS | {"precision": 64}, lambda size: sized(b"\x7f" * size)),
    "decimal of a huge precision": (DIGITS, lambda size: sized(b"\x7f" * size)),
    "padded decimal": (DIGITS, lambda size: sized(b"\0" * size)),
    "padded negative decimal": (DIGITS, lambda size: sized(b"\xff" * size)),
    "decimals": (
        {"type": "array", "items": DIGITS},
        many(lambda _: sized(b"\x7f" * 1700), 1702),
    ),
    "string": ("string", lambda size: sized(b"a" * size)),
    "string that is none": ("string", lambda size: sized(b"a" * (size - 1) + b"\xff")),
    "uuid": ({"type": "string", "logicalType": "uuid"}, lambda size: sized(b"-" * size)),
    "number": ("long", lambda size: b"\xff" * size + b"\1"),
    "numbers": ({"type": "array", "items": "int"}, many(lambda _: b"\2", 1)),
    "blocks": ({"type": "array", "items": "int"}, blocks(b"\2")),
    "arrays": (
        {"type": "array", "items": {"type": "array", "items": "int"}},
        many(lambda _: b"\0", 1),
    ),
    "map": ({"type": "map", "values": "int"}, many(lambda at: sized(b"%08d" % at) + b"\2", 10)),
    "map of one key": ({"type": "map", "values": "int"}, many(lambda _: sized(b"k") + b"\2", 3)),
    "list": (["null", "R"], lambda size: b"\2" * size + b"\0"),
    "branches": ({"type": "array", "items": ["null", "int", "string"]}, many(lambda _: b"\0", 1)),
    "left over": ("int", lambda size: b"\2" * size),
}


def text(made: Callable[[int], bytes]) -> dict[str, Case]:
    """Decode plain JSON, and JSON with a schema that allows anything, as objects and columns."""
    anything = Registry({}, "JSON")
    strict = Registry(
        {
            "uniqueItems": True,
            "contains": {"const": -1},
            "items": {"pattern": "^(a+)+$", "multipleOf": 1.5},
            "additionalProperties": {"type": ["integer", "string"]},
        },
        "JSON",
    )
    recursive = Registry(
        {"uniqueItems": True, "items": {"$ref": "#"}, "additionalProperties": {"$ref": "#"}},
        "JSON",
    )
    kind = pa.struct([("a", pa.string()), ("b", pa.list_(pa.float64()))])

    def objects(registry: Registry) -> Case:
        read = JSONDeserializer(schema_registry_client=registry)

        def case(size: int) -> Callable[[], object]:
            data = FRAME + made(size)
            return lambda: read(data, VALUE)

        return case

    def plain(size: int) -> Callable[[], object]:
        data = made(size)
        return lambda: PlainJSONDeserializer()(data, VALUE)

    def column(size: int) -> Callable[[], object]:
        rows = pa.array([FRAME + made(size), FRAME + made(size // 2)])
        return lambda: json_to_arrow(rows, strict)

    def plain_column(size: int) -> Callable[[], object]:
        rows = pa.array([b'{"a": %s}' % made(128), b'{"b": %s}' % made(128)] * (size // 256))
        return lambda: plain_json_to_arrow(rows, kind)

    return {
        "plain": plain,
        "objects": objects(anything),
        "checked": objects(strict),
        "checked on each level": objects(recursive),
        "column": column,
        "rows": plain_column,
    }


def items(item: Callable[[int], bytes], each: int) -> Callable[[int], bytes]:
    return lambda size: b"[" + b",".join(item(at) for at in range(size // each)) + b"]"


def nested(before: bytes, inner: Callable[[int], bytes], after: bytes) -> Callable[[int], bytes]:
    """Encode a value whose nesting grows with the size; some libraries refuse 255 levels."""
    return lambda size: before * (size // 800) + inner(size // 2) + after * (size // 800)


WIDE = b"[" + b",".join(b"%d" % at for at in range(16)) + b","
JSONS: dict[str, Callable[[int], bytes]] = {
    "digits": lambda size: b"7" * size,
    "fraction": lambda size: b"0." + b"7" * size,
    "exponent": lambda size: b"1e" + b"7" * size,
    "negative exponent": lambda size: b"1e-" + b"7" * size,
    "numbers": items(lambda at: b"%d" % at, 5),
    "numbers of 128 bits": items(lambda at: b"%d" % (10**38 + at), 40),
    "large numbers": items(lambda at: b"7" * 4000 + b"%d" % at, 4005),
    "objects": items(lambda at: b'{"n":%d}' % at, 10),
    "lists": items(lambda _: b"[]", 3),
    "members": lambda size: json.dumps({f"k{at}": at for at in range(size // 12)}).encode(),
    "one member": lambda size: b"{" + b",".join([b'"k":1'] * (size // 6)) + b"}",
    "string": lambda size: b'"' + b"a" * size + b'"',
    "pattern": lambda size: b'["' + b"a" * size + b'!"]',
    "patterns": items(lambda at: b'"aaaaaaaaa%d"' % at, 15),
    "escapes": lambda size: b'"' + b"\\ud83d\\ude00" * (size // 12) + b'"',
    "halves": lambda size: b'"' + b"\\ud83d" * (size // 6) + b'"',
    "brackets": lambda size: b"[" * size,
    "braces": lambda size: b'{"a":' * (size // 5),
    "spaces": lambda size: b" " * size,
    "no end": lambda size: b'"' + b"\\" * size,
    "zero bytes": bytes,
    "nested string": nested(b"[", lambda size: b'"' + b"a" * size + b'"', b"]"),
    "nested numbers": nested(WIDE, items(lambda at: b"%d" % at, 5), b"]"),
    "nested long numbers": nested(b"[", items(lambda at: b"%d" % (10**38 + at), 40), b"]"),
    "nested members": nested(b'{"a":', items(lambda at: b"%d" % (10**38 + at), 40), b"}"),
}


def field(number: int, data: bytes) -> bytes:
    tag = bytes((number << 3 | 2,))
    size, found = len(data), bytearray()
    while size > 0x7F:
        found.append(size & 0x7F | 0x80)
        size >>= 7
    return tag + bytes(found) + bytes((size,)) + data


NULL = field(1, b"k") + field(2, b"\x08\0")
PROTOBUF: dict[str, tuple[type[Any], Callable[[int], bytes]]] = {
    "entries": (struct_pb2.Struct, lambda size: field(1, NULL) * (size // len(field(1, NULL)))),
    "keys": (
        struct_pb2.Struct,
        lambda size: b"".join(field(1, field(1, b"%08d" % at)) for at in range(size // 12)),
    ),
    "merged": (struct_pb2.Value, lambda size: field(5, field(1, field(1, b"k"))) * (size // 7)),
    "merged lists": (struct_pb2.Value, lambda size: field(6, field(1, b"\x08\0")) * (size // 6)),
    "nested": (
        struct_pb2.Value,
        lambda size: b"".join(b"\x32\x7f" for _ in range(size // 2)),
    ),
    "string": (struct_pb2.Value, lambda size: field(3, b"a" * size)),
    "unknown": (struct_pb2.Struct, lambda size: b"\xf8\7\1" * (size // 3)),
    "groups": (struct_pb2.Struct, lambda size: b"\xfb\7" * (size // 2)),
    "number": (struct_pb2.Value, lambda size: b"\x08" + b"\xff" * size),
    "descriptor": (
        descriptor_pb2.FileDescriptorProto,
        lambda size: field(4, field(1, b"M")) * (size // 5),
    ),
}


def protobuf(kind: type[Any], payload: Callable[[int], bytes]) -> dict[str, Case]:
    registry = Registry({}, "PROTOBUF")

    def objects(size: int) -> Callable[[], object]:
        read, data = ProtobufDeserializer(kind), FRAME + b"\0" + payload(size)
        return lambda: read(data, VALUE)

    def column(size: int) -> Callable[[], object]:
        rows = pa.array([FRAME + b"\0" + payload(size)] * 2)
        return lambda: protobuf_to_arrow(rows, registry, kind)

    return {"objects": objects, "column": column}


def headers(size: int) -> Callable[[], object]:
    """Decode a record whose schema id is in the last of many headers."""
    listed = [("h", b"")] * (size // 8) + [(VALUE_HEADER, b"\1" * 17)]
    context = SerializationContext("t", MessageField.VALUE, listed)
    read = AvroDeserializer(Registry("string", "AVRO"))
    return lambda: read(b"\2a", context)


def written(size: int) -> Callable[[], object]:
    """Serialize a value that may have been read from a peer."""
    value = {"f0": Decimal(f"1E+{size * 1000}")}
    registry = Registry(record(DIGITS), "AVRO")
    write = AvroSerializer(registry, json.dumps(record(DIGITS)))
    parsed = write._parsed_of(Schema(json.dumps(record(DIGITS)), "AVRO"))

    def run() -> None:
        with suppress(KafkaError):
            PlainJSONSerializer()(value)
        write.payload(value, parsed)

    return run


CASES: dict[str, Case] = {
    "headers": headers,
    "written decimal": written,
    "text": lambda size: lambda: StringDeserializer()(b"a" * size + b"\xff"),
}
for name, given in AVRO.items():
    CASES |= {f"Avro, {name}, {way}": case for way, case in avro(*given).items()}
for name, made in JSONS.items():
    CASES |= {f"JSON, {name}, {way}": case for way, case in text(made).items()}
for name, of in PROTOBUF.items():
    CASES |= {f"Protobuf, {name}, {way}": case for way, case in protobuf(*of).items()}


def lines_run(action: Callable[[], object]) -> int:
    """Count the executed lines of Python in an action, including repeated lines."""
    count = 0

    def traced(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal count
        del frame, argument
        count += event == "line"
        return traced

    before = sys.gettrace()
    sys.settrace(traced)
    try:
        tried(action)
    finally:
        sys.settrace(before)
    return count


def seconds(action: Callable[[], object]) -> float:
    """Return the least processor time of three runs, without garbage collection."""
    found = []
    gc.collect()
    gc.disable()
    try:
        for _ in range(3):
            begun = time.thread_time()
            tried(action)
            found.append(time.thread_time() - begun)
            if found[-1] > 1:
                break
    finally:
        gc.enable()
    return min(found)


def tried(action: Callable[[], object]) -> None:
    with suppress(KafkaError):
        action()


@pytest.mark.slow
@pytest.mark.parametrize("name", third(CASES, "sizes"))
def test_work_grows_linearly_with_the_size_of_a_record(name: str) -> None:
    few, many_bytes = CASES[name](FEW), CASES[name](FEW * TIMES)
    tried(few)  # a first run, for imports and compiled code
    assert lines_run(many_bytes) <= MOST * max(lines_run(few), 1000)
    assert seconds(many_bytes) <= MOST * max(seconds(few), LEAST_S)

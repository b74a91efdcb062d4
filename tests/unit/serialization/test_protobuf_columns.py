"""Test Protobuf columns: rows are decoded as by a message class; errors have row numbers."""

from __future__ import annotations

import base64
from contextlib import AbstractContextManager, nullcontext
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2
from google.protobuf.internal import api_implementation
from google.protobuf.timestamp_pb2 import Timestamp
from tests.fuzz.avro import without_kernel
from tests.fuzz.kernels import native
from tests.fuzz.protobuf import Answers, Case, differ, drive, message_class
from tests.registry_server import RegistryServer
from tests.unit.spark.test_registry_protobuf import files, written

from odradek import ConfigurationError
from odradek.errors import InvalidSchemaError, RegistryUnreachableError
from odradek.serialization import (
    ProtobufDeserializer,
    ProtobufSerializer,
    Schema,
    SchemaRegistryClient,
    arrow_to_protobuf,
    protobuf_to_arrow,
)
from odradek.serialization.columns import column_room, framed_rows
from odradek.serialization.protobuf.rows import ProtobufRows

WAYS = pytest.mark.parametrize("way", [nullcontext, without_kernel])
"""Runs a test with the native kernel and without it."""
FRAME = b"\0\0\0\0\1\0"
BY_BYTES = api_implementation.Type() == "python"
"""True for Protobuf's pure Python version, the only one for 3.14t.

It identifies a field by the bytes of its tag, so a field with an overlong tag is unknown.
"""
LONG_TAG = b"\x88\x80"


def column(*rows: bytes | None) -> pa.Array:
    return pa.array(rows, pa.binary())


def one_field(**said: Any) -> bytes:
    """Return a proto3 file whose message M has the field x."""
    file = descriptor_pb2.FileDescriptorProto(name="f.proto", package="m", syntax="proto3")
    file.message_type.add(name="M").field.add(name="x", number=1, **said)
    return bytes(file.SerializeToString())


@WAYS
@pytest.mark.parametrize("given", [True, False])
def test_protobuf_values_of_every_type_are_decoded_to_columns(
    registry: SchemaRegistryClient, way: type[AbstractContextManager[None]], given: bool
) -> None:
    order = files()["Order"]
    full = order(
        f_double=1.5, f_float=2.5, f_int64=-1, f_uint64=(1 << 64) - 1, f_int32=-2, f_fixed64=3,
        f_fixed32=(1 << 32) - 1, f_bool=True, f_string="ä", f_bytes=b"\xff", f_uint32=4,
        f_sfixed32=-5, f_sfixed64=-6, f_sint32=-7, f_sint64=-8, kind=1, at={"code": "JFK"},
        many=[{"code": "A"}, {"code": "B"}], numbers=[1, 2], named={"a": {"code": "C"}}, maybe=0,
        time={"seconds": -1, "nanos": 1_500},
    )  # fmt: skip
    rows = [written(registry, full), None, written(registry, order(kind=9))]
    with way():
        read = protobuf_to_arrow(column(*rows), registry, order if given else None)
    place = pa.struct([("code", pa.string())])
    assert read.errors == {}
    assert {one.name: one.type for one in read.values.type} == {
        "f_double": pa.float64(), "f_float": pa.float32(), "f_int64": pa.int64(),
        "f_uint64": pa.decimal128(20), "f_int32": pa.int32(), "f_fixed64": pa.decimal128(20),
        "f_fixed32": pa.int64(), "f_bool": pa.bool_(), "f_string": pa.string(),
        "f_bytes": pa.binary(), "f_uint32": pa.int64(), "f_sfixed32": pa.int32(),
        "f_sfixed64": pa.int64(), "f_sint32": pa.int32(), "f_sint64": pa.int64(),
        "kind": pa.string(), "at": place, "time": pa.timestamp("us", "UTC"),
        "many": pa.list_(place), "numbers": pa.list_(pa.int32()),
        "named": pa.map_(pa.string(), place), "maybe": pa.int32(),
    }  # fmt: skip
    first, second, third = read.values.to_pylist()
    assert second is None
    assert first == {
        "f_double": 1.5, "f_float": 2.5, "f_int64": -1, "f_uint64": Decimal((1 << 64) - 1),
        "f_int32": -2, "f_fixed64": Decimal(3), "f_fixed32": (1 << 32) - 1, "f_bool": True,
        "f_string": "ä", "f_bytes": b"\xff", "f_uint32": 4, "f_sfixed32": -5, "f_sfixed64": -6,
        "f_sint32": -7, "f_sint64": -8, "kind": "SOME", "at": {"code": "JFK"},
        "time": datetime(1969, 12, 31, 23, 59, 59, 1, UTC),
        "many": [{"code": "A"}, {"code": "B"}], "numbers": [1, 2], "named": [("a", {"code": "C"})],
        "maybe": 0,
    }  # fmt: skip
    zeros: dict[str, Any] = {name: 0 for name in first if name.startswith("f_")}
    zeros |= {"f_string": "", "f_bytes": b"", "f_bool": False}
    assert third == zeros | {
        "kind": "9", "at": None, "time": None, "many": [], "numbers": [], "named": [], "maybe": None
    }  # fmt: skip


def test_the_kernel_decodes_everything_that_serializers_write(
    registry: SchemaRegistryClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Test all Arrow binary types, chunked arrays, and other versions of the message."""
    monkeypatch.setattr(framed_rows, "column_reader", native("kernel_columns").ColumnReader)
    monkeypatch.setattr(ProtobufRows, "_by_library", lambda *_: pytest.fail("by the library"))
    old, new = files()["Order"], files(later=True)["Order"]
    times = [{"seconds": -62_135_596_800}, {"seconds": 253_402_300_799, "nanos": 999_999_999}]
    rows = [
        written(registry, old(f_string="a", time=times[0], named={"x": {}, "y": {"code": "C"}})),
        None,
        written(registry, new(f_string="b", time=times[1], more="newer")),
    ]
    for given in (
        column(*rows),
        pa.array(rows, pa.large_binary()),
        pa.array(rows, pa.binary_view()),
        pa.chunked_array([column(rows[0]), column(), column(None, *rows)[2:]]),
        column(b"x", *rows)[1:],
    ):
        read = protobuf_to_arrow(given, registry, old)
        assert read.errors == {}
        found = read.values.to_pylist()
        assert [one and one["f_string"] for one in found] == ["a", None, "b"]
        assert sorted(found[0]["named"], key=str) == [("x", {"code": ""}), ("y", {"code": "C"})]
    assert protobuf_to_arrow(column(*rows), registry, new).values.to_pylist()[0]["more"] == ""


@WAYS
def test_an_invalid_row_does_not_affect_other_rows(
    server: RegistryServer,
    registry: SchemaRegistryClient,
    way: type[AbstractContextManager[None]],
) -> None:
    made = files()
    order = made["Order"]
    good = written(registry, order(f_string="good"))
    registry.register_schema("avro", Schema('"int"'))
    avro = server.schemas.index({"schema": '"int"'}) + 1
    rows = {
        1: (b"", "the data doesn't start with a zero byte"),
        2: (b"\0\0\0\0\x63\0", "404"),
        3: (written(registry, made["Other"](f_string="x")), "m.Other, not m.Order"),
        4: (good + b"\x08", "the data isn't a m.Order"),
        5: (b"\0\0\0\0" + bytes((avro,)) + b"\0", "type AVRO, not PROTOBUF"),
        6: (b"\1" + bytes(16) + b"\0", "identified by a GUID"),
        7: (good[:5] + b"\x02\x20", "unknown message [16]"),
        8: (good[:5], "ends within the message indexes"),
        9: (written(registry, order(time={"seconds": 1 << 60})), "a column can't represent"),
        10: (good + b"\x4a\2\xc3\x28", "the data isn't a m.Order"),  # a string that isn't UTF-8
        11: (good + b"\x4a\xff\xff\xff\xff\x0f", "the data isn't a m.Order"),  # a size of 4 GiB
    }
    given = column(good, *(row for row, _ in rows.values()), good)
    with way():
        read = protobuf_to_arrow(given, registry, order)
    found = read.values.to_pylist()
    assert [at for at, one in enumerate(found) if one is not None] == [0, 12]
    assert found[0]["f_string"] == found[12]["f_string"] == "good"
    assert list(read.errors) == list(rows)
    for at, (_, told) in rows.items():
        assert told in read.errors[at]


@WAYS
def test_unusual_encodings_are_decoded_as_by_protobuf(
    way: type[AbstractContextManager[None]],
) -> None:
    """Test fields that occur twice (the last counts), and packed, overlong, unknown fields."""
    file = one_field(type=5, label=1)
    packed = one_field(type=5, label=3)
    overlong = 0 if BY_BYTES and way is without_kernel else 7
    for data, values in (
        (file, {b"\x08\1\x08\2": 2, LONG_TAG + b"\0\x87\x80\0": overlong, b"\x10\1\x08\3\x1a\1x": 3,
                b"\x08" + b"\xff" * 9 + b"\1": -1, b"\x0a\1\5": 0, b"": 0}),
        (packed, {b"\x08\1\x0a\2\2\3\x08\4": [1, 2, 3, 4], b"\x0a\0": [], b"": []}),
    ):  # fmt: skip
        for given in (message_class(data), None):
            rows = column(*(FRAME + one for one in values), b"\0\0\0\0\1\2\0" + next(iter(values)))
            with way():
                read = protobuf_to_arrow(rows, Answers(data), given)
            assert read.errors == {}
            expected = [*values.values(), next(iter(values.values()))]
            assert [one["x"] for one in read.values.to_pylist()] == expected


@WAYS
def test_a_map_entry_without_a_value_has_an_empty_message(
    registry: SchemaRegistryClient, way: type[AbstractContextManager[None]]
) -> None:
    """Other message fields without a value become null."""
    order = files()["Order"]
    row = written(registry, order()) + b"\x9a\x02\x03\x0a\x01a"
    with way():
        read = protobuf_to_arrow(column(row), registry, order)
    assert read.values.to_pylist()[0]["named"] == [("a", {"code": ""})]


def mapped(key: int) -> bytes:
    """Return a proto3 file whose message M has the map field x."""
    file = descriptor_pb2.FileDescriptorProto(name="f.proto", package="m", syntax="proto3")
    message = file.message_type.add(name="M")
    entry = message.nested_type.add(name="XEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=key, label=1)
    entry.field.add(name="value", number=2, type=5, label=1)
    message.field.add(name="x", number=1, type=11, label=3, type_name=".m.M.XEntry")
    return bytes(file.SerializeToString())


def entries(*keys: bytes) -> bytes:
    """Return the encoded entries of a map with these keys; each value is the entry's index."""
    made = (b"\x0a" + key + b"\x10" + bytes((at,)) for at, key in enumerate(keys))
    return b"".join(b"\x0a" + bytes((len(one),)) + one for one in made)


def stamped() -> bytes:
    """Return a proto3 file whose message M has the timestamp field x."""
    file = descriptor_pb2.FileDescriptorProto.FromString(
        one_field(type=11, label=1, type_name=".google.protobuf.Timestamp")
    )
    file.dependency.append("google/protobuf/timestamp.proto")
    return bytes(file.SerializeToString())


def extended() -> bytes:
    """Return a proto2 file whose message M has a message and a string as extensions 100 and 101."""
    file = descriptor_pb2.FileDescriptorProto.FromString(one_field(type=5, label=1))
    file.syntax = "proto2"
    file.message_type[0].extension_range.add(start=100, end=200)
    file.extension.add(name="one", number=100, type=11, label=1, type_name=".m.M", extendee=".m.M")
    file.extension.add(name="two", number=101, type=9, label=1, extendee=".m.M")
    return bytes(file.SerializeToString())


def stamps() -> list[bytes]:
    """Return encoded timestamps: extreme, negative, with repeated and unknown fields."""
    edge = 9_223_372_036_853
    made = [
        Timestamp(seconds=seconds, nanos=nanos).SerializeToString()
        for seconds in (0, 1, -1, edge, -edge, edge + 1, -edge - 1, 1 << 62)
        for nanos in (0, 1500, -1500, (1 << 31) - 1)
    ]
    made += [made[4] + made[8], made[4] + b"\x18\x88\x27", made[4] + b"\x10"]
    return [b"\x0a" + bytes((len(one),)) + one for one in made]


NUMBERS = [bytes((1, at)) for at in range(100)]
"""Encoded strings of one byte: the length and the byte."""


@pytest.mark.parametrize(
    ("file", "payloads"),
    [
        (  # tags and sizes of six bytes or beyond 32 bits; field number 0; unknown wire types
            one_field(type=5, label=1),
            [b"\x88\x80\x80\x80\x80\0\1", b"\x88\x80\x80\x80\x10\1", b"\x88\x80\x80\x80\0\1",
             b"\xff\xff\xff\xff\x7f\1", b"\0\1", b"\x0f\1", b"\x13\x14", b"\x13", b"\x0b\x0c",
             b"\x12\x80\x80\x80\x80\x80\0", b"\x12\x81\x80\x80\x80\0a", b"\x11" + bytes(7),
             b"\x15" + bytes(3), b"\x15" + bytes(4), b"\x12\2a", b"\x08" + b"\xff" * 10 + b"\1"],
        ),
        (  # duplicate keys, few and many; an entry with an unknown field
            mapped(9),
            [entries(*NUMBERS), entries(*NUMBERS, NUMBERS[50]), entries(NUMBERS[0], NUMBERS[0]),
             entries(b"\0", b"\1a", b"\2aa", b"\0"), b"\x0a\6\x0a\1a\x18\1\x10\1"[:9],
             b"\x0a\7\x0a\1a\x18\1\x10\1", b"\x0a\0"],
        ),
        (  # duplicate keys that are numbers
            mapped(6),
            [b"".join(b"\x0a\x0b\x09" + at.to_bytes(8, "little") + b"\x10\1" for at in some)
             for some in ([*range(100)], [*range(100), 7], [3, 3], [1 << 40, 1 << 41])],
        ),
        (stamped(), stamps()),
        (  # an extension with an invalid and a valid message; an unknown extension
            extended(),
            [b"\xa2\6\2\x0f\x0f", b"\xa2\6\1\x08", b"\xa2\6\2\x08\1", b"\xb2\x09\1a",
             b"\xa0\6\1"],
        ),
        # strings: Latin 1, half of a surrogate pair, truncated, and valid UTF-8
        (one_field(type=9, label=1),
         [b"\x0a\1\xff", b"\x0a\3\xed\xa0\x80", b"\x0a\1\xc3", b"\x0a\2\xc3\xa4"]),
        (mapped(8), [b"\x0a\4\x08\1\x10\1" * 2, b"\x0a\4\x08\1\x10\1\x0a\4\x08\0\x10\1"]),
    ],
)  # fmt: skip
def test_the_kernel_decodes_nothing_that_protobuf_rejects(
    file: bytes, payloads: list[bytes]
) -> None:
    for payload in payloads:
        if BY_BYTES and payload.startswith(LONG_TAG):
            continue
        assert (why := differ(Case(file, [FRAME + payload], given=True))) is None, why


@pytest.mark.parametrize(("last", "left"), [(b"\1", 0), (b"\3", 1), (b"\x7f", 1)])
def test_a_number_of_more_than_64_bits_is_left_to_protobuf(last: bytes, left: int) -> None:
    """Some implementations of Protobuf truncate the number, others reject it."""
    row = FRAME + b"\x08" + b"\xff" * 9 + last
    case = Case(one_field(type=5, label=1), [row], given=True)
    found = drive(native("kernel_columns"), case)
    assert found is not None
    assert found[0][:2] == (1, left)  # number of rows, number of nulls


def test_rows_of_several_schemas_need_a_message_class(registry: SchemaRegistryClient) -> None:
    old, new = files()["Order"], files(later=True)["Order"]
    rows = column(b"odd", written(registry, old()), written(registry, new()))
    with pytest.raises(InvalidSchemaError, match=r"several schemas.*message_type"):
        protobuf_to_arrow(rows, registry)
    assert list(protobuf_to_arrow(rows, registry, new).errors) == [0]
    assert list(protobuf_to_arrow(rows[:2], registry).errors) == [0]


def test_columns_without_a_usable_schema_contain_errors(registry: SchemaRegistryClient) -> None:
    read = protobuf_to_arrow(column(None, b"x", b"\0\0\0\0\x63\0"), registry)
    assert read.values.to_pylist() == [None] * 3
    assert list(read.errors) == [1, 2]
    assert protobuf_to_arrow(column(), registry).values.type == pa.null()
    place = protobuf_to_arrow(column(), registry, files()["Place"])
    assert place.values.type == pa.struct([("code", pa.string())])


def test_a_registry_without_descriptors_needs_a_message_class(
    server: RegistryServer, registry: Any
) -> None:
    text = 'syntax = "proto3"; package m; message M { string x = 1; }'
    registry.register_schema("t-value", Schema(text, "PROTOBUF"))
    rows = column(FRAME + b"\x0a\3JFK")
    with pytest.raises(InvalidSchemaError, match=r"format=serialized"):
        protobuf_to_arrow(rows, registry)
    made = message_class(one_field(type=9, label=1))
    assert protobuf_to_arrow(rows, registry, made).values.to_pylist() == [{"x": "JFK"}]
    server.serialized = base64.b64encode(one_field(type=9, label=1)).decode()
    fresh = SchemaRegistryClient({"schema.registry.url": server.url, "bearer.auth.token": "x"})
    assert protobuf_to_arrow(rows, fresh).values.to_pylist() == [{"x": "JFK"}]


@pytest.mark.slow
def test_recursive_wide_and_deep_messages_are_rejected(registry: SchemaRegistryClient) -> None:
    with pytest.raises(InvalidSchemaError, match=r"m\.Tree is recursive"):
        protobuf_to_arrow(column(), registry, files()["Tree"])
    wide = descriptor_pb2.FileDescriptorProto(name="f.proto", package="m", syntax="proto3")
    for at in range(40):  # 2**40 fields
        message = wide.message_type.add(name=f"M{at}")
        for number in (1, 2):
            one = message.field.add(name=f"f{number}", number=number, type=5, label=1)
            if at < 39:
                one.type, one.type_name = 11, f".m.M{at + 1}"
    with pytest.raises(InvalidSchemaError, match="more than 20000 types"):
        protobuf_to_arrow(column(), registry, message_class(wide.SerializeToString()))
    for at in range(40, 80):
        wide.message_type.add(name=f"M{at}")
    for at in range(80):
        del wide.message_type[at].field[:]
        if at < 79:
            wide.message_type[at].field.add(
                name="f", number=1, type=11, label=1, type_name=f".m.M{at + 1}"
            )
    with pytest.raises(InvalidSchemaError, match="nested more than 64 levels deep"):
        protobuf_to_arrow(column(), registry, message_class(wide.SerializeToString()))


@pytest.mark.slow
@WAYS
def test_short_data_cannot_use_much_memory_in_columns(
    monkeypatch: pytest.MonkeyPatch, way: type[AbstractContextManager[None]]
) -> None:
    """Two bytes may become a message of hundreds of fields; only rows with many are rejected."""
    monkeypatch.setattr(column_room, "FREE", 1 << 20)
    file = descriptor_pb2.FileDescriptorProto(name="f.proto", package="m", syntax="proto3")
    first = file.message_type.add(name="M")
    first.field.add(name="w", number=1, type=11, label=3, type_name=".m.W")
    wide = file.message_type.add(name="W")
    for at in range(500):
        wide.field.add(name=f"f{at}", number=at + 1, type=1, label=1)
    data = file.SerializeToString()
    good, bad = FRAME + b"\x0a\0", FRAME + b"\x0a\0" * 700
    with way():
        read = protobuf_to_arrow(column(good, bad, good, bad), Answers(data))
    assert list(read.errors) == [1, 3]
    assert "in columns" in read.errors[1]
    assert [one and len(one["w"]) for one in read.values.to_pylist()] == [1, None, 1, None]
    assert pa.total_allocated_bytes() < 20 << 20


def test_an_unavailable_registry_raises_instead_of_row_errors(
    server: RegistryServer, registry: SchemaRegistryClient
) -> None:
    row = written(registry, files()["Order"]())
    server.rule = lambda _: (503, {})
    away = SchemaRegistryClient({"schema.registry.url": server.url, "default.api.timeout.ms": 100})
    for given in (files()["Order"], None):
        with pytest.raises(RegistryUnreachableError):
            protobuf_to_arrow(column(row), away, given)


def test_columns_encoded_as_protobuf_round_trip(registry: SchemaRegistryClient) -> None:
    order = files()["Order"]
    messages = [
        order(
            f_uint64=(1 << 64) - 1, f_string="ä", kind=1, at={"code": "JFK"}, numbers=[1, 2],
            many=[{"code": "A"}], named={"a": {"code": "C"}}, maybe=0, f_double=1.5,
            time={"seconds": -1, "nanos": 1000},
        ),
        order(kind=-9),
    ]  # fmt: skip
    rows = column(written(registry, messages[0]), None, written(registry, messages[1]))
    read = protobuf_to_arrow(rows, registry, order)
    write = ProtobufSerializer(order, registry)
    back = arrow_to_protobuf(read.values, write, "t")
    assert back.errors == {}
    deserialize = ProtobufDeserializer(order, registry)
    found = [deserialize(one) for one in back.values.to_pylist()]
    assert found == [messages[0], None, messages[1]]


def test_a_struct_that_does_not_match_the_message_is_an_error_of_its_row(
    registry: SchemaRegistryClient,
) -> None:
    """Test a wrong type, several fields of a oneof, and an unknown enum name."""
    file = descriptor_pb2.FileDescriptorProto(name="f.proto", package="m", syntax="proto3")
    message = file.message_type.add(name="M")
    message.oneof_decl.add(name="choice")
    for number, name in enumerate("xy", 1):
        message.field.add(name=name, number=number, type=5, label=1, oneof_index=0)
    made = message_class(file.SerializeToString())
    write = ProtobufSerializer(made, registry, {"auto.register.schemas": True})
    rows = [{"x": 1, "y": None}, {"x": 1, "y": 2}, {"x": 1 << 40, "y": None}, {"x": None, "y": 0}]
    found = arrow_to_protobuf(pa.array(rows), write, "t")
    assert list(found.errors) == [1, 2]
    assert "several fields of a oneof" in found.errors[1]
    assert found.values[0].as_py() == FRAME + b"\x08\x01"
    assert found.values[3].as_py() == FRAME + b"\x10\x00"
    for wrong in ({"x": "1"}, {"z": 1}, 5, [1]):
        assert (
            "doesn't match the message"
            in arrow_to_protobuf(pa.array([wrong]), write, "t").errors[0]
        )
    lacking = arrow_to_protobuf(pa.array([{"x": 1, "z": 1, "a": 2}]), write, "t").errors[0]
    assert lacking == "the data doesn't match the message: unknown fields a, z"
    order = ProtobufSerializer(files()["Order"], registry, {"auto.register.schemas": True})
    assert list(arrow_to_protobuf(pa.array([{"kind": "ODD"}]), order, "u").errors) == [0]
    with pytest.raises(ConfigurationError, match="must be a ProtobufSerializer"):
        arrow_to_protobuf(pa.array(rows), made, "t")
    with pytest.raises(ConfigurationError, match="topic must be a string"):
        arrow_to_protobuf(pa.array(rows), write, "t", "neither")  # type: ignore[arg-type]


def test_integer_and_boolean_fields_accept_no_other_types(
    registry: SchemaRegistryClient,
) -> None:
    """Once, fractions were truncated, strings parsed, and all numbers but 0 were true."""
    file = descriptor_pb2.FileDescriptorProto(name="f.proto", package="m", syntax="proto3")
    message = file.message_type.add(name="M")
    for number, (name, kind) in enumerate({"u": 4, "f": 6, "b": 8}.items(), 1):
        message.field.add(name=name, number=number, type=kind, label=1)
    made = message_class(file.SerializeToString())
    write = ProtobufSerializer(made, registry, {"auto.register.schemas": True})
    most = (1 << 64) - 1
    for name in "uf":
        for bad in (1.0, 1.9, "12", True, Decimal("1.5"), -1, Decimal(most + 1)):
            found = arrow_to_protobuf(pa.array([{name: bad}, None]), write, "t")
            assert list(found.errors) == [0], bad
        for good in (pa.array([most], pa.uint64()), pa.array([Decimal(most)]), pa.array([0])):
            found = arrow_to_protobuf(pa.StructArray.from_arrays([good], [name]), write, "t")
            read = protobuf_to_arrow(found.values, registry, made)
            assert read.values[0].as_py()[name] == good[0].as_py()
    assert list(arrow_to_protobuf(pa.array([{"b": 2}, {"b": 1}]), write, "t").errors) == [0, 1]


def test_invalid_arguments_of_protobuf_columns_are_rejected(registry: SchemaRegistryClient) -> None:
    for arguments, told in (
        ((b"x", registry), "column must be an Arrow array"),
        ((column(), None), "registry must be a SchemaRegistryClient"),
        ((column(), registry, "Order"), "a class generated by protoc"),
    ):
        with pytest.raises(ConfigurationError, match=told):
            protobuf_to_arrow(*arguments)

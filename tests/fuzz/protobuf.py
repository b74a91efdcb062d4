"""Random Protobuf messages, and broken bytes: the native decoder against Protobuf's library.

In: a seed. Out: cases; the native decoder's result for a case without Arrow, and the results of
`protobuf_to_arrow` with the native decoder and with the library, which must be equal, including
errors.
"""

from __future__ import annotations

import base64
import random
from array import array
from functools import lru_cache
from typing import Any, NamedTuple

import pyarrow as pa
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2
from tests.fuzz.avro import SMALL, without_kernel
from tests.fuzz.sent import exact

from odradek.common.errors import KafkaError
from odradek.serialization import SchemaRegistryClient, protobuf_to_arrow
from odradek.serialization.columns.column_layout import Columns, UnplannedError
from odradek.serialization.errors import SchemaNotFoundError
from odradek.serialization.protobuf.plan import ProtobufProgram
from odradek.serialization.protobuf.types import protobuf_type
from odradek.serialization.registry.schemas import PROTOBUF, Schema
from odradek.serialization.wire_format import varint

SCALARS = (1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 13, 15, 16, 17, 18)
"""Numbers of Protobuf's types, without groups, messages and enums."""
GROUP, MESSAGE, ENUM = 10, 11, 14
KEYS = (3, 4, 5, 6, 7, 8, 9, 13, 15, 16, 17, 18)
SIGNED_32, SIGNED_64, UNSIGNED_32, UNSIGNED_64 = (5, 15, 17), (3, 16, 18), (7, 13), (4, 6)
TEXTS = ("", "a", "JFK", "ä€", "\U0001f600 and more than eight bytes", "\0")
ODD = (
    b"\xff" * 9 + b"\1", b"\x80\0", b"\xff" * 9 + b"\x7f", b"\x07", b"\0", b"\xff\xff\xff\xff\x0f",
    b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\1", b"\xc0\x80", b"\xed\xa0\x80",
)  # fmt: skip
"""Numbers at the limits of tags, sizes and values, and invalid text."""
SAME_SCHEMAS = 40
"""Cases with the same message: creating a class takes longer than reading."""


class Case(NamedTuple):
    """A column, and the descriptor file whose first message type its rows have."""

    file: bytes
    rows: list[bytes | None]
    given: bool
    """Whether the class is passed, or comes from the registry."""


class Answers(SchemaRegistryClient):
    """A registry with one schema: a Protobuf file."""

    def __init__(self, file: bytes) -> None:
        super().__init__({"schema.registry.url": "http://127.0.0.1:1"})
        self._file = Schema(base64.b64encode(file).decode(), PROTOBUF)

    def get_schema(self, schema_id: int, fmt: str | None = None) -> Schema:
        if schema_id == 2:
            return Schema('"int"')
        if schema_id != 1:
            missing = SchemaNotFoundError(f"no schema {schema_id}", None, "")
            missing.blames_record = True
            raise missing
        return self._file


@lru_cache(16)
def message_class(file: bytes) -> Any:
    """Return the class of a file's first message."""
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(timestamp_pb2.DESCRIPTOR.serialized_pb)
    pool.AddSerializedFile(file)
    name = descriptor_pb2.FileDescriptorProto.FromString(file).name
    first = next(iter(pool.FindFileByName(name).message_types_by_name.values()))
    return message_factory.GetMessageClass(first)


class Protobufs:
    """Cases of one seed."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._turn = self._names = 0
        self._file = b""
        self._classes: list[Any] = []

    def case(self) -> Case:
        """Create the next case: new rows, and from time to time a new message."""
        if self._turn % SAME_SCHEMAS == 0:
            self._draw_files()
        self._turn += 1
        rows = [self._row() for _ in range(self._random.randrange(1, 12))]
        return Case(self._file, rows, self._random.random() < 0.5)

    def _draw_files(self) -> None:
        """Create a message, and another version of it with other and fewer fields."""
        self._names = 0
        proto3 = self._random.random() < 0.7
        file = descriptor_pb2.FileDescriptorProto(
            name="f.proto",
            package="m",
            syntax="proto3" if proto3 else "proto2",
            dependency=["google/protobuf/timestamp.proto"],
        )
        kind = file.enum_type.add(name="Kind")
        for name, number in (("NONE", 0), ("SOME", 1), ("LESS", -1), ("MANY", 1 << 30)):
            kind.value.add(name=name, number=number)
        first = file.message_type.add(name="First")
        other = file.message_type.add(name="Other")
        self._fill(first, ".m.First", 0, proto3=proto3)
        other.field.add(name="x", number=1, type=5, label=1)
        self._file = file.SerializeToString()
        changed = descriptor_pb2.FileDescriptorProto.FromString(self._file)
        fields = changed.message_type[0].field
        for at in reversed(range(len(fields))):
            if fields[at].HasField("oneof_index"):
                continue
            if self._random.random() < 0.2:
                del fields[at]
            elif fields[at].number < 3000 and self._random.random() < 0.1:
                fields[at].number += 100
        self._classes = [message_class(one) for one in (self._file, changed.SerializeToString())]

    def _fill(self, message: Any, path: str, depth: int, *, proto3: bool) -> None:
        count = self._random.randrange(0 if depth else 1, 7)
        numbers = self._random.sample([*range(1, 20), 2047, 2048, 536870911], count)
        if self._random.random() < 0.7:
            numbers.sort()
        for number in numbers:
            self._field(message, path, number, depth, proto3=proto3)
        if self._random.random() < 0.3:
            message.oneof_decl.add(name=f"choice{self._name()}")
            for at in range(self._random.randrange(1, 4)):
                one = message.field.add(name=f"o{self._name()}", number=50 + at, label=1)
                self._typed(one, message, path, depth, proto3=proto3, group=False)
                one.oneof_index = len(message.oneof_decl) - 1
        for at, one in enumerate(message.field):
            if one.proto3_optional:  # the synthetic oneofs come last
                message.oneof_decl.add(name=f"_{at}")
                one.oneof_index = len(message.oneof_decl) - 1

    def _name(self) -> int:
        self._names += 1
        return self._names

    def _field(self, message: Any, path: str, number: int, depth: int, *, proto3: bool) -> None:
        draw = self._random.random()
        one = message.field.add(name=f"f{self._name()}", number=number, label=1)
        if draw < 0.12:
            name = f"F{self._name()}Entry"
            entry = message.nested_type.add(name=name)
            entry.options.map_entry = True
            entry.field.add(name="key", number=1, type=self._random.choice(KEYS), label=1)
            value = entry.field.add(name="value", number=2, label=1)
            self._typed(value, message, path, depth, proto3=proto3, group=False)
            one.name = name[:-5].lower()
            # Protobuf requires this name: it derives a map field's entry name from the field's
            # name.
            entry.name = f"{one.name.capitalize()}Entry"
            one.type, one.label, one.type_name = MESSAGE, 3, f"{path}.{entry.name}"
            return
        self._typed(one, message, path, depth, proto3=proto3, group=not proto3)
        if draw < 0.4:
            one.label = 3
            if one.type not in (9, 12, GROUP, MESSAGE) and self._random.random() < 0.5:
                one.options.packed = self._random.random() < 0.5
        elif draw < 0.6 and proto3:
            one.proto3_optional = True
        elif draw < 0.5 and not proto3:
            one.label = 2

    def _typed(
        self, one: Any, message: Any, path: str, depth: int, *, proto3: bool, group: bool
    ) -> None:
        draw = self._random.random()
        one.type = self._random.choice(SCALARS)
        if draw < 0.15:
            one.type, one.type_name = ENUM, ".m.Kind"
        elif draw < 0.25:
            one.type, one.type_name = MESSAGE, ".google.protobuf.Timestamp"
        elif draw < 0.45 and depth < 3:
            inner = message.nested_type.add(name=f"M{self._name()}")
            one.type = GROUP if group and draw < 0.27 else MESSAGE
            one.type_name = f"{path}.{inner.name}"
            if one.type == GROUP:
                one.name = inner.name.lower()
            self._fill(inner, one.type_name, depth + 1, proto3=proto3)

    def _row(self) -> bytes | None:
        draw = self._random.random
        chance = draw()
        if chance < 0.05:
            return None
        frame = b"\0\0\0\0\1"
        if chance < 0.1:
            odd = (b"", b"\0\0", frame, b"\1" + frame, b"\0\0\0\0\x63\0", b"\0\0\0\0\2\0")
            return self._random.choice((*odd, frame + b"\xff\xff\xff\xff\xff\1", frame + b"\1"))
        made = self._classes[draw() < 0.2]()
        self._set(made)
        data = bytearray(made.SerializePartialToString())
        if draw() < 0.1:  # fields that are written twice are merged
            again = self._classes[draw() < 0.2]()
            self._set(again)
            data += again.SerializePartialToString()
        while draw() < 0.25:
            self._spoil(data)
        chance = draw()
        indexes = b"\0"
        if chance < 0.05:
            indexes = self._random.choice((b"\2\2", b"\2\0", b"\2\1", b"\4\0\0", varint(1 << 20)))
        return frame + indexes + bytes(data)

    def _spoil(self, data: bytearray) -> None:
        draw = self._random.randrange
        at = draw(len(data) + 1)
        way = draw(6)
        if way == 0:
            del data[at:]
        elif way == 1:
            data[at:at] = bytes(draw(256) for _ in range(draw(1, 4)))
        elif way == 2 and at < len(data):
            data[at] = draw(256)
        elif way == 3 and at < len(data):
            data[at : at + 1] = self._random.choice(ODD)
        elif way == 4:
            # Insert a field of any number and wire type.
            data[at:at] = bytes((draw(128),)) + self._random.choice((*ODD, b"\1", b"\1a", bytes(8)))
        elif at < len(data):
            del data[at]

    def _set(self, message: Any) -> None:
        """Set random fields of a message."""
        for one in message.DESCRIPTOR.fields:
            if self._random.random() < 0.35:
                continue
            if one.message_type is not None and one.message_type.GetOptions().map_entry:
                self._set_map(getattr(message, one.name), one.message_type)
            elif one.is_repeated:
                held = getattr(message, one.name)
                for _ in range(self._random.choice((0, 1, 1, 2, 3, 20))):
                    if one.message_type is None:
                        held.append(self._value(one))
                    else:
                        self._set_message(held.add())
            elif one.message_type is not None:
                getattr(message, one.name).SetInParent()
                self._set_message(getattr(message, one.name))
            else:
                setattr(message, one.name, self._value(one))

    def _set_message(self, message: Any) -> None:
        if message.DESCRIPTOR.full_name != "google.protobuf.Timestamp":
            self._set(message)
            return
        edge = (1 << 63) // 1_000_000
        message.seconds = self._random.choice(
            (0, 1, -1, edge, -edge, edge - 1, edge + 1, 1 - edge, edge - 60, 60 - edge, 1 << 60)
        )
        message.nanos = self._random.choice(
            (0, 1, 999, 1000, 999_999_999, (1 << 31) - 1, -1, -1500)
        )

    def _set_map(self, held: Any, entry: Any) -> None:
        key, value = entry.fields_by_name["key"], entry.fields_by_name["value"]
        for at in range(self._random.choice((0, 1, 1, 2, 3, 30))):
            name = f"k{at}" if key.type == 9 else at % 2 == 0 if key.type == 8 else at
            if value.message_type is None:
                held[name] = self._value(value)
            else:
                self._set_message(held[name])

    def _value(self, one: Any) -> Any:
        draw = self._random
        kind = one.type
        for kinds, low, high in (
            (SIGNED_32, -(1 << 31), (1 << 31) - 1),
            (SIGNED_64, -(1 << 63), (1 << 63) - 1),
            (UNSIGNED_32, 0, (1 << 32) - 1),
            (UNSIGNED_64, 0, (1 << 64) - 1),
        ):
            if kind in kinds:
                return draw.choice((0, 1, 127, 128, low, high, max(low, -1)))
        if kind in (1, 2):
            return draw.choice((0.0, -0.0, -1.5, 1e30, float("nan"), float("-inf")))
        if kind == 8:
            return draw.random() < 0.5
        if kind == 9:
            return draw.choice(TEXTS)
        if kind == ENUM:
            open_one = one.file.serialized_pb and not one.enum_type.is_closed
            return draw.choice((0, 1, -1, 1 << 30, *((7, -7) if open_one else ())))
        return draw.randbytes(draw.randrange(9))


def read(case: Case) -> Any:
    """Return the comparable result of `protobuf_to_arrow` for a case."""
    wanted = message_class(case.file) if case.given else None
    try:
        found = protobuf_to_arrow(pa.array(case.rows, pa.binary()), Answers(case.file), wanted)
    except KafkaError as error:
        return str(error)
    found.values.validate(full=True)
    plain = found.values.cast(_without_times(found.values.type))
    values = plain.to_pylist(maps_as_pydicts="strict")
    return str(found.values.type), [_sorted(one) for one in values], dict(found.errors)


def _without_times(kind: pa.DataType) -> pa.DataType:
    """Return the type with numbers in place of timestamps, some of which Python can't represent."""
    if pa.types.is_struct(kind):
        return pa.struct([(one.name, _without_times(one.type)) for one in kind])
    if pa.types.is_map(kind):
        return pa.map_(kind.key_type, _without_times(kind.item_type))
    if pa.types.is_list(kind):
        return pa.list_(_without_times(kind.value_type))
    return pa.int64() if pa.types.is_timestamp(kind) else kind


def _sorted(value: Any) -> str:
    """Return a text of a value with sorted maps, whose entries have no order."""
    if isinstance(value, dict):
        return "{" + ",".join(sorted(f"{key!r}:{_sorted(one)}" for key, one in value.items())) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_sorted, value)) + "]"
    return repr(value)


def differ(case: Case) -> str | None:
    """Return how the native decoder and the library differ; None where they don't."""
    ours = read(case)
    with without_kernel():
        theirs = read(case)
    return None if ours == theirs else f"{case}\nkernel: {ours}\nlibrary: {theirs}"


@lru_cache(16)
def planned(file: bytes) -> tuple[bytes, tuple[bytes | None, bytes]]:
    """Return the layout of a message's columns, and its program."""
    descriptor = message_class(file).DESCRIPTOR
    columns = Columns(protobuf_type(descriptor).kind)
    try:
        return columns.layout(), ProtobufProgram(descriptor, columns).after(b"\0")
    except UnplannedError:
        return columns.layout(), (None, b"")


def drive(kernel: Any, case: Case) -> list[Any] | None:
    """Decode rows from buffers of minimal size with the native decoder; return its columns."""
    layout, program = planned(case.file)
    reader = kernel.ColumnReader(layout, SMALL)
    reader.add(1, *program)
    data = b"".join(row or b"" for row in case.rows)
    ends, marks = [0], bytearray(len(case.rows))
    for row in case.rows:
        ends.append(ends[-1] + len(row or b""))
    offsets = array("i", ends).tobytes()
    done, room = 0, len(data) % 3 << 12
    while done < len(case.rows):
        done = reader.read(
            exact(data), exact(offsets), None, False, 0, len(case.rows), done, marks, room
        )
        if done < len(case.rows):
            reader.add(reader.unknown_schema, None)
    found = []
    for number in range(len(layout) // 32):
        count, nulls, *blocks = reader.column(number)
        found.append((count, nulls, *(None if one is None else bytes(one) for one in blocks)))
    return found

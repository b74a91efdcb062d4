"""Random Avro: schemas, differing readers' schemas, records, and broken bytes.

In: a seed. Out: cases; the native decoder's result for a case without Arrow, and the results of
`avro_to_arrow` with the native decoder and with fastavro, which must be equal, including errors.
"""

from __future__ import annotations

import io
import json
import random
from array import array
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from itertools import pairwise
from typing import Any, NamedTuple
from unittest.mock import patch

import fastavro
import pyarrow as pa
from tests.fuzz.sent import exact

from odradek.common.errors import KafkaError
from odradek.errors import SchemaNotFoundError
from odradek.serialization import Schema, SchemaRegistryClient, avro_to_arrow
from odradek.serialization.avro.plan import program
from odradek.serialization.avro.types import arrow_type
from odradek.serialization.columns import framed_rows
from odradek.serialization.columns.column_layout import Columns, UnplannedError

PLAIN = ("boolean", "int", "long", "float", "double", "bytes", "string")
LOGICAL = (
    ("int", "date"),
    ("int", "time-millis"),
    ("long", "time-micros"),
    ("long", "timestamp-millis"),
    ("long", "timestamp-micros"),
    ("long", "local-timestamp-millis"),
    ("long", "local-timestamp-micros"),
    ("string", "uuid"),
)
WIDER = {
    "int": ("long", "float", "double"),
    "long": ("float", "double"),
    "float": ("double",),
    "string": ("bytes",),
    "bytes": ("string",),
}
DEFAULTS: dict[str, Any] = {
    "boolean": True, "int": -3, "long": 1 << 40, "float": 1.5, "double": -2, "string": "ä",
    "bytes": "x",
}  # fmt: skip
TEXTS = ("", "a", "JFK", "ä€", "\U0001f600 and more than eight bytes", "\0")
EDGES = (0, 1, -1, 63, 64, -65, 2**31 - 1, -(2**31), 2**63 - 1, -(2**63))


ODD = (b"\xff" * 9 + b"\1", b"\x80\0", b"\1", b"\2", b"\3", b"\4", b"\6")
"""Numbers at the limits of unions, enums and sizes."""
SAME_SCHEMAS = 10
"""Cases with the same schemas: creating them takes longer than reading."""
SMALL = 60
"""Capacity of a column in bytes or items, as the native decoder is told."""


def parsed(schema: Any) -> Any:
    """Parse a schema for fastavro; copy it, because fastavro changes its argument."""
    return fastavro.parse_schema(json.loads(json.dumps(schema)))


class Case(NamedTuple):
    """A column, and the schemas of its rows."""

    written: list[Any]
    """Schemas of the writers; their ids count from 1."""
    wanted: Any
    """Schema of the reader; None if there is only one writer's schema."""
    rows: list[bytes | None]
    cuts: list[int]
    """Row numbers at which the chunks of the column begin."""


class Answers(SchemaRegistryClient):
    """A registry that returns the schemas of a list."""

    def __init__(self, schemas: list[Any]) -> None:
        super().__init__({"schema.registry.url": "http://127.0.0.1:1"})
        self._schemas = schemas

    def get_schema(self, schema_id: int, fmt: str | None = None) -> Schema:
        if not 0 < schema_id <= len(self._schemas):
            missing = SchemaNotFoundError(f"no schema {schema_id}", None, "")
            missing.blames_record = True
            raise missing
        return Schema(json.dumps(self._schemas[schema_id - 1]))


class Avros:
    """Cases of one seed."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._names = self._turn = 0
        self._schemas: tuple[list[Any], Any] = ([], None)
        self._parsed: list[Any] = []

    def case(self) -> Case:
        """Create the next case: new rows, and from time to time new schemas."""
        if self._turn % SAME_SCHEMAS == 0:
            self._draw_schemas()
        self._turn += 1
        written, wanted = self._schemas
        rows = [self._row(written) for _ in range(self._random.randrange(1, 12))]
        cuts = sorted(
            self._random.randrange(len(rows) + 1) for _ in range(self._random.randrange(3))
        )
        return Case(written, wanted, rows, cuts)

    def _draw_schemas(self) -> None:
        chance = self._random.random
        first = self._record(0, unions=chance() < 0.2)
        written: list[Any] = [first]
        wanted = None
        if chance() < 0.6:
            wanted = self._changed(first)
            written.append(self._changed(first))
        elif chance() < 0.1:
            only = first["fields"][0]["type"]
            written[0] = "string" if isinstance(only, list) else only
        self._schemas = written, wanted
        self._parsed = [parsed(one) for one in written]

    def _name(self, what: str) -> str:
        self._names += 1
        return f"{what}{self._names}"

    def _record(self, depth: int, *, unions: bool) -> dict[str, Any]:
        fields = [
            {"name": f"f{at}", "type": self._type(depth + 1, unions=unions)}
            for at in range(self._random.randrange(0 if depth else 1, 5))
        ]
        return {"type": "record", "name": self._name("R"), "fields": fields}

    def _type(self, depth: int, *, unions: bool) -> Any:
        draw = self._random.random()
        if draw < 0.45 or depth > 4:
            return self._random.choice(PLAIN)
        if draw < 0.6:
            kind, name = self._random.choice(LOGICAL)
            return {"type": kind, "logicalType": name}
        if draw < 0.72:
            inner = self._type(depth + 1, unions=unions)
            if isinstance(inner, list) or inner == "null":
                return inner
            return self._random.choice((["null", inner], [inner, "null"], [inner]))
        if draw < 0.8:
            inner = self._type(depth + 1, unions=unions)
            return {"type": "array", "items": inner}
        if draw < 0.86:
            return {"type": "map", "values": self._type(depth + 1, unions=unions)}
        if draw < 0.9:
            symbols = ["A", "B", "C"][: self._random.randrange(1, 4)]
            return {"type": "enum", "name": self._name("E"), "symbols": symbols}
        if draw < 0.93:
            digits = self._random.choice((1, 5, 18, 19, 38))
            more = {"logicalType": "decimal", "precision": digits, "scale": digits // 2}
            if self._random.random() < 0.5:
                return {"type": "bytes", **more}
            return {"type": "fixed", "name": self._name("D"), "size": 16, **more}
        if draw < 0.95:
            size = self._random.randrange(1, 20)
            return {"type": "fixed", "name": self._name("F"), "size": size}
        if unions and draw < 0.97:
            return ["null", "int", "string"]
        return self._record(depth, unions=unions)

    def _changed(self, schema: Any) -> Any:
        """Return a schema that a later version might have."""
        draw = self._random.random
        if isinstance(schema, str):
            return (
                self._random.choice(WIDER[schema]) if schema in WIDER and draw() < 0.2 else schema
            )
        if isinstance(schema, list):
            return [self._changed(one) for one in schema]
        if schema["type"] == "enum" and draw() < 0.5:
            changed = {**schema, "symbols": ["C", "A"]}
            return changed | ({"default": "A"} if draw() < 0.5 else {})
        for inner in ("items", "values"):
            if inner in schema:
                return {**schema, inner: self._changed(schema[inner])}
        if schema["type"] != "record":
            return schema
        fields = []
        for field in schema["fields"]:
            if draw() < 0.15:
                continue
            made = {**field, "type": self._changed(field["type"])}
            kind = made["type"]
            if draw() < 0.1 and not isinstance(kind, list):
                made["type"] = ["null", kind]
            if draw() < 0.1:
                made |= {"name": self._name("n"), "aliases": [field["name"]]}
            fields.append(made)
        if draw() < 0.4:
            fields.append({"name": self._name("n"), **self._new()})
        if draw() < 0.2:
            self._random.shuffle(fields)
        return {**schema, "fields": fields}

    def _new(self) -> dict[str, Any]:
        """Return the type of an added field, and its default."""
        kind = self._random.choice((*DEFAULTS, "null", "list", "array", "map", "enum"))
        if kind == "null":
            return {"type": ["null", "string"], "default": None}
        if kind == "list":
            return {"type": ["int", "null"], "default": 7}
        if kind in ("array", "map"):
            inner = {"items" if kind == "array" else "values": "int"}
            return {"type": {"type": kind, **inner}, "default": [] if kind == "array" else {}}
        if kind == "enum":
            made = {"type": "enum", "name": self._name("E"), "symbols": ["A", "B"]}
            return {"type": made, "default": "B"}
        return {"type": kind, "default": DEFAULTS[kind]}

    def _row(self, written: list[Any]) -> bytes | None:
        draw = self._random.random()
        if draw < 0.05:
            return None
        number = self._random.randrange(len(written))
        frame = b"\0" + (number + 1).to_bytes(4, "big")
        if draw < 0.1:
            return self._random.choice((b"", b"\0\0", frame, b"\1" + frame, b"\0\0\0\0\x63\2"))
        stream = io.BytesIO()
        fastavro.schemaless_writer(stream, self._parsed[number], self._value(written[number]))
        data = bytearray(stream.getvalue())
        while self._random.random() < 0.25:
            self._spoil(data)
        return frame + bytes(data)

    def _spoil(self, data: bytearray) -> None:
        draw = self._random.randrange
        at = draw(len(data) + 1)
        way = draw(5)
        if way == 0:
            del data[at:]
        elif way == 1:
            data[at:at] = bytes(draw(256) for _ in range(draw(1, 4)))
        elif way == 2 and at < len(data):
            data[at] = draw(256)
        elif way == 3 and at < len(data):
            data[at : at + 1] = self._random.choice(ODD)
        elif at < len(data):
            del data[at]

    def _value(self, schema: Any) -> Any:
        draw = self._random
        if isinstance(schema, list):
            return self._value(draw.choice(schema))
        kind = schema if isinstance(schema, str) else schema["type"]
        if isinstance(schema, dict) and "logicalType" in schema:
            return self._logical(schema)
        if kind == "record":
            return {one["name"]: self._value(one["type"]) for one in schema["fields"]}
        if kind == "array":
            return [self._value(schema["items"]) for _ in range(draw.choice((0, 1, 3)))]
        if kind == "map":
            return {
                f"k{at}": self._value(schema["values"]) for at in range(draw.choice((0, 1, 3, 20)))
            }
        if kind == "enum":
            return draw.choice(schema["symbols"])
        if kind == "fixed":
            return draw.randbytes(schema["size"])
        if kind in ("int", "long"):
            number = draw.choice(EDGES)
            return number if kind == "long" or -(2**31) <= number < 2**31 else 5
        if kind in ("float", "double"):
            return draw.choice((0.0, -1.5, 1e30, float("nan"), float("-inf")))
        return {
            "null": None,
            "boolean": draw.random() < 0.5,
            "bytes": draw.randbytes(draw.randrange(9)),
            "string": draw.choice(TEXTS),
        }[str(kind)]

    def _logical(self, schema: dict[str, Any]) -> Any:
        draw, name = self._random, schema["logicalType"]
        if name == "decimal":
            number = draw.choice((0, 1, -1, 10 ** schema["precision"] - 1))
            return Decimal(number).scaleb(-schema["scale"])
        if name == "uuid":
            return str(draw.choice(TEXTS))
        if name == "date":
            return draw.choice((date.min, date(1970, 1, 1), date.max))
        if name.startswith("time-"):
            return draw.choice((time(), time(23, 59, 59, 999000)))
        zone = None if name.startswith("local") else UTC
        moment = draw.choice(
            [datetime(*day, tzinfo=UTC) for day in ((1, 1, 2), (1969, 12, 31), (9999, 12, 30))]
        )
        return (moment + timedelta(milliseconds=draw.randrange(1000))).replace(tzinfo=zone)


@contextmanager
def without_kernel() -> Iterator[None]:
    """Let fastavro decode all rows."""
    with patch.object(framed_rows, "column_reader", lambda _: None):
        yield


def read(case: Case) -> Any:
    """Return the comparable result of `avro_to_arrow` for a case."""
    rows = pa.array(case.rows, pa.binary())
    bounds = [0, *case.cuts, len(rows)]
    chunks = [rows[a:b] for a, b in pairwise(bounds)]
    column = pa.chunked_array(chunks, pa.binary()) if case.cuts else rows
    wanted = None if case.wanted is None else json.dumps(case.wanted)
    try:
        found = avro_to_arrow(column, Answers(case.written), wanted)
    except KafkaError as error:
        return str(error)
    found.values.validate(full=True)
    return str(found.values.type), repr(found.values.to_pylist()), dict(found.errors)


def differ(case: Case) -> str | None:
    """Return how the native decoder and fastavro differ; None where they don't."""
    ours = read(case)
    with without_kernel():
        theirs = read(case)
    return None if ours == theirs else f"{case}\nkernel: {ours}\nfastavro: {theirs}"


def drive(kernel: Any, case: Case) -> list[Any] | None:
    """Decode rows from buffers of minimal size with the native decoder; return its columns."""
    writers = [parsed(one) for one in case.written]
    wanted = None if case.wanted is None else parsed(case.wanted)
    try:
        columns = Columns(arrow_type(writers[0] if wanted is None else wanted))
    except KafkaError:
        return None
    reader = kernel.ColumnReader(columns.layout(), SMALL)
    for number, one in enumerate(writers, 1):
        try:
            reader.add(number, *program(one, wanted, columns))
        except UnplannedError:
            reader.add(number, None)
    data = b"".join(row or b"" for row in case.rows)
    ends, marks = [0], bytearray(len(case.rows))
    for row in case.rows:
        ends.append(ends[-1] + len(row or b""))
    if spoilt := data[-1:]:  # the offsets of a column may be invalid
        ends[spoilt[0] % len(ends)] += (0, 0, 0, 1, 99, -99, -(1 << 31), (1 << 31) - 1 - len(data))[
            len(data) % 8
        ]
    offsets = array("i", ends).tobytes()
    done, room = 0, len(data) % 3 << 12
    while done < len(case.rows):
        done = reader.read(
            exact(data), exact(offsets), None, False, 0, len(case.rows), done, marks, room
        )
        if done < len(case.rows):
            reader.add(reader.unknown_schema, None)
    found = []
    for number in range(len(columns.layout()) // 32):
        count, nulls, *blocks = reader.column(number)
        found.append((count, nulls, *(None if one is None else bytes(one) for one in blocks)))
    return found

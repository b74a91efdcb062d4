"""A record with every Avro type, and its encoding by fastavro."""

from __future__ import annotations

import io
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import fastavro

NOW = datetime(2024, 1, 2, 3, 4, 5, 678000, tzinfo=UTC)
UUID = "00000000-0000-0000-0000-000000000001"


def logical(kind: str, name: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "logicalType": name, **more}


def record(name: str = "R", **fields: Any) -> dict[str, Any]:
    made = [{"name": field, "type": kind} for field, kind in fields.items()]
    return {"type": "record", "name": name, "fields": made}


EVERYTHING = record(
    null="null",
    boolean="boolean",
    int="int",
    long="long",
    float="float",
    double="double",
    bytes="bytes",
    string="string",
    fixed={"type": "fixed", "name": "F", "size": 2},
    enum={"type": "enum", "name": "E", "symbols": ["A", "B"]},
    date=logical("int", "date"),
    millis=logical("long", "timestamp-millis"),
    micros=logical("long", "timestamp-micros"),
    local_millis=logical("long", "local-timestamp-millis"),
    local_micros=logical("long", "local-timestamp-micros"),
    time=logical("int", "time-millis"),
    uuid=logical("string", "uuid"),
    decimal=logical("bytes", "decimal", precision=38, scale=2),
    in_fixed={"name": "D", "size": 5, **logical("fixed", "decimal", precision=9, scale=1)},
    array={"type": "array", "items": ["null", logical("int", "date")]},
    map={"type": "map", "values": {"type": "array", "items": logical("long", "timestamp-millis")}},
    inner=["null", record("Inner", x="int", again="F")],
    maybe=["string", "null"],
    number=["null", "int", "long"],
    union=["int", "null", {"type": "map", "values": "E"}, {"type": "array", "items": "E"}, "Inner"],
)
WRITTEN: dict[str, Any] = {
    "null": None,
    "boolean": True,
    "int": -(2**31),
    "long": 2**63 - 1,
    "float": 1.5,
    "double": -0.1,
    "bytes": b"\x00\xff",
    "string": "ä€\U0001f600",
    "fixed": b"ab",
    "enum": "B",
    "date": date(1900, 1, 1),
    "millis": NOW,
    "micros": NOW,
    "local_millis": NOW.replace(tzinfo=None),
    "local_micros": NOW.replace(tzinfo=None),
    "time": 5,
    "uuid": UUID,
    "decimal": Decimal("-1234567890123456789012345678901234.56"),
    "in_fixed": Decimal("-12345678.9"),
    "array": [None, date(2024, 1, 1)],
    "map": {"a": [NOW], "b": []},
    "inner": {"x": 1, "again": b"cd"},
    "maybe": None,
    "number": 2**40,
    "union": {"k": "A"},
}


def members(which: int | None, value: Any = None) -> dict[str, Any]:
    return {f"member{n}": value if n == which else None for n in range(4)}


READ = WRITTEN | {"map": [("a", [NOW]), ("b", [])], "union": members(1, [("k", "A")])}
VARIANTS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"union": ["A", "B"], "number": 3}, {"union": members(2, ["A", "B"]), "number": 3}),
    (
        {"union": {"x": 7, "again": b"ef"}, "maybe": "x"},
        {"union": members(3, {"x": 7, "again": b"ef"}), "maybe": "x"},
    ),
    (
        {"union": None, "number": None, "inner": None, "decimal": Decimal(0), "array": []},
        {"union": None, "number": None, "inner": None, "decimal": Decimal("0.00"), "array": []},
    ),
    ({"union": 5, "map": {}}, {"union": members(0, 5), "map": []}),
]
"""Changes to the written record, each with the resulting changes to the decoded row."""


def encoded(value: Any, schema: Any = EVERYTHING) -> bytes:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(schema), value)
    return stream.getvalue()

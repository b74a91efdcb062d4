"""Programs for the Avro kernel: how bytes of one schema fill the columns of another.

In: the writer's and the reader's schema as fastavro has parsed them, and columns of the reader
schema's Arrow type. Out: a program (`record.column_program`). Must not: read any value differently
than fastavro: if its rules are unusual, or a column can't represent a schema, `UnplannedError`
makes fastavro read all rows of that writer schema.
"""

from __future__ import annotations

import struct
from array import array
from typing import Any

from odradek.record.column_program import NONE, UUID_TEXT, Keeping, Number, Op
from odradek.serialization.avro.safe_schemas import LARGEST_DECIMAL128
from odradek.serialization.avro.types import DEEPEST
from odradek.serialization.columns.column_layout import Columns, PlannedColumn, UnplannedError, kept
from odradek.serialization.schema_limits import named_types
from odradek.serialization.wire_format import varint

INT = (-(1 << 31), (1 << 31) - 1)
LONG = (-(1 << 63), (1 << 63) - 1)
SECONDS = (-62_135_596_800, 253_402_300_799)
"""Range of seconds of `datetime` (years 1 to 9999); fastavro rejects others."""
LIMITS = {
    ("int", "date"): (-719_162, 2_932_896),
    ("int", "time-millis"): (0, 86_399_999),
    ("long", "time-micros"): (0, 86_399_999_999),
    **{
        ("long", f"{local}timestamp-{unit}"): (SECONDS[0] * many, SECONDS[1] * many + many - 1)
        for local in ("", "local-")
        for unit, many in (("millis", 1000), ("micros", 1_000_000))
    },
}
"""Ranges of numbers of logical types that Python can represent."""
PRIMITIVES = frozenset(("null", "boolean", "int", "long", "float", "double", "bytes", "string"))
NUMBERS = {
    ("int", "int"): Number.INT,
    ("int", "long"): Number.LONG,
    ("int", "float"): Number.FLOAT,
    ("int", "double"): Number.DOUBLE,
    ("long", "long"): Number.LONG,
    ("long", "float"): Number.FLOAT,
    ("long", "double"): Number.DOUBLE,
}
MOST_VISITS = 100_000
"""Maximum number of types that are visited; nested named types can multiply to 2**60 visits."""
LARGEST_WHOLE = 1 << 24
"""Up to this number, a 32-bit float represents every integer."""


def program(written: Any, wanted: Any, columns: Columns) -> tuple[bytes, bytes]:
    """Return the steps that fill `columns` from bytes of the schema `written`, and their constants.

    `wanted` is the reader schema, which determines the types of the columns; None means the same
    as `written`. Raises `UnplannedError`.
    """
    if wanted == written:
        wanted = None
    made = _Compiling(written, wanted)
    made.value(written, written if wanted is None else wanted, columns.root, 0)
    return array("q", [one for step in made.steps for one in step]).tobytes(), bytes(made.constants)


class _Compiling:
    """Compiler of one program."""

    def __init__(self, written: Any, wanted: Any) -> None:
        self.steps: list[list[int]] = []
        self.constants = bytearray()
        self._visits = 0
        self._same = wanted is None
        self._written = named_types(written)
        self._wanted = self._written if wanted is None else named_types(wanted)

    def _step(self, op: Op, column: PlannedColumn | None, *more: int) -> list[int]:
        """Add a step; it can be changed until the program is complete."""
        low, high, third = (*more, 0, 0, 0)[:3]
        step = [op, NONE if column is None else column.number, 0, low, high, third]
        self.steps.append(step)
        return step

    def _ends_here(self, step: list[int]) -> None:
        step[2] = len(self.steps)

    def _visit(self, depth: int) -> None:
        """Raise `UnplannedError` if types are nested too deeply or too many have been visited."""
        self._visits += 1
        if depth > DEEPEST:
            raise UnplannedError("it refers to itself")
        if self._visits > MOST_VISITS:
            raise UnplannedError("the types are nested too deeply")

    def value(self, written: Any, wanted: Any, column: PlannedColumn, depth: int) -> None:
        """Add the steps that read a value of schema `written` as a value of schema `wanted`."""
        self._visit(depth)
        if isinstance(written, list):
            self._union(written, wanted, column, depth)
            return
        if isinstance(wanted, list):
            wanted = _branch(wanted, written)
        if written == "null":
            if wanted != "null":
                raise UnplannedError("a null that the reader schema doesn't allow")
            self._step(Op.NULL, column)
            return
        self._held(written, wanted, column, depth)

    def _union(self, written: list[Any], wanted: Any, column: PlannedColumn, depth: int) -> None:
        kinds = [one for one in written if one != "null"]
        if len(kinds) != 1 or len(written) > 2:
            raise UnplannedError("a union of several types")
        null = written.index("null") if "null" in written else NONE
        refused = not (isinstance(wanted, list) and "null" in wanted)
        inner = _branch(wanted, kinds[0]) if isinstance(wanted, list) else wanted
        step = self._step(Op.UNION, column, null, written.index(kinds[0]), refused)
        self.value(kinds[0], inner, column, depth + 1)
        self._ends_here(step)

    def _held(self, written: Any, wanted: Any, column: PlannedColumn, depth: int) -> None:
        """Add the steps for a type that is a union in neither of the schemas."""
        if _is_name(written) or _is_name(wanted):
            if written != wanted:
                raise UnplannedError("a named type in only one of the schemas")
            written, wanted = self._written.get(written), self._wanted.get(wanted)
            if written is None or wanted is None:
                raise UnplannedError("an undefined type name")
        kind, other = _kind(written), _kind(wanted)
        logical = _logical(written, kind)
        if logical != _logical(wanted, other):
            raise UnplannedError("logical types that differ")
        if logical == "decimal":
            self._decimal(written, wanted, kind, column)
        elif (kind, other) in NUMBERS:
            low, high = LIMITS.get((kind, logical or ""), INT if kind == "int" else LONG)
            self._step(Op.NUMBER, column, low, high, NUMBERS[kind, other])
        elif kind in ("string", "bytes") and other in ("string", "bytes"):
            is_uuid = kind == "string" and _logical_name(written) == "uuid"
            if is_uuid and other == "bytes":
                raise UnplannedError("a UUID as bytes")
            self._step(Op.BINARY, column, 0, 0, UUID_TEXT if is_uuid else "string" in (kind, other))
        elif kind == "float" and other in ("float", "double"):
            self._step(Op.FLOAT, column, 0, 0, other == "double")
        elif kind != other:
            raise UnplannedError(f"{kind} as {other}")
        else:
            self._alike(written, wanted, column, depth)

    def _alike(self, written: Any, wanted: Any, column: PlannedColumn, depth: int) -> None:
        """Add the steps for two types of the same kind, which need no type promotion."""
        kind = _kind(written)
        if kind in ("record", "error", "enum", "fixed") and not _same_name(written, wanted):
            raise UnplannedError("names that differ")
        if kind == "boolean":
            self._step(Op.BOOLEAN, column)
        elif kind == "double":
            self._step(Op.DOUBLE, column)
        elif kind == "fixed":
            if written["size"] != wanted["size"]:
                raise UnplannedError("sizes that differ")
            self._fixed(written["size"], column)
        elif kind == "enum":
            self._enum(written, wanted, column)
        elif kind == "array":
            step = self._step(Op.LIST, column)
            self.value(written["items"], wanted["items"], column.children[0], depth + 1)
            self._ends_here(step)
        elif kind == "map":
            entries = column.children[0]
            key, value = entries.children
            step = self._step(Op.LIST, column, key.number, 0, True)
            self._step(Op.STRUCT, entries)
            self._step(Op.BINARY, key, 0, 0, True)
            self.value(written["values"], wanted["values"], value, depth + 1)
            self._ends_here(step)
        elif kind in ("record", "error"):
            self._record(written, wanted, column, depth)
        else:
            raise UnplannedError(str(kind))

    def _record(
        self, written: dict[str, Any], wanted: dict[str, Any], column: PlannedColumn, depth: int
    ) -> None:
        self._step(Op.STRUCT, column)
        names = [one["name"] for one in wanted["fields"]]
        places = {
            alias: at
            for at, field in enumerate(wanted["fields"])
            for alias in (() if self._same else field.get("aliases") or ())
        } | {name: at for at, name in enumerate(names)}
        met = set()
        for field in written["fields"]:
            at = places.get(field["name"])
            if at is None:
                self.skip(field["type"], depth + 1)
                continue
            if at in met:
                raise UnplannedError("two fields for one field of the reader schema")
            met.add(at)
            self.value(field["type"], wanted["fields"][at]["type"], column.children[at], depth + 1)
        for at, field in enumerate(wanted["fields"]):
            if at not in met:
                if "default" not in field:
                    raise UnplannedError("a field without a default")
                self._default(field["type"], field["default"], column.children[at])

    def _fixed(self, size: int, column: PlannedColumn) -> None:
        how = kept(column.kind)[0]
        if how is Keeping.BINARY and size == 0:
            raise UnplannedError("a fixed of 0 bytes in a column of variable size")
        self._step(Op.BINARY if how is Keeping.BINARY else Op.FIXED, column, size)

    def _enum(self, written: dict[str, Any], wanted: dict[str, Any], column: PlannedColumn) -> None:
        symbols, default = wanted["symbols"], None if self._same else wanted.get("default")
        read = [one if one in symbols else default for one in written["symbols"]]
        places = []
        for one in read:
            text = (one or "").encode()
            places += [len(self.constants), len(text) if one else NONE]
            self.constants += text
        self._step(Op.ENUM, column, len(self.constants), len(read))
        self.constants += struct.pack(f"={len(places)}i", *places)

    def _decimal(
        self, written: dict[str, Any], wanted: dict[str, Any], kind: str, column: PlannedColumn
    ) -> None:
        same = ("type", "precision", "scale", "size")
        if any(written.get(one) != wanted.get(one) for one in same):
            raise UnplannedError("decimals that differ")
        if kind == "fixed" and not _same_name(written, wanted):
            raise UnplannedError("names that differ")
        bound = 10 ** written["precision"]
        halves = struct.unpack("=qq", struct.pack("=QQ", bound >> 64, bound & ((1 << 64) - 1)))
        self._step(Op.DECIMAL, column, written["size"] if kind == "fixed" else NONE, *halves)

    def _default(self, wanted: Any, default: Any, column: PlannedColumn) -> None:
        """Add the steps for a field that the writer schema doesn't have."""
        if default is None and (
            wanted == "null" or (isinstance(wanted, list) and "null" in wanted)
        ):
            self._step(Op.NULL, column)
            return
        if isinstance(wanted, list):
            wanted = _branch(wanted, None)
        kind = _kind(self._wanted.get(wanted, wanted) if isinstance(wanted, str) else wanted)
        if _logical(wanted, kind) is not None:
            raise UnplannedError("a default of a logical type")
        data = _encoded(kind, default)
        step = self._step(Op.CONSTANT, None, len(self.constants), len(data))
        self.constants += data
        if kind in ("array", "map"):
            self._ends_here(self._step(Op.LIST, column))
        elif kind in ("string", "enum", "bytes"):
            self._step(Op.BINARY, column, 0, 0, kind != "bytes")
        else:
            self.value(kind, kind, column, 0)
        self._ends_here(step)

    def skip(self, written: Any, depth: int) -> None:
        """Add the steps that read a value without storing it."""
        self._visit(depth)
        if isinstance(written, list):
            self._skip_union(written, depth)
            return
        if _is_name(written):
            self.skip(self._written[written], depth + 1)
            return
        kind = _kind(written)
        if kind in ("int", "long"):
            self._step(Op.NUMBER, None, *(INT if kind == "int" else LONG))
        elif kind in ("string", "bytes"):
            self._step(Op.BINARY, None)
        elif kind in ("float", "double"):
            self._step(Op.FIXED, None, 4 if kind == "float" else 8)
        elif kind == "boolean":
            self._step(Op.BOOLEAN, None)
        elif kind == "fixed":
            self._step(Op.FIXED, None, written["size"])
        elif kind == "enum":
            self._step(Op.ENUM, None, 0, len(written["symbols"]))
        elif kind in ("array", "map"):
            step = self._step(Op.LIST, None)
            if kind == "map":
                self._step(Op.BINARY, None, 0, 0, True)
            self.skip(written["items" if kind == "array" else "values"], depth + 1)
            self._ends_here(step)
        elif kind in ("record", "error"):
            for field in written["fields"]:
                self.skip(field["type"], depth + 1)
        elif kind != "null":
            raise UnplannedError(str(kind))

    def _skip_union(self, written: list[Any], depth: int) -> None:
        self._step(Op.SWITCH, None, 0, len(written))
        places = [self._step(Op.JUMP, None) for _ in written]
        ends = []
        for one, place in zip(written, places, strict=True):
            self._ends_here(place)
            self.skip(one, depth + 1)
            ends.append(self._step(Op.JUMP, None))
        for one in ends:
            self._ends_here(one)


def _is_name(schema: Any) -> bool:
    return isinstance(schema, str) and schema not in PRIMITIVES


def _kind(schema: Any) -> Any:
    kind = schema["type"] if isinstance(schema, dict) else schema
    if not isinstance(kind, str):
        raise UnplannedError("a type that is itself a schema")
    return kind


def _branch(union: list[Any], written: Any) -> Any:
    """Return the reader union's branch: null for a written null, else its only other type."""
    if written == "null" and "null" in union:
        return "null"
    kinds = [one for one in union if one != "null"]
    if len(kinds) != 1:
        raise UnplannedError("a union of several types")
    return kinds[0]


def _logical(schema: Any, kind: str) -> str | None:
    """Return the schema's logical type; None if the column has just the base type."""
    name = _logical_name(schema)
    if name == "decimal" and kind in ("bytes", "fixed"):
        if schema["precision"] > LARGEST_DECIMAL128:
            raise UnplannedError("a decimal of more than 16 bytes")
        return name
    return name if (kind, name) in LIMITS else None


def _logical_name(schema: Any) -> str | None:
    found = schema.get("logicalType") if isinstance(schema, dict) else None
    return found if isinstance(found, str) else None


def _same_name(written: dict[str, Any], wanted: dict[str, Any]) -> bool:
    return str(written["name"]).rpartition(".")[2] == str(wanted["name"]).rpartition(".")[2]


def _encoded(kind: str, default: Any) -> bytes:
    """Encode a default as Avro; raise `UnplannedError` if fastavro and Arrow may differ."""
    if kind == "boolean" and isinstance(default, bool):
        return bytes((default,))
    if kind in ("int", "long") and type(default) is int:
        low, high = INT if kind == "int" else LONG
        if low <= default <= high:
            return varint(default)
    if kind in ("float", "double"):
        whole = type(default) is int and abs(default) <= LARGEST_WHOLE
        if whole or type(default) is float:
            try:
                return struct.pack("<f" if kind == "float" else "<d", default)
            except OverflowError:
                raise UnplannedError("a default that is too large") from None
    if kind == "bytes" and isinstance(default, bytes):
        return varint(len(default)) + default
    if kind in ("string", "enum") and isinstance(default, str):
        try:
            data = default.encode()
        except UnicodeEncodeError:
            raise UnplannedError("a default that isn't a string") from None
        return varint(len(data)) + data
    if (kind == "array" and default == []) or (kind == "map" and default == {}):
        return b"\0"
    raise UnplannedError(f"a default of {kind}")

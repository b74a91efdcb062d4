"""Programs for the column kernel: how the fields of a Protobuf message fill its columns.

In: a message's descriptor, and columns of its type. Out: a program (`record.column_program`). Must
not: support groups: the Protobuf library reads all rows of such messages (`UnplannedError`).
"""

from __future__ import annotations

import struct
from array import array
from typing import Any

from odradek.record.column_program import NONE, FieldKind, Label, Op
from odradek.serialization.columns.column_layout import Columns, PlannedColumn, UnplannedError
from odradek.serialization.protobuf.types import enum_names, is_map, is_timestamp, type_name


class ProtobufProgram:
    """Kernel program that reads one message type; raises `UnplannedError`."""

    def __init__(self, descriptor: Any, columns: Columns) -> None:
        self._steps: list[list[int]] = [[Op.SAME, NONE, 0, 0, 0, 0]]
        self._constants = bytearray()
        self._enums: dict[str, int] = {}
        """Positions of the enums' tables in the constants, by enum name."""
        self._message(descriptor, columns.root, entry=False)

    def after(self, indexes: bytes) -> tuple[bytes, bytes]:
        """Return the program for bytes that begin with these message indexes, and its constants."""
        self._steps[0][3:5] = len(self._constants), len(indexes)
        numbers = array("q", [one for step in self._steps for one in step])
        return numbers.tobytes(), bytes(self._constants) + indexes

    def _message(self, descriptor: Any, column: PlannedColumn, *, entry: bool) -> int:
        """Add the steps for a message's fields and return the position of the first.

        With `entry`, the message is a map's entry.
        """
        place = len(self._steps)
        pairs = list(zip(descriptor.fields, column.children, strict=True))
        pairs.sort(key=lambda pair: pair[0].number)
        known = entry or descriptor.is_extendable  # an extension may be invalid
        step = [Op.MESSAGE, column.number, 0, len(pairs), known, 0]
        self._steps.append(step)
        fields = [[0, inner.number, 0, one.number, 0, NONE] for one, inner in pairs]
        self._steps += fields
        places = {one.name: place + 1 + at for at, (one, _) in enumerate(pairs)}
        for (one, inner), made in zip(pairs, fields, strict=True):
            made[0], made[2] = self._value(one, inner)
            made[4] = Label.LEFT if entry else _label(one)
            among = [] if one.containing_oneof is None else list(one.containing_oneof.fields)
            if len(among) > 1:
                names = [each.name for each in among]
                made[5] = places[names[(names.index(one.name) + 1) % len(names)]]
        step[2] = len(self._steps)
        return place

    def _value(self, one: Any, column: PlannedColumn) -> tuple[int, int]:
        """Return a field's kind, and the position of its enum table or message steps, if any."""
        kind = type_name(one)
        if kind == "GROUP":
            raise UnplannedError("a group")
        if kind == "ENUM":
            return FieldKind.ENUM, self._enum(one.enum_type)
        if kind != "MESSAGE":
            return FieldKind[kind], 0
        if is_timestamp(one.message_type):
            return FieldKind.TIMESTAMP, 0
        inner = column.children[0] if one.is_repeated else column
        return FieldKind.MESSAGE, self._message(one.message_type, inner, entry=is_map(one))

    def _enum(self, enum: Any) -> int:
        found = self._enums.get(enum.full_name)
        if found is None:
            entries: list[int] = []
            names = sorted(enum_names(enum).items())
            for number, name in names:
                text = name.encode()
                entries += [number, len(self._constants), len(text)]
                self._constants += text
            self._constants += bytes(-len(self._constants) % 4)  # the numbers below must be aligned
            found = self._enums[enum.full_name] = len(self._constants)
            self._constants += struct.pack(f"={len(entries) + 1}i", len(names), *entries)
        return found


def _label(one: Any) -> Label:
    """Return which value the field has if it is missing from the bytes."""
    if is_map(one):
        return Label.MAP
    if one.is_repeated:
        return Label.LIST
    return Label.NULL if one.has_presence else Label.ZERO

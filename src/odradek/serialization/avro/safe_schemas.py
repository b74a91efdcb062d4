"""Copies of schemas with which fastavro handles untrusted bytes correctly.

In: a parsed schema. Out: a copy with own logical types instead of decimals and UUIDs, and with
lists that reject negative indexes. fastavro itself counts a negative index of a branch or symbol
from the end, rounds a decimal that has too many digits, and converts decimals of any size in
quadratic time: 400 KB take 12 seconds. Must not: change what other users of fastavro read.
"""

from __future__ import annotations

import sys
from collections.abc import Collection
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal, Inexact, InvalidOperation
from typing import Any
from uuid import UUID

from odradek.serialization.extras import fastavro
from odradek.serialization.schema_limits import MOST_DIGITS, named_types

LARGEST_DECIMAL128 = 38
"""Digits of Arrow's decimal128."""

_OWN, _TEXT = "odradek-", "odradek-text-"
"""Prefixes of our names of logical types; values of the second kind are read as strings."""
_FIELD = "odradek-field"
"""Key under which a type stores the name of its field, for error messages."""
_CHOICES = ("symbols", "type", "items", "values")
"""Keys of a schema whose lists fastavro indexes with numbers from the bytes."""
_EXACT = Context(prec=MOST_DIGITS, Emin=MIN_EMIN, Emax=MAX_EMAX, traps=[Inexact, InvalidOperation])


class _Choices(list[Any]):
    """Branches of a union or symbols of an enum, in which negative indexes are errors."""

    def __len__(self) -> int:
        return sys.maxsize  # C code adds the length to a negative index: now out of range

    def __getitem__(self, at: Any) -> Any:
        if at < 0:
            raise IndexError(f"there is no branch or symbol {at}")
        return super().__getitem__(at)


def guarded(parsed: Any, texts: Collection[str] = (), *, reading: bool = False) -> Any:
    """Return the copy of a parsed schema that fastavro writes with, or reads with.

    `texts`: the logical types whose values are read as strings: `uuid`, and `decimal` for those
    that Arrow's decimal128 can't hold.
    """
    _register()
    made: dict[int, Any] = {}
    fields: dict[int, str] = {}
    """By id() of a field's type, the name of the field."""
    waiting: list[tuple[Any, Any]] = []

    def copied(one: Any, choices: bool = reading) -> Any:
        if not isinstance(one, dict | list):
            return one
        if id(one) not in made:
            made[id(one)] = {} if isinstance(one, dict) else _Choices() if choices else []
            waiting.append((one, made[id(one)]))
        return made[id(one)]

    named = named_types(parsed)
    root, names = copied(parsed), {name: copied(one) for name, one in named.items()}
    while waiting:
        one, copy = waiting.pop()
        if isinstance(one, list):
            copy += map(copied, one)
            continue
        for field in one["fields"] if isinstance(one.get("fields"), list) else ():
            inner = field["type"]
            for kind in inner if isinstance(inner, list) else [inner]:
                fields[id(kind)] = field["name"]
        for key, value in one.items():
            copy[key] = value if key == "default" else copied(value, reading and key in _CHOICES)
        logical = one.get("logicalType")
        if logical in ("decimal", "uuid") and isinstance(one.get("type"), str):
            large = logical == "uuid" or one.get("precision", 0) > LARGEST_DECIMAL128
            copy["logicalType"] = (_TEXT if logical in texts and large else _OWN) + logical
            if id(one) in fields and "name" not in one:  # several fields may share a named type
                copy[_FIELD] = f"field {fields[id(one)]}: "
        elif one.get("type") == "array" and not reading:
            copy["logicalType"] = f"{_OWN}array"
    # Without these marks, fastavro parses all schemas except records again for each value.
    marks = {"__fastavro_parsed": True, "__named_schemas": {n: names[n].copy() for n in names}}
    for one in root if isinstance(root, list) else [root]:
        if isinstance(one, dict):
            one |= marks
    return root


def _register() -> None:
    """Register functions for our own logical types, as fastavro documents it."""
    library = fastavro()
    readers, writers = library.read.LOGICAL_READERS, library.write.LOGICAL_WRITERS
    for kind, write in (("bytes", _written), ("fixed", _written_fixed)):
        for prefix, read in ((_OWN, _decimal), (_TEXT, _decimal_text)):
            readers[f"{kind}-{prefix}decimal"] = read
            writers[f"{kind}-{prefix}decimal"] = write
    writers[f"array-{_OWN}array"] = _written_array
    for prefix, read_uuid in ((_OWN, _uuid), (_TEXT, _uuid_text)):
        readers[f"string-{prefix}uuid"] = read_uuid
        writers[f"string-{prefix}uuid"] = _written_uuid


def _written_array(data: Any, *_: Any) -> Any:
    """Return an array's value; reject bytes and strings, which fastavro would write as arrays."""
    if isinstance(data, bytes | bytearray | memoryview | str):
        return _Unfit(f"the schema has an array, but the value is a {type(data).__name__}")
    return data


def _uuid(data: str, schema: dict[str, Any], _: Any = None) -> UUID:
    try:
        return UUID(data)
    except ValueError:
        raise ValueError(f"{schema.get(_FIELD, '')}the text isn't a UUID") from None


def _uuid_text(data: str, schema: dict[str, Any], _: Any = None) -> str:
    return str(_uuid(data, schema))


def _decimal(data: bytes, schema: dict[str, Any], _: Any = None) -> Decimal:
    """Return the decimal of big-endian bytes; reject too many digits before the conversion."""
    digits = min(schema["precision"], MOST_DIGITS)
    most = digits * 5 // 12 + 2  # a decimal digit takes at most 3.33 bits
    if len(data) > most:
        sign = b"\xff" if data[-most] & 0x80 else b"\0"
        if data[:-most].strip(sign):
            raise ValueError(
                f"{schema.get(_FIELD, '')}a decimal of {len(data)} bytes has more than {digits} "
                "digits"
            )
        data = data[-most:]
    found = _EXACT.create_decimal(int.from_bytes(data, "big", signed=True))
    if found.adjusted() >= digits:
        raise ValueError(f"{schema.get(_FIELD, '')}a decimal has more than {digits} digits")
    return _EXACT.scaleb(found, -schema.get("scale", 0))


def _decimal_text(data: bytes, schema: dict[str, Any], _: Any = None) -> str:
    return f"{_decimal(data, schema):f}"


def _unscaled(data: Decimal, schema: dict[str, Any]) -> int:
    """Return a decimal's unscaled integer; raise `ValueError` if it has too many digits."""
    digits, scale = min(schema["precision"], MOST_DIGITS), schema.get("scale", 0)
    if not data.is_finite() or (data and data.adjusted() + 1 + scale > digits):
        raise ValueError(
            f"{schema.get(_FIELD, '')}a decimal may have {digits} digits, {scale} of them after "
            "the decimal point"
        )
    try:
        found = _EXACT.quantize(data, Decimal((0, (1,), -scale)))
    except (Inexact, InvalidOperation):
        raise ValueError(
            f"{schema.get(_FIELD, '')}a decimal may have {scale} digit{'' if scale == 1 else 's'} "
            "after the decimal point"
        ) from None
    return int(_EXACT.scaleb(found, scale))


class _Unfit:
    """Value that matches no type, so that fastavro tries the other branches of a union."""

    def __init__(self, why: str) -> None:
        self._why = why

    def __len__(self) -> int:  # fastavro calls `len` if the type isn't in a union
        raise ValueError(self._why)

    def __iter__(self) -> Any:
        raise ValueError(self._why)


def _checked(data: Any, schema: dict[str, Any]) -> Any:
    """Return a value that isn't a `Decimal`, or `_Unfit` for bytes of an invalid decimal."""
    try:
        if isinstance(data, bytes | bytearray | memoryview):
            _decimal(bytes(data), schema)
    except ValueError as error:
        return _Unfit(str(error))
    return data


def _written_uuid(data: Any, schema: dict[str, Any]) -> Any:
    try:
        if isinstance(data, str):
            _uuid(data, schema)
    except ValueError as error:
        return _Unfit(str(error))
    return str(data) if isinstance(data, UUID) else data


def _written(data: Any, schema: dict[str, Any]) -> Any:
    if not isinstance(data, Decimal):
        return _checked(data, schema)
    number = _unscaled(data, schema)
    return number.to_bytes((number.bit_length() + 8) // 8, "big", signed=True)


def _written_fixed(data: Any, schema: dict[str, Any]) -> Any:
    if not isinstance(data, Decimal):
        return _checked(data, schema)
    return _unscaled(data, schema).to_bytes(schema["size"], "big", signed=True)

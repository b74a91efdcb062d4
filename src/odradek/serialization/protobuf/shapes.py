"""Convert values of Arrow columns to arguments of Protobuf message classes.

In: a message's descriptor. Out: a function that returns the arguments of the message's class for a
struct; the struct has the types that `protobuf.types` returns for the message. Must not: choose
between several fields of a oneof; a null means that the field isn't set.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

from odradek.serialization.protobuf.types import UNSIGNED, is_map, is_timestamp, type_name

MICROS = 1_000_000
_Shape = Callable[[Any], Any]


def message_shape(descriptor: Any) -> _Shape:
    """Return a function from a struct to the arguments of a message class.

    It raises `ValueError` for a struct that the message can't represent.
    """
    shapes = {one.name: _field(one) for one in descriptor.fields}
    choices = [{one.name for one in choice.fields} for choice in descriptor.oneofs]

    def made(given: dict[str, Any]) -> dict[str, Any]:
        there = {n: shapes[n](one) for n, one in given.items() if one is not None}
        for choice in choices:  # the message class would only keep the last field
            if len(choice & there.keys()) > 1:
                raise ValueError("several fields of a oneof are set")
        return there

    return made


def _field(one: Any) -> _Shape:
    inner = one.message_type
    if is_map(one):
        item = _single(inner.fields_by_name["value"])
        key = _single(inner.fields_by_name["key"])
        return lambda given: {key(each): item(given[each]) for each in given}
    single = _single(one)
    return (lambda given: [single(each) for each in given]) if one.is_repeated else single


def _single(one: Any) -> _Shape:
    if one.message_type is not None:
        return _timestamp if is_timestamp(one.message_type) else message_shape(one.message_type)
    kind = type_name(one)
    if kind in UNSIGNED:
        return _unsigned
    if kind == "BOOL":
        return _boolean
    if kind == "ENUM":
        # Columns contain an enum's name, or a string of digits for a number without a name.
        return lambda given: int(given) if given.lstrip("-").isdecimal() else given
    return lambda given: given


def _unsigned(given: Any) -> int:
    """Return a decimal as a whole number; a message class would round it, and accept strings."""
    if isinstance(given, bool) or not isinstance(given, int | Decimal) or given != int(given):
        raise TypeError(f"{given!r} isn't a whole number")
    return int(given)


def _boolean(given: Any) -> bool:
    if not isinstance(given, bool):  # the message class would convert any number
        raise TypeError(f"{given!r} isn't a boolean")
    return given


def _timestamp(given: Any) -> dict[str, int]:
    """Return a time as the fields of `google.protobuf.Timestamp`."""
    from datetime import UTC, datetime, timedelta

    micros = (given - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
    seconds, rest = divmod(micros, MICROS)
    return {"seconds": seconds, "nanos": rest * 1000}

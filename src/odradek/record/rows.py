"""Convert columns to one tuple per record, as fast as possible.

In: decoded columns and the values that all their rows share. Out: a list of tuples of the class
that the caller passes; or blank objects, for packages whose records aren't tuples. Only loops in C
touch single records. Must not know what the class is.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import repeat
from typing import Any, TypeVar

from odradek.record.columns import Headers, RawHeaderColumn, RecordColumns

R = TypeVar("R", bound=tuple[Any, ...])
T = TypeVar("T")


def build_rows(
    cls: type[R],
    topic: str,
    partition: int,
    columns: RecordColumns,
    leader_epochs: int | Sequence[int],
    unread: type[R] | None = None,
) -> list[R]:
    """Create a `cls` for each row: topic, partition, the six parts of a row, leader epoch.

    `leader_epochs` is one number for all rows, or one for each. The class must be a named tuple of
    exactly these fields: its constructor isn't called, which would take as long as everything else.
    Rows whose headers are `RawHeaders` are of the class `unread`, if one is given.
    """
    a, b = columns.start, columns.start + columns.count
    no_headers: Headers = ()
    found = list(
        map(
            partial(tuple.__new__, cls),
            zip(
                repeat(topic, b - a),
                repeat(partition),
                columns.offsets[a:b],
                columns.timestamps_ms[a:b],
                columns.types_between(a, b),
                repeat(None) if columns.keys is None else columns.keys.values(a, b),
                repeat(None) if columns.values is None else columns.values.values(a, b),
                repeat(no_headers) if columns.headers is None else columns.headers.lists(a, b),
                repeat(leader_epochs) if isinstance(leader_epochs, int) else leader_epochs,
                strict=False,
            ),
        )
    )
    if unread is not None and isinstance(columns.headers, RawHeaderColumn):
        for i, row in enumerate(found):
            if type(row[7]) is not tuple:
                found[i] = tuple.__new__(unread, row)
    return found


def read_as_slots(cls: type[tuple[Any, ...]]) -> None:
    """Do nothing: only the kernel makes reading the fields of a named tuple faster.

    The kernel replaces the class's descriptors, so that the interpreter reads fields inline like
    slots: reading one takes 5 ns instead of 30.
    """


def blanks(cls: type[T], count: int) -> list[T]:
    """Create `count` empty objects of a class, whose attributes the caller sets.

    The garbage collector doesn't track the kernel's objects: with thousands of records per call, it
    would scan the whole program again and again. If an object is filled with something that may
    refer back to it, call `collectable` first. Raises `TypeError` for a class with a `__new__`.
    """
    if cls.__new__ is not object.__new__ or cls.__itemsize__:
        raise TypeError(f"{cls!r} must be a plain class, without __new__")
    new = object.__new__
    return [new(cls) for _ in range(count)]


def become(things: list[Any], base: type, cls: type) -> None:
    """Change the class of objects from `base` to `cls`, which only adds methods.

    So `base` can be filled even if `cls` has a `__setattr__`. Raises `TypeError` if `cls` adds more
    than methods, or one of the objects is of another class.
    """
    if cls.__base__ is not base or cls.__basicsize__ != base.__basicsize__:
        raise TypeError(f"{cls!r} must be a subclass of {base!r} that only adds methods")
    for thing in things:
        if type(thing) is not base:
            raise TypeError(f"{type(thing)!r} isn't {base!r}")
        object.__setattr__(thing, "__class__", cls)


def collectable(thing: object) -> None:
    """Do nothing: only the kernel's `blanks` are hidden from the garbage collector."""

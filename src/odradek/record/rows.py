"""Convert columns to one tuple per record, as fast as possible.

In: decoded columns, and values that all rows have in common. Out: a list of tuples, instances of a
class that the caller passes; or blank objects, for packages whose records aren't tuples. Single
records are only processed by loops in C. Must not: know the class.
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
    """Create a `cls` for each row: topic, partition, the six fields of a row, leader epoch.

    `leader_epochs` is one number for all rows, or a number per row. The class must be a named tuple
    of exactly these fields: its constructor isn't called, which would take as long as everything
    else. Rows with `RawHeaders` are of the class `unread`, if that is given.
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
    """Do nothing, because only the kernel makes reading the fields of a named tuple faster.

    The kernel replaces the class's descriptors, so that the interpreter reads fields inline as it
    reads slots: reading a field takes 5 ns instead of 30.
    """


def blanks(cls: type[T], count: int) -> list[T]:
    """Create `count` empty objects of a class, whose attributes the caller sets.

    The garbage collector doesn't track the kernel's objects: with thousands of records per call, it
    would scan the whole program again and again. Call `collectable` before an object may become
    part of a reference cycle. Raises `TypeError` for a class with a `__new__`.
    """
    if cls.__new__ is not object.__new__ or cls.__itemsize__:
        raise TypeError(f"{cls!r} must be a plain class, without __new__")
    new = object.__new__
    return [new(cls) for _ in range(count)]


def become(things: list[Any], base: type, cls: type) -> None:
    """Change the class of objects from `base` to `cls`, which only adds methods.

    So attributes can be set quickly, in a `base`, even if `cls` has a `__setattr__`. Raises
    `TypeError` if `cls` adds more than methods, or an object is of another class.
    """
    if cls.__base__ is not base or cls.__basicsize__ != base.__basicsize__:
        raise TypeError(f"{cls!r} must be a subclass of {base!r} that only adds methods")
    for thing in things:
        if type(thing) is not base:
            raise TypeError(f"{type(thing)!r} isn't {base!r}")
        object.__setattr__(thing, "__class__", cls)


def collectable(thing: object) -> None:
    """Do nothing, because only objects of the kernel's `blanks` aren't tracked by the collector."""

"""What the Avro kernel is told: columns to fill, and programs that say what bytes hold.

In: nothing. Out: numbers that `kernel_avro` and its compiler, `serialization.avro_plan`, share.
Must not: know a schema. A program is the compiler's own and is trusted; the bytes that it reads
aren't.

A column is four numbers: its kind, bytes of an entry, its first child and its next sibling (-1:
none). A step of a program is six: what it reads, into which column (-1: into none), where it goes
on or ends, and three that `Op` names in that order.
"""

from __future__ import annotations

from enum import IntEnum

COLUMN_NUMBERS, STEP_NUMBERS = 4, 6
NONE = -1


class Keeping(IntEnum):
    """How a column keeps its entries."""

    NOTHING = 0
    BITS = 1
    FIXED = 2
    BINARY = 3
    LIST = 4
    """Of its one child; of a map, too."""
    STRUCT = 5


class Op(IntEnum):
    """What a step reads."""

    NULL = 0
    """No byte; an entry that is null."""
    NUMBER = 1
    """A zigzag number between low and high, kept as `Number` says."""
    BINARY = 2
    """A size, or low where that isn't 0, and so many bytes; more: UTF-8 without a flaw."""
    UNION = 3
    """Low is null, and goes on at `stop`; high goes on here; more: null is refused."""
    STRUCT = 4
    """No byte; an entry whose children are what follows."""
    FLOAT = 5
    """Four bytes; more: kept as eight."""
    DOUBLE = 6
    LIST = 7
    """Blocks of what follows until `stop`; more: a map, whose keys are column low."""
    BOOLEAN = 8
    ENUM = 9
    """One of `high` symbols, which stand in a table of the constants at `low`."""
    FIXED = 10
    """So many bytes as low says."""
    DECIMAL = 11
    """Big-endian in low bytes (-1: a size stands before); high and more are its bound's halves."""
    CONSTANT = 12
    """What follows until `stop` is read from `high` bytes of the constants at `low`."""
    SWITCH = 13
    """A union of `high` branches; so many steps follow, whose `stop` is where each begins."""
    JUMP = 14
    """Goes on at `stop`."""


class Number(IntEnum):
    """How a number is kept."""

    INT = 0
    LONG = 1
    FLOAT = 2
    DOUBLE = 3

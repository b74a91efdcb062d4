"""Define the kernel's input for columns: columns to fill, and programs that describe the bytes.

In: nothing. Out: numbers that `kernel_columns` and its compilers, `serialization.avro_plan` and
`serialization.protobuf_plan`, share. Must not: know a schema. A program is the compiler's own and
is trusted; the bytes that it reads aren't.

A column is four numbers: its kind, bytes of an entry, its first child and its next sibling (-1:
none). A step of a program is six: what it reads, into which column (-1: into none), where it
continues or ends, and three that `Op` names in that order.
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
    """The value that a step reads."""

    NULL = 0
    """No byte; an entry that is null."""
    NUMBER = 1
    """A zigzag number between low and high, kept as `Number` says."""
    BINARY = 2
    """A size, or low if that isn't 0, and this number of bytes; more: valid UTF-8."""
    UNION = 3
    """Low is null, and continues at `stop`; high continues here; more: null is refused."""
    STRUCT = 4
    """No byte; an entry whose children are what follows."""
    FLOAT = 5
    """Four bytes; more: kept as eight."""
    DOUBLE = 6
    LIST = 7
    """Blocks of what follows until `stop`; more: a map, whose keys are column low."""
    BOOLEAN = 8
    ENUM = 9
    """One of `high` symbols, in a table of the constants at `low`."""
    FIXED = 10
    """So many bytes as low says."""
    DECIMAL = 11
    """Big-endian in low bytes (-1: after a size); high and more are its bound's halves."""
    CONSTANT = 12
    """The steps until `stop` read from `high` bytes of the constants at `low`."""
    SWITCH = 13
    """A union of `high` branches; as many steps follow, whose `stop` is where each begins."""
    JUMP = 14
    """Goes on at `stop`."""
    SAME = 15
    """The `high` bytes of the constants at `low`, and no others: Protobuf's message indexes."""
    MESSAGE = 16
    """Protobuf's fields until the end, into a struct.

    `low` steps follow, one for each field in the order of their numbers, and their contents;
    continues at `stop`. High: an unknown field is refused, because Protobuf may leave out the whole
    entry of a map that contains one, or have an extension of that number.
    """


class FieldKind(IntEnum):
    """The type of a Protobuf field; its step's first number.

    The step's others: the column (of a repeated field the list's); for a message its step, for an
    enum its table in the constants; the field's number; its `Label`; and the step of the next field
    of the same oneof (-1: none). The order is that of Protobuf's wire types: varints, four bytes,
    eight bytes, sizes.
    """

    INT32 = 0
    INT64 = 1
    UINT32 = 2
    UINT64 = 3
    """As 16 bytes; so is `FIXED64`."""
    SINT32 = 4
    SINT64 = 5
    BOOL = 6
    ENUM = 7
    """Its name, by a table: how many, then for each number in their order the place and size of its
    name, all in four bytes."""
    FIXED32 = 8
    """As eight bytes."""
    SFIXED32 = 9
    FLOAT = 10
    FIXED64 = 11
    SFIXED64 = 12
    DOUBLE = 13
    STRING = 14
    BYTES = 15
    MESSAGE = 16
    TIMESTAMP = 17
    """Microseconds of a `google.protobuf.Timestamp`."""


class Label(IntEnum):
    """The value of a missing field."""

    ZERO = 0
    NULL = 1
    LEFT = 2
    """The library decides: the row is left to it."""
    LIST = 3
    MAP = 4


LARGEST_SECONDS = 9_223_372_036_800
"""Of a timestamp, either way, so that its microseconds have 64 bits; beyond it rows are left."""


class Number(IntEnum):
    """How a number is kept."""

    INT = 0
    LONG = 1
    FLOAT = 2
    DOUBLE = 3

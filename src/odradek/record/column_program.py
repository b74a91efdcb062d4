"""Define the kernel's input for columns: columns to fill, and programs that describe the bytes.

In: nothing. Out: numbers that `kernel_columns` shares with its compilers, `serialization.avro.plan`
and `serialization.protobuf.plan`. Must not know a schema. A program comes from the compiler and is
trusted; the bytes that it reads are not.

A column consists of four numbers: its kind, the bytes of an entry, its first child and its next
sibling (-1: none). A step of a program consists of six numbers: the value that it reads, the column
to fill (-1: none), the step at which it continues or ends (`stop`), and three numbers that the
docstrings of `Op` call low, high and more.
"""

from __future__ import annotations

from enum import IntEnum

COLUMN_NUMBERS, STEP_NUMBERS = 4, 6
NONE = -1
UUID_TEXT = 2
"""The number `more` of a `BINARY` step that reads the text of a UUID."""


class Keeping(IntEnum):
    """Storage of a column's entries."""

    NOTHING = 0
    BITS = 1
    FIXED = 2
    BINARY = 3
    LIST = 4
    """A list or a map, with one child."""
    STRUCT = 5


class Op(IntEnum):
    """Kind of value that a step reads."""

    NULL = 0
    """Reads no byte; adds a null entry."""
    NUMBER = 1
    """A zigzag number between low and high, stored as `Number` says."""
    BINARY = 2
    """A size, or low if low isn't 0, and this number of bytes. More: 1 if they must be valid UTF-8;
    `UUID_TEXT` for the text of a UUID as it is usually written."""
    UNION = 3
    """A nullable value. Branch low is null, and continues at `stop`; branch high continues at the
    next step; more: a null is refused."""
    STRUCT = 4
    """Reads no byte; adds an entry whose children the next steps fill."""
    FLOAT = 5
    """Four bytes; more: stored as eight bytes."""
    DOUBLE = 6
    LIST = 7
    """Blocks of items, each read by the steps until `stop`; more: a map, whose keys go to column
    low."""
    BOOLEAN = 8
    ENUM = 9
    """One of `high` symbols, in a table of the constants at `low`."""
    FIXED = 10
    """`low` bytes."""
    DECIMAL = 11
    """A big-endian number in low bytes (-1: after a size); high and more are the halves of its
    bound."""
    CONSTANT = 12
    """Runs the steps until `stop` on `high` bytes of the constants at `low`."""
    SWITCH = 13
    """A union of `high` branches; that many steps follow, and the `stop` of each is where it
    begins."""
    JUMP = 14
    """Continues at `stop`."""
    SAME = 15
    """Requires the `high` bytes of the constants at `low`: Protobuf's message indexes."""
    MESSAGE = 16
    """Protobuf's fields until the end, into a struct.

    `low` steps follow, one for each field in the order of the field numbers, then the steps of
    their contents; the program continues at `stop`. High: an unknown field is refused, because
    Protobuf may leave out the whole entry of a map that contains one, or have an extension of that
    number.
    """


class FieldKind(IntEnum):
    """The type of a Protobuf field; the first number of its step.

    The other numbers of its step: the column (for a repeated field the list's); for a message its
    step, for an enum its table in the constants; the field's number; its `Label`; and the step of
    the next field of the same oneof (-1: none). The types are ordered by Protobuf's wire types:
    varints, four bytes, eight bytes, sizes.
    """

    INT32 = 0
    INT64 = 1
    UINT32 = 2
    UINT64 = 3
    """Stored in 16 bytes; so is `FIXED64`."""
    SINT32 = 4
    SINT64 = 5
    BOOL = 6
    ENUM = 7
    """Stored as its name, from a table: the number of symbols, then for each symbol, ordered by its
    number, the position and size of its name; all are four-byte numbers."""
    FIXED32 = 8
    """Stored in eight bytes."""
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
    """Value of a missing field."""

    ZERO = 0
    NULL = 1
    LEFT = 2
    """The row is left to the Protobuf library, which decides."""
    LIST = 3
    MAP = 4


LARGEST_SECONDS = 9_223_372_036_800
"""Limit of a timestamp's seconds, positive or negative, so that its microseconds fit into 64 bits;
rows beyond it are left to the Protobuf library."""


class Number(IntEnum):
    """Storage of a number."""

    INT = 0
    LONG = 1
    FLOAT = 2
    DOUBLE = 3

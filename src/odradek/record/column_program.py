"""Define programs with which a kernel decodes Avro or Protobuf bytes into columns.

In: nothing. Out: the numbers of which programs consist; `kernel_columns` runs programs,
`serialization.avro.plan` and `serialization.protobuf.plan` compile schemas to programs. Must not:
know a schema. A program is trusted; the bytes that it reads aren't.

A column consists of four numbers: its kind, the size of an entry in bytes, its first child column
and its next sibling (-1: none). A step of a program consists of six numbers: the kind of value that
it reads (`Op`), the column to fill (-1: none), the step at which it continues or ends (`stop`), and
three numbers that the docstrings of `Op` call low, high and more.
"""

from __future__ import annotations

from enum import IntEnum

COLUMN_NUMBERS, STEP_NUMBERS = 4, 6
NONE = -1
UUID_TEXT = 2
"""Value of `more` in a `BINARY` step that reads the text of a UUID."""


class Keeping(IntEnum):
    """How a column's entries are stored."""

    NOTHING = 0
    BITS = 1
    FIXED = 2
    BINARY = 3
    LIST = 4
    """Lists or maps, with one child column."""
    STRUCT = 5


class Op(IntEnum):
    """Kind of value that a step of a program reads."""

    NULL = 0
    """Reads no byte, and adds a null entry."""
    NUMBER = 1
    """A zigzag number from low to high; `more` says how it is stored (`Number`)."""
    BINARY = 2
    """A size (or low, if that isn't 0), and this number of bytes. More: 1 if they must be valid
    UTF-8; `UUID_TEXT` for the text of a UUID in its usual form."""
    UNION = 3
    """A nullable value. Branch low is null, and continues at `stop`; branch high continues at the
    next step. More: 1 if a null is refused."""
    STRUCT = 4
    """Reads no byte, and adds an entry whose children the next steps fill."""
    FLOAT = 5
    """Four bytes. More: 1 if the number is stored in eight bytes."""
    DOUBLE = 6
    LIST = 7
    """Blocks of items, each read by the steps until `stop`. More: 1 for a map, whose keys are
    stored in column low."""
    BOOLEAN = 8
    ENUM = 9
    """One of `high` symbols, from a table that begins at `low` in the constants."""
    FIXED = 10
    """A value of `low` bytes."""
    DECIMAL = 11
    """A big-endian number of low bytes (-1: after a size); high and more are halves of its
    limit."""
    CONSTANT = 12
    """Runs the steps until `stop` on `high` bytes that begin at `low` in the constants."""
    SWITCH = 13
    """A union of `high` branches; as many steps follow, whose `stop` is the start of a branch."""
    JUMP = 14
    """Continues at `stop`."""
    SAME = 15
    """Requires the `high` bytes at `low` in the constants, which are Protobuf's message indexes."""
    MESSAGE = 16
    """A Protobuf message, whose fields are stored in a struct.

    `low` steps follow, one for each field in the order of the field numbers, then the steps of the
    fields' contents; the program continues at `stop`. High: 1 if an unknown field is refused,
    because Protobuf may leave out a whole map entry with an unknown field, or have an extension of
    this number.
    """


class FieldKind(IntEnum):
    """The type of a Protobuf field, which is the first number of the field's step.

    The other five numbers: the column (for a repeated field, that of the list); the step of a
    message, or the position of an enum's table in the constants; the field's number; its `Label`;
    and the step of the next field of the same oneof (-1: none). The types are ordered by Protobuf's
    wire types: varints, four bytes, eight bytes, sizes.
    """

    INT32 = 0
    INT64 = 1
    UINT32 = 2
    UINT64 = 3
    """Stored as decimal128 (16 bytes), as is `FIXED64`."""
    SINT32 = 4
    SINT64 = 5
    BOOL = 6
    ENUM = 7
    """Stored as the symbol's name, from a table: the number of symbols, then for each symbol,
    ordered by number, position and size of its name; all are four-byte numbers."""
    FIXED32 = 8
    """Stored in eight bytes, as an unsigned number doesn't fit into four."""
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
    """Value that is stored for a field that the message doesn't contain."""

    ZERO = 0
    NULL = 1
    LEFT = 2
    """Nothing: the row is left to the Protobuf library."""
    LIST = 3
    MAP = 4


LARGEST_SECONDS = 9_223_372_036_800
"""Maximum absolute value of a timestamp's seconds, so that its microseconds fit into 64 bits; rows
beyond that are left to the Protobuf library."""


class Number(IntEnum):
    """How a number is stored."""

    INT = 0
    LONG = 1
    FLOAT = 2
    DOUBLE = 3

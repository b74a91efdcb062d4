"""Check how deeply the values in Avro bytes are nested, before fastavro reads them.

In: the types of a schema (`schema_limits`) and bytes. Out: nothing, or `DeserializationError`.
fastavro reads nested values by recursion in C, without a depth limit: 6,000 bytes of a list that
refers to itself crash the process. Must not: recurse.
"""

from __future__ import annotations

from odradek.serialization.errors import DeserializationError
from odradek.serialization.schema_limits import (
    BYTES,
    DEEPEST_VALUE,
    FIXED,
    MAP,
    NUMBER,
    RECORD,
    UNION,
    AvroType,
)

LONGEST_NUMBER = 10
"""Maximum number of bytes of an encoded 64-bit number."""
NO_BRANCH = "the data doesn't match its Avro schema: a union has no such branch"


class Walk:
    """Cursor that walks through the bytes of one value, with its own stack instead of recursion."""

    def __init__(self, nodes: list[AvroType], data: bytes) -> None:
        self._nodes, self._data, self._at = nodes, data, 0
        self._open: list[list[int]] = []
        """Stack of unfinished values: type index, and parts read (arrays, maps: items unread)."""

    def go(self) -> None:
        """Check the nesting of the whole value; raises `DeserializationError`."""
        self._enter(0)
        while self._open:
            frame = self._open[-1]
            at = self._next(self._nodes[frame[0]], frame)
            if at < 0:
                self._open.pop()
            else:
                self._enter(at)

    def _next(self, node: AvroType, frame: list[int]) -> int:
        """Return the index of the type of the innermost value's next part; -1 at its end."""
        if node.kind == RECORD:
            frame[1] += 1
            return node.inner[frame[1] - 1] if frame[1] <= len(node.inner) else -1
        if node.kind == UNION:
            frame[1] += 1
            return -1 if frame[1] > 1 else self._branch(node)
        if frame[1] == 0:
            frame[1] = self._block()
            if frame[1] == 0:
                return -1
        frame[1] -= 1
        if node.kind == MAP:
            self._skip(self._number())
        return node.inner[0]

    def _branch(self, node: AvroType) -> int:
        number = self._number()
        if not 0 <= number < len(node.inner):
            raise DeserializationError(NO_BRANCH)
        return node.inner[number]

    def _block(self) -> int:
        """Return the number of items in the next block of an array or map; 0 at its end."""
        count = self._number()
        if count < 0:
            self._number()
        return abs(count)

    def _enter(self, at: int) -> None:
        node = self._nodes[at]
        if node.kind == NUMBER:
            self._number()
        elif node.kind == BYTES:
            self._skip(self._number())
        elif node.kind == FIXED:
            self._skip(node.size)
        else:
            self._open.append([at, 0])
            if len(self._open) > DEEPEST_VALUE:
                raise DeserializationError(
                    f"the values are nested more than {DEEPEST_VALUE} levels deep"
                )

    def _skip(self, size: int) -> None:
        self._at += size
        if size < 0 or self._at > len(self._data):
            raise DeserializationError("the data doesn't match its Avro schema: it is truncated")

    def _number(self) -> int:
        found = 0
        for shift in range(0, 7 * LONGEST_NUMBER, 7):
            if self._at >= len(self._data):
                raise DeserializationError(
                    "the data doesn't match its Avro schema: it is truncated"
                )
            byte = self._data[self._at]
            self._at += 1
            found |= (byte & 0x7F) << shift
            if byte < 0x80:
                found &= (1 << 64) - 1
                return (found >> 1) ^ -(found & 1)
        raise DeserializationError(
            "the data doesn't match its Avro schema: a number has too many bytes"
        )

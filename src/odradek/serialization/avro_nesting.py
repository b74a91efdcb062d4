"""How deep Avro's values lie within one another: more than the stack holds ends the process.

In: a schema as fastavro has parsed it, and bytes or a value. Out: nothing, or why they aren't read
or written. fastavro does both in C, a value within a value by a call within a call, and nothing
there ends it: 6,000 bytes of a list that refers to itself do, as does a value that is within
itself, or an array of a trillion items that take no bytes. Must not: call
itself, or read what it needn't: where the schema alone keeps values flat, no byte is looked at.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from odradek.serialization.errors import (
    DeserializationError,
    InvalidSchemaError,
    SerializationError,
)

DEEPEST_VALUE = 400
"""Values within values, where a union's value counts twice. fastavro takes about 1 KiB of stack for
each, and there are threads with 512 KiB.
"""
DEEPEST_WRITTEN = 150
"""Dicts and lists within one another that are written: fastavro takes up to 2.6 KiB for each."""
MOST_EMPTY = 10_000
"""Values in a value that takes no bytes."""
LONGEST_NUMBER = 10
"""Bytes of a number of 64 bits."""

_NUMBER, _BYTES, _FIXED, _UNION, _ARRAY, _MAP, _RECORD = range(7)
_SIZES = {"null": 0, "boolean": 1, "float": 4, "double": 8}
_WITHIN = frozenset(("record", "error", "array", "map", "fixed", "enum"))


class _Node(NamedTuple):
    """A type, and those within it by number; a size for what is of one size."""

    kind: int
    inner: list[int]
    size: int = 0


def may_nest(schema: Any) -> bool:
    """Whether values of a schema may lie deeper than can be written."""
    nodes = _nodes(schema)
    order, recursive = _order(nodes, range(7))
    return recursive or max(_heights(nodes, order, range(7))) > DEEPEST_WRITTEN


def check_written(value: Any) -> None:
    """Look whether a value is too deep to be written, or within itself.

    Raises `SerializationError`.
    """
    open_ones: list[Iterator[Any]] = [iter((value,))]
    while open_ones:
        one = next(open_ones[-1], open_ones)
        if one is open_ones:
            open_ones.pop()
        elif isinstance(one, Mapping):
            open_ones.append(iter(one.values()))
        elif isinstance(one, list | tuple):
            open_ones.append(iter(one))
        if len(open_ones) > DEEPEST_WRITTEN:
            raise SerializationError(
                f"its values lie deeper than {DEEPEST_WRITTEN} within one another"
            )


class AvroNesting:
    """What one schema says about the depth of its values.

    Raises `InvalidSchemaError` for a schema whose values have no end, or lie too deep.
    """

    def __init__(self, schema: Any) -> None:
        self._nodes = _nodes(schema)
        empty = self._empty()
        for node in self._nodes:
            if node.kind == _ARRAY and node.inner[0] in empty:
                raise _refused("has an array of what takes no bytes, and so no end")
        self.has_arrays_of_fixed_size = any(
            node.kind == _ARRAY and self._nodes[node.inner[0]].kind in (_FIXED, _RECORD)
            for node in self._nodes
        )
        """Or of records, which may be of fixed sizes alone."""
        order, self._recursive = _order(self._nodes, range(7))
        self._run = 1 + max(_heights(self._nodes, self._direct, (_RECORD,)), default=0)
        """Values within values that the same byte begins."""
        if not self._recursive and max(_heights(self._nodes, order, range(7))) > DEEPEST_VALUE:
            raise _refused(f"has values that lie deeper than {DEEPEST_VALUE} within others")

    def _empty(self) -> set[int]:
        """The types that take no bytes."""
        self._direct, endless = _order(self._nodes, (_RECORD,))
        if endless:
            raise _refused("has a record that holds itself in each of its values")
        counts: dict[int, int] = {}
        for at in self._direct:
            node = self._nodes[at]
            if node.kind == _FIXED and node.size == 0:
                counts[at] = 1
            elif node.kind == _RECORD and all(one in counts for one in node.inner):
                counts[at] = 1 + sum(counts[one] for one in node.inner)
                if counts[at] > MOST_EMPTY:
                    raise _refused(f"has a record of more than {MOST_EMPTY} values without a byte")
        return set(counts)

    def check(self, data: bytes) -> None:
        """Look whether bytes go deeper than can be read. Raises `DeserializationError`."""
        if self._recursive and (len(data) + 1) * self._run > DEEPEST_VALUE:
            _Walk(self._nodes, data).go()


def _refused(why: str) -> InvalidSchemaError:
    return InvalidSchemaError(f"the Avro schema {why}", None, "Change the schema.")


def _nodes(schema: Any) -> list[_Node]:
    """The types of a schema, the whole first."""
    named = _named(schema)
    places: dict[Any, int] = {}
    waiting: list[Any] = []

    def place(one: Any) -> int:
        while True:
            if isinstance(one, dict) and one.get("type") not in _kinds(one):
                one = one["type"]
            elif isinstance(one, str) and one in named:
                one = named[one]
            else:
                break
        key = one if isinstance(one, str) else id(one)
        if key not in places:
            places[key] = len(places)
            waiting.append(one)
        return places[key]

    place(schema)
    found: list[_Node] = []
    while len(found) < len(waiting):
        found.append(_node(waiting[len(found)], place))
    return found


def _kinds(one: dict[str, Any]) -> frozenset[str]:
    """Kinds that a dict itself describes; else its type is another schema."""
    return _WITHIN if isinstance(one.get("type"), str) else frozenset()


def _node(one: Any, place: Any) -> _Node:
    if isinstance(one, list):
        return _Node(_UNION, [place(each) for each in one])
    if isinstance(one, dict):
        kind = one["type"]
        if kind in ("record", "error"):
            return _Node(_RECORD, [place(each["type"]) for each in one["fields"]])
        if kind == "array":
            return _Node(_ARRAY, [place(one["items"])])
        if kind == "map":
            return _Node(_MAP, [place(one["values"])])
        if kind == "fixed":
            return _Node(_FIXED, [], one["size"])
        return _Node(_NUMBER, [])  # an enum
    if one in _SIZES:
        return _Node(_FIXED, [], _SIZES[one])
    return _Node(_BYTES if one in ("bytes", "string") else _NUMBER, [])


def _named(schema: Any) -> dict[str, Any]:
    """The named types within a schema, and those of others that fastavro has put beside it."""
    found: dict[str, Any] = {}
    waiting, met = [schema], set[int]()
    while waiting:
        one = waiting.pop()
        if not isinstance(one, dict | list) or id(one) in met:
            continue
        met.add(id(one))
        if isinstance(one, list):
            waiting += one
            continue
        if "name" in one and one.get("type") in ("record", "error", "enum", "fixed"):
            found.setdefault(one["name"], one)
        waiting += [each["type"] for each in one.get("fields", ())]
        waiting += [one[name] for name in ("items", "values", "type") if name in one]
        beside = one.get("__named_schemas") or {}
        if id(beside) not in met:  # each part of a union has them, and they are the same
            met.add(id(beside))
            waiting += beside.values()
    return found


def _order(nodes: list[_Node], kinds: Any) -> tuple[list[int], bool]:
    """All types, each after those within it that `kinds` of types lead to; whether one is within
    itself.
    """
    found: list[int] = []
    state = [0] * len(nodes)
    cyclic = False
    for first in range(len(nodes)):
        if state[first]:
            continue
        state[first] = 1
        open_ones = [(first, iter(nodes[first].inner if nodes[first].kind in kinds else ()))]
        while open_ones:
            at, rest = open_ones[-1]
            inner = next(rest, None)
            if inner is None:
                open_ones.pop()
                state[at] = 2
                found.append(at)
            elif state[inner] == 0:
                state[inner] = 1
                node = nodes[inner]
                open_ones.append((inner, iter(node.inner if node.kind in kinds else ())))
            elif state[inner] == 1:
                cyclic = True
    return found, cyclic


def _heights(nodes: list[_Node], order: list[int], kinds: Any) -> list[int]:
    """How many types lie within one another, each counted, where no type is within itself."""
    found = [1] * len(nodes)
    for at in order:
        if nodes[at].kind in kinds:
            found[at] += max((found[one] for one in nodes[at].inner), default=0)
    return found


class _Walk:
    """One pass over a value's bytes, with a stack of its own."""

    def __init__(self, nodes: list[_Node], data: bytes) -> None:
        self._nodes, self._data, self._at = nodes, data, 0
        self._open: list[list[int]] = []
        """Types whose values aren't over, and how many parts each has had, or is to have."""

    def go(self) -> None:
        """Raises `DeserializationError`."""
        self._enter(0)
        while self._open:
            frame = self._open[-1]
            at = self._next(self._nodes[frame[0]], frame)
            if at < 0:
                self._open.pop()
            else:
                self._enter(at)

    def _next(self, node: _Node, frame: list[int]) -> int:
        """The type of the next value in the innermost one; -1 at its end."""
        if node.kind == _RECORD:
            frame[1] += 1
            return node.inner[frame[1] - 1] if frame[1] <= len(node.inner) else -1
        if node.kind == _UNION:
            frame[1] += 1
            return -1 if frame[1] > 1 else self._branch(node)
        if frame[1] == 0:
            frame[1] = self._block()
            if frame[1] == 0:
                return -1
        frame[1] -= 1
        if node.kind == _MAP:
            self._skip(self._number())
        return node.inner[0]

    def _branch(self, node: _Node) -> int:
        number = self._number()
        if not 0 <= number < len(node.inner):
            raise DeserializationError("it isn't of its Avro schema: a union has no such branch")
        return node.inner[number]

    def _block(self) -> int:
        """How many items follow together."""
        count = self._number()
        if count < 0:
            self._number()
        return abs(count)

    def _enter(self, at: int) -> None:
        node = self._nodes[at]
        if node.kind == _NUMBER:
            self._number()
        elif node.kind == _BYTES:
            self._skip(self._number())
        elif node.kind == _FIXED:
            self._skip(node.size)
        else:
            self._open.append([at, 0])
            if len(self._open) > DEEPEST_VALUE:
                raise DeserializationError(
                    f"its values lie deeper than {DEEPEST_VALUE} within one another"
                )

    def _skip(self, size: int) -> None:
        self._at += size
        if size < 0 or self._at > len(self._data):
            raise DeserializationError("it isn't of its Avro schema: it ends too early")

    def _number(self) -> int:
        found = 0
        for shift in range(0, 7 * LONGEST_NUMBER, 7):
            if self._at >= len(self._data):
                raise DeserializationError("it isn't of its Avro schema: it ends too early")
            byte = self._data[self._at]
            self._at += 1
            found |= (byte & 0x7F) << shift
            if byte < 0x80:
                found &= (1 << 64) - 1
                return (found >> 1) ^ -(found & 1)
        raise DeserializationError("it isn't of its Avro schema: a number has too many bytes")

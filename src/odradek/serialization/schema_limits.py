"""Limits for untrusted schemas: a small schema may cause unlimited work (R-IN-4).

In: a parsed schema, and values or bytes. Out: nothing, or the reason why a value isn't checked,
read or written. A schema is a graph of definitions. `folded` visits each definition once, without
recursion, and computes its limit from the limits of the definitions that it refers to:

- JSON: a validator follows each `$ref` every time. It runs for years if each of 60 definitions
  refers to the previous one twice, or if a definition refers to itself twice for nested values. So
  the paths to each definition are counted before a value is checked.
- Avro: fastavro reads and writes nested values by recursion in C, without a depth limit. The
  process crashes for 6,000 bytes of a list that refers to itself, for a value that contains
  itself, and for an array of 10**12 items that take no bytes.

Must not: fetch a schema, or look at bytes if the schema itself limits the nesting of its values.
"""

from __future__ import annotations

import math
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar
from urllib.parse import unquote, urljoin

from odradek.serialization.errors import InvalidSchemaError, SerializationError

V = TypeVar("V")

FREE = 10_000
"""If a schema makes at most this number of checks per place of a value, values aren't measured: a
harmless schema may choose among hundreds of event types, or refer to itself on 1,000 levels.
"""
MOST = 10_000_000
"""Maximum number of checks for a whole value; they take a few seconds."""
MOST_WAYS = 500_000
"""Maximum number of steps for counting a schema's checks. A step is a pair of definitions: the
first applies the second to the same value or to a nested value.
"""
DEEPEST = 1000
"""Maximum nesting depth of JSON values: Python can't read or write deeper ones."""
HASHED = 16
"""Minimum length of a list whose items `uniqueItems` hashes, including all nested values. It
compares the items of shorter lists in pairs, up to the first difference.
"""
LONG = 1 << 53
"""Integers with at least this absolute value are long: their hashes may collide."""
COMPARED_LEVELS = 32
"""Maximum number of nested lists with `uniqueItems` that may compare the same part of a value."""
FREE_COMPARED = 1_000_000
"""Number of characters and values that `uniqueItems` may always compare."""
MOST_STEPS = 300_000
"""Maximum number of references that are counted, summed over all levels: the more references a
schema has, the fewer levels are counted."""
MOST_BASES = 64
"""Maximum number of base URIs of a definition: drafts resolve nested ids differently."""
LONGEST_PLACE = 19
"""Number of digits from which on a list index in a JSON pointer is too large."""
BASE = "http://schema.invalid/"
"""The URI of a JSON schema that doesn't name its own, against which its references are resolved."""
STANDARD = ("http://json-schema.org/", "https://json-schema.org/")
"""Prefixes of the metaschemas that the validator contains."""
DEEPEST_VALUE = 400
"""Maximum nesting depth of Avro values; a value of a union counts as two levels. fastavro needs
about 1 KiB of stack per level, and some threads have only 512 KiB.
"""
DEEPEST_WRITTEN = 150
"""Maximum nesting depth of dicts and lists that are written as Avro: fastavro needs up to 2.6 KiB
of stack per level.
"""
MOST_EMPTY = 10_000
"""Maximum number of Avro values in a record that takes no bytes."""
MOST_DIGITS = 4300
"""Maximum number of digits of decimals that are read or written; the same as Python's default limit
for integers. The time of a conversion grows with the square of the number of digits.
"""

_HERE = ("not", "if", "then", "else")
_HERE_LISTS = ("allOf", "anyOf", "oneOf")
_HERE_MAPS = ("dependentSchemas", "dependencies")
_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
_ITEMS = ("items", "additionalItems", "contains", "unevaluatedItems")
_MEMBERS = ("additionalProperties", "unevaluatedProperties", "propertyNames")


class _CircleError(Exception):
    """A node leads back to itself."""


def folded(
    first: int, parts: Callable[[int], Iterable[int]], of: Callable[[int], V], found: dict[int, V]
) -> V:
    """Call `of` for `first` and all nodes below it, children before parents.

    `found` stores the results by node; nodes with results of earlier calls are skipped. Raises
    `_CircleError` if a node leads back to itself.
    """
    waiting = [(first, False)]
    above = set[int]()
    while waiting:
        at, seen = waiting.pop()
        if seen:
            above.remove(at)
            found[at] = of(at)
        elif at in above:
            raise _CircleError
        elif at not in found:
            above.add(at)
            waiting.append((at, True))
            waiting += [(one, False) for one in parts(at)]
    return found[first]


class JsonLimits:
    """The number of checks that a JSON schema makes, by nesting depth of a value.

    `others`: the schemas that it refers to, by their URIs. Raises `InvalidSchemaError` if a schema
    refers to itself for the same value, or to a schema that doesn't exist.
    """

    def __init__(self, schema: Any, others: Mapping[str, Any]) -> None:
        self._places = _Places(schema, others)
        self._applied: dict[int, Counter[int]] = {}
        """By definition: all definitions that apply to the same value, and how often."""
        self._by_depth = [1]
        """Number of checks per place of a value, by nesting depth of the value."""
        self._deepest = DEEPEST
        self._ways = self._kept = 0
        self.unique = any(one.get("uniqueItems") is True for one in self._places.nodes.values())
        if isinstance(schema, dict):
            self._grow(id(schema), self._groups(id(schema)))

    def check(self, value: Any) -> str | None:
        """Return why a value isn't checked, because it would take too long, or None."""
        if self.unique and len(self._by_depth) > COMPARED_LEVELS:
            compared, size = _compared(value)
            if compared > max(FREE_COMPARED, COMPARED_LEVELS * size):
                return "uniqueItems would compare lists within lists too often"
        if self._by_depth[-1] <= FREE and self._deepest == DEEPEST:
            return None
        depth, size = _extent(value)
        if depth > self._deepest:
            return f"the values are nested more than {self._deepest} levels deep"
        each = self._by_depth[min(depth, len(self._by_depth) - 1)]
        if each < MOST and each * size <= MOST:
            return None
        return f"validating the references of its schema would take {MOST} checks or more"

    def compares_long_integers(self, value: Any) -> bool:
        """Return whether `uniqueItems` may have to compare many long integers."""
        return self.unique and _has_long_integers(value)

    def _groups(self, first: int) -> dict[int, list[list[tuple[int, int]]]]:
        """Return, for each definition, which definitions check each kind of nested value."""
        groups: dict[int, list[list[tuple[int, int]]]] = {}
        waiting = [first]
        while waiting:
            root = waiting.pop()
            if root in groups:
                continue
            try:
                applied = folded(root, self._leading, self._applied_with, self._applied)
            except _CircleError:
                raise _refused("refers to itself for the same value") from None
            within: dict[Any, list[tuple[int, int]]] = {}
            for at, times in applied.items():
                for key, inner in _within(self._places.nodes[at]):
                    self._go()
                    within.setdefault(key, []).append((id(inner), times))
                    waiting.append(id(inner))
            groups[root] = self._of_one_value(within)
        return groups

    def _leading(self, at: int) -> list[int]:
        """Return the definitions that a definition applies to its own value; limit their number."""
        found = self._places.here(at)
        self._kept += len(found)
        if self._kept > MOST_WAYS:
            raise _too_many_ways()
        return found

    def _applied_with(self, at: int) -> Counter[int]:
        found = Counter({at: 1})
        for one in self._places.here(at):
            found.update(self._applied[one])
        self._go(len(found))
        return Counter({one: min(n, MOST) for one, n in found.items()})

    def _of_one_value(
        self, within: dict[Any, list[tuple[int, int]]]
    ) -> list[list[tuple[int, int]]]:
        """Return, for each nested value, all definitions that check it."""
        members, items = within.pop((dict,), []), within.pop((list,), [])
        found = [members, items]
        for key, one in within.items():
            of_all = members if isinstance(key, str) else items
            self._go(len(of_all))
            found.append(one + of_all)
        return [one for one in found if one]

    def _go(self, ways: int = 1) -> None:
        self._ways += ways
        if self._ways > MOST_WAYS:
            raise _too_many_ways()

    def _grow(self, first: int, groups: dict[int, list[list[tuple[int, int]]]]) -> None:
        """Count the checks for values of depth 0, 1, 2, and so on, until the counts are stable."""
        own = {at: min(self._applied[at].total(), MOST) for at in groups}
        costs = own
        self._by_depth = [own[first]]
        steps = sum(len(inner) for found in groups.values() for inner in found)
        levels = min(DEEPEST, max(32, MOST_STEPS // max(steps, 1)))
        for _ in range(levels):
            before = costs
            costs = {
                at: min(
                    MOST,
                    own[at]
                    + max((sum(before[one] * n for one, n in inner) for inner in found), default=0),
                )
                for at, found in groups.items()
            }
            self._by_depth.append(costs[first])
            if costs == before or costs[first] == MOST:
                return
        self._deepest = levels


class _Places:
    """Finds the targets of references; one reference has several if JSON Schema's drafts differ."""

    def __init__(self, schema: Any, others: Mapping[str, Any]) -> None:
        self.nodes: dict[int, dict[str, Any]] = {}
        self._bases: dict[int, tuple[str, ...]] = {}
        self._by_uri: dict[str, list[Any]] = {}
        self._anywhere: dict[str, list[Any]] = {}
        """Possible targets of `$dynamicRef`, by name."""
        places: dict[int, tuple[Any, list[str]]] = {}
        for uri, one in [(BASE, schema), *others.items()]:
            places.setdefault(id(one), (one, []))[1].append(uri)
        for one, uris in places.values():
            self._look_over(tuple(uris), one)

    def _look_over(self, places: tuple[str, ...], document: Any) -> None:
        for base in places:
            self._by_uri.setdefault(base, []).append(document)
        waiting: list[tuple[tuple[str, ...], Any]] = [(places, document)]
        while waiting:
            bases, one = waiting.pop()
            if isinstance(one, list):
                waiting += [(bases, each) for each in one]
            if not isinstance(one, dict):
                continue
            for name in ("$id", "id"):
                own = one.get(name)
                if isinstance(own, str):
                    whole = dict.fromkeys(joined(base, own).removesuffix("#") for base in bases)
                    for uri in whole:
                        self._by_uri.setdefault(uri, []).append(one)
                    if not own.startswith("#"):
                        # Older drafts ignore $id beside $ref, and newer drafts ignore id.
                        both = name == "id" or "$ref" in one
                        bases = tuple(dict.fromkeys((*whole, *bases)) if both else whole)
                    if len(bases) > MOST_BASES:
                        raise _refused("has too many nested ids")
            self.nodes[id(one)], self._bases[id(one)] = one, bases
            for name in ("$anchor", "$dynamicAnchor"):
                anchor = one.get(name)
                if isinstance(anchor, str):
                    for base in bases:
                        self._by_uri.setdefault(f"{base}#{anchor}", []).append(one)
                    if name == "$dynamicAnchor":
                        self._anywhere.setdefault(anchor, []).append(one)
            if one.get("$recursiveAnchor") is True:
                self._anywhere.setdefault("", []).append(one)
            waiting += [(bases, each) for each in one.values()]

    def here(self, at: int) -> list[int]:
        """Return the definitions that this definition applies to the same value, as by `$ref`."""
        return [id(one) for one in self._here(self.nodes[at])]

    def _here(self, one: dict[str, Any]) -> Iterator[dict[str, Any]]:
        for name in _HERE_LISTS:
            yield from _schemas(one.get(name))
        yield from _schemas([one.get(name) for name in _HERE])
        for name in _HERE_MAPS:
            yield from _schemas(_values(one.get(name)))
        for name in _REFERENCES:
            uri = one.get(name)
            if isinstance(uri, str):
                found = self._at(self._bases[id(one)], uri)
                if name != "$ref":
                    found = found + self._anywhere.get(uri.partition("#")[2], [])
                yield from _schemas({id(each): each for each in found}.values())

    def _at(self, bases: tuple[str, ...], uri: str) -> list[Any]:
        """Return each schema that a reference may refer to."""
        found: list[Any] = []
        for base in bases:
            address = joined(base, uri)
            whole, _, fragment = address.partition("#")
            if whole.startswith(STANDARD) and whole not in self._by_uri:
                return []
            for document in self._by_uri.get(whole, []):
                found += _pointed(document, fragment)
            found += self._by_uri.get(address, []) if fragment else []
        if not found:
            raise _refused(f"refers to {uri!r:.200}, which doesn't exist")
        return found


def _pointed(document: Any, fragment: str) -> list[Any]:
    """Return a list of the value that a JSON pointer leads to; empty if it doesn't exist."""
    if fragment and not fragment.startswith("/"):
        return []
    for escaped in unquote(fragment).split("/")[1:]:
        part = escaped.replace("~1", "/").replace("~0", "~")
        if isinstance(document, list) and (at := _place(part)) < len(document):
            document = document[at]
        elif isinstance(document, dict) and part in document:
            document = document[part]
        else:
            return []
    return [document]


def _place(part: str) -> int:
    """Return a JSON pointer's list index; past the end if the part isn't a number."""
    digits = part.isascii() and part.isdigit() and len(part) < LONGEST_PLACE
    return int(part) if digits and str(int(part)) == part else sys.maxsize


def joined(base: str, uri: str) -> str:
    """Resolve a reference against the base URI of its schema."""
    if uri.startswith(("#", "urn:")):
        return uri if uri[0] != "#" else base.partition("#")[0] + uri
    try:
        return urljoin(base, uri)
    except ValueError:
        raise _refused(f"refers to {uri!r:.200}, which isn't a valid URI") from None


def _schemas(found: Any) -> Iterator[dict[str, Any]]:
    """Yield the schemas that are objects; the schemas `true` and `false` contain no others."""
    return (one for one in found or () if isinstance(one, dict))


def _values(one: Any) -> list[Any]:
    return list(one.values()) if isinstance(one, dict) else []


def _within(one: dict[str, Any]) -> Iterator[tuple[Any, dict[str, Any]]]:
    """Yield the schemas of nested values, each preceded by a key for the values it applies to.

    A key is a member's name, an item's index, `(dict,)` for all members, `(list,)` for all items.
    """
    members = one.get("properties")
    if isinstance(members, dict):
        yield from ((name, each) for name, each in members.items() if isinstance(each, dict))
    for each in _schemas(_values(one.get("patternProperties"))):
        yield (dict,), each
    for each in _schemas([one.get(name) for name in _MEMBERS]):
        yield (dict,), each
    for name in ("prefixItems", "items"):
        listed = one.get(name)
        if isinstance(listed, list):
            yield from ((at, each) for at, each in enumerate(listed) if isinstance(each, dict))
    for each in _schemas([one.get(name) for name in _ITEMS]):
        yield (list,), each


def _extent(value: Any) -> tuple[int, int]:
    """Return the nesting depth of a value, and the number of values in it, itself included."""
    depth = size = 0
    level = [value]
    while level:
        depth, size = depth + 1, size + len(level)
        inner: list[Any] = []
        for one in level:
            if isinstance(one, dict):
                inner += one.values()
            elif isinstance(one, list | tuple):
                inner += one
        level = inner
    return depth - 1, size


def _has_long_integers(value: Any) -> bool:
    """Return whether a value contains at least `HASHED` long integers."""
    waiting, long = [value], 0
    while waiting and long < HASHED:
        one = waiting.pop()
        if isinstance(one, dict):
            waiting += one.values()
        elif isinstance(one, list | tuple):
            waiting += one
        elif isinstance(one, int):
            long += not -LONG < one < LONG
    return long >= HASHED


def _compared(value: Any) -> tuple[int, int]:
    """Return how much `uniqueItems` would compare if it applied to all lists, and a value's size.

    A part counts once for each list or dict around it if the value has many long integers (they are
    all converted to text), and otherwise once for each long list around it.
    """
    every = _has_long_integers(value)
    compared = size = 0
    waiting = [(value, 0)]
    while waiting:
        one, level = waiting.pop()
        weight = 1
        if isinstance(one, str):
            weight += len(one)
        elif isinstance(one, dict):
            level += every
            weight += sum(len(str(name)) for name in one)
            waiting += [(inner, level) for inner in one.values()]
        elif isinstance(one, list | tuple):
            level += every or len(one) >= HASHED
            waiting += [(inner, level) for inner in one]
        elif isinstance(one, int):
            weight += one.bit_length() // 4
        size += weight
        compared += weight * level
    return compared, size


def _too_many_ways() -> InvalidSchemaError:
    return _refused(f"references other schemas in more than {MOST_WAYS} ways")


def _refused(why: str, kind: str = "JSON") -> InvalidSchemaError:
    return InvalidSchemaError(f"the {kind} schema {why}", None, "Change the schema.")


NUMBER, BYTES, FIXED, UNION, ARRAY, MAP, RECORD = range(7)
_SIZES = {"null": 0, "boolean": 1, "float": 4, "double": 8}
_WITHIN = frozenset(("record", "error", "array", "map", "fixed", "enum"))


class AvroType(NamedTuple):
    """A type, the indexes of its child types, and its size in bytes if the size is fixed."""

    kind: int
    inner: list[int]
    size: int = 0


class AvroLimits:
    """Nesting depth of the values of a parsed Avro schema.

    Raises `InvalidSchemaError` for a schema whose values are infinite or nested too deeply.
    """

    def __init__(self, schema: Any) -> None:
        self.nodes = _nodes(schema)
        self._run = 1 + _height(self.nodes, (RECORD,))
        """Maximum number of nested values that begin at the same byte."""
        if self._run == math.inf:
            raise _refused("has a record that always contains itself", "Avro")
        empty: dict[int, int] = {}
        for at in range(len(self.nodes)):
            folded(at, self._fields, lambda one: self._without_bytes(one, empty), empty)
        items = [node.inner[0] for node in self.nodes if node.kind == ARRAY]
        if any(empty[at] for at in items):
            raise _refused(
                "has an array whose items take no bytes, so its length isn't bounded by the data",
                "Avro",
            )
        self.has_arrays_of_fixed_size = any(self.nodes[at].kind in (FIXED, RECORD) for at in items)
        """Whether there is an array of `fixed` or of records, whose items may have a fixed size."""
        height = _height(self.nodes, range(7))
        self._recursive = height == math.inf
        if not self._recursive and height > DEEPEST_VALUE:
            raise _refused(f"has values nested more than {DEEPEST_VALUE} levels deep", "Avro")

    def may_be_deep(self, data: bytes) -> bool:
        """Return whether bytes may contain values that are nested too deeply for the stack."""
        return self._recursive and (len(data) + 1) * self._run > DEEPEST_VALUE

    def _fields(self, at: int) -> list[int]:
        return self.nodes[at].inner if self.nodes[at].kind == RECORD else []

    def _without_bytes(self, at: int, empty: dict[int, int]) -> int:
        """Return how many values a value of this type contains if it takes no bytes; else 0."""
        node = self.nodes[at]
        if node.kind == FIXED:
            return int(node.size == 0)
        if node.kind != RECORD or not all(empty[one] for one in node.inner):
            return 0
        count = 1 + sum(empty[one] for one in node.inner)
        if count > MOST_EMPTY:
            raise _refused(
                f"has a record with more than {MOST_EMPTY} empty values (null, or records "
                "without fields)",
                "Avro",
            )
        return count


def may_nest(schema: Any) -> bool:
    """Return whether values of a schema may be nested too deeply to be written."""
    return _height(_nodes(schema), range(7)) > DEEPEST_WRITTEN


def _height(nodes: list[AvroType], kinds: Sequence[int]) -> float:
    """Return the maximum nesting depth of types, counting only parts of these `kinds`.

    It is infinite if a type contains itself.
    """
    found: dict[int, int] = {}

    def parts(at: int) -> list[int]:
        return nodes[at].inner if nodes[at].kind in kinds else []

    def of(at: int) -> int:
        return 1 + max((found[one] for one in parts(at)), default=0)

    try:
        return max(folded(at, parts, of, found) for at in range(len(nodes)))
    except _CircleError:
        return math.inf


def _nodes(schema: Any) -> list[AvroType]:
    """Return the types of a schema, the whole schema first."""
    named = named_types(schema)
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
    found: list[AvroType] = []
    while len(found) < len(waiting):
        found.append(_node(waiting[len(found)], place))
    return found


def _kinds(one: dict[str, Any]) -> frozenset[str]:
    """Return the kinds that a dict itself describes; empty if its `type` is another schema."""
    return _WITHIN if isinstance(one.get("type"), str) else frozenset()


def _node(one: Any, place: Any) -> AvroType:
    if isinstance(one, list):
        return AvroType(UNION, [place(each) for each in one])
    if isinstance(one, dict):
        kind = one["type"]
        if kind in ("record", "error"):
            return AvroType(RECORD, [place(each["type"]) for each in one["fields"]])
        if kind == "array":
            return AvroType(ARRAY, [place(one["items"])])
        if kind == "map":
            return AvroType(MAP, [place(one["values"])])
        if kind == "fixed":
            return AvroType(FIXED, [], one["size"])
        return AvroType(NUMBER, [])  # an enum value is a number in the bytes
    if one in _SIZES:
        return AvroType(FIXED, [], _SIZES[one])
    return AvroType(BYTES if one in ("bytes", "string") else NUMBER, [])


def named_types(schema: Any) -> dict[str, Any]:
    """Return the named types of a schema by name, also those that fastavro stored beside it."""
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
        if id(beside) not in met:  # several types may share this dict
            met.add(id(beside))
            waiting += beside.values()
    return found


def check_written(value: Any) -> None:
    """Raise `SerializationError` if a value is nested too deeply, or contains itself."""
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
                f"the values are nested more than {DEEPEST_WRITTEN} levels deep"
            )

"""How many checks a JSON schema makes of one value: a few words may ask for 2**60 of the same.

In: a schema and those that it refers to, as JSON. Out: nothing, or why a value isn't checked.
A validator follows each `$ref` each time, and nothing ends it: 60 definitions that each name the
one before twice, or one that names itself twice a level below, keep it at work for years (R-IN-4).
So the ways to each place are counted first, each definition once. Must not: call itself, ask
anybody for a schema, or know what JSON Schema means beyond who leads to whom.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import unquote, urljoin

from odradek.serialization.errors import InvalidSchemaError

FREE = 10_000
"""Checks along one way into a value that need no look at the value: an honest schema may choose
among hundreds of kinds of events, or refer to itself on each of a thousand levels.
"""
MOST = 10_000_000
"""Checks of a whole value; they take some seconds."""
MOST_WAYS = 500_000
"""Definitions that apply to a value, summed up for all definitions and for what is within values:
what counting takes itself.
"""
DEEPEST = 1000
"""How deep values lie at most: Python reads and writes no deeper JSON."""
MOST_STEPS = 300_000
"""References that are counted with, level by level; for a schema of thousands fewer levels are."""
MOST_BASES = 64
"""Addresses that a definition may have, by what drafts make of ids within one another."""
LONGEST_PLACE = 19
"""Digits of a place in a list."""
STANDARD = ("http://json-schema.org/", "https://json-schema.org/")
"""Schemas of schemas, which the validator has."""

_HERE = ("not", "if", "then", "else")
_HERE_LISTS = ("allOf", "anyOf", "oneOf")
_HERE_MAPS = ("dependentSchemas", "dependencies")
_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
_ITEMS = ("items", "additionalItems", "contains", "unevaluatedItems")
_MEMBERS = ("additionalProperties", "unevaluatedProperties", "propertyNames")


class JsonEffort:
    """What one schema costs for values of any depth.

    `others`: by the names under which it refers to them. Raises `InvalidSchemaError` for a schema
    that leads to itself before any value within the value, or to one that isn't there.
    """

    def __init__(self, schema: Any, others: Mapping[str, Any]) -> None:
        self._places = _Places(schema, others)
        self._here: dict[int, Counter[int]] = {}
        self._nodes: dict[int, dict[str, Any]] = {}
        self._by_depth = [1]
        """Checks of one place of a value, by how many values are within it."""
        self._deepest = DEEPEST
        self._ways = 0
        if isinstance(schema, dict):
            self._count(schema)

    def check(self, value: Any) -> str | None:
        """Why a value isn't checked: it would take too long; None where it doesn't."""
        if self._by_depth[-1] <= FREE and self._deepest == DEEPEST:
            return None
        depth, size = _extent(value)
        if depth > self._deepest:
            return f"its values lie deeper than {self._deepest} within one another"
        each = self._by_depth[min(depth, len(self._by_depth) - 1)]
        if each < MOST and each * size <= MOST:
            return None
        return f"its schema's references would take {MOST} checks or more"

    def _count(self, schema: dict[str, Any]) -> None:
        """Go through all places of a schema that values within values may be checked by."""
        groups: dict[int, list[list[tuple[int, int]]]] = {}
        waiting = [schema]
        while waiting:
            root = waiting.pop()
            if id(root) in groups:
                continue
            applied = self._applied(root)
            within: dict[Any, list[tuple[int, int]]] = {}
            for at, times in applied.items():
                for key, inner in _within(self._nodes[at]):
                    self._go()
                    self._nodes[id(inner)] = inner
                    within.setdefault(key, []).append((id(inner), times))
                    waiting.append(inner)
            groups[id(root)] = self._of_one_value(within)
        self._grow(schema, groups)

    def _of_one_value(
        self, within: dict[Any, list[tuple[int, int]]]
    ) -> list[list[tuple[int, int]]]:
        """For each value within a value all that it is checked by."""
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
            raise _refused(f"leads to others in more than {MOST_WAYS} ways")

    def _grow(self, schema: dict[str, Any], groups: dict[int, list[list[tuple[int, int]]]]) -> None:
        """Count for values of one level, of two, and so on, until nothing changes."""
        own = {at: min(self._here[at].total(), MOST) for at in groups}
        costs = own
        self._by_depth = [own[id(schema)]]
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
            self._by_depth.append(costs[id(schema)])
            if costs == before or costs[id(schema)] == MOST:
                return
        self._deepest = levels

    def _applied(self, root: dict[str, Any]) -> Counter[int]:
        """The definitions that apply to the same value as this one does, and how often."""
        self._nodes[id(root)] = root
        open_ones = [(root, self._places.here(root))]
        on_the_way = {id(root)}
        while open_ones:
            at, rest = open_ones[-1]
            inner = next(rest, None)
            if inner is None:
                open_ones.pop()
                on_the_way.discard(id(at))
                found = Counter({id(at): 1})
                for one in self._places.here(at):
                    found.update(self._here[id(one)])
                self._here[id(at)] = Counter({one: min(n, MOST) for one, n in found.items()})
                self._go(len(found))
            elif id(inner) in on_the_way:
                raise _refused("refers to itself without a value within the value")
            elif id(inner) not in self._here:
                self._nodes[id(inner)] = inner
                on_the_way.add(id(inner))
                open_ones.append((inner, self._places.here(inner)))
        return self._here[id(root)]


class _Places:
    """Where the references of schemas lead; to all that they may mean, where drafts differ."""

    def __init__(self, schema: Any, others: Mapping[str, Any]) -> None:
        self._bases: dict[int, tuple[str, ...]] = {}
        self._by_uri: dict[str, list[Any]] = {}
        self._anywhere: dict[str, list[Any]] = {}
        """By their names, the definitions that `$dynamicRef` may mean."""
        self._others = others
        for name, one in [("", schema), *others.items()]:
            self._look_over(name, one)

    def _look_over(self, base: str, document: Any) -> None:
        self._by_uri.setdefault(base, []).append(document)
        waiting: list[tuple[tuple[str, ...], Any]] = [((base,), document)]
        while waiting:
            bases, one = waiting.pop()
            if isinstance(one, list):
                waiting += [(bases, each) for each in one]
            if not isinstance(one, dict):
                continue
            for name in ("$id", "id"):
                own = one.get(name)
                if isinstance(own, str):
                    whole = dict.fromkeys(_joined(base, own).removesuffix("#") for base in bases)
                    for uri in whole:
                        self._by_uri.setdefault(uri, []).append(one)
                    if not own.startswith("#"):
                        # Older drafts have no $id beside a $ref, and newer ones no id.
                        both = name == "id" or "$ref" in one
                        bases = tuple(dict.fromkeys((*whole, *bases)) if both else whole)
                    if len(bases) > MOST_BASES:
                        raise _refused("has too many ids within one another")
            self._bases[id(one)] = bases
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

    def here(self, one: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """The schemas that apply to the same value because this one does."""
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
        """All that a reference may mean."""
        found: list[Any] = []
        for base in bases:
            joined = _joined(base, uri)
            whole, _, fragment = joined.partition("#")
            if whole.startswith(STANDARD) and whole not in self._by_uri:
                return []
            documents = self._by_uri.get(whole)
            if documents is None:
                others = self._others.items()
                documents = [one for name, one in others if whole.endswith(f"/{name}")]
            for document in documents:
                found += _pointed(document, fragment)
            found += self._by_uri.get(joined, []) if fragment else []
        if not found:
            raise _refused(f"refers to {uri!r:.200}, which isn't there")
        return found


def _pointed(document: Any, fragment: str) -> list[Any]:
    """What a pointer into a document leads to; nothing where that is no pointer."""
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
    """The place in a list that a pointer's part means; past all of them where it is none."""
    digits = part.isascii() and part.isdigit() and len(part) < LONGEST_PLACE
    return int(part) if digits and str(int(part)) == part else sys.maxsize


def _joined(base: str, uri: str) -> str:
    """A reference as it is meant where it stands."""
    if uri.startswith(("#", "urn:")):
        return uri if uri[0] != "#" else base.partition("#")[0] + uri
    try:
        return urljoin(base, uri)
    except ValueError:
        raise _refused(f"refers to {uri!r:.200}, which is no address") from None


def _schemas(found: Any) -> Iterator[dict[str, Any]]:
    """Those that lead further; true and false don't."""
    return (one for one in found or () if isinstance(one, dict))


def _values(one: Any) -> list[Any]:
    return list(one.values()) if isinstance(one, dict) else []


def _within(one: dict[str, Any]) -> Iterator[tuple[Any, dict[str, Any]]]:
    """Schemas of values within the value, and for which of them: a name, a number, or all."""
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
    """How deep values lie within a value, and how many they are."""
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


def _refused(why: str) -> InvalidSchemaError:
    return InvalidSchemaError(f"the JSON schema {why}", None, "Change the schema.")

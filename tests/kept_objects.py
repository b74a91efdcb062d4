"""Find the objects that a client keeps: every container and object reachable from it.

In: a client. Out: for each attribute, how many of its elements mention a topic or an address, and
the number of objects of each class. Closures, bound methods and suspended generators are followed
too. Must not: walk into the simulation, which keeps everything.
"""

from __future__ import annotations

import functools
import types
from collections import Counter, deque
from collections.abc import Callable, Iterator
from typing import Any

Mentions = Callable[[Any], bool]
ELSEWHERE = ("odradek.simulation", "odradek.testing")
PLAIN = (str, bytes, int, float, type, types.ModuleType, types.BuiltinFunctionType)
SEQUENCES = (list, set, frozenset, deque, tuple)


class Kept:
    """One walk over all objects that are reachable from some roots."""

    def __init__(self, *roots: Any, mentions: Mentions) -> None:
        """Walk; `mentions` tells whether an element mentions what should be forgotten."""
        self.mentioned: Counter[str] = Counter()
        """Number of such elements, by class and attribute of the container."""
        self.objects: Counter[str] = Counter()
        """Number of objects by class."""
        self._mentions = mentions
        self._seen: dict[int, Any] = {}
        todo = [("root", root) for root in roots]
        while todo:
            where, one = todo.pop()
            if one is None or isinstance(one, PLAIN) or id(one) in self._seen:
                continue
            self._seen[id(one)] = one
            todo += self._children(where, one)

    def _children(self, where: str, one: Any) -> Iterator[tuple[str, Any]]:
        kind = type(one)
        if isinstance(one, dict):
            self._count(where, one)
            for key, value in list(one.items()):
                yield from ((f"{where}[]", key), (f"{where}[]", value))
        elif kind in SEQUENCES:
            self._count(where, one)
            yield from ((f"{where}[]", element) for element in list(one))
        elif isinstance(one, types.FunctionType):
            cells = one.__closure__ or ()
            yield from ((f"{one.__qualname__}()", cell.cell_contents) for cell in cells)
        elif isinstance(one, types.MethodType):
            yield where, one.__self__
        elif isinstance(one, functools.partial):
            yield from ((where, one.func), (where, one.args), (where, one.keywords))
        elif isinstance(one, types.GeneratorType):
            frame = one.gi_frame
            inside = {} if frame is None else dict(frame.f_locals)
            yield from ((f"{one.__qualname__}.{name}", value) for name, value in inside.items())
            yield where, one.gi_yieldfrom
        elif kind.__module__.startswith("odradek") and not kind.__module__.startswith(ELSEWHERE):
            self.objects[kind.__qualname__] += 1
            yield from self._attributes(one)

    def _count(self, where: str, elements: Any) -> None:
        count = sum(map(self._mentions, list(elements)))
        if count:
            self.mentioned[where] += count

    @staticmethod
    def _attributes(one: Any) -> Iterator[tuple[str, Any]]:
        kind = type(one)
        if isinstance(one, tuple):
            yield from ((kind.__qualname__, element) for element in one)
        slots = [s for c in kind.__mro__ for s in getattr(c, "__slots__", ())]
        for name in {*slots, *getattr(one, "__dict__", ())}:
            value = getattr(one, name, None) if name in slots else vars(one)[name]
            yield f"{kind.__qualname__}.{name}", value

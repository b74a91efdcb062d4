"""Map names to topics in a snapshot: an immutable mapping of which changed copies cost O(1).

In: the topics of a response. Out: the value of `Cluster.topics`. All maps that were derived from
each other share one dict with the newest state; an older map stores its differences from its
successor, and a reference to that. So one new topic among thousands costs one entry, a lookup in
the newest map is a lookup in a dict, and an old map is freed once it isn't referenced.

Any thread may read while the engine's thread creates the successor: the differences are stored
before the dict is changed, and a reader looks into the dict first.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Generic, TypeVar, overload

T = TypeVar("T")
D = TypeVar("D")


class TopicMap(Mapping[str, T], Generic[T]):
    """An immutable mapping; `changed` creates a changed copy at little cost."""

    __slots__ = ("__weakref__", "_changed", "_drift", "_next", "_shared")

    def __init__(self, topics: Mapping[str, T]) -> None:
        self._shared = dict(topics)
        self._changed: dict[str, T | None] | None = None
        """This map's values of entries that the successor changed (None: no entry in this map)."""
        self._next: TopicMap[T] | None = None
        self._drift = 0
        """Number of entries that have changed since the dict was created."""

    def changed(self, changes: Mapping[str, T | None]) -> TopicMap[T]:
        """Return a map with these topics replaced, added, or removed (value None)."""
        shared = self._shared
        changes = {k: v for k, v in changes.items() if v is not None or k in self}
        if not changes:
            return self
        drift = self._drift + len(changes)
        if self._changed is not None or drift > len(shared):
            # Copy the dict once the number of changes reaches its number of entries. That costs
            # O(1) per change, and an old map refers to at most twice its own number of entries.
            made = self._now() | changes
            return TopicMap({k: v for k, v in made.items() if v is not None})
        following: TopicMap[T] = TopicMap.__new__(TopicMap)
        following._shared, following._changed, following._next = shared, None, None
        following._drift = drift
        self._next = following
        self._changed = {name: shared.get(name) for name in changes}
        for name, topic in changes.items():
            if topic is None:
                del shared[name]
            else:
                shared[name] = topic
        return following

    @overload
    def get(self, name: str, /) -> T | None: ...
    @overload
    def get(self, name: str, default: T | D, /) -> T | D: ...
    def get(self, name: str, default: T | D | None = None, /) -> T | D | None:
        """Return the topic of a name; `default` if there is none."""
        found = self._shared.get(name)
        here: TopicMap[T] | None = self
        while here is not None and (changed := here._changed) is not None:
            if name in changed:
                found = changed[name]
                break
            here = here._next
        return default if found is None else found

    def __getitem__(self, name: str) -> T:
        found = self.get(name)
        if found is None:
            raise KeyError(name)
        return found

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self.get(name) is not None

    def _now(self) -> dict[str, T]:
        """Return a copy of the current entries."""
        found: dict[str, T] = self._shared.copy()
        said: dict[str, T | None] = {}
        here: TopicMap[T] | None = self
        while here is not None and (changed := here._changed) is not None:
            said = changed | said
            here = here._next
        for name, topic in said.items():
            if topic is None:
                found.pop(name, None)
            else:
                found[name] = topic
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(self._now())

    def __len__(self) -> int:
        return len(self._shared) if self._changed is None else len(self._now())

    def __repr__(self) -> str:
        return repr(self._now())

"""Cache a registry's responses, with a bounded size and one request at a time for each key.

In: keys, and functions that request them. Out: responses. Threads that request different keys don't
wait for each other; threads that request the same key wait for one request and share its response
or error. Must not: cache an error, except for a few seconds if it blames the record or was fetched
for an event loop.
"""

from __future__ import annotations

import copy
from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from typing import Generic, TypeVar

from odradek.common.errors.records import SchemaNotAtHandError
from odradek.runtime.locks import new_lock
from odradek.runtime.system_clock import SystemClock
from odradek.serialization.context import NO_WAITING
from odradek.serialization.errors import SchemaRegistryError
from odradek.serialization.registry.schemas import RegisteredSchema, Schema

K = TypeVar("K")
T = TypeVar("T")
IN_LOOP = 5.0
"""Seconds for which a response or error fetched for an event loop is kept for it."""
MOST_KEPT = 1000
"""Maximum number of parsed schemas in a deserializer's cache."""


def _any(_: object) -> bool:
    return True


class _Asked:
    """A request in flight, which several threads may wait for; its sender holds the lock."""

    def __init__(self) -> None:
        self.lock = new_lock()
        self.waiting = -1
        """Number of threads that wait for the response."""
        self.refusal: SchemaRegistryError | None = None


class Lookups(Generic[K, T]):
    """LRU cache of one kind of registry responses."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._lock = new_lock()
        self._known: OrderedDict[K, T] = OrderedDict()
        self._asked: dict[K, _Asked] = {}
        self._refused: dict[K, tuple[float, SchemaRegistryError]] = {}
        """By key: an error that blames the record or was fetched for an event loop, and the time
        until which it is raised."""
        self._clock = SystemClock()

    def find(self, key: K) -> T | None:
        """Return a cached response, or None."""
        with self._lock:
            found = self._known.get(key)
            if found is not None:
                self._known.move_to_end(key)
            return found

    def keep(self, key: K, found: T) -> None:
        """Add a response to the cache."""
        with self._lock:
            self._known[key] = found
            self._known.move_to_end(key)
            while len(self._known) > self._most:
                self._known.popitem(last=False)

    def forget(self, which: Callable[[K], bool]) -> None:
        """Remove responses from the cache."""
        with self._lock:
            for key in [one for one in self._known if which(one)]:
                del self._known[key]

    def forget_errors(self) -> None:
        """Forget cached errors, so that missing schemas are requested again."""
        self._refused.clear()

    def once(self, key: K, fetch: Callable[[], T], good: Callable[[T], bool] = _any) -> T:
        """Return a cached response that is `good`, or fetch it now. Raises what `fetch` raises.

        In an event loop, raise `SchemaNotAtHandError` instead of fetching, or the error with which
        the fetch in another thread failed. An error that blames the record is raised again for
        `IN_LOOP` seconds: many records may have the same unknown schema.
        """
        found = self.find(key)
        if found is not None and good(found):
            return found
        waits = not NO_WAITING.get()
        until, refusal = self._refused.get(key, (0.0, None))
        if refusal is not None and (refusal.blames_record or not waits):
            if not refusal.blames_record:
                self._refused.pop(key, None)
            if self._clock.now() < until:
                raise copy.copy(refusal)
        if not waits:
            raise SchemaNotAtHandError(partial(self._for_a_loop, key, fetch, good))
        with self._lock:
            asked = self._asked.setdefault(key, _Asked())
            asked.waiting += 1
        with asked.lock:
            found = self.find(key)
            if found is not None and good(found):
                return found
            if asked.refusal is not None:
                raise copy.copy(asked.refusal)
            try:
                found = fetch()
                self.keep(key, found)
            except SchemaRegistryError as error:
                asked.refusal = error
                if error.blames_record:
                    self._refuse(key, error)
                raise
            finally:
                with self._lock:
                    if self._asked.get(key) is asked:
                        del self._asked[key]
            return found

    def _for_a_loop(self, key: K, fetch: Callable[[], T], good: Callable[[T], bool]) -> None:
        """Fetch in a thread; keep an error for the event loop, unless the request is retriable."""
        try:
            self.once(key, fetch, good)
        except SchemaRegistryError as error:
            if error.retriable:
                raise
            self._refuse(key, error)

    def _refuse(self, key: K, error: SchemaRegistryError) -> None:
        now = self._clock.now()
        for old in [one for one, (until, _) in list(self._refused.items()) if until <= now]:
            self._refused.pop(old, None)  # no call has used this error in time
        self._refused[key] = (now + IN_LOOP, error)


Asked = tuple[str, Schema, bool]
"""A subject, a schema, and whether the registry normalizes it."""


class SchemaCache:
    """Cached responses of one registry; only latest versions can change."""

    def __init__(self, most: int) -> None:
        self.schemas: Lookups[int | str, Schema] = Lookups(most)
        """Schemas by id and by GUID."""
        self.registered: Lookups[Asked, RegisteredSchema] = Lookups(most)
        self.looked_up: Lookups[Asked, RegisteredSchema] = Lookups(most)
        """Registered schemas with versions, which responses to registrations may lack."""
        self.versions: Lookups[tuple[str, int], RegisteredSchema] = Lookups(most)
        self.latest: Lookups[str, tuple[float, RegisteredSchema]] = Lookups(most)
        """Latest versions by subject, with their expiry time."""
        self.over = False
        """Whether the client has dropped this cache, so that serializers must clear theirs."""

    def end(self) -> None:
        """Make serializers and deserializers clear their own caches of these responses."""
        self.over = True

    def added(self, subject: str) -> None:
        """Invalidate entries that may have changed because a schema was registered."""
        self.latest.forget(lambda key: key == subject)
        for known in (self.schemas, self.looked_up, self.versions, self.latest):
            known.forget_errors()


class Kept(Generic[K, T]):
    """A serializer's or deserializer's cache, emptied when the registry client drops its own."""

    def __init__(self, cache: Callable[[], SchemaCache]) -> None:
        self._cache = cache
        self._held: tuple[SchemaCache, dict[K, T]] = cache(), {}

    def known(self) -> dict[K, T]:
        """Return the dict.

        Call this before requesting a response to add to it: a response that was requested before
        `clear_caches` must not be kept after it.
        """
        cache, known = self._held
        if cache.over:
            known = {}
            self._held = self._cache(), known
        return known


def kept(known: dict[K, T], key: K, found: T) -> T:
    """Add to a dict that is read without a lock; the oldest entry is removed if it is full."""
    while len(known) >= MOST_KEPT:
        known.pop(next(iter(known)), None)
    known[key] = found
    return found

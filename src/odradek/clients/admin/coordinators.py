"""Find and cache the coordinators of groups and transactional ids for one admin client.

In: keys (group ids, transactional ids). Out: broker ids, cached or requested (many keys in one
request, KIP-699); results of calls that a coordinator executes for many keys at once. Only ids are
cached: each request looks the address up in the metadata. An id is removed when its broker isn't
the coordinator any more, has left, is silent, or belongs to another cluster. Must not: contain
rules of a single API.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from typing import Any, TypeVar

from odradek.clients.any_broker import Brokers
from odradek.clients.batched_calls import (
    ApiCall,
    ItemResults,
    call_coordinator,
    call_leader,
    follow_leaders,
    gather,
)
from odradek.clients.coordinator import Coordinator, CoordinatorKind, FindCall
from odradek.common.errors import KafkaError
from odradek.network.flow import START, Flow
from odradek.protocol.message import Message

K = TypeVar("K")
M = TypeVar("M", bound=Message)
V = TypeVar("V")

MOST_KNOWN = 10_000
"""Maximum number of cached keys; the oldest are removed first."""
KEPT_FOR = 300.0
"""Seconds for which the coordinator of a key is cached after its last use."""
MOST_IN_ONE = 500
"""Maximum number of keys in one request: the response for each may be long."""


class KnownCoordinators:
    """Cached coordinators by key, and the calls to them."""

    def __init__(self, brokers: Brokers) -> None:
        self._brokers = brokers
        self._engine = brokers.engine
        self._metadata = brokers.metadata
        self._ids: dict[tuple[CoordinatorKind, str], tuple[int, float]] = {}
        """Broker id and time of the last use by key, the oldest first."""
        self._cluster: str | None = None

    def get(self, kind: CoordinatorKind, key: str) -> int | None:
        """Return the last known coordinator, if metadata still contains that broker."""
        self._one_cluster()
        found, snapshot = self._ids.pop((kind, key), None), self._metadata.snapshot
        if found is None or snapshot is None or found[0] not in snapshot.brokers:
            return None
        self._keep(kind, key, found[0])
        return found[0]

    def found(self, kind: CoordinatorKind, key: str, broker: int) -> None:
        """Cache the coordinator of a key."""
        self._one_cluster()
        self._ids.pop((kind, key), None)
        self._keep(kind, key, broker)

    def _keep(self, kind: CoordinatorKind, key: str, broker: int) -> None:
        now = self._engine.now
        self._ids[kind, key] = broker, now
        while True:
            oldest, (_, used_at) = next(iter(self._ids.items()))
            if len(self._ids) <= MOST_KNOWN and used_at > now - KEPT_FOR:
                return
            del self._ids[oldest]

    def forget(self, kind: CoordinatorKind, key: str) -> None:
        """Remove a coordinator from the cache, because it may have moved."""
        self._ids.pop((kind, key), None)

    def _one_cluster(self) -> None:
        """Empty the cache if the client is connected to another cluster, which may reuse ids."""
        if self._cluster != (now := self._metadata.cluster_id):
            self._ids.clear()
            self._cluster = now

    def by_key(
        self,
        kind: CoordinatorKind,
        question: Callable[[str], ApiCall[K, M, V]],
        items: Mapping[str, Collection[K]],
        deadline: float,
    ) -> Flow[dict[str, ItemResults[K, V]]]:
        """Send the coordinator of each key a separate request for the items of this key.

        Used for changes, because each request records whether its response may have been lost.
        """
        yield START

        def one(key: str, those: Collection[K]) -> Flow[ItemResults[K, V]]:
            yield START
            # Each call has its own Coordinator, which records whether a response was lost.
            coordinator = Coordinator(self._brokers, kind, key)
            coordinator.broker = self.get(kind, key)
            found = yield from call_coordinator(
                self._brokers, coordinator, question(key), those, deadline
            )
            if coordinator.broker is None:
                self.forget(kind, key)
            else:
                self.found(kind, key, coordinator.broker)
            return found

        def those(keys: list[str], *, find: bool) -> Flow[dict[str, ItemResults[K, V]]]:
            yield START
            if find and len(keys) > 1:  # keys that aren't found here are looked up in `one`
                yield from self._find(kind, keys, FindCall(self._brokers, kind, deadline))
            found = yield from gather(self._engine, [one(key, items[key]) for key in keys])
            return dict(zip(keys, found, strict=True))

        known = {key: None for key in items if self.get(kind, key) is not None}
        unknown = [key for key in items if key not in known]
        asked = yield from gather(
            self._engine, [those([*known], find=False), those(unknown, find=True)]
        )
        outcomes = asked[0] | asked[1]
        return {key: outcomes[key] for key in items}

    def by_broker(
        self,
        kind: CoordinatorKind,
        question: ApiCall[str, M, V],
        keys: Iterable[str],
        deadline: float,
        *,
        otherwise: ApiCall[str, Any, V] | None = None,
        absent: tuple[type[KafkaError], ...] = (),
    ) -> Flow[ItemResults[str, V]]:
        """Send each coordinator one request for all of its keys; retry at new coordinators.

        A key that fails with an error of `absent` is requested again by `otherwise`. Each key has
        its own error; a key without a response yet doesn't delay the others.
        """
        yield START
        finder = FindCall(self._brokers, kind, deadline)

        def leaders(_: Brokers, those: Collection[str], __: float) -> Flow[ItemResults[str, int]]:
            return self._find(kind, those, finder)

        asked = partial(self._asked, question, otherwise, absent, deadline)
        outcome = yield from follow_leaders(
            self._brokers,
            question.what,
            asked,
            keys,
            deadline,
            leaders,
            lambda key: self.forget(kind, key),
        )
        # A coordinator isn't cached if its broker was silent for a while.
        for key, broker in outcome.led.items():
            self.found(kind, key, broker)
        return outcome

    def _find(
        self, kind: CoordinatorKind, keys: Collection[str], finder: FindCall
    ) -> Flow[ItemResults[str, int]]:
        """Return the cached coordinators of keys; if no key has one, look up all keys."""
        yield START
        found: ItemResults[str, int] = ItemResults()
        for key in keys:
            if (broker := self.get(kind, key)) is not None:
                found.results[key] = broker
        unknown = [key for key in keys if key not in found.results]
        if found.results or not unknown:
            return found
        try:
            told = yield from finder.locate_each(unknown)
        except KafkaError as error:
            told = dict.fromkeys(unknown, error)
        for key, said in told.items():
            if isinstance(said, int):
                self.found(kind, key, said)
                found.results[key] = said
            elif said.retriable and self._engine.now < finder.deadline:
                found.moved[key] = said
            else:
                found.errors[key] = said
        snapshot = self._metadata.snapshot
        if snapshot is None or any(b not in snapshot.brokers for b in found.results.values()):
            self._metadata.request("a coordinator is missing in the metadata")
        return found

    def _asked(
        self,
        question: ApiCall[str, M, V],
        otherwise: ApiCall[str, Any, V] | None,
        absent: tuple[type[KafkaError], ...],
        deadline: float,
        broker: int,
        keys: list[str],
    ) -> Flow[ItemResults[str, V]]:
        yield START
        found: ItemResults[str, V] = ItemResults()
        for begin in range(0, len(keys), MOST_IN_ONE):
            those: list[str] = keys[begin : begin + MOST_IN_ONE]
            for one in (question, otherwise):
                if one is None or not those:
                    break
                told = yield from call_leader(self._brokers, one, those, deadline, broker)
                for key in those:
                    found.errors.pop(key, None)
                found.add(told)
                those = [key for key, error in told.errors.items() if isinstance(error, absent)]
        return found

"""Where groups and transactional ids are coordinated, as one admin client knows it.

In: keys. Out: brokers' ids, from memory or asked for (many keys in one request, KIP-699); outcomes
of questions that a coordinator answers for many keys at once. Only ids are kept: each request looks
the address up in the snapshot. An id is forgotten when its broker isn't the coordinator any more,
has left, is silent, or belongs to another cluster. Must not: know what an API is for.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from odradek.clients.asking import (
    Inquiry,
    Outcome,
    ask_coordinator,
    ask_leader,
    follow_leaders,
    gather,
)
from odradek.clients.coordinator import Coordinator, CoordinatorKind, FindCall
from odradek.common.errors import KafkaError
from odradek.network.flow import START, Flow
from odradek.protocol.message import Message

if TYPE_CHECKING:
    from odradek.clients.admin.admin_engine import AdminEngine
    from odradek.clients.client_engine import ClientEngine

K = TypeVar("K")
M = TypeVar("M", bound=Message)
V = TypeVar("V")

MOST_KNOWN = 10_000
"""Keys whose coordinators are kept; the oldest are forgotten."""
MOST_IN_ONE = 500
"""Keys in one request: what is told of each may be long."""


class KnownCoordinators:
    """The brokers' ids by key."""

    def __init__(self, engine: AdminEngine) -> None:
        self._engine = engine
        self._ids: dict[tuple[CoordinatorKind, str], int] = {}
        self._cluster: str | None = None

    def get(self, kind: CoordinatorKind, key: str) -> int | None:
        """Where it was the last time, if that broker is still there."""
        self._one_cluster()
        broker, snapshot = self._ids.get((kind, key)), self._engine.metadata.snapshot
        if broker is not None and (snapshot is None or broker not in snapshot.brokers):
            self.forget(kind, key)
            return None
        return broker

    def found(self, kind: CoordinatorKind, key: str, broker: int) -> None:
        """It is there."""
        self._one_cluster()
        self._ids.pop((kind, key), None)
        self._ids[kind, key] = broker
        if len(self._ids) > MOST_KNOWN:
            del self._ids[next(iter(self._ids))]

    def forget(self, kind: CoordinatorKind, key: str) -> None:
        """It may be elsewhere."""
        self._ids.pop((kind, key), None)

    def _one_cluster(self) -> None:
        """Another cluster's brokers may have the same ids."""
        if self._cluster != (now := self._engine.metadata.cluster_id):
            self._ids.clear()
            self._cluster = now


def by_key(
    engine: AdminEngine,
    kind: CoordinatorKind,
    question: Callable[[str], Inquiry[K, M, V]],
    items: Mapping[str, Collection[K]],
    deadline: float,
) -> Flow[dict[str, Outcome[K, V]]]:
    """Ask the coordinator of each key for items of its own, each in a request of its own: for what
    changes something, where it matters whether an answer was lost.
    """
    yield START

    def one(key: str, those: Collection[K]) -> Flow[Outcome[K, V]]:
        yield START
        # Whether an answer was lost is kept by it, so each call has one of its own.
        coordinator = Coordinator(engine, kind, key)
        coordinator.broker = engine.coordinators.get(kind, key)
        found = yield from ask_coordinator(engine, coordinator, question(key), those, deadline)
        if coordinator.broker is None:
            engine.coordinators.forget(kind, key)
        else:
            engine.coordinators.found(kind, key, coordinator.broker)
        return found

    def those(keys: list[str], *, find: bool) -> Flow[dict[str, Outcome[K, V]]]:
        yield START
        if find and len(keys) > 1:  # what isn't found so, each looks for by itself
            yield from _find(engine, kind, keys, FindCall(engine, kind, deadline))
        found = yield from gather(engine, [one(key, items[key]) for key in keys])
        return dict(zip(keys, found, strict=True))

    known = {key: None for key in items if engine.coordinators.get(kind, key) is not None}
    unknown = [key for key in items if key not in known]
    asked = yield from gather(engine, [those([*known], find=False), those(unknown, find=True)])
    outcomes = asked[0] | asked[1]
    return {key: outcomes[key] for key in items}


def by_broker(
    engine: AdminEngine,
    kind: CoordinatorKind,
    question: Inquiry[str, M, V],
    keys: Iterable[str],
    deadline: float,
    *,
    otherwise: Inquiry[str, Any, V] | None = None,
    absent: tuple[type[KafkaError], ...] = (),
) -> Flow[Outcome[str, V]]:
    """Ask each coordinator about all of its keys at once, and follow those that move.

    What it says of a key with an error of `absent`, it is asked `otherwise`. Each key has its own
    error, and one that can't be told of for now holds up no other.
    """
    yield START
    finder = FindCall(engine, kind, deadline)

    def leaders(_: ClientEngine, those: Collection[str], __: float) -> Flow[Outcome[str, int]]:
        return _find(engine, kind, those, finder)

    asked = partial(_asked, engine, question, otherwise, absent, deadline)
    outcome = yield from follow_leaders(
        engine,
        question.what,
        asked,
        keys,
        deadline,
        leaders,
        lambda key: engine.coordinators.forget(kind, key),
    )
    for key, broker in outcome.led.items():  # one that was silent for a while was forgotten
        engine.coordinators.found(kind, key, broker)
    return outcome


def _find(
    engine: AdminEngine, kind: CoordinatorKind, keys: Collection[str], finder: FindCall
) -> Flow[Outcome[str, int]]:
    """Where keys are coordinated, as far as that is told just now; only what is known, if anything
    is: it doesn't wait for the others.
    """
    yield START
    known, found = engine.coordinators, Outcome[str, int]()
    for key in keys:
        if (broker := known.get(kind, key)) is not None:
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
            known.found(kind, key, said)
            found.results[key] = said
        elif said.retriable and engine.now < finder.deadline:
            found.moved[key] = said
        else:
            found.errors[key] = said
    snapshot = engine.metadata.snapshot
    if snapshot is None or any(b not in snapshot.brokers for b in found.results.values()):
        engine.metadata.request("a coordinator isn't among the brokers known")
    return found


def _asked(
    engine: AdminEngine,
    question: Inquiry[str, M, V],
    otherwise: Inquiry[str, Any, V] | None,
    absent: tuple[type[KafkaError], ...],
    deadline: float,
    broker: int,
    keys: list[str],
) -> Flow[Outcome[str, V]]:
    yield START
    found: Outcome[str, V] = Outcome()
    for begin in range(0, len(keys), MOST_IN_ONE):
        those: list[str] = keys[begin : begin + MOST_IN_ONE]
        for one in (question, otherwise):
            if one is None or not those:
                break
            told = yield from ask_leader(engine, one, those, deadline, broker)
            for key in those:
                found.errors.pop(key, None)
            found.add(told)
            those = [key for key, error in told.errors.items() if isinstance(error, absent)]
    return found

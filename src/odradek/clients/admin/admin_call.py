"""Define a call of an admin client: its description, and the generator that sends its requests.

In: an `ApiCall` and its items. Out: an `AdminCall`, which the sync and the asyncio client run with
their engine and a timeout. Must not: check users' arguments, or contain rules of a single API.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

from odradek.clients.batched_calls import (
    ApiCall,
    ItemResults,
    call_any,
    call_brokers,
    call_leaders,
    gather,
)
from odradek.clients.coordinator import CoordinatorKind
from odradek.common.errors import first_use
from odradek.common.types import TopicPartition
from odradek.network.flow import Flow
from odradek.protocol.message import Message

if TYPE_CHECKING:
    from odradek.clients.admin.admin_engine import AdminEngine

K = TypeVar("K")
M = TypeVar("M", bound=Message)
V = TypeVar("V")
T = TypeVar("T")
U = TypeVar("U")


class AdminCall(NamedTuple, Generic[T]):
    """A call to be sent: `what` names it in errors, `flow(engine, deadline)` sends its requests."""

    what: str
    flow: Callable[[AdminEngine, float], Flow[T]]

    def then(self, finish: Callable[[T], U]) -> AdminCall[U]:
        """Return the call with its result passed through a function."""

        def flow(engine: AdminEngine, deadline: float) -> Flow[U]:
            return finish((yield from self.flow(engine, deadline)))

        return AdminCall(self.what, flow)


def by_any(question: ApiCall[K, M, V], items: Iterable[K]) -> AdminCall[dict[K, V]]:
    """Send a request to any broker, which forwards it to the controller if necessary."""
    wanted = list(items)

    def flow(engine: AdminEngine, deadline: float) -> Flow[dict[K, V]]:
        return (yield from call_any(engine.brokers, question, wanted, deadline)).settled()

    return AdminCall(question.what, flow)


def one(question: ApiCall[None, M, V]) -> AdminCall[V]:
    """Send a request with a single result to any broker."""
    return by_any(question, (None,)).then(lambda found: found[None])


def by_leaders(
    question: ApiCall[TopicPartition, M, V],
    partitions: Iterable[TopicPartition],
    apart: Callable[[TopicPartition], object] = lambda _: None,
) -> AdminCall[dict[TopicPartition, V]]:
    """Send requests to the leaders of partitions; retry at new leaders.

    Partitions with different values of `apart` have separate requests: if a leader doesn't support
    one of these requests, the others succeed.
    """
    wanted: dict[object, list[TopicPartition]] = {}
    for partition in partitions:
        wanted.setdefault(apart(partition), []).append(partition)

    def flow(engine: AdminEngine, deadline: float) -> Flow[dict[TopicPartition, V]]:
        with first_use():  # imported late, because creating an Admin doesn't need it
            from odradek.clients.descriptions import leaders

        brokers = engine.brokers
        asked = [call_leaders(brokers, question, p, deadline, leaders) for p in wanted.values()]
        return merged((yield from gather(brokers.engine, asked)))

    return AdminCall(question.what, flow)


def by_brokers(
    question: Callable[[int], ApiCall[K, M, V]], items: Mapping[int, Collection[K]], what: str
) -> AdminCall[dict[K, V]]:
    """Send each broker id of `items` a request for the broker's items."""

    def flow(engine: AdminEngine, deadline: float) -> Flow[dict[K, V]]:
        return merged((yield from call_brokers(engine.brokers, question, items, deadline)).values())

    return AdminCall(what, flow)


def by_coordinators(
    kind: CoordinatorKind, question: ApiCall[str, M, V], keys: Iterable[str]
) -> AdminCall[dict[str, V]]:
    """Send each coordinator one request for all of its keys; retry at new coordinators."""
    wanted = list(keys)

    def flow(engine: AdminEngine, deadline: float) -> Flow[dict[str, V]]:
        return (
            yield from engine.coordinators.by_broker(kind, question, wanted, deadline)
        ).settled()

    return AdminCall(question.what, flow)


def by_coordinator_of_each(
    kind: CoordinatorKind,
    question: Callable[[str], ApiCall[K, M, V]],
    items: Mapping[str, Collection[K]],
    what: str,
) -> AdminCall[dict[K, V]]:
    """Send the coordinator of each key a request for the items of this key."""

    def flow(engine: AdminEngine, deadline: float) -> Flow[dict[K, V]]:
        return merged(
            (yield from engine.coordinators.by_key(kind, question, items, deadline)).values()
        )

    return AdminCall(what, flow)


def merged(outcomes: Iterable[ItemResults[K, V]]) -> dict[K, V]:
    """Merge the results of several requests; raise the first error, with the others in `errors`."""
    whole: ItemResults[K, V] = ItemResults()
    for outcome in outcomes:
        whole.add(outcome)
    return whole.settled()

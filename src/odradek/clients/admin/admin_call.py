"""What one call of an admin client is: a text, and a flow that asks.

In: an `Inquiry` and its items. Out: an `AdminCall`, which a facade carries out with its engine and
timeout; both facades carry out the same. Must not: read arguments, or know an API.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

from odradek.clients.asking import Inquiry, Outcome, ask, ask_brokers, ask_leaders
from odradek.clients.coordinator import CoordinatorKind
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
    """`what` follows "timed out waiting for"; `flow` takes the engine and the deadline."""

    what: str
    flow: Callable[[AdminEngine, float], Flow[T]]

    def then(self, finish: Callable[[T], U]) -> AdminCall[U]:
        """The same, with another form of its result."""

        def flow(engine: AdminEngine, deadline: float) -> Flow[U]:
            return finish((yield from self.flow(engine, deadline)))

        return AdminCall(self.what, flow)


def by_any(question: Inquiry[K, M, V], items: Iterable[K]) -> AdminCall[dict[K, V]]:
    """Ask any broker. What only the controller can do a broker forwards to it."""
    wanted = list(items)

    def flow(engine: AdminEngine, deadline: float) -> Flow[dict[K, V]]:
        return (yield from ask(engine.brokers, question, wanted, deadline)).settled()

    return AdminCall(question.what, flow)


def one(question: Inquiry[None, M, V]) -> AdminCall[V]:
    """Ask any broker something that has one answer only."""
    return by_any(question, (None,)).then(lambda found: found[None])


def by_leaders(
    question: Inquiry[TopicPartition, M, V], partitions: Iterable[TopicPartition]
) -> AdminCall[dict[TopicPartition, V]]:
    """Ask each partition's leader, and follow it."""
    wanted = list(partitions)

    def flow(engine: AdminEngine, deadline: float) -> Flow[dict[TopicPartition, V]]:
        from odradek.clients.descriptions import leaders  # only here: an Admin starts without it

        return (
            yield from ask_leaders(engine.brokers, question, wanted, deadline, leaders)
        ).settled()

    return AdminCall(question.what, flow)


def by_brokers(
    question: Callable[[int], Inquiry[K, M, V]], items: Mapping[int, Collection[K]], what: str
) -> AdminCall[dict[K, V]]:
    """Ask each of these brokers for items that only it knows."""

    def flow(engine: AdminEngine, deadline: float) -> Flow[dict[K, V]]:
        return merged((yield from ask_brokers(engine.brokers, question, items, deadline)).values())

    return AdminCall(what, flow)


def by_coordinators(
    kind: CoordinatorKind, question: Inquiry[str, M, V], keys: Iterable[str]
) -> AdminCall[dict[str, V]]:
    """Ask each coordinator about all of its keys at once, and follow those that move."""
    wanted = list(keys)

    def flow(engine: AdminEngine, deadline: float) -> Flow[dict[str, V]]:
        return (
            yield from engine.coordinators.by_broker(kind, question, wanted, deadline)
        ).settled()

    return AdminCall(question.what, flow)


def by_coordinator_of_each(
    kind: CoordinatorKind,
    question: Callable[[str], Inquiry[K, M, V]],
    items: Mapping[str, Collection[K]],
    what: str,
) -> AdminCall[dict[K, V]]:
    """Ask the coordinator of each key for items of its own, in a request for each key."""

    def flow(engine: AdminEngine, deadline: float) -> Flow[dict[K, V]]:
        return merged(
            (yield from engine.coordinators.by_key(kind, question, items, deadline)).values()
        )

    return AdminCall(what, flow)


def merged(outcomes: Iterable[Outcome[K, V]]) -> dict[K, V]:
    """All results of several outcomes; raises the first error, which knows of all others."""
    whole: Outcome[K, V] = Outcome()
    for outcome in outcomes:
        whole.add(outcome)
    return whole.settled()

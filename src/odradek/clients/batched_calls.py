"""Run a call with many items: which brokers to ask, and the result of each item.

In: an `ApiCall` (one API, how items are put into a request and read from a response) and the items.
Out: `ItemResults`: each item's result or error, so that a failed item hides no other (R-RT-4).
The request is sent to any broker (a KRaft broker forwards requests for the controller), to one
broker, to each partition's leader, or to a coordinator; if leaders or coordinators move, the new
ones are asked (R-RT-5). Retriable errors are retried after a backoff, only for the remaining items
(R-RT-1). The deadline is the only limit, and the remaining items then fail with all attempts in
their error (R-RT-2). Must not: know the purpose of any API.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from copy import copy
from typing import Any, Generic, NamedTuple, TypeVar

from odradek.clients.any_broker import AnyBrokerCall, Brokers
from odradek.clients.coordinator import Coordinator
from odradek.common.arguments import INT32_MAX
from odradek.common.errors import (
    BrokerError,
    ClientClosedError,
    KafkaError,
    KafkaTimeoutError,
)
from odradek.common.errors import kafka as errors
from odradek.common.types import Address, TopicPartition
from odradek.metadata.cluster import Cluster
from odradek.network.connection import Connection
from odradek.network.effects import AnyRequest
from odradek.network.engine import Engine
from odradek.network.flow import START, Completion, Flow, Wait
from odradek.protocol.message import Message

K = TypeVar("K")
M = TypeVar("M", bound=Message)
V = TypeVar("V")
T = TypeVar("T")

ItemResult = tuple[K, int, str | None, V]
"""An item's result: Kafka's error code, the broker's reason, the value (invalid with an error)."""
NOT_CURED_BY_WAITING = (
    errors.UnknownTopicOrPartitionError,
    errors.UnknownTopicIdError,
    errors.InconsistentTopicIdError,
    errors.ElectionNotNeededError,
    errors.PreferredLeaderNotAvailableError,
    errors.EligibleLeadersNotAvailableError,
    errors.ReplicaNotAvailableError,
    errors.KafkaStorageError,
)
"""Errors that Kafka calls retriable, but that need an action: to create a topic, repair a disk.

The caller decides whether to retry.
"""
MAYBE_APPLIED = (errors.RequestTimedOutError, errors.NetworkExceptionError)
"""Errors after which a controller may have carried out a change, or may still do so.

A throttled change (KIP-599) wasn't started, and neither was one that reached another broker than
the controller.
"""
LEADER_MOVED = (
    errors.NotLeaderOrFollowerError,
    errors.LeaderNotAvailableError,
    errors.FencedLeaderEpochError,
    errors.UnknownLeaderEpochError,
    errors.UnknownTopicOrPartitionError,
    errors.KafkaStorageError,
)
"""Errors after which a partition's leader is looked up again."""
COORDINATOR_MOVED = (errors.NotCoordinatorError, errors.CoordinatorNotAvailableError)
"""Errors after which a coordinator is looked up again."""
NOT_RESPONSIBLE = (errors.NotLeaderOrFollowerError, errors.NotCoordinatorError)
"""Errors of a broker that isn't, or not yet, the leader or coordinator that metadata names."""
LEADER_CHECK_AFTER_S = 2.0
"""Seconds without a response after which the leaders are looked up again."""
MAX_CONCURRENT_FLOWS = 64
"""Maximum number of concurrent calls that are younger than `SLOW_FLOW_S` (see `gather`)."""
SLOW_FLOW_S = 1.0
"""Seconds after which a running call no longer delays the start of the next one."""


class ApiCall(NamedTuple, Generic[K, M, V]):
    """One API, and how a call's items are sent and read."""

    what: str
    """The subject of the call, a text to follow "timed out waiting for"."""
    thing: str
    """Kind of the items, such as "topic", for errors."""
    body: Callable[[list[K], int], AnyRequest]
    """Returns the request for these items, with a timeout in milliseconds."""
    response: type[M]
    read: Callable[[M], Iterable[ItemResult[K, V]]]
    right: str = ""
    """Operation that the caller needs permission for, with Kafka's name."""
    already: tuple[type[KafkaError], ...] = ()
    """Errors that mean success if a response was lost, because an earlier attempt succeeded."""
    changes: bool = False
    """Whether the call changes something.

    Then it is sent to no second broker while the first is silent, and only to brokers that are
    known to belong to this cluster.
    """
    moving: tuple[type[KafkaError], ...] = ()
    """Errors after which another broker has to be asked for the item."""
    hurried: bool = False
    """Whether retriable errors and missing items end the call, because its caller repeats it."""
    newest: int | None = None
    """Highest version of the API to use; None: the highest that client and broker support."""
    whole: bool = True
    """Whether to check the error code of the response itself; otherwise `read` does."""
    unsettled: Callable[[V], KafkaError | None] | None = None
    """Returns an error for a result that isn't final: its item is repeated until the deadline."""
    check: Callable[[M, Connection], KafkaError | None] | None = None
    """Checks a response as a whole, before it is read.

    An API without a check of the cluster's id is only sent to brokers that are known to belong to
    this cluster (R-RB-5).
    """


class ItemResults(Generic[K, V]):
    """Result or error of each item."""

    __slots__ = ("errors", "led", "moved", "results", "unsettled")

    def __init__(
        self,
        results: dict[K, V] | None = None,
        errors: dict[K, KafkaError] | None = None,
        moved: dict[K, KafkaError] | None = None,
        unsettled: dict[K, V] | None = None,
        led: dict[K, int] | None = None,
    ) -> None:
        self.results: dict[K, V] = {} if results is None else results
        self.errors: dict[K, KafkaError] = {} if errors is None else errors
        self.moved: dict[K, KafkaError] = {} if moved is None else moved
        """Items for which another broker has to be asked, with their errors."""
        self.unsettled: dict[K, V] = {} if unsettled is None else unsettled
        """Results of items in `moved` that aren't final."""
        self.led: dict[K, int] = {} if led is None else led
        """Id of the leader or coordinator that was asked, by item; empty if any broker was."""

    def settled(self) -> dict[K, V]:
        """Return all results, or raise the first error, whose `errors` contain the others.

        If the only item is None, its error is raised unchanged, because there are no items to
        distinguish.
        """
        for item, first in self.errors.items():
            if item is None:
                raise first
            raise first.beside(self.results, self.errors)
        return self.results

    def add(self, other: ItemResults[K, V]) -> None:
        """Add the results and errors of other items."""
        self.results.update(other.results)
        self.errors.update(other.errors)
        self.moved.update(other.moved)
        self.unsettled.update(other.unsettled)
        self.led.update(other.led)


class LeftOutError(KafkaError):
    """A failed attempt: the response lacks the requested item."""

    retriable = True


def milliseconds(seconds: float) -> int:
    """Return a time limit in milliseconds, as requests contain it."""
    return max(1, min(int(seconds * 1000), INT32_MAX))


def resource_name(item: object) -> str:
    """Return the name of the resource that needs a permission."""
    for attribute in ("topic", "name"):
        found = getattr(item, attribute, None)
        if isinstance(found, str):
            return found
    return "" if item is None else str(item)


class _RemainingItems(Generic[K, M, V]):
    """Results of responses so far, and the remaining items."""

    def __init__(self, brokers: Brokers, question: ApiCall[K, M, V], items: Iterable[K]) -> None:
        self.question = question
        self._brokers = brokers
        self.left: dict[K, None] = dict.fromkeys(items)
        self.outcome: ItemResults[K, V] = ItemResults()
        self._order = list(self.left)
        self._doubtful: set[K] = set()

    def body(self, seconds: float) -> AnyRequest:
        """Return the request for the remaining items."""
        return self.question.body([*self.left], milliseconds(seconds))

    def take(
        self, answer: M, lost: bool, connection: Connection | None = None
    ) -> KafkaError | None:
        """Apply a response; return why to ask again, if necessary.

        With `lost`, an earlier response may have been lost, so that its request may have been
        executed.
        """
        question = self.question
        if question.check is not None and connection is not None:
            whole = question.check(answer, connection)
            if whole is not None:
                return whole
        code = getattr(answer, "error_code", 0)
        if code and question.whole:
            said = getattr(answer, "error_message", None)
            return self._needing(errors.error_for(code, said or question.what), None)
        again: KafkaError | None = None
        for item, code, reason, value in question.read(answer):
            if item not in self.left:
                continue  # ignore an item that wasn't requested
            if not code:
                why = question.unsettled(value) if question.unsettled is not None else None
                if why is None:
                    self._done(item, value)
                else:
                    self.outcome.unsettled[item] = value
                    self.outcome.moved[item] = why
                    del self.left[item]
                continue
            error = self._error(item, code, reason)
            ours = question.changes and (lost or item in self._doubtful)
            if ours and isinstance(error, question.already):
                self._done(item, value)
            elif isinstance(error, question.moving):
                if connection is not None and isinstance(error, NOT_RESPONSIBLE):
                    self._brokers.denied(connection, item, None, 0, 0)
                self.outcome.moved[item] = error
                del self.left[item]
            elif not error.retriable or (
                isinstance(error, (*NOT_CURED_BY_WAITING, *question.already))
                and not self._brokers.just_created(resource_name(item))
            ):
                self.outcome.errors[item] = error
                del self.left[item]
            elif question.hurried:
                self.outcome.moved[item] = error
                del self.left[item]
            else:
                again = error
                if isinstance(error, MAYBE_APPLIED):
                    self._doubtful.add(item)
        if question.hurried:
            for item in self.left:
                self.outcome.moved[item] = LeftOutError(f"{item} is missing from the response")
            self.left.clear()
        if self.left and again is None:
            again = LeftOutError(f"{next(iter(self.left))} is missing from the response")
        return again

    def fail(self, error: KafkaError) -> None:
        """Set this error for all remaining items."""
        for item in self.left:
            self.outcome.errors[item] = error
        self.left.clear()

    def ended(self) -> ItemResults[K, V]:
        """Return the outcome, in the order of the items."""
        done = self.outcome
        return ItemResults(
            {i: done.results[i] for i in self._order if i in done.results},
            {i: done.errors[i] for i in self._order if i in done.errors},
            done.moved,
            done.unsettled,
        )

    def _done(self, item: K, value: V) -> None:
        self.outcome.results[item] = value
        del self.left[item]

    def _error(self, item: K, code: int, reason: str | None) -> KafkaError:
        name = self.question.thing if item is None else f"{self.question.thing} {item}".lstrip()
        if name and reason and name.casefold() in reason.replace("'", "").casefold():
            said = reason
        else:
            said = f"{name}: {reason}" if reason else name
        return self._needing(errors.error_for(code, said), item)

    def _needing(self, error: BrokerError, item: K | None) -> KafkaError:
        whole = isinstance(error, errors.ClusterAuthorizationError)
        if self.question.right:
            error.needing(self.question.right, "" if whole else resource_name(item))
        return error


# Calls to the brokers


def call_any(
    brokers: Brokers,
    question: ApiCall[K, M, V],
    items: Iterable[K],
    deadline: float,
    *,
    among: Callable[[Cluster], list[Address]] = Cluster.addresses,
    of: str = "",
) -> Flow[ItemResults[K, V]]:
    """Send a request to any broker, or to one of `among`; `of` names these in error texts."""
    yield START
    taken = _RemainingItems(brokers, question, items)
    others: set[Address] = set()
    """Brokers that aren't the controller and don't forward requests, as before KRaft."""

    def those(cluster: Cluster) -> list[Address]:
        known = among(cluster)
        return [a for a in known if a not in others] or known

    def check(answer: M, connection: Connection) -> KafkaError | None:
        again = taken.take(answer, call.answer_lost, connection)
        if isinstance(again, errors.NotControllerError):
            others.add(connection.address)
        return again

    call = AnyBrokerCall(brokers, question.what + of, deadline, those)
    call.newest = question.newest
    if taken.left:
        try:
            yield from call.ask(
                taken.body,
                question.response,
                check,
                idempotent=not question.changes,
                ours=question.check is None,
            )
        except KafkaError as error:
            taken.fail(error)
    return taken.ended()


def at_broker(broker: int) -> Callable[[Cluster], list[Address]]:
    """Return a broker's address; none while metadata doesn't list it, as during a restart."""
    return lambda cluster: [b.address for b in cluster.brokers.values() if b.id == broker]


def call_brokers(
    brokers: Brokers,
    question: Callable[[int], ApiCall[K, M, V]],
    items: Mapping[int, Collection[K]],
    deadline: float,
) -> Flow[dict[int, ItemResults[K, V]]]:
    """Send each of these brokers a request for its own items, all at once.

    A broker that doesn't answer delays no other.
    """
    yield START
    found = yield from gather(
        brokers.engine,
        [
            call_any(
                brokers, question(b), those, deadline, among=at_broker(b), of=f" of broker {b}"
            )
            for b, those in items.items()
        ],
    )
    snapshot = brokers.metadata.snapshot
    for broker, outcome in zip(items, found, strict=True):
        outcome.errors.update(outcome.moved)  # these items belong to this broker only
        if snapshot is not None and broker not in snapshot.brokers:
            known = ", ".join(map(str, sorted(snapshot.brokers)))
            for error in {id(e): e for e in outcome.errors.values()}.values():  # each error once
                error.add_note(f"The cluster has no broker {broker} (its brokers: {known}).")
    return dict(zip(items, found, strict=True))


def call_coordinator(
    brokers: Brokers,
    coordinator: Coordinator,
    question: ApiCall[K, M, V],
    items: Collection[K],
    deadline: float,
) -> Flow[ItemResults[K, V]]:
    """Send items to the coordinator of one group or transactional id."""
    yield START
    taken = _RemainingItems(brokers, question, items)
    try:
        yield from coordinator.ask(
            f"{question.what} by the {coordinator.name}",
            taken.body,
            question.response,
            lambda answer: taken.take(answer, coordinator.answer_lost),
            deadline,
            newest=question.newest,
        )
    except KafkaError as error:
        taken.fail(error)
    return taken.ended()


def gather(
    engine: Engine, flows: Iterable[Flow[T]], most: int = MAX_CONCURRENT_FLOWS
) -> Flow[list[T]]:
    """Run flows (generators) concurrently and wait for all; raise a flow's error at the end.

    At most `most` of the running flows are younger than `SLOW_FLOW_S`, so slow flows delay no
    others. If the caller gives up, all are cancelled.
    """
    yield START
    waiting = list(flows)
    begun: list[Completion[T]] = []
    young: list[tuple[float, Completion[T]]] = []
    try:
        for flow in waiting:
            while len(young) >= most:
                yield Wait(tuple(one for _, one in young), young[0][0])
                now = engine.now
                young = [(until, one) for until, one in young if not one.done and now < until]
            begun.append(engine.start(flow))
            young.append((engine.now + SLOW_FLOW_S, begun[-1]))
        for one in begun:
            while not one.done:
                yield Wait((one,))
    finally:
        for flow in waiting[len(begun) :]:
            flow.close()
        _leave(engine, begun)
    return [one.result() for one in begun]


def _leave(engine: Engine, begun: Iterable[Completion[Any]]) -> None:
    for one in begun:
        if not one.done:
            engine.cancel(one, ClientClosedError("the caller no longer waits"))


Leaders = Callable[[Brokers, Collection[K], float], Flow[ItemResults[K, int]]]
"""Returns the broker id of each item's leader (-1: none now); `moved` contains unknown items."""
AskedOf = Callable[[int, list[K]], Flow[ItemResults[K, V]]]
"""Sends a broker the items that it leads."""


def call_leaders(
    brokers: Brokers,
    question: ApiCall[TopicPartition, M, V],
    partitions: Iterable[TopicPartition],
    deadline: float,
    leaders: Leaders[TopicPartition],
) -> Flow[ItemResults[TopicPartition, V]]:
    """Send one request to each leader of these partitions; if leaders move, ask the new ones."""

    def asked(leader: int, those: list[TopicPartition]) -> Flow[ItemResults[TopicPartition, V]]:
        return call_leader(brokers, question, those, deadline, leader)

    yield START
    return (yield from follow_leaders(brokers, question.what, asked, partitions, deadline, leaders))


def call_leader(
    brokers: Brokers,
    question: ApiCall[K, M, V],
    items: Iterable[K],
    deadline: float,
    leader: int,
) -> Flow[ItemResults[K, V]]:
    """Send one broker the items that it leads."""
    return call_any(
        brokers, question, items, deadline, among=at_broker(leader), of=f" of broker {leader}"
    )


def follow_leaders(
    brokers: Brokers,
    what: str,
    asked: AskedOf[K, V],
    items: Iterable[K],
    deadline: float,
    leaders: Leaders[K],
    doubt: Callable[[K], None] = lambda _: None,
) -> Flow[ItemResults[K, V]]:
    """Send each item to its leader; if leaders move, ask the new ones.

    `doubt` is called with items whose known leader is no longer valid.
    """
    order = list(dict.fromkeys(items))
    asking = _LeaderCalls(brokers, what, asked, order, deadline, leaders, doubt)
    try:
        yield from asking.run()
    finally:
        _leave(brokers.engine, [under_way for under_way, _ in asking.running.values()])
    found = asking.outcome
    for item, value in found.unsettled.items():
        if isinstance(found.errors.get(item), KafkaTimeoutError):
            found.results[item] = value
            del found.errors[item]
    return ItemResults(
        {p: found.results[p] for p in order if p in found.results},
        {p: found.errors[p] for p in order if p in found.errors},
        led=found.led,
    )


class _LeaderCalls(Generic[K, V]):
    """One call to leaders: remaining items, and requests in flight."""

    def __init__(
        self,
        brokers: Brokers,
        what: str,
        asked: AskedOf[K, V],
        items: Iterable[K],
        deadline: float,
        leaders: Leaders[K],
        doubt: Callable[[K], None],
    ) -> None:
        self.outcome: ItemResults[K, V] = ItemResults()
        self.running: dict[int, tuple[Completion[ItemResults[K, V]], list[K]]] = {}
        """Running requests by leader id."""
        self._brokers = brokers
        self._engine = brokers.engine
        self._asked = asked
        self._leaders, self._doubt = leaders, doubt
        self._deadline = deadline
        self._left = dict.fromkeys(items)
        self._pauses = AnyBrokerCall(brokers, what, deadline)

    def run(self) -> Flow[None]:
        """Find leaders, send requests, and start over for items that have moved."""
        now = yield START
        while self._left or self.running:
            why: KafkaError | None = None
            if self._left:
                before = len(self._left)
                why = yield from self._begin()
                now = self._engine.now
                if why is None and 0 < len(self._left) < before:
                    continue  # look up the remaining leaders
            if self.running:
                asked = tuple(asked for asked, _ in self.running.values())
                if not any(a.done for a in asked):
                    # At the deadline the requests time out by themselves.
                    look = now + LEADER_CHECK_AFTER_S
                    now = yield Wait(asked, look if look < self._deadline else None)
                if any(a.done for a in asked):
                    why = self._collect() or why
                elif now < self._deadline:
                    yield from self._look()
            if self._left and why is not None:
                try:
                    now = yield from self._pauses.retry(None, why, self._engine.now)
                except KafkaError as error:
                    self._fail(error)

    def _begin(self) -> Flow[KafkaError | None]:
        """Ask the leaders of the remaining items; return why some can't be asked yet."""
        found = yield from self._leaders(self._brokers, [*self._left], self._deadline)
        for item, error in found.errors.items():
            self.outcome.errors[item] = error
            del self._left[item]
        led: dict[int, list[K]] = {}
        why = next(iter(found.moved.values()), None)
        for item, leader in found.results.items():
            if leader < 0 or leader in self.running:
                at = "has no leader" if leader < 0 else f"waits for a request to broker {leader}"
                why = errors.LeaderNotAvailableError(f"{item} {at}")
            else:
                led.setdefault(leader, []).append(item)
                del self._left[item]
        for leader, those in led.items():
            self.running[leader] = self._engine.start(self._asked(leader, those)), those
        return why

    def _collect(self) -> KafkaError | None:
        """Apply responses; return why some items have to be asked for again."""
        why: KafkaError | None = None
        for leader, (asked, _) in list(self.running.items()):
            if asked.done:
                del self.running[leader]
                answer = asked.result()
                self.outcome.add(answer)
                self.outcome.led.update(dict.fromkeys(answer.results, leader))
                for item, error in answer.moved.items():
                    self._left[item] = None
                    if isinstance(error, COORDINATOR_MOVED):
                        self._doubt(item)
                why = next(iter(answer.moved.values()), why)
        return why

    def _look(self) -> Flow[None]:
        """Check whether the asked leaders still lead their items, until one of them answers."""
        those = {i: leader for leader, (_, asked) in self.running.items() for i in asked}
        for item in those:
            self._doubt(item)
        looking = self._engine.start(self._leaders(self._brokers, [*those], self._deadline))
        asked_now = [asked for asked, _ in self.running.values()]
        try:
            while not looking.done and not any(a.done for a in asked_now):
                yield Wait((looking, *asked_now))
        finally:
            _leave(self._engine, [looking])
        if any(a.done for a in asked_now):
            return
        found = looking.result()
        for item, leader in found.results.items():
            before = those[item]
            if before in self.running and leader not in (before, -1):
                asked, items = self.running[before]
                del self.running[before]
                self._engine.cancel(
                    asked, ClientClosedError("its partitions have another leader now")
                )
                self._left.update(dict.fromkeys(items))

    def _fail(self, error: KafkaError) -> None:
        for item in self._left:
            self.outcome.errors[item] = copy(error)
        self._left.clear()

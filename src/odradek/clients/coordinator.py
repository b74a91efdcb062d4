"""Find the coordinator of one group or one transactional id, and send requests to it.

In: requests of memberships, commits and transactions. Out: their responses, or an error that lists
the attempts. Only the broker's id is kept, never its host and port: every request looks the address
up in the metadata, so a coordinator that moved isn't asked at its old address. Anything that makes
the id doubtful (a lost connection, NOT_COORDINATOR, a broker that the metadata lacks, a
rebootstrap) clears it, and any broker is asked again (FindCoordinator). Must not: know what a group
or a transaction is.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable
from enum import IntEnum
from typing import TypeVar, cast

from odradek.clients.any_broker import AnyBrokerCall, Brokers, Sent
from odradek.clients.final_errors import is_refusal
from odradek.common.backoff import Backoff, ExponentialBackoff
from odradek.common.errors import (
    Attempt,
    AuthorizationError,
    ConnectionFailedError,
    DisconnectedError,
    KafkaError,
    KafkaTimeoutError,
)
from odradek.common.errors.kafka import (
    CoordinatorNotAvailableError,
    NotCoordinatorError,
    RebootstrapRequiredError,
    error_for,
)
from odradek.common.types import Address
from odradek.metadata.cluster import Cluster
from odradek.network.connection import BESIDE, COORDINATOR, Connection
from odradek.network.effects import AnyRequest
from odradek.network.flow import START, Completion, Flow, Signal, Wait
from odradek.protocol.message import Message
from odradek.protocol.messages.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

logger = logging.getLogger("odradek")

M = TypeVar("M", bound=Message)

BY_KEYS = 4
"""First version of FindCoordinator with a list of keys (KIP-699)."""
LOOKUP_INTERVAL_S = 5.0
"""Seconds between checks with another broker whether the coordinator is still the same.

The coordinator may hold a request like JoinGroup for minutes, so its silence doesn't show that it
stopped.
"""
SILENT_LOOKUP_WAITS = ExponentialBackoff(1.0, 8.0)
"""Seconds between checks of a coordinator that doesn't respond: it may only be slow.

If its broker stopped, the metadata shows that earlier, and then its connection is closed.
"""

COORDINATOR_LOST = (
    CoordinatorNotAvailableError,
    NotCoordinatorError,
    DisconnectedError,
    ConnectionFailedError,
)
"""Errors after which the coordinator is looked up again."""


class CoordinatorKind(IntEnum):
    """Kinds of coordinators, with Kafka's numbers."""

    GROUP = 0
    TRANSACTION = 1


_NEEDED = {
    CoordinatorKind.GROUP: ("READ", "group"),
    CoordinatorKind.TRANSACTION: ("WRITE", "transactional id"),
}


def coordinator_name(kind: CoordinatorKind, key: str) -> str:
    """Return the text that names a coordinator in messages: "coordinator of group 'g'"."""
    return f"coordinator of {_NEEDED[kind][1]} {key!r}"


class Coordinator:
    """The coordinator of one key.

    Any number of calls may use it at once; one of them sends FindCoordinator.
    """

    def __init__(self, brokers: Brokers, kind: CoordinatorKind, key: str) -> None:
        self._brokers = brokers
        self._engine = brokers.engine
        self._network = brokers.network
        self._metadata = brokers.metadata
        self.kind = kind
        self.key = key
        self.right, self.thing = _NEEDED[kind]
        """The operation for which most requests need a permission, and its resource type."""
        self.name = coordinator_name(kind, key)
        self.broker: int | None = None
        """Id of the coordinator's broker; None while it is unknown."""
        self._answers = 0
        """Number of responses that have named the coordinator's broker."""
        self.whose = brokers.check
        self.changed = Signal()
        """Notified when the coordinator was found or lost."""
        self._newest: _CoordinatorCall | None = None
        """The latest call, which may be running."""
        self._finding = False
        self._looking: Completion[None] | None = None
        self._looks = Backoff(SILENT_LOOKUP_WAITS, brokers.rng)
        self._backoff = Backoff(brokers.retry, brokers.rng)
        """Backoff between a loss and the next FindCoordinator.

        A broker that is named again and again without answering is looked up less and less often,
        however many requests wait.
        """
        self._in_use: Connection | None = None
        self.unanswered: tuple[_CoordinatorCall, Connection, Completion[Message]] | None = None
        """The last `ordered` request; its caller may have given up meanwhile."""

    @property
    def attempts(self) -> Iterable[Attempt]:
        """Attempts of the latest call, for error texts."""
        return self._newest.attempts if self._newest is not None else ()

    @property
    def answer_lost(self) -> bool:
        """Whether a request of the latest call had no response, and may have been processed."""
        return self._newest is not None and self._newest.answer_lost

    def lost(self, reason: str, now: float) -> None:
        """Forget the broker; the next request finds it again."""
        if self.broker is not None:
            self._engine.events.emit(
                now, "coordinator", what=self.name, broker=None, was=self.broker, why=reason
            )
            self.broker = None
            self._backoff.failed(now)
            self.changed.notify()

    def version(self, request: type[AnyRequest]) -> int | None:
        """Return the coordinator's version of an API; None if it was never connected.

        Inside `body` of `ask` it is the version for the connection that the request is sent on.
        """
        connection = self._in_use
        if connection is None or not connection.versions:
            return None
        return self._network.version_for(connection, request)

    def ask(
        self,
        what: str,
        body: Callable[[float], AnyRequest],
        response: type[M],
        check: Callable[[M], KafkaError | None],
        deadline: float,
        *,
        timeout: float | None = None,
        patience: float = 0.0,
        steady: bool = False,
        newest: int | None = None,
        ordered: bool = False,
        replies: list[Completion[Message]] | None = None,
    ) -> Flow[M]:
        """Send a request until `check` finds no retriable error; raise other errors.

        `body` gets the remaining seconds. `timeout` is the maximum for one request (without it
        request.timeout.ms), `patience` the part of it for which silence is normal. `steady`: joins,
        syncs, heartbeats start with a constant backoff (KIP-580). `newest` is the highest version
        of the API to use, if that isn't the highest that client and broker support. `ordered`: such
        a request overwrites the effect of earlier ones (commits do). `replies` gets the reply of
        each attempt when it is sent; one that never succeeds has no result.
        """
        call = self._newest = _CoordinatorCall(self, self._brokers, what, deadline)
        call.timeout, call.patience = timeout, patience
        call.newest, call.ordered, call.replies = newest, ordered, replies
        if steady:
            call.back_off_steadily(self._brokers)
        return call.run(body, response, check)

    # Calls of `_CoordinatorCall`

    def find(self, call: _Call, now: float) -> Flow[float]:
        """Wait until the coordinator's broker is known.

        One of the waiting calls sends FindCoordinator; if it gives up, another call does.
        """
        while self.broker is None:
            if now >= call.deadline:
                raise call.timed_out(now)
            if self._finding or now < self._backoff.until:
                until = math.inf if self._finding else self._backoff.until
                now = yield Wait((self.changed,), min(until, call.deadline))
                continue
            self._finding = True
            try:
                finder = FindCall(self._brokers, self.kind, call.deadline)
                finder.attempts = call.attempts
                broker = yield from finder.locate(self.key)
            finally:
                self._finding = False
                self.changed.notify()
            now = self._engine.now
            self._found(broker, "found", now)
        return now

    def look_again(self) -> None:
        """Ask another broker whether the coordinator is still the same.

        If not, notify `changed`.
        """
        if self._looking is None or self._looking.done:
            self._looking = self._engine.start(self._look())

    def look_at_silent(self, now: float) -> float:
        """Look up a silent coordinator again if that is due; return when it is due next."""
        if now >= self._looks.until:
            self._looks.failed(now)
            self.look_again()
        return self._looks.until

    def _look(self) -> Flow[None]:
        now, before = (yield START), self.broker
        finder = FindCall(self._brokers, self.kind, now + self._network.request_timeout, self)
        try:
            broker = yield from finder.locate(self.key)
        except KafkaError:
            return  # without a response, keep the known broker
        if self.broker == before != broker:
            self._found(broker, "moved", self._engine.now)

    def is_at(self, broker: int | None) -> bool:
        """Return whether this broker was the last known coordinator, or none is known."""
        return self.broker is None or self.broker == broker

    def address(self, now: float) -> Address:
        """Return the coordinator's address; raise if the metadata lacks its broker."""
        snapshot, broker = self._metadata.snapshot, self.broker
        if snapshot is not None and broker is not None and broker in snapshot.brokers:
            return snapshot.brokers[broker].address
        why = "no metadata" if snapshot is None else "the metadata doesn't contain that broker"
        self.lost(why, now)
        self._metadata.request(f"{self.name}: broker {broker}")
        raise CoordinatorNotAvailableError(f"the {self.name} is broker {broker}: {why}")

    def others(self, snapshot: Cluster) -> list[Address]:
        """Return the addresses of all brokers except the coordinator; if there is no other, all.

        A coordinator that is cut off from its cluster still names itself.
        """
        found = [b.address for b in snapshot.brokers.values() if b.id != self.broker]
        return found or snapshot.addresses()

    def using(self, connection: Connection) -> None:
        """Set the connection that the next request is sent on."""
        self._in_use = connection

    def answered(self) -> None:
        """Note that the broker is the coordinator, and that it works."""
        self._backoff.succeeded()
        self._looks.succeeded()

    def denied(self, connection: Connection, broker: int | None) -> None:
        """Note that the broker at this address isn't the coordinator, though metadata names it."""
        answers = self._answers
        self._brokers.denied(connection, self.name, broker, answers, answers + 1)

    def _found(self, broker: int, why: str, now: float) -> None:
        was, self.broker = self.broker, broker
        self._answers += 1
        self._looks.succeeded()
        self._engine.events.emit(
            now, "coordinator", what=self.name, broker=broker, was=was, why=why
        )
        self.changed.notify()


class _Call(AnyBrokerCall):
    """A call that ends at its deadline, while its connection remains open."""

    timeout: float | None = None
    patience = 0.0

    def back_off_steadily(self, brokers: Brokers) -> None:
        """Wait `retry.backoff.ms` before each of the first retries."""
        self._backoff = Backoff(brokers.retry.steady(), brokers.rng)

    def using(self, connection: Connection) -> None:
        """Set the connection that the next request is sent on."""
        raise NotImplementedError

    def _send(
        self,
        connection: Connection,
        body: Callable[[float], AnyRequest],
        idempotent: bool,  # requests to coordinators may be repeated
        now: float,
    ) -> Completion[Message]:
        network = self._network
        limit = (self.timeout or network.request_timeout) - self.patience
        self.using(connection)
        request = body(self.deadline - now)
        version = self.version_for(connection, type(request))
        return network.send_version(
            connection, request, version, now, patience=self.patience, timeout=limit
        ).reply


class FindCall(_Call):
    """FindCoordinator to any broker: for one key, or for many in one request (KIP-699)."""

    def __init__(
        self,
        brokers: Brokers,
        kind: CoordinatorKind,
        deadline: float,
        beside: Coordinator | None = None,
    ) -> None:
        """Set `beside`, a coordinator in doubt, not asked about itself if other brokers exist."""
        among = Cluster.addresses if beside is None else beside.others
        super().__init__(brokers, f"the coordinators of {_NEEDED[kind][1]}s", deadline, among)
        self._kind, self._keys = kind, [""]
        self._by_keys = True
        # The operation that the next requests need implies DESCRIBE.
        needs_more = brokers.right != "DESCRIBE"
        self._right = _NEEDED[kind][0] if needs_more else brokers.right
        self._until = brokers.engine.now + brokers.network.request_timeout
        """Time until which an error is retried, as it may only concern one broker."""

    def using(self, connection: Connection) -> None:
        """Choose the form of the request by the connection's version."""
        version = self._network.version_for(connection, FindCoordinatorRequest)
        self._by_keys = version >= BY_KEYS

    def locate(self, key: str) -> Flow[int]:
        """Return the id of the coordinator's broker; wait until there is one."""
        self._keys, self.what = [key], f"the {coordinator_name(self._kind, key)}"
        answer = yield from self.ask(self._body, FindCoordinatorResponse, self._check)
        return self._read(answer)[key][0]

    def locate_each(self, keys: Iterable[str]) -> Flow[dict[str, int | KafkaError]]:
        """Return the ids of coordinators' brokers, or the error of each key.

        An unavailable coordinator delays no other. Raises if there is no response.
        """
        found: dict[str, int | KafkaError] = {}

        def note(answer: FindCoordinatorResponse, connection: Connection) -> KafkaError | None:
            self.using(connection)  # the last request may have used another version
            for key, (broker, error) in self._read(answer).items():
                if isinstance(error, RebootstrapRequiredError):
                    return error
                found[key] = broker if error is None else self._weighed(error, connection)
                if error is not None:  # prefer another broker next time
                    self._failed[connection.address] = None
            return None

        left = list(keys)
        while left:
            self._keys = left
            self._out.clear()  # ignore late responses for other keys
            yield from self.ask(self._body, FindCoordinatorResponse, note)
            left = [key for key in left if key not in found]
        return found

    def _check(self, answer: FindCoordinatorResponse, connection: Connection) -> KafkaError | None:
        self.using(connection)
        error = self._read(answer)[self._keys[0]][1]
        return None if error is None else self._weighed(error, connection)

    def _weighed(self, error: KafkaError, connection: Connection) -> KafkaError:
        if error.retriable or is_refusal(error) or self._engine.now >= self._until:
            return error
        logger.warning("%s: %s answered %s; retrying", self.what, connection.address, error)
        return CoordinatorNotAvailableError(str(error))

    def _body(self, _: float) -> FindCoordinatorRequest:
        if self._by_keys:
            return FindCoordinatorRequest(key_type=self._kind, coordinator_keys=self._keys)
        return FindCoordinatorRequest(self._keys[0], self._kind)

    def _read(self, answer: FindCoordinatorResponse) -> dict[str, tuple[int, KafkaError | None]]:
        """Return the result for each requested key."""
        if not self._by_keys:
            said = {self._keys[0]: (answer.node_id, answer.error_code, answer.error_message)}
        else:
            each = reversed(answer.coordinators)
            said = {c.key: (c.node_id, c.error_code, c.error_message) for c in each}
        found: dict[str, tuple[int, KafkaError | None]] = {}
        for key in self._keys if self._by_keys else self._keys[:1]:
            name, error = coordinator_name(self._kind, key), None
            broker, code, text = said.get(key, (-1, 0, None))
            if code:
                error = error_for(code, text or name).needing(self._right, key)
            elif key not in said:
                error = CoordinatorNotAvailableError(f"the response doesn't contain the {name}")
            found[key] = (broker, error)
        return found


class _CoordinatorCall(_Call):
    """One call to the coordinator, even if it moves meanwhile."""

    ordered = False
    replies: list[Completion[Message]] | None = None
    """The reply of each attempt, for a caller that must know which attempts had no response."""

    def __init__(
        self, coordinator: Coordinator, brokers: Brokers, what: str, deadline: float
    ) -> None:
        super().__init__(brokers, what, deadline)
        self._coordinator = coordinator
        self.asked: int | None = None
        """Id of the broker to which the request is sent."""
        self._looked_at = -math.inf
        """Time of the last check whether the coordinator is still the same."""
        self._refused_until = math.inf
        """Time of the next request while the coordinator returns errors."""

    def run(
        self,
        body: Callable[[float], AnyRequest],
        response: type[M],
        check: Callable[[M], KafkaError | None],
    ) -> Flow[M]:
        """Find the coordinator, connect and send; repeat after retriable errors."""
        now, coordinator = (yield START), self._coordinator
        while True:
            self._address = None
            if self.ordered:
                now = yield from self._behind_others(now)
            try:
                connection = yield from self._connected(now)
                once: Flow[tuple[M, float]] = self._once(connection, body, self._engine.now)
                answer, now = yield from once
            except KafkaTimeoutError:
                raise
            except KafkaError as failure:
                error, now = failure, self._engine.now
            else:
                found = check(answer)
                if not isinstance(found, COORDINATOR_LOST):
                    coordinator.answered()
                if found is None:
                    return answer
                if isinstance(found, NotCoordinatorError):
                    coordinator.denied(connection, self.asked)
                error = found
            if isinstance(error, COORDINATOR_LOST):
                self._doubt(error, now)
            elif not error.retriable:
                # Has no effect if the response's check has named another permission already.
                if isinstance(error, AuthorizationError):
                    error.needing(coordinator.right, coordinator.key, coordinator.thing)
                raise error
            elif now >= self._refused_until:
                # The broker may be cut off from its cluster: ask another one for the coordinator.
                coordinator.look_again()
            if now >= self._refused_until or self._refused_until == math.inf:
                self._refused_until = now + LOOKUP_INTERVAL_S
            now = yield from self.retry(self._address, error, now)

    def using(self, connection: Connection) -> None:
        """Set the connection, whose version `body` may request from the coordinator."""
        self._coordinator.using(connection)

    def _once(
        self, connection: Connection, body: Callable[[float], AnyRequest], now: float
    ) -> Flow[tuple[M, float]]:
        """Send one request and wait for its response; raise if the coordinator has moved."""
        coordinator = self._coordinator
        reply, self._looked_at = self._send(connection, body, True, now), now
        sent = Sent(connection, reply, now)
        self._out.append(sent)
        if self.replies is not None:
            self.replies.append(reply)
        if self.ordered:
            coordinator.unanswered = (self, connection, reply)
        try:
            while not reply.done:
                if not coordinator.is_at(self.asked):
                    text = f"{connection.address} is no longer the {coordinator.name}"
                    raise NotCoordinatorError(text)
                if now >= self.deadline:
                    raise self._unanswered(now)
                now = yield from self._wait(connection, now, reply)
            return cast("M", reply.result()), now
        except KafkaError:
            self.answer_lost = True
            raise
        finally:
            self._out.remove(sent)

    def _wait(
        self, connection: Connection, now: float, reply: Completion[Message] | None = None
    ) -> Flow[float]:
        """Wait for a while, and check meanwhile whether this broker is still the coordinator.

        No other broker can answer, so a silent one is waited for (R-RB-9).
        """
        coordinator, until = self._coordinator, self.deadline
        if connection.suspect:
            until = min(until, coordinator.look_at_silent(now))
        elif self.patience:
            if now >= self._looked_at + LOOKUP_INTERVAL_S:
                coordinator.look_again()
                self._looked_at = now
            until = min(until, self._looked_at + LOOKUP_INTERVAL_S)
        on = (self._network.changed, self._metadata.changed, coordinator.changed)
        now = yield Wait(on if reply is None else (reply, *on), until)
        return now

    def _behind_others(self, now: float) -> Flow[float]:
        """Wait for the response to an earlier request whose caller gave up.

        On another connection, this request could overtake the earlier one. A former coordinator
        isn't waited for, because it won't execute the earlier request.
        """
        coordinator = self._coordinator
        last = coordinator.unanswered
        if last is not None and last[0] is not self:
            call, connection, reply = last
            self._looked_at = now
            while not (reply.done or connection.ended) and coordinator.is_at(call.asked):
                if now >= self.deadline:
                    raise self.timed_out(now)
                now = yield from self._wait(connection, now, reply)
        return now

    def _connected(self, now: float) -> Flow[Connection]:
        """Return a usable connection to the coordinator; raise if it is unavailable."""
        coordinator, network = self._coordinator, self._network
        now = yield from coordinator.find(self, now)
        self.asked, self._looked_at = coordinator.broker, now
        self._address = address = coordinator.address(now)
        purpose, dialled = "", None
        while True:
            if purpose != (purpose := self._purpose(address)):
                dialled = network.connection(address, purpose)
            found = network.ready(address, now, purpose=purpose)
            # Another cluster would accept commits, and return its own offsets (R-RB-5).
            if found is not None and not found.suspect and coordinator.whose.agreed(found, now):
                return found
            there = network.connection(address, purpose)
            if there is not None and there.suspect and not there.ready:
                raise DisconnectedError(f"{address} doesn't respond")
            if dialled is not None and there is not dialled:
                last = network.states.state(address).last_error
                raise ConnectionFailedError(f"{address}: {last or 'the connection was lost'}")
            dialled = there
            if now >= self.deadline:
                raise self.timed_out(now)
            if there is not None and there.ready and there.suspect:
                now = yield from self._wait(there, now)
            else:
                until = network.next_dial_at(address, now, purpose=purpose)
                on = (network.changed, coordinator.changed, self._metadata.changed)
                now = yield Wait(on, min(self.deadline, until))
            if coordinator.broker != self.asked or coordinator.address(now) != address:
                raise NotCoordinatorError(f"{address} is no longer the {coordinator.name}")

    def _purpose(self, address: Address) -> str:
        """Return the purpose of the connection for a request.

        Brokers answer a connection's requests in order, and no request may wait for a JoinGroup
        that is held until all members have joined, or for another slow response. So while such a
        request is in flight, commits and heartbeats are sent on a second connection.
        """
        connection = self._network.connection(address, COORDINATOR)
        if connection is None or self.patience > 0.0:
            return COORDINATOR
        slow = connection.ready and connection.suspect
        return BESIDE if slow or connection.may_hold() else COORDINATOR

    def _doubt(self, error: KafkaError, now: float) -> None:
        """Forget the coordinator, unless another call has found a newer one."""
        if isinstance(error, ConnectionFailedError):
            self._metadata.request(f"{self.what}: {type(error).__name__}")
        if self._coordinator.broker == self.asked:
            self._coordinator.lost(f"{type(error).__name__}: {error}", now)

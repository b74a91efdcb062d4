"""One request that any broker may answer, retried until it is answered or the time is up.

In: a request and what to think of its answer. Out: the answer, or an error that lists the attempts.
Admin's calls go this way, and the consumer's and admin's questions about topics (R-MD-4: list and
describe are calls of their own). R-RT-1: exponential backoff per call; R-RT-2: the caller's
deadline is the only limit. Must not: change the client's snapshot.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from typing import TypeVar, cast

from odradek.clients.client_engine import ClientEngine
from odradek.common.backoff import Backoff
from odradek.common.errors import Attempt, DisconnectedError, KafkaError, KafkaTimeoutError
from odradek.common.kafka_errors import RebootstrapRequiredError
from odradek.common.types import Address
from odradek.network.connection import Connection
from odradek.network.effects import AnyRequest
from odradek.network.flow import START, Flow, Wait
from odradek.protocol.message import Message

M = TypeVar("M", bound=Message)

ATTEMPTS_KEPT = 20
"""The last attempts of a call that its error lists."""


class AnyBrokerCall:
    """One call: its backoff, its attempts, and whether an answer may have been lost."""

    def __init__(self, engine: ClientEngine, what: str, deadline: float) -> None:
        self._engine = engine
        self.what = what
        self.deadline = deadline
        self.attempts: deque[Attempt] = deque(maxlen=ATTEMPTS_KEPT)
        self.answer_lost = False
        """A request went out and no answer came: it may have been carried out."""
        self._backoff = Backoff(engine.config.backoff("retry.backoff"), engine.rng)
        self._failed: dict[Address, None] = {}

    def ask(
        self,
        body: Callable[[float], AnyRequest],
        response: type[M],
        check: Callable[[M, Connection], KafkaError | None],
        *,
        idempotent: bool = True,
    ) -> Flow[M]:
        """Ask until `check` finds no retriable error in an answer; other errors are raised.

        `body` gets the seconds that are left. A request that isn't `idempotent` isn't sent to a
        second broker while the first one is only silent.
        """
        now = yield START
        while True:
            connection, now = yield from self._connection(now)
            try:
                once: Flow[tuple[M, float]] = self._once(connection, body, idempotent, now)
                answer, now = yield from once
            except KafkaTimeoutError:
                raise
            except KafkaError as failure:
                error, now = failure, self._engine.now
                self.answer_lost = self.answer_lost or isinstance(failure, DisconnectedError)
                if not failure.retriable:
                    raise
            else:
                found = check(answer, connection)  # what it raises goes to the caller as it is
                if found is None:
                    return answer
                if isinstance(found, RebootstrapRequiredError):
                    # R-RB-3: its connection ends as in a handshake, and the client starts again.
                    self._engine.network.fail(connection, found, self._engine.now)
                    found = DisconnectedError(f"{connection.address} asks to start again")
                if not found.retriable:
                    raise found
                error = found
            now = yield from self.retry(connection.address, error, now)

    def retry(self, address: Address | None, error: KafkaError, now: float) -> Flow[float]:
        """Note a failed attempt and wait for the backoff; raises at the deadline."""
        engine = self._engine
        text = f"{type(error).__name__}: {error}"
        self.attempts.append(Attempt(address, self.what, text, now))
        if address is not None:
            self._failed[address] = None
        until = self._backoff.failed(now)
        engine.events.emit(
            now,
            "retry",
            what=self.what,
            error=text,
            attempt=self._backoff.failures,
            backoff=round(until - now, 6),
        )
        if error.refresh_metadata:
            engine.metadata.request(f"{self.what}: {type(error).__name__}")
        while now < until:
            now = yield Wait((), min(until, self.deadline))
            if now >= self.deadline:
                raise self.timed_out(now)
        return now

    def timed_out(self, now: float) -> KafkaError:
        """The error at the deadline, with every attempt of this call."""
        return self._engine.timeout(self.what, now, list(self.attempts))

    def _once(
        self,
        connection: Connection,
        body: Callable[[float], AnyRequest],
        idempotent: bool,
        now: float,
    ) -> Flow[tuple[M, float]]:
        network = self._engine.network
        left, sent_at = self.deadline - now, now
        limit = min(network.request_timeout, left + 0.05)
        # A broker may rightly think about a change for as long as it was given.
        patience = 0.0 if idempotent else limit
        reply = network.send(
            connection, body(left), now, patience=patience, timeout=limit - patience
        )
        while not reply.done:
            if idempotent and connection.suspect:
                raise DisconnectedError("connected, but silent")
            now = yield Wait((reply, network.changed), self.deadline)
            if now >= self.deadline and not reply.done:
                self.attempts.append(Attempt(connection.address, self.what, "no answer", sent_at))
                raise self.timed_out(now)
        return cast("M", reply.result()), now

    def addresses(self) -> list[Address]:
        """Who may be asked now: every known broker."""
        snapshot = self._engine.metadata.snapshot
        return snapshot.addresses() if snapshot is not None else []

    def _connection(self, now: float) -> Flow[tuple[Connection, float]]:
        """A usable connection: the one with the least to do, else one that is dialled now."""
        engine = self._engine
        network, metadata = engine.network, engine.metadata
        while True:
            addresses = self.addresses()
            found = [c for c in map(network.connection, addresses) if c is not None]
            usable = [
                c
                for c in found
                if c.ready and c.writable and not c.suspect and c.throttled_until <= now
            ]
            if usable:
                order = [(c.address in self._failed, len(c.in_flight), c.last_used) for c in usable]
                return usable[order.index(min(order))], now
            if now >= self.deadline:
                raise self.timed_out(now)
            until = self.deadline
            if not any(not c.ready for c in found):
                free = [a for a in addresses if network.connection(a) is None]
                free.sort(key=lambda a: (a in self._failed, network.states.state(a).last_dial))
                for address in free:
                    if network.may_dial(address, now):
                        network.dial(address, now)
                        break
                else:
                    until = min([until, *(network.next_dial_at(a, now) for a in free)])
            throttled = [c.throttled_until for c in found if c.throttled_until > now]
            until = min([until, *throttled], default=math.inf)
            now = yield Wait((network.changed, metadata.changed), until)


class OneBrokerCall(AnyBrokerCall):
    """The same for a request that is meant for one broker, wherever it moves to meanwhile."""

    def __init__(self, engine: ClientEngine, what: str, deadline: float, broker: int) -> None:
        super().__init__(engine, what, deadline)
        self.broker = broker

    def addresses(self) -> list[Address]:
        """Its address now; none while the cluster doesn't list it (it restarts, or has left)."""
        snapshot = self._engine.metadata.snapshot
        found = snapshot.brokers.get(self.broker) if snapshot is not None else None
        return [found.address] if found is not None else []

"""Send a request to any broker, and retry until a broker answers or the deadline passes.

In: a request and a function that checks the response. Out: the response, or an error that lists the
attempts. The admin client's calls use this, and requests of consumer and admin for topics (R-MD-4:
list and describe are separate calls). Each call has its own exponential backoff (R-RT-1); the
caller's deadline is the only limit (R-RT-2). Must not: change the client's metadata.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar, cast

from odradek.clients.cluster_check import ClusterCheck
from odradek.common.backoff import Backoff, ExponentialBackoff
from odradek.common.errors import (
    Attempt,
    DisconnectedError,
    KafkaError,
    KafkaTimeoutError,
    MalformedMessageError,
)
from odradek.common.errors.kafka import RebootstrapRequiredError
from odradek.common.types import Address, Rng
from odradek.metadata.cluster import Cluster
from odradek.metadata.metadata import Metadata
from odradek.network.connection import DATA, METADATA, Connection
from odradek.network.effects import AnyRequest
from odradek.network.engine import Engine
from odradek.network.flow import START, Completion, Flow, Wait
from odradek.network.network_client import NetworkClient
from odradek.protocol.message import Message

M = TypeVar("M", bound=Message)

Timeout = Callable[[str, float, Sequence[Attempt]], KafkaTimeoutError]
"""Returns a timeout error; takes a text on the wait, the time and the failed attempts."""

ATTEMPTS_KEPT = 20
"""Maximum number of attempts that an error lists; the last ones are kept."""

MOST_ASKED = 2
"""Maximum number of brokers asked at the same time: a second one if the first is silent."""


class Sent(NamedTuple):
    """A request without a response so far."""

    connection: Connection
    reply: Completion[Message]
    sent_at: float


class Brokers:
    """The brokers of one client's cluster, with the objects that a call needs to reach them."""

    def __init__(
        self,
        engine: Engine,
        network: NetworkClient,
        metadata: Metadata,
        retry: ExponentialBackoff,
        rng: Rng,
        *,
        timeout: Timeout,
        denied: Callable[[Connection, object, int | None, int, int], None],
        just_created: Callable[[str], bool],
        right: str = "DESCRIBE",
    ) -> None:
        """Set the callbacks of a call.

        `denied` is called if a broker isn't the leader or coordinator that metadata names;
        `just_created` returns whether this client created a topic that brokers may not know yet;
        `right` is the operation that the client needs on topics.
        """
        self.engine = engine
        self.network = network
        self.metadata = metadata
        self.retry = retry
        self.rng = rng
        self.timeout = timeout
        self.denied = denied
        self.just_created = just_created
        self.right = right
        self.check = ClusterCheck(engine, network, metadata)


class AnyBrokerCall:
    """One call: its backoff, its attempts, and whether a response may have been lost."""

    newest: int | None = None
    """Highest version of the API to use; None: the highest that client and broker support."""

    def __init__(
        self,
        brokers: Brokers,
        what: str,
        deadline: float,
        among: Callable[[Cluster], list[Address]] = Cluster.addresses,
    ) -> None:
        """Set `among`, which returns the addresses to choose from in a `Cluster`; default: all."""
        self._engine = brokers.engine
        self._network = brokers.network
        self._metadata = brokers.metadata
        self._timeout = brokers.timeout
        self._among = among
        self.what = what
        self.deadline = deadline
        self.attempts: deque[Attempt] = deque(maxlen=ATTEMPTS_KEPT)
        self.answer_lost = False
        """Whether a request had no response, so that the broker may have processed it."""
        self._backoff = Backoff(brokers.retry, brokers.rng)
        self._whose = brokers.check
        self._ours = False
        self._failed: dict[Address, None] = {}
        self._out: list[Sent] = []
        """Requests of this call in flight; the first response counts."""
        self._address: Address | None = None
        """Address of the last request or response."""

    def ask(
        self,
        body: Callable[[float], AnyRequest],
        response: type[M],
        check: Callable[[M, Connection], KafkaError | None],
        *,
        read: Callable[[M], bool] | None = None,
        idempotent: bool = True,
        ours: bool = False,
    ) -> Flow[M]:
        """Send requests until `check` finds no retriable error in a response; raise other errors.

        `body` is called with the remaining seconds. While the first broker is silent, a second one
        is asked, and the first response counts, however late it is (R-RB-9). A request that isn't
        `idempotent` is sent to no second broker. Such a request, and one with `ours`, is only sent
        to brokers that are known to belong to this cluster (R-RB-5). `read` decodes the next part
        of a large response before the response is checked, and returns whether that was the last.
        """
        now = yield START
        self._ours = ours or not idempotent
        while True:
            try:
                one: Flow[tuple[M, Connection, float]] = self._one_answer(body, idempotent, now)
                answer, connection, now = yield from one
                if read is not None:
                    now = yield from self._whole(answer, read, connection, now)
            except KafkaTimeoutError:
                raise
            except KafkaError as failure:
                error, now = failure, self._engine.now
                self.answer_lost = self.answer_lost or isinstance(failure, DisconnectedError)
                if not failure.retriable:
                    raise
            else:
                # An error that `check` raises goes to the caller unchanged.
                found = check(answer, connection)
                if found is None:
                    return answer
                if isinstance(found, RebootstrapRequiredError):
                    # R-RB-3: close the connection as after a failed handshake, and rebootstrap.
                    self._network.fail(connection, found, self._engine.now)
                    found = DisconnectedError(f"{connection.address} requires a rebootstrap")
                if not found.retriable:
                    raise found
                error = found
            now = yield from self.retry(self._address, error, now)

    def retry(self, address: Address | None, error: KafkaError, now: float) -> Flow[float]:
        """Note a failed attempt and wait for the backoff; raises at the deadline."""
        text = f"{type(error).__name__}: {error}"
        self.attempts.append(Attempt(address, self.what, text, now))
        if address is not None:
            self._failed[address] = None
        until = self._backoff.failed(now)
        self._engine.events.emit(
            now,
            "retry",
            what=self.what,
            error=text,
            attempt=self._backoff.failures,
            backoff=round(until - now, 6),
        )
        if error.refresh_metadata:
            self._metadata.request(f"{self.what}: {type(error).__name__}")
        while now < until:
            now = yield Wait((), min(until, self.deadline))
            if now >= self.deadline:
                raise self.timed_out(now)
        return now

    def timed_out(self, now: float) -> KafkaError:
        """Return the error at the deadline, with every attempt of this call."""
        return self._timeout(self.what, now, list(self.attempts))

    def _one_answer(
        self, body: Callable[[float], AnyRequest], idempotent: bool, now: float
    ) -> Flow[tuple[M, Connection, float]]:
        """Return the response that arrives first; raise if a request fails before."""
        out = self._out
        while True:
            for sent in out:
                if sent.reply.done:
                    out.remove(sent)
                    self._address = sent.connection.address
                    return cast("M", sent.reply.result()), sent.connection, now
            until = self.deadline
            if not out or (idempotent and len(out) < MOST_ASKED and out[-1].connection.suspect):
                connection, until = self._connection(now)
                # A request with `ours` needs a check that the broker belongs to this cluster.
                if connection and self._ours and not self._whose.agreed(connection, now):
                    connection, until = None, self.deadline  # `changed` is notified after the check
                if connection is not None:
                    self._address = connection.address
                    reply = self._send(connection, body, idempotent, now)
                    out.append(Sent(connection, reply, now))
                    continue
            if now >= self.deadline:
                raise self._unanswered(now)
            replies = [sent.reply for sent in out]
            now = yield Wait((*replies, self._network.changed, self._metadata.changed), until)

    def _whole(
        self, answer: M, read: Callable[[M], bool], connection: Connection, now: float
    ) -> Flow[float]:
        """Decode a response part by part; a response that can't be decoded is a failed attempt."""
        try:
            while not read(answer):
                now = yield Wait((), math.nextafter(max(now, self._engine.now), math.inf))
        except MalformedMessageError as error:
            self._network.fail(connection, error, self._engine.now)
            raise DisconnectedError(f"{connection.address}: {error}") from None
        return now

    def _send(
        self,
        connection: Connection,
        body: Callable[[float], AnyRequest],
        idempotent: bool,
        now: float,
    ) -> Completion[Message]:
        """Send a request; at the caller's deadline the call ends, but the connection is kept."""
        network = self._network
        left, limit = self.deadline - now, network.request_timeout
        # A broker may legitimately work on a change for as long as the request allows.
        patience = 0.0 if idempotent else min(limit, left)
        request = body(left)
        version = self.version_for(connection, type(request))
        return network.send_version(
            connection, request, version, now, patience=patience, timeout=limit - patience
        ).reply

    def version_for(self, connection: Connection, request: type[AnyRequest]) -> int:
        """Return the version of this call's request on a connection."""
        version = self._network.version_for(connection, request)
        return version if self.newest is None else min(version, self.newest)

    def _unanswered(self, now: float) -> KafkaError:
        for sent in self._out:
            self.attempts.append(
                Attempt(sent.connection.address, self.what, "no answer", sent.sent_at)
            )
        return self.timed_out(now)

    def _connection(self, now: float) -> tuple[Connection | None, float]:
        """Return the least busy connection to an unasked broker, or None and the next check's time.

        A connection attempt is started if one is allowed.
        """
        network, asked = self._network, {sent.connection.address for sent in self._out}
        snapshot = self._metadata.snapshot
        known = self._among(snapshot) if snapshot is not None else []
        addresses = [a for a in known if a not in asked]
        # In addition to a slow data connection, a separate connection for metadata may exist.
        lines = [network.connection(a, p) for a in addresses for p in (DATA, METADATA)]
        found = [c for c in lines if c is not None]
        usable = [
            c
            for c in found
            if c.ready and c.writable and not c.suspect and c.throttled_until <= now
        ]
        if usable:
            order = [(c.address in self._failed, len(c.in_flight), c.last_used) for c in usable]
            best = usable[order.index(min(order))]
            if not best.in_flight.has_patient():
                return best, now
            # The broker may hold a fetch on this connection, which would delay the response.
            prompt = self._whose.prompt(best.address, now)
            at = now if prompt is not None else network.prompt_at(best.address, now)
            return prompt, min(self.deadline, at)
        until = self.deadline
        if now < until and not any(not c.ready for c in found):
            free = [a for a in addresses if network.connection(a) is None]
            free.sort(key=lambda a: (a in self._failed, network.states.state(a).last_dial))
            for address in free:
                if network.may_dial(address, now):
                    network.dial(address, now)
                    break
            else:
                until = min([until, *(network.next_dial_at(a, now) for a in free)])
        return None, min([until, *(c.throttled_until for c in found if c.throttled_until > now)])

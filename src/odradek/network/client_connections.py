"""Hold one client's connections: send requests on them, and close them.

In: requests, and errors that end a connection. Out: effects for the I/O host (thread or event
loop); the replies of requests that were in flight fail with `DisconnectedError`. Must not: connect,
or watch deadlines: `network_client`, which is above the handshakes that use this module, does both.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from odradek.common.config import Config
from odradek.common.errors import (
    AnswerTooLargeError,
    DisconnectedError,
    ExplainedError,
    KafkaError,
)
from odradek.common.options.connection import RECONNECT_BACKOFF
from odradek.common.proxy import Proxy
from odradek.common.types import Address, Rng
from odradek.network.cluster_connection_states import ClusterConnectionStates
from odradek.network.connection import DATA, Connection
from odradek.network.connection_limiter import ConnectionLimiter
from odradek.network.connection_policy import ConnectionPolicy
from odradek.network.connection_state import ConnectionState
from odradek.network.effects import AnyRequest, Close, OutgoingRequest, Send
from odradek.network.engine import Engine
from odradek.network.failures import in_words
from odradek.network.flow import Completion, Signal
from odradek.network.frame_buffers import FrameBuffers
from odradek.network.in_flight_requests import InFlightRequest
from odradek.network.probe import judged
from odradek.network.secondary_connections import SecondaryConnections
from odradek.protocol.message import Message
from odradek.protocol.versioned_values import FEATURES, NEEDED

if TYPE_CHECKING:
    from odradek.network.sasl.mechanism import Mechanism

logger = logging.getLogger("odradek")

FRAME_SLACK = 1 << 20

LostListener = Callable[[Connection, KafkaError, bool, float], None]
"""Called at a connection's end, with its error, whether the end is a failure, and the time."""


class ClientConnections:
    """The connections of one client, by address and purpose."""

    def __init__(self, engine: Engine, config: Config, rng: Rng, *, frame_limit: int) -> None:
        self.engine = engine
        self.rng = rng
        self.proxy: Proxy | None = config["proxy.url"]
        self.mechanism: Mechanism | None = None
        """SASL mechanism of new connections; the client sets it before it first connects."""
        self.renewal: Completion[None] | None = None
        """Completion of the background task that renews credentials, if any (`sasl.renewal`)."""
        self.fetching: Completion[Any] | None = None
        """The last call that fetched credentials in the background."""
        self.retry_backoff = config.backoff("retry.backoff")
        self.events = engine.events
        self.states = ClusterConnectionStates(
            config.backoff("reconnect.backoff"),
            config.backoff("socket.connection.setup.timeout"),
            rng,
        )
        own = config["reconnect.backoff.ms"] != RECONNECT_BACKOFF
        most: int = config["reconnect.attempts.per.second"]
        governor = ConnectionLimiter(rng, self.states.base if own else math.inf, most)
        jitter = config["reconnect.first.jitter.ms"]
        first_wait = jitter * rng.random() if jitter else 0.0
        self.dials = ConnectionPolicy(self.states, governor, first_wait)
        self.asides = SecondaryConnections(rng)
        self.states.on_forgotten.append(self.asides.forget)
        self.changed = Signal()
        """Notified when a connection became ready or ended, or a response arrived."""
        self.connections: dict[tuple[Address, str], Connection] = {}
        self.on_lost: list[LostListener] = []
        self.request_timeout: float = config["request.timeout.ms"]
        self.frame_limit = frame_limit + FRAME_SLACK
        # Receive buffers for large responses; a client with many connections raises their limit.
        self.buffers = FrameBuffers()
        self.refused_logins = 0
        """Number of connections that ended because the broker refused their authentication."""
        self._told_large: set[str] = set()
        """Names of APIs that had too large a response; a warning is logged once for each API."""
        self._by_id: dict[int, Connection] = {}
        self.resolving: dict[int, Completion[Sequence[str]]] = {}
        self.client_id: str = config["client.id"]
        self.meant_by: Callable[[Address], tuple[str | None, int]] = lambda _: (None, -1)
        """Function that returns the cluster id and broker id expected at an address (KIP-1242)."""
        self.finalized: tuple[int, dict[str, int]] = (-1, {})
        """The newest epoch of feature levels that a broker reported (KIP-584), and these levels."""
        self._capped: dict[str, int] = {}
        """Upper limits of feature levels, if a proxy hides API versions that higher levels need."""

    @property
    def user(self) -> str | None:
        """User name with which this client authenticates; None without PLAIN or SCRAM."""
        name: str | None = getattr(getattr(self.mechanism, "credentials", None), "username", None)
        return name

    def authenticates_by(self, mechanism: Mechanism | None) -> None:
        """Set the SASL mechanism of new connections; None: connect without SASL."""
        self.mechanism = mechanism

    def renews_by(self, renewal: Completion[None]) -> None:
        """Set the completion of the background task that renews credentials."""
        self.renewal = renewal

    def fetches(self, fetching: Completion[Any]) -> None:
        """Set the completion of the call that fetches credentials in the background."""
        self.fetching = fetching

    def means(self, meant_by: Callable[[Address], tuple[str | None, int]]) -> None:
        """Set the function that returns the broker to expect at an address (KIP-1242)."""
        self.meant_by = meant_by

    def connection(self, address: Address, purpose: str = DATA) -> Connection | None:
        """Return the connection to an address for a purpose, in whatever state, if it exists."""
        return self.connections.get((address, purpose))

    def of_address(self, address: Address) -> list[Connection]:
        """Return the connections to an address for all purposes."""
        return [c for (to, _), c in self.connections.items() if to == address]

    def version_for(self, connection: Connection, request: type[AnyRequest]) -> int:
        """Return the highest version of an API that this client and the broker support."""
        return connection.version_for(request)

    def learned_features(
        self, epoch: int, levels: dict[str, int], versions: Mapping[int, tuple[int, int]]
    ) -> None:
        """Store the feature levels that a broker reported, unless their epoch is old (KIP-584).

        `versions` are the broker's API versions, as this connection reported them.
        """
        for name, (level, least) in FEATURES.items():
            known = all(versions.get(key, (0, -1))[1] >= newest for key, newest in least.items())
            if not known and levels.get(name, 0) >= level:
                self._capped[name] = level - 1
        if epoch > self.finalized[0]:
            self.finalized = (epoch, levels)

    def feature_level(self, name: str) -> int:
        """Return a feature's finalized level, or a lower one if a proxy hides API versions."""
        level = self.finalized[1].get(name, 0)
        return min(level, self._capped.get(name, level))

    def forget_addresses(self, known: Iterable[Address], now: float, after: float) -> None:
        """Forget addresses that metadata no longer names and that have no connection."""
        connected = (address for address, _ in self.connections)
        self.states.forget({*known, *connected}, now, after)

    # Requests

    def send(
        self,
        connection: Connection,
        body: AnyRequest,
        now: float,
        *,
        patience: float = 0.0,
        timeout: float | None = None,
    ) -> Completion[Message]:
        """Send a request on a ready connection; the reply may fail with any `KafkaError`."""
        version = connection.version_for(type(body))
        return self.send_version(
            connection, body, version, now, patience=patience, timeout=timeout
        ).reply

    def send_version(
        self,
        connection: Connection,
        body: AnyRequest,
        version: int,
        now: float,
        *,
        patience: float = 0.0,
        timeout: float | None = None,
        past_the_gate: bool = False,
        answered: bool = True,
    ) -> InFlightRequest:
        """Send a request with a version that the caller chose, as ApiVersions needs.

        Raises UnsupportedVersionError if brokers would misread a value in this version. While a
        connection authenticates again, requests wait; with `past_the_gate`, which the
        authentication's own requests set, a request is sent at once. If a request has no response
        (`answered` is false), its reply is completed once it is written.
        """
        if version < NEEDED.get(body.API_KEY, 0):
            connection.check_values(body, version)
        limit = (self.request_timeout if timeout is None else timeout) + patience
        in_flight, session = connection.in_flight, connection.session
        request = in_flight.make(
            body, version, now, timeout=limit, patience=patience, answered=answered
        )
        if session is not None and not past_the_gate and session.holds(now, in_flight):
            session.hold(request, now)
            self.changed.notify()
            return request
        self._transmit(connection, request, now)
        return request

    def let_go(
        self, connection: Connection, requests: Sequence[InFlightRequest], now: float
    ) -> None:
        """Send the requests that waited until the connection had authenticated again."""
        for request in requests:
            request.waited(now)
            self._transmit(connection, request, now)
        self.changed.notify()

    def _transmit(self, connection: Connection, request: InFlightRequest, now: float) -> None:
        connection.sends(request, now)
        body, version, identity = request.body, request.version, request.correlation_id
        # Faster than calling the NamedTuples, whose `__new__` is a Python function.
        fields = (body, version, identity, self.client_id, request.answered)
        outgoing = tuple.__new__(OutgoingRequest, fields)
        self.engine.effects.append(tuple.__new__(Send, (connection.id, outgoing)))

    # Closing of connections

    def close(self, connection: Connection, now: float, reason: str) -> None:
        """Close a connection without counting that as a failure of the address (R-CS-4)."""
        if not connection.ended:
            self._end(connection, DisconnectedError(f"closed: {reason}"), now, failure=False)
            self.engine.effects.append(Close(connection.id, reason))

    def disown(self, connection: Connection, error: KafkaError, now: float) -> None:
        """Close a connection to another cluster; undo what its responses seemed to prove."""
        if not connection.ended:
            connection.proves(False)
            if not connection.secondary:
                self.dials.disproved(connection.address)
            self.fail(connection, error, now)

    def fail(self, connection: Connection, error: KafkaError, now: float) -> None:
        """Close a connection because of the peer's error; count it as a failure of the address."""
        if not connection.ended:
            self._end(connection, error, now, failure=True)
            self.engine.effects.append(Close(connection.id, str(error)))

    def _forget(self, connection: Connection, error: KafkaError) -> None:
        self._by_id.pop(connection.id, None)
        if not connection.ready:
            self.dials.ended(connection.record)
        connection.lost(error)
        if self.connections.get((connection.address, connection.purpose)) is connection:
            del self.connections[connection.address, connection.purpose]

    def _end(self, connection: Connection, error: KafkaError, now: float, *, failure: bool) -> None:
        setting_up, address = not connection.ready, connection.address
        error = judged(connection, error)
        if isinstance(error, ExplainedError):
            error = error.at(address)
        requests = connection.take_requests(now)
        if isinstance(error, AnswerTooLargeError) and requests:
            error = self._too_large(error, address, requests[0].body.API_NAME)
            failure = False  # the broker works, and would repeat the large response
        self._forget(connection, error)
        if connection.state is ConnectionState.AUTHENTICATION_FAILED:
            self.refused_logins += 1
        aside = connection.secondary
        if aside and failure:
            refused = connection.state is ConnectionState.AUTHENTICATION_FAILED
            self.asides.failed(address, connection.purpose, now, refused=refused)
        failure = failure and not aside
        ends: dict[str, object] = {"in_flight": len(requests), "failure": failure}
        ends["connection"] = connection.id
        if aside:
            ends["purpose"] = connection.purpose
        if failure:
            state = connection.record
            until = self.dials.failed(
                state, now, error, connecting=setting_up, proved=connection.proved
            )
            self.events.emit(
                now,
                "dial_failed" if setting_up else "disconnected",
                address=str(address),
                error=in_words(error),
                failures=state.failures,
                backoff=round(until - now, 6),
                **ends,
            )
        else:
            if not aside:
                self.states.closed(address, now)
            self.events.emit(
                now, "disconnected", address=str(address), error=in_words(error), **ends
            )
        known = isinstance(error, DisconnectedError)
        lost = error if known else DisconnectedError(f"{address}: {in_words(error)}")
        for number, request in enumerate(requests):
            if not request.reply.done:
                others = number and isinstance(lost, AnswerTooLargeError)
                request.reply.fail(DisconnectedError(str(lost)) if others else lost)
        for listener in () if aside else self.on_lost:
            listener(connection, error, failure, now)
        self.changed.notify()

    def _too_large(
        self, error: AnswerTooLargeError, address: Address, api: str
    ) -> AnswerTooLargeError:
        """Return an error that names the API of the too large response, and log it once per API.

        Fetch isn't logged, because the consumer raises its own error, which names the partition.
        """
        text = (
            f"{address}: the response to {api} has {error.size} bytes, but this client accepts at "
            f"most {self.frame_limit}: ask for fewer topics, groups or partitions in one call"
        )
        if api != "Fetch" and api not in self._told_large:
            self._told_large.add(api)
            logger.warning("[%s] %s", self.client_id, text)
        return AnswerTooLargeError(text, error.size)

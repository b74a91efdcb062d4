"""Manage one client's connections: connection attempts, handshakes, deadlines, replies.

In: requests of the client, and events from the I/O host (thread or event loop). Out: effects for
the host, replies (`Completion`s), and the signal `changed` when a connection was established or
ended. It keeps one connection per (address, purpose). Must not: know which partitions a broker
leads, or retry a request.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial

from odradek.common.config import Config
from odradek.common.errors import (
    ConnectionSetupTimeoutError,
    DisconnectedError,
    KafkaError,
    MalformedMessageError,
    ResponseTimeoutError,
)
from odradek.common.sampled import Sampled
from odradek.common.types import Address, Rng
from odradek.network.client_connections import ClientConnections
from odradek.network.connection import (
    ASIDE,
    DATA,
    LEAST_BYTES,
    METADATA,
    PUSH,
    SECONDARY,
    WINDOW,
    Connection,
)
from odradek.network.connection_state import ConnectionState, worded
from odradek.network.effects import Close, IncomingResponse
from odradek.network.engine import Engine
from odradek.network.failures import as_error, ended_in_handshake, ended_unexplained, in_words
from odradek.network.flow import START, Flow
from odradek.network.handshake import Handshake, silent_refusal
from odradek.network.in_flight_requests import InFlightRequest
from odradek.network.probe import in_plaintext, suspect
from odradek.network.secondary_connections import MIN_WAIT_S, SecondaryState
from odradek.protocol.headers import decode_answer, peek_correlation_id
from odradek.protocol.message import Message
from odradek.protocol.messages.api_versions import ApiVersionsRequest

SUSPECT_AFTER_S = 2.0
"""Seconds without a received byte after which an attempt or connection is suspect (R-RB-2)."""
IN_USE_S = 2.0
"""Seconds after its last request during which a connection counts as in use."""
PROOF_BY_AGE = 1.0
"""Seconds after which an open, idle connection counts as proof that its address works (R-CS-3)."""
LONGEST_THROTTLE = 60.0
"""Maximum seconds for which one response can make the client pause a connection (KIP-219).

Brokers throttle for at most the quota window, 11 s by default; the field could hold 24 days.
"""
MUTES_FROM = 2
"""ApiVersions version from which on brokers respond first and then throttle, not vice versa."""
THROTTLED = frozenset((0, 1))
"""API keys of Produce and Fetch, whose throttle times are measured."""


class NetworkClient(ClientConnections):
    """The component of an engine that opens and watches the connections of one client."""

    resting = False

    def __init__(self, engine: Engine, config: Config, rng: Rng, *, frame_limit: int) -> None:
        super().__init__(engine, config, rng, frame_limit=frame_limit)
        self.on_suspect: list[Callable[[Connection, float], None]] = []
        self.heard_at = -math.inf
        """Time when any broker last sent a response, or the minimum rate of bytes (R-TI-1)."""
        self.throttled = Sampled()
        """Throttle times of Produce and Fetch responses, in milliseconds, without zeros."""
        self._tls = config["security.protocol"] in ("SSL", "SASL_SSL")
        self._asks_in_plaintext = self._tls and config["security.protocol.probe.enable"]
        self._idle = config["connections.max.idle.ms"]
        self._next_id = 0

    # Events from the I/O host: any thread may call these; the next step processes the events

    def connected(self, connection: int) -> None:
        """Note that TCP (and TLS, if used) is established."""
        self.engine.post(lambda now: self._connected(connection, now))

    def disconnected(self, connection: int, error: BaseException | str | None) -> None:
        """Note that the connection ended or couldn't be opened."""
        self.engine.post(lambda now: self._disconnected(connection, error, now))

    def sent(self, connection: int, correlation_id: int) -> None:
        """Note that a request that has no response was written to the socket."""
        self.engine.post(lambda now: self._written(connection, correlation_id))

    def get_buffer(self, connection: int) -> memoryview:
        """Return the buffer for received bytes."""
        found = self._by_id.get(connection)
        return found.reader.get_buffer() if found is not None else memoryview(bytearray(65536))

    def buffer_updated(self, connection: int, count: int) -> None:
        """Process received bytes."""
        if (found := self._by_id.get(connection)) is None:
            return
        try:
            frames = found.take_bytes(count)
        except MalformedMessageError as error:
            failure = error
            self.engine.post(lambda now: self._malformed(connection, failure, now))
            return
        if frames:
            self.engine.post(partial(self._frames, connection, frames))

    def received(self, connection: int, response: IncomingResponse) -> None:
        """Note a response that the host delivers as an object (in simulations)."""
        self.engine.post(partial(self._message, connection, *response))

    def writable(self, connection: int, ready: bool) -> None:
        """Note whether the host accepts more bytes for this connection."""
        self.engine.post(lambda now: self._set_writable(connection, ready))

    def resolved(self, token: int, result: Sequence[str] | BaseException) -> None:
        """Note the IPs of a name, or the error of resolving it."""
        self.engine.post(lambda now: self._resolved(token, result))

    # Methods for the packages that import this one

    def ready(
        self, address: Address, now: float, *, purpose: str = DATA, for_metadata: bool = False
    ) -> Connection | None:
        """Return the usable connection to an address; if there is none, start an allowed attempt.

        If the result is None, wait for `changed`, or until `next_dial_at`, and call again.
        """
        found = self.connections.get((address, purpose))
        if found is not None:
            usable = found.ready and found.writable and found.throttled_until <= now
            return found if usable else None
        if self.may_dial(address, now, purpose=purpose, for_metadata=for_metadata):
            self.dial(address, now, purpose=purpose, for_metadata=for_metadata)
        return None

    def prompt(self, address: Address, now: float) -> Connection | None:
        """Return a connection for a request, preferably one without a fetch that the broker holds.

        While a fetch is held, that is a secondary connection (see `secondary_connections`), unless
        it fails or isn't ready when the fetch ends. The caller checks that connection's cluster id
        before other requests, and repeats a request on the first connection after an error. If the
        result is None, wait for `changed`, or until `prompt_at`, and call again.
        """
        if not self._holds_fetch(address):
            return self.ready(address, now)
        aside = self.connections.get((address, ASIDE))
        if aside is None:
            allowed = self.asides.allowed_at(address, ASIDE) <= now and self.proxy is None
            allowed = allowed and not self.dials.limited(address)
            if not allowed or not self.may_dial(address, now, purpose=ASIDE):
                return self.ready(address, now)
            aside = self.dial(address, now, purpose=ASIDE)
        if aside.ready:
            return self.ready(address, now, purpose=ASIDE) or self.ready(address, now)
        return None if now < self._aside_until(aside) else self.ready(address, now)

    def prompt_at(self, address: Address, now: float) -> float:
        """Return when `prompt` may return something else even if no event occurs."""
        aside = self.connections.get((address, ASIDE))
        if aside is not None and not aside.ready and now < (until := self._aside_until(aside)):
            return until
        return self.next_dial_at(address, now)

    def pushing(self, address: Address, now: float) -> Connection | None:
        """Return a separate connection for metrics, so that a slow push delays no other request.

        None while it isn't ready or may not be opened: wait for `changed` and call again.
        """
        if self.connections.get((address, PUSH)) is None:
            again_at = self.asides.allowed_at(address, PUSH)
            if again_at > now or self.dials.limited(address):
                return None
        return self.ready(address, now, purpose=PUSH)

    def _aside_until(self, aside: Connection) -> float:
        """Return until when a request may wait for this secondary connection to be ready.

        The wait costs no time: on the first connection, the response would wait for the fetch, too.
        """
        begun = aside.dialled_at
        data = self.connections.get((aside.address, DATA))
        ends = begun if data is None else data.in_flight.patience_ends(begun)
        return max(begun + MIN_WAIT_S, ends)

    def _holds_fetch(self, address: Address) -> bool:
        data = self.connections.get((address, DATA))
        if data is None or not data.ready or data.suspect:
            return False
        return data.in_flight.has_patient()

    def may_dial(
        self, address: Address, now: float, *, purpose: str = DATA, for_metadata: bool = False
    ) -> bool:
        """Return whether there is no connection and `ConnectionPolicy` allows an attempt now."""
        return self.next_dial_at(address, now, purpose=purpose, for_metadata=for_metadata) <= now

    def next_dial_at(
        self, address: Address, now: float, *, purpose: str = DATA, for_metadata: bool = False
    ) -> float:
        """Return when `ready` may succeed or try to connect; infinite if it waits for an event."""
        found = self.connections.get((address, purpose))
        if found is not None:  # only the time when throttling ends is known
            return found.throttled_until if found.throttled_until > now else math.inf
        return self.dials.when(address, now, for_metadata=for_metadata).at

    def dial(
        self, address: Address, now: float, *, purpose: str = DATA, for_metadata: bool = False
    ) -> Connection:
        """Open a connection; the caller must have checked `may_dial`."""
        self._next_id += 1
        record = self.states.state(address)
        if purpose in SECONDARY:
            record = SecondaryState(record)
        connection = Connection(self._next_id, address, purpose, now, record)
        connection.for_metadata = for_metadata
        connection.setup_deadline = now + self.dials.begun(record, now, for_metadata=for_metadata)
        self.connections[address, purpose] = connection
        self._by_id[connection.id] = connection
        Handshake(self, connection).begin(now)
        return connection

    def dial_for_metadata(self, address: Address, now: float) -> Connection:
        """Connect for a metadata request, even if another attempt to the address is pending.

        An address has at most two pending attempts. During an outage, attempts to it start after
        about 0, 2, 4 and 8 seconds; the first one may last for the whole setup timeout.
        """
        data = self.connection(address)
        first = data or self.connection(address, METADATA)
        purpose = DATA if data is None else METADATA
        made = self.dial(address, now, purpose=purpose, for_metadata=True)
        if first is not None and not first.ready:
            made.beside_of(first, now)
        return made

    def make_room(self, now: float) -> None:
        """End the oldest suspect attempts until `ConnectionPolicy` allows a new one (R-MD-3)."""
        hanging = [c for c in self._by_id.values() if c.suspect and not c.ready]
        while self.dials.full and hanging:
            oldest = hanging.pop(0)  # oldest attempt first
            seconds = now - oldest.dialled_at
            text = (
                f"not ready after {seconds:.1f} s ({worded(oldest.state)}); "
                "another connection replaces it"
            )
            self.fail(oldest, ConnectionSetupTimeoutError(text), now)

    # Methods that the engine calls

    def advance(self, now: float) -> bool:
        """Fail overdue requests (R-CS-5), close idle connections (R-CS-7), check suspect ones."""
        moved = False
        for connection in list(self._by_id.values()):
            if connection.new_bytes and connection.ready and connection.progresses(now):
                moved = self._heard(connection, now) or moved
            if connection.look_at(SUSPECT_AFTER_S, self._idle, PROOF_BY_AGE) > now:
                continue
            if not connection.ready:
                if now >= connection.setup_deadline:
                    seconds = connection.setup_deadline - connection.dialled_at
                    text = f"not ready after {seconds:.1f} s ({worded(connection.state)})"
                    self.fail(connection, ConnectionSetupTimeoutError(text), now)
                    moved = True
                elif not connection.suspect and connection.dial_suspect_at(SUSPECT_AFTER_S) <= now:
                    self._suspect(connection, now)
                    moved = True
                continue
            head = connection.in_flight.head
            if head is None:
                if not connection.proved and connection.ready_at + PROOF_BY_AGE <= now:
                    self._prove(connection, now)
                    moved = True
                elif now >= connection.idle_at(self._idle):
                    self.close(connection, now, "idle")
                    moved = True
            elif now >= connection.overdue_at(SUSPECT_AFTER_S):
                self._overdue(connection, head, now)
                self._close_unheard(connection.address, head.sent_at, now)
                moved = True
            elif (
                not connection.suspect
                and (connection.suspect_at(SUSPECT_AFTER_S) or math.inf) <= now
            ):
                self._suspect(connection, now)
                moved = True
            session = connection.session
            if session is not None and now >= session.due_at and not connection.ended:
                self._authenticate_again(connection)
                moved = True
        return moved

    def _overdue(self, connection: Connection, head: InFlightRequest, now: float) -> None:
        name, received = head.body.API_NAME, connection.reader.received
        text = f"no answer to {name} within request.timeout.ms"
        if received:
            text = (
                f"the answer to {name} isn't complete after request.timeout.ms: {received} bytes "
                f"arrived, and then fewer than {LEAST_BYTES} in {WINDOW:.0f} s"
            )
        self.fail(connection, ResponseTimeoutError(text, received), now)

    def _close_unheard(self, address: Address, since: float, now: float) -> None:
        """Close idle connections to a silent address, because they may be dead as well."""
        for other in self.of_address(address):
            if other.ready and not len(other.in_flight) and other.heard_at < since:
                self.close(other, now, "another connection to that address got no response")

    def _authenticate_again(self, connection: Connection) -> None:
        """Start another authentication on a connection whose session ends soon (KIP-368)."""
        session, mechanism = connection.session, self.mechanism
        if session is None or mechanism is None:
            return
        from odradek.network.sasl.reauthentication import reauthenticate

        session.renews()
        self.engine.start(reauthenticate(self, connection, mechanism, session))

    def _suspect(self, connection: Connection, now: float) -> None:
        """Mark a silent connection as suspect until a response arrives or it ends (R-RB-2)."""
        if connection.secondary:  # callers repeat its requests on another connection
            waited = now - connection.last_used
            self.fail(connection, DisconnectedError(f"no response for {waited:.0f} s"), now)
            return
        connection.silent(now)
        self.dials.alarmed(now)
        address, held = str(connection.address), connection.is_held(now)
        self.events.emit(
            now,
            "silent",
            address=address,
            seconds=SUSPECT_AFTER_S,
            ready=connection.ready,
            held=held,
        )
        for listener in self.on_suspect:
            listener(connection, now)
        self.changed.notify()

    def _heard(self, connection: Connection, now: float) -> bool:
        """Note that (enough of) a response arrived; return whether the connection was suspect."""
        self.heard_at = now
        if not connection.heard(now):  # the usual case
            return False
        self._spoke(connection, now)
        return True

    def _spoke(self, connection: Connection, now: float) -> None:
        self.events.emit(now, "heard", address=str(connection.address), ready=connection.ready)
        self.changed.notify()

    def next_deadline(self, now: float) -> float | None:
        """Return the earliest time at which a connection must be checked (`Connection.look_at`)."""
        earliest = math.inf
        for connection in self._by_id.values():
            due = connection.look_at(SUSPECT_AFTER_S, self._idle, PROOF_BY_AGE)
            if due < earliest:
                earliest = due
        return None if earliest == math.inf else earliest

    def abort(self, error: KafkaError, now: float) -> None:
        """Close all connections; pending replies fail with `error`."""
        for connection in list(self._by_id.values()):
            requests = connection.take_requests(now)
            self._forget(connection, error)
            self.engine.effects.append(Close(connection.id, str(error)))
            for request in requests:
                if not request.reply.done:
                    request.reply.fail(error)
        for resolving in self.resolving.values():
            if not resolving.done:
                resolving.fail(error)
        self.resolving.clear()

    # Names and handshakes

    def _resolved(self, token: int, result: Sequence[str] | BaseException) -> None:
        answer = self.resolving.get(token)
        if answer is None or answer.done:
            return
        if isinstance(result, BaseException):
            answer.fail(result)
        else:
            answer.complete(result)

    def _connected(self, number: int, now: float) -> None:
        connection = self._by_id.get(number)
        if connection is not None and connection.state is ConnectionState.CONNECTING:
            Handshake(self, connection).opened(now)

    # Responses

    def _frames(self, number: int, frames: list[memoryview], now: float) -> None:
        connection = self._by_id.get(number)
        if connection is None:
            return
        self.heard_at = now
        if connection.heard(now):
            self._spoke(connection, now)
        for frame in frames:
            try:
                request = connection.in_flight.take(peek_correlation_id(frame), now)
            except MalformedMessageError as error:
                self._malformed(number, error, now)
                return
            connection.record.answers()
            try:
                message = decode_answer(type(request.body), request.version, frame)
            except MalformedMessageError as error:
                # The broker may have processed the request, so report the response as lost.
                if not request.reply.done:
                    lost = DisconnectedError(f"{connection.address}: {in_words(error)}")
                    request.reply.fail(lost)
                self._malformed(number, error, now)
                return
            self._answered(connection, request, message, now)
            if number not in self._by_id:  # the response has ended the connection
                return

    def _message(self, number: int, identity: int, message: Message, now: float) -> None:
        connection = self._by_id.get(number)
        if connection is None:
            return
        self._heard(connection, now)
        try:
            request = connection.in_flight.take(identity, now)
        except MalformedMessageError as error:
            self._malformed(number, error, now)
            return
        connection.record.answers()
        self._answered(connection, request, message, now)

    def _answered(
        self, connection: Connection, request: InFlightRequest, answer: Message, now: float
    ) -> None:
        throttle: int = getattr(answer, "throttle_time_ms", 0)
        _, newest = connection.versions.get(ApiVersionsRequest.API_KEY, (0, MUTES_FROM))
        # KIP-219: the client pauses for this time. Older brokers have delayed the response.
        if throttle > 0 and newest >= MUTES_FROM:
            connection.throttle(now + min(throttle / 1000.0, LONGEST_THROTTLE), now)
        if throttle > 0 and request.body.API_KEY in THROTTLED:
            self.throttled.record(float(throttle), now)
        if connection.ready and not connection.proved:
            self._prove(connection, now)
        if not request.reply.done:
            request.reply.complete(answer)
        self.changed.notify()

    def _written(self, number: int, identity: int) -> None:
        connection = self._by_id.get(number)
        request = None if connection is None else connection.in_flight.written(identity)
        if connection is None or request is None:
            return
        if not request.reply.done:
            request.reply.complete(Message())
            self.changed.notify()

    def _set_writable(self, number: int, ready: bool) -> None:
        connection = self._by_id.get(number)
        if connection is not None:
            connection.set_writable(ready)
            self.changed.notify()

    def _prove(self, connection: Connection, now: float) -> None:
        connection.proves(True)
        if connection.secondary:
            self.asides.worked(connection.address, connection.purpose)
            return
        self.dials.proved(connection.address, now)
        self.events.emit(now, "proved", address=str(connection.address))
        self.changed.notify()

    # Ends of connections that the I/O host reports

    def _malformed(self, number: int, error: MalformedMessageError, now: float) -> None:
        if number in self._by_id:
            self.fail(self._by_id[number], error, now)

    def _after_the_answer(self, number: int, error: BaseException | str | None) -> Flow[None]:
        """Close the connection in a later turn: flows first process the broker's refusal."""
        now = yield START
        self._disconnected(number, error, now, late=True)

    def _disconnected(
        self, number: int, error: BaseException | str | None, now: float, *, late: bool = False
    ) -> None:
        connection = self._by_id.get(number)
        if connection is None:
            return
        if connection.authenticates and not late and not len(connection.in_flight):
            self.engine.start(self._after_the_answer(number, error))
            return
        setting_up = not connection.ready
        sasl = self.mechanism is not None
        suspect(connection, error, plaintext=self._asks_in_plaintext, sasl=sasl)
        if error is None and connection.state is ConnectionState.AUTHENTICATING:
            error = silent_refusal()
        if self._in_handshake(connection) and ended_unexplained(error):
            error = ended_in_handshake(connection.address)  # as a port without TLS does
        aside = connection.secondary
        if setting_up and not aside and ended_unexplained(error) and self._steps_down(connection):
            why = "closed instead of answering ApiVersions: the next attempt uses another version"
            self.dials.alarmed(now)  # other brokers may close their connections, too
            excused = DisconnectedError(why)
            self.states.excused(connection.address, now, excused)
            self._end(connection, excused, now, failure=False)
            return
        idle = connection.proved and not len(connection.in_flight)
        # R-CS-4: if an idle connection that has answered ends without an error, it is no failure.
        failure = not (idle and error is None)
        if not failure and not aside and now < connection.last_used + IN_USE_S:
            # Brokers close connections that were idle for minutes; a broker that closes a
            # connection in use shuts down, and other brokers may follow.
            connection.leaves_in_use()
            self.dials.alarmed(now)
        self._end(connection, as_error(error, setting_up=setting_up), now, failure=failure)

    def _in_handshake(self, connection: Connection) -> bool:
        connecting = connection.state is ConnectionState.CONNECTING
        return connecting and self._tls and not in_plaintext(connection)

    def _steps_down(self, connection: Connection) -> bool:
        head = connection.in_flight.head
        if connection.state is not ConnectionState.CHECKING_API_VERSIONS or head is None:
            return False
        if connection.heard_at > -math.inf or connection.asks:
            return False
        excused = self.states.step_down(connection.address, head.version)
        return connection.ends_for_its_version(excused)

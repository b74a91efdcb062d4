"""Simulate SASL on brokers: users, mechanisms, sessions (KIP-368), and hostile brokers.

In: requests of connections that aren't authenticated yet, or whose session has expired. Out:
responses like those of Kafka's brokers: a refusal is delayed and then the connection is closed, an
unexpected request closes the connection without a response, and re-authentication within a second
of the last one is refused. Must not use the client's own code, which it tests.
"""

from __future__ import annotations

from collections.abc import Callable, Generator

from odradek.common.errors import kafka as errors
from odradek.protocol.message import Message
from odradek.protocol.messages.api_versions import ApiVersionsRequest
from odradek.protocol.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from odradek.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from odradek.simulation.brokers.cluster_state import BrokerState, Handler, Reply
from odradek.simulation.brokers.sasl_listener import Hostile, SaslListener
from odradek.simulation.brokers.sasl_mechanisms import SERVERS, RefusedError
from odradek.simulation.world.environment import ReceivedRequest
from odradek.simulation.world.virtual_time import VirtualTime

REAUTH_INTERVAL = 1.0
"""Minimum time between two re-authentications of a connection, in seconds."""


class Door:
    """State of one connection's authentication."""

    def __init__(
        self,
        listener: SaslListener,
        broker_id: int,
        time: VirtualTime,
        answer: Callable[[ReceivedRequest, Message, int], None],
        end: Callable[[], None],
    ) -> None:
        """Set the cluster's SASL settings, and the connection's callbacks `answer` and `end`."""
        self._listener = listener
        self._broker_id = broker_id
        self._time = time
        self._send, self._end = answer, end
        self._open = False
        self._server: Generator[bytes, bytes, str] | None = None
        self._mechanism = ""
        self._principal: str | None = None
        self._ends_at: float | None = None
        self._began_again = -REAUTH_INTERVAL
        self._begun = False

    def admits(self, request: ReceivedRequest) -> bool:
        """Return whether a request may be handled; otherwise answer it or close the connection."""
        body = request.body
        if isinstance(body, SaslHandshakeRequest):
            return self._shake(request, body)
        if self._server is not None:
            if isinstance(body, SaslAuthenticateRequest):
                self._token(request, bytes(body.auth_bytes))
            else:
                self._end_later()
            return False
        if not self._open:
            if request.api_key == ApiVersionsRequest.API_KEY:
                return True
            self._end_later()
            return False
        if self._ends_at is not None and self._time.now > self._ends_at:
            self._listener.count_kill()
            self._end()
            return False
        return True

    def _shake(self, request: ReceivedRequest, body: SaslHandshakeRequest) -> bool:
        listener = self._listener
        names = list(listener.mechanisms)
        if self._open:
            early = self._time.now - self._began_again < REAUTH_INTERVAL
            if self._ends_at is None or early:
                return True  # Refused later, by the handler of brokers without SASL.
            self._began_again = self._time.now
            self._open = False
        elif self._server is not None:
            self._end_later()
            return False
        if body.mechanism not in names or self._mechanism not in ("", body.mechanism):
            code = errors.UnsupportedSaslMechanismError.code
            self._refuse(request, SaslHandshakeResponse(code, names))
            return False
        self._mechanism = body.mechanism
        self._server = SERVERS[body.mechanism](listener, body.mechanism)
        self._begun = False
        self._answer(request, SaslHandshakeResponse(0, names))
        return False

    def _token(self, request: ReceivedRequest, token: bytes) -> None:
        listener = self._listener
        if listener.hostile in (Hostile.SILENT, Hostile.CLOSES):
            if listener.hostile is Hostile.CLOSES:
                self._end()
            return
        if listener.hostile in _TOKENS:
            self._answer(request, SaslAuthenticateResponse(auth_bytes=_TOKENS[listener.hostile]))
            return
        server = self._server
        if server is None:
            return
        try:
            if self._broker_id in listener.refusing:
                raise RefusedError("this broker refuses all users")
            if not self._begun:
                next(server)
                self._begun = True
            challenge = server.send(token)
        except StopIteration as end:
            principal, last, *token_ends = end.value
            if self._principal not in (None, principal):
                self._failed(request, "principals can't be changed")
            else:
                self._principal = principal
                self._succeeded(request, last, *token_ends)
        except RefusedError as error:
            self._failed(request, str(error))
        else:
            self._answer(request, SaslAuthenticateResponse(auth_bytes=challenge))

    def _succeeded(
        self, request: ReceivedRequest, last: bytes, token_end: float | None = None
    ) -> None:
        listener = self._listener
        listener.count_authentication(again=self._began_again >= 0.0)
        self._server, self._open = None, True
        lifetime = listener.session_lifetime
        if token_end is not None:
            left = max(0.001, token_end - listener.wall_clock())
            lifetime = min(left, lifetime) if lifetime else left
        self._ends_at = self._time.now + lifetime if lifetime else None
        response = SaslAuthenticateResponse(auth_bytes=last)
        response.session_lifetime_ms = int(lifetime * 1000)
        self._answer(request, response)

    def _failed(self, request: ReceivedRequest, why: str) -> None:
        code = errors.SaslAuthenticationFailedError.code
        self._refuse(request, SaslAuthenticateResponse(code, f"Authentication failed: {why}"))

    def _refuse(self, request: ReceivedRequest, response: Message) -> None:
        self._listener.count_refusal()

        def later() -> None:
            self._answer(request, response)
            self._end()

        self._time.after(self._listener.failure_delay, later)

    def _end_later(self) -> None:
        self._time.after(self._listener.failure_delay, self._end)

    def _answer(self, request: ReceivedRequest, response: Message) -> None:
        self._send(request, response, request.version)


_TOKENS = {
    Hostile.GARBAGE: bytes(range(200, 256)),
    Hostile.HUGE: b"r=" + b"x" * 300_000,
    Hostile.ENDLESS: b"more",
    Hostile.NO_PROOF: b"",
}
"""Response of each kind of hostile broker to every token."""


def _illegal_handshake(
    broker: BrokerState, request: SaslHandshakeRequest, version: int, reply: Reply
) -> Message:
    """Refuse a handshake if the port has no SASL or the client has already authenticated."""
    listener = broker.cluster.sasl
    names = list(listener.mechanisms) if listener is not None else []
    return SaslHandshakeResponse(errors.IllegalSaslStateError.code, names)


def _illegal_token(
    broker: BrokerState, request: SaslAuthenticateRequest, version: int, reply: Reply
) -> Message:
    code = errors.IllegalSaslStateError.code
    return SaslAuthenticateResponse(code, "SaslAuthenticate request received after success")


SASL_HANDLERS: dict[type[Message], Handler] = {
    SaslHandshakeRequest: _illegal_handshake,
    SaslAuthenticateRequest: _illegal_token,
}

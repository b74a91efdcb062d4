"""Authenticate a connection after ApiVersions: SaslHandshake, then a mechanism's tokens.

In: a connection whose API versions are known, the client's mechanism. Out: the SASL session
(KIP-368), or an error. The setup timeout includes all of this (R-CS-5): the network client ends a
connection whose peer never finishes. Must not: trust responses; their length and number are
limited.
"""

from __future__ import annotations

from typing import Any, TypeVar, cast

from odradek.common.errors import (
    AuthenticationError,
    ConnectionFailedError,
    CredentialsRefusedError,
    DisconnectedError,
    KafkaError,
    MechanismUnsupportedError,
    SaslNotExpectedError,
    ServerNotTrustedError,
)
from odradek.common.errors.kafka import (
    IllegalSaslStateError,
    SaslAuthenticationFailedError,
    UnsupportedSaslMechanismError,
    error_for,
)
from odradek.network.client_connections import ClientConnections
from odradek.network.connection import Connection
from odradek.network.connection_state import ConnectionEvent
from odradek.network.effects import AnyRequest
from odradek.network.flow import Flow, Wait
from odradek.network.sasl.mechanism import (
    MAX_CHALLENGE,
    HiddenBytes,
    Mechanism,
    WorkerCall,
    cut,
)
from odradek.network.sasl.renewal import keep_renewed
from odradek.network.sasl.session import SaslSession
from odradek.protocol.message import Message
from odradek.protocol.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from odradek.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

M = TypeVar("M", bound=Message)

MAX_TOKENS = 16
"""Maximum number of tokens in one authentication; Kerberos needs four."""
MARGIN = 0.1
"""Share of the remaining time that a mechanism's slow functions may not use.

Such a function then times out, with its own error, before the connection does.
"""
FRAMED = 1
"""First version of SaslHandshake after which tokens are sent in SaslAuthenticate (Kafka 1.0)."""


class Authentication:
    """One authentication of a connection: an exchange of tokens by the client's mechanism."""

    def __init__(
        self, network: ClientConnections, connection: Connection, mechanism: Mechanism
    ) -> None:
        self._network, self._connection, self._mechanism = network, connection, mechanism
        self._talk = mechanism.conversation(connection.address, network.rng)

    def first(self) -> Flow[float]:
        """Authenticate a new connection; return the engine's time at the end."""
        network, connection = self._network, self._connection
        connection.move(ConnectionEvent.AUTHENTICATION_BEGUN)
        yield from self.shake_hands()
        now = network.engine.now
        deadline = connection.setup_deadline - MARGIN * (connection.setup_deadline - now)
        token = yield from self.next_token(deadline)
        lifetime, began = yield from self.exchange(token, deadline)
        if lifetime > 0.0:
            connection.has_session(SaslSession(lifetime, began, network.rng))
            keep_renewed(network, self._mechanism)
        return network.engine.now

    def shake_hands(self, *, again: bool = False) -> Flow[None]:
        """Send the mechanism's name to the broker; raise if the broker doesn't support it."""
        _, newest = self._connection.versions.get(SaslHandshakeRequest.API_KEY, (0, -1))
        if newest < FRAMED:
            raise ConnectionFailedError(
                "the broker doesn't support SaslAuthenticate (Kafka 1.0 and newer do)"
            )
        body = SaslHandshakeRequest(self._mechanism.name)
        answer = yield from self._ask(body, SaslHandshakeResponse)
        code = answer.error_code
        if code == UnsupportedSaslMechanismError.code:
            raise MechanismUnsupportedError(
                f"the broker doesn't support {self._mechanism.name}",
                mechanisms=sorted(answer.mechanisms),
            )
        if code == IllegalSaslStateError.code and again:
            raise ConnectionFailedError("the broker refused to reauthenticate this connection now")
        if code == IllegalSaslStateError.code:
            raise SaslNotExpectedError("the broker doesn't use SASL on this port")
        if code:
            raise _trouble(code, None)

    def next_token(self, deadline: float, heard: Heard | None = None) -> Flow[bytes | None]:
        """Return the mechanism's next token; None if the mechanism has finished.

        Run the slow functions that the mechanism needs. `heard`: the broker's token or refusal.
        """
        engine, connection = self._network.engine, self._connection
        wanted = self._go_on(heard)
        heard = None
        while isinstance(wanted, WorkerCall):
            call = engine.call(wanted.function, wanted.arguments, deadline=deadline, where="worker")
            connection.outside(True, engine.now)
            yield Wait((call,))
            connection.outside(False, engine.now)
            if connection.ended:
                self._talk.close()
                raise DisconnectedError("the connection was lost in the meantime")
            wanted = self._go_on(call.result() if call.error is None else _tame(call.error))
        return wanted

    def _go_on(self, heard: Any) -> bytes | WorkerCall | None:
        talk, name = self._talk, self._mechanism.name
        try:
            if isinstance(heard, Heard) and heard.refusal is not None:
                wanted = talk.throw(heard.refusal)
            elif isinstance(heard, Heard):
                wanted = talk.send(heard.token)
            elif isinstance(heard, Exception):
                wanted = talk.throw(heard)
            else:
                wanted = talk.send(heard)
            return wanted if isinstance(wanted, WorkerCall) else HiddenBytes(wanted)
        except StopIteration:
            return None
        except KafkaError:
            raise
        except UnicodeError:
            failure = AuthenticationError(f"{name}: the credentials aren't valid Unicode text")
        except Exception as error:
            text = "timed out" if isinstance(error, TimeoutError) else f"{type(error).__name__}"
            raise AuthenticationError(f"{name} failed in this client: {text}") from error
        raise failure  # without its cause, which contains the credentials

    def exchange(self, token: bytes | None, deadline: float) -> Flow[tuple[float, float]]:
        """Exchange tokens until both sides have finished.

        Return the session's lifetime in seconds (0: unlimited) and its start. The start is the time
        when the last token was sent: the broker's session ends at the same time or later.
        """
        engine = self._network.engine
        lifetime, sent_at = 0.0, engine.now
        for _ in range(MAX_TOKENS):
            if token is None:
                return lifetime, sent_at
            sent_at = engine.now
            heard = yield from self._say(token)
            if len(heard.token) > MAX_CHALLENGE:
                size = len(heard.token)
                raise ServerNotTrustedError(
                    f"the broker sent a SASL token that is too large ({size} bytes)"
                )
            lifetime = heard.lifetime
            token = yield from self.next_token(deadline, heard)
            if heard.refusal is not None:
                raise heard.refusal  # the mechanism raised no other error
        raise ServerNotTrustedError(f"the broker asks for more than {MAX_TOKENS} SASL tokens")

    def _say(self, token: bytes) -> Flow[Heard]:
        """Send a token and return the response.

        This is a separate method, so that tracebacks of the caller don't show the response.
        """
        body = SaslAuthenticateRequest(token)
        return Heard((yield from self._ask(body, SaslAuthenticateResponse)))

    def _ask(self, body: AnyRequest, kind: type[M]) -> Flow[M]:
        network, connection = self._network, self._connection
        version = connection.version_for(type(body))
        used = connection.last_used
        request = network.send_version(
            connection, body, version, network.engine.now, past_the_gate=True
        )
        connection.uses_nothing(used)  # SASL doesn't keep idle connections open
        yield Wait((request.reply,))
        return cast("M", request.reply.result())


def _tame(error: BaseException) -> Exception:
    """Convert `SystemExit` or a cancellation in a user's function to an ordinary error.

    Such an exception then ends only this authentication, not the client.
    """
    if isinstance(error, Exception):
        return error
    made = RuntimeError(type(error).__name__)
    made.__cause__ = error
    return made


class Heard:
    """A broker's token or refusal, either of which may repeat a secret; the repr hides both."""

    __slots__ = ("lifetime", "refusal", "token")

    def __init__(self, answer: SaslAuthenticateResponse) -> None:
        code = answer.error_code
        self.refusal = _trouble(code, answer.error_message) if code else None
        self.token = HiddenBytes(answer.auth_bytes)
        self.lifetime = max(0.0, answer.session_lifetime_ms / 1000.0)


def _trouble(code: int, said: str | None) -> KafkaError:
    """Return the error for a broker's refusal, with its text only if secrets can be redacted."""
    error = error_for(code)
    words = cut(said or str(error) or type(error).__name__)
    if code == SaslAuthenticationFailedError.code:
        return CredentialsRefusedError(f"the broker says: {words}")
    if code in (IllegalSaslStateError.code, UnsupportedSaslMechanismError.code):
        return AuthenticationError(f"the broker says {type(error).__name__}: {words}")
    # Omit the broker's text: mechanisms redact secrets in texts of authentication errors only.
    return ConnectionFailedError(f"authentication ended with {type(error).__name__}")

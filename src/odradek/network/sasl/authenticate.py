"""From ApiVersions to a connection that may be used: SaslHandshake, then a mechanism's tokens.

In: a connection whose ApiVersions are known, the client's mechanism. Out: its session (KIP-368), or
a typed error. All of it lies inside the setup's deadline (R-CS-5): whoever never comes to an end
is failed by the network client. Must not: trust what comes: its length and number are bounded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar, cast

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
from odradek.common.kafka_errors import (
    IllegalSaslStateError,
    SaslAuthenticationFailedError,
    UnsupportedSaslMechanismError,
    error_for,
)
from odradek.network.connection import Connection
from odradek.network.connection_state import ConnectionEvent
from odradek.network.effects import AnyRequest
from odradek.network.flow import Flow, Wait
from odradek.network.sasl.mechanism import (
    MAX_CHALLENGE,
    Conversation,
    HiddenBytes,
    Mechanism,
    Outside,
    cut,
)
from odradek.network.sasl.session import SaslSession
from odradek.protocol.message import Message
from odradek.protocol.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from odradek.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

if TYPE_CHECKING:
    from odradek.network.network_client import NetworkClient

M = TypeVar("M", bound=Message)

MAX_TOKENS = 16
"""Tokens of one conversation; Kerberos needs four."""
MARGIN = 0.1
"""Share of the time left that is kept back, so that a slow function ends with its own error."""
FRAMED = 1
"""SaslHandshake's version from which on tokens travel in SaslAuthenticate (Kafka 1.0)."""


def authenticate(
    network: NetworkClient, connection: Connection, mechanism: Mechanism, now: float
) -> Flow[float]:
    """The first authentication of a connection."""
    connection.move(ConnectionEvent.AUTHENTICATION_BEGUN)
    yield from shake_hands(network, connection, mechanism)
    now = network.engine.now
    deadline = connection.setup_deadline - MARGIN * (connection.setup_deadline - now)
    talk = mechanism.conversation(connection.address, network.rng)
    first = yield from next_token(network, connection, mechanism, talk, deadline)
    lifetime, began = yield from exchange(network, connection, mechanism, talk, first, deadline)
    if lifetime > 0.0:
        connection.has_session(SaslSession(lifetime, began, network.rng))
    return network.engine.now


def shake_hands(
    network: NetworkClient, connection: Connection, mechanism: Mechanism, *, again: bool = False
) -> Flow[None]:
    """Name the mechanism; raises what the broker has against it."""
    _, newest = connection.versions.get(SaslHandshakeRequest.API_KEY, (0, -1))
    if newest < FRAMED:
        raise ConnectionFailedError(
            "the broker doesn't know SASL with Kafka's own frames (since Kafka 1.0)"
        )
    body = SaslHandshakeRequest(mechanism.name)
    answer = yield from _ask(network, connection, body, SaslHandshakeResponse)
    code = answer.error_code
    if code == UnsupportedSaslMechanismError.code:
        raise MechanismUnsupportedError(
            f"the broker doesn't do {mechanism.name}", mechanisms=sorted(answer.mechanisms)
        )
    if code == IllegalSaslStateError.code and again:
        raise ConnectionFailedError("the broker doesn't let this connection authenticate again now")
    if code == IllegalSaslStateError.code:
        raise SaslNotExpectedError("the broker answers without SASL on this port")
    if code:
        raise _trouble(code, None)


def next_token(
    network: NetworkClient,
    connection: Connection,
    mechanism: Mechanism,
    talk: Conversation,
    deadline: float,
    heard: Heard | None = None,
) -> Flow[bytes | None]:
    """What the mechanism sends next; None when it has nothing more to say or to hear.

    Slow functions are run meanwhile. `heard`: the broker's token, or its refusal.
    """
    wanted = _go_on(mechanism, talk, heard)
    heard = None
    while isinstance(wanted, Outside):
        call = network.engine.call(
            wanted.function, wanted.arguments, deadline=deadline, where="worker"
        )
        connection.outside(True, network.engine.now)
        yield Wait((call,))
        connection.outside(False, network.engine.now)
        if connection.ended:
            talk.close()
            raise DisconnectedError("the connection was lost meanwhile")
        wanted = _go_on(mechanism, talk, call.result() if call.error is None else _tame(call.error))
    return wanted


def _tame(error: BaseException) -> Exception:
    """`SystemExit` or a cancellation in a user's function ends the authentication, nothing more."""
    if isinstance(error, Exception):
        return error
    made = RuntimeError(type(error).__name__)
    made.__cause__ = error
    return made


def _go_on(mechanism: Mechanism, talk: Conversation, heard: Any) -> bytes | Outside | None:
    try:
        if isinstance(heard, Heard) and heard.refusal is not None:
            wanted = talk.throw(heard.refusal)
        elif isinstance(heard, Heard):
            wanted = talk.send(heard.token)
        elif isinstance(heard, Exception):
            wanted = talk.throw(heard)
        else:
            wanted = talk.send(heard)
        return wanted if isinstance(wanted, Outside) else HiddenBytes(wanted)
    except StopIteration:
        return None
    except KafkaError:
        raise
    except UnicodeError:
        failure = AuthenticationError(f"{mechanism.name}: what is to be sent isn't Unicode text")
    except Exception as error:
        text = "ran out of time" if isinstance(error, TimeoutError) else f"{type(error).__name__}"
        raise AuthenticationError(f"{mechanism.name} failed on this side: {text}") from error
    raise failure  # without the cause, which holds the text


def exchange(
    network: NetworkClient,
    connection: Connection,
    mechanism: Mechanism,
    talk: Conversation,
    token: bytes | None,
    deadline: float,
) -> Flow[tuple[float, float]]:
    """Tokens to and fro until both sides are content.

    Returns for how many seconds the broker takes requests, 0 for ever, and from when that counts:
    when the last token was sent, so that our clock is never behind the broker's.
    """
    lifetime, sent_at = 0.0, network.engine.now
    for _ in range(MAX_TOKENS):
        if token is None:
            return lifetime, sent_at
        sent_at = network.engine.now
        heard = yield from _say(network, connection, token)
        if len(heard.token) > MAX_CHALLENGE:
            size = len(heard.token)
            raise ServerNotTrustedError(f"the broker sent a SASL token of {size} bytes")
        lifetime = heard.lifetime
        token = yield from next_token(network, connection, mechanism, talk, deadline, heard)
        if heard.refusal is not None:
            raise heard.refusal  # the mechanism has nothing to add
    raise ServerNotTrustedError(f"the broker wants more than {MAX_TOKENS} SASL tokens")


class Heard:
    """A broker's token, or its refusal; its repr shows neither, as both may be an echo of ours."""

    __slots__ = ("lifetime", "refusal", "token")

    def __init__(self, answer: SaslAuthenticateResponse) -> None:
        code = answer.error_code
        self.refusal = _trouble(code, answer.error_message) if code else None
        self.token = HiddenBytes(answer.auth_bytes)
        self.lifetime = max(0.0, answer.session_lifetime_ms / 1000.0)


def _say(network: NetworkClient, connection: Connection, token: bytes) -> Flow[Heard]:
    """Send a token. What raises an error later has no local with the answer in it."""
    body = SaslAuthenticateRequest(token)
    return Heard((yield from _ask(network, connection, body, SaslAuthenticateResponse)))


def _ask(
    network: NetworkClient, connection: Connection, body: AnyRequest, kind: type[M]
) -> Flow[M]:
    now = network.engine.now
    version = connection.version_for(type(body))
    used = connection.last_used
    request = network.send_version(connection, body, version, now, past_the_gate=True)
    connection.uses_nothing(used)  # authenticating again keeps no idle connection open
    yield Wait((request.reply,))
    return cast("M", request.reply.result())


def _trouble(code: int, said: str | None) -> KafkaError:
    """What a broker has against us, as one of our errors."""
    error = error_for(code)
    words = cut(said or str(error) or type(error).__name__)
    if code == SaslAuthenticationFailedError.code:
        return CredentialsRefusedError(f"the broker says: {words}")
    if code in (IllegalSaslStateError.code, UnsupportedSaslMechanismError.code):
        return AuthenticationError(f"the broker says {type(error).__name__}: {words}")
    # Without the broker's words: no mechanism looks for its secret in what isn't a refusal.
    return ConnectionFailedError(f"authentication ended with {type(error).__name__}")

"""Define a connection's states, with Kafka's names, and the transitions between them as a table.

    RESOLVING -> CONNECTING -> CHECKING_API_VERSIONS -> (AUTHENTICATING ->) READY
      any state -> DISCONNECTED (or AUTHENTICATION_FAILED), which ends the connection

A connection that authenticates again (KIP-368) stays READY.

In: events of the network client. Out: the next state, or an error. Must not: depend on time.
"""

from __future__ import annotations

from enum import StrEnum


class ConnectionState(StrEnum):
    """The state of a connection; a connection whose state is final isn't reused."""

    RESOLVING = "resolving"
    CONNECTING = "connecting"
    CHECKING_API_VERSIONS = "checking_api_versions"
    AUTHENTICATING = "authenticating"
    READY = "ready"
    AUTHENTICATION_FAILED = "authentication_failed"
    DISCONNECTED = "disconnected"


STATES = {
    ConnectionState.CHECKING_API_VERSIONS.value: "waiting for ApiVersions",
    ConnectionState.AUTHENTICATION_FAILED.value: "authentication failed",
}
"""Texts that describe these states to users, who don't see the names."""
ENDED = frozenset((ConnectionState.DISCONNECTED, ConnectionState.AUTHENTICATION_FAILED))


def worded(state: str) -> str:
    """Return a text that describes the state of a connection, member or transaction to users."""
    return STATES.get(state, state.replace("_", " "))


class ConnectionEvent(StrEnum):
    """Events that may change the state of a connection."""

    RESOLVED = "resolved"
    CONNECTED = "connected"
    API_VERSIONS_ANSWERED = "api_versions_answered"
    AUTHENTICATION_BEGUN = "authentication_begun"
    AUTHENTICATED = "authenticated"
    AUTHENTICATION_REFUSED = "authentication_refused"
    LOST = "lost"


_S, _E = ConnectionState, ConnectionEvent

TRANSITIONS: dict[tuple[ConnectionState, ConnectionEvent], ConnectionState] = {
    (_S.RESOLVING, _E.RESOLVED): _S.CONNECTING,
    (_S.CONNECTING, _E.CONNECTED): _S.CHECKING_API_VERSIONS,
    (_S.CHECKING_API_VERSIONS, _E.API_VERSIONS_ANSWERED): _S.READY,
    (_S.CHECKING_API_VERSIONS, _E.AUTHENTICATION_BEGUN): _S.AUTHENTICATING,
    (_S.AUTHENTICATING, _E.AUTHENTICATED): _S.READY,
    (_S.CHECKING_API_VERSIONS, _E.AUTHENTICATION_REFUSED): _S.AUTHENTICATION_FAILED,
    (_S.AUTHENTICATING, _E.AUTHENTICATION_REFUSED): _S.AUTHENTICATION_FAILED,
    (_S.READY, _E.AUTHENTICATION_REFUSED): _S.AUTHENTICATION_FAILED,
    (_S.RESOLVING, _E.LOST): _S.DISCONNECTED,
    (_S.CONNECTING, _E.LOST): _S.DISCONNECTED,
    (_S.CHECKING_API_VERSIONS, _E.LOST): _S.DISCONNECTED,
    (_S.AUTHENTICATING, _E.LOST): _S.DISCONNECTED,
    (_S.READY, _E.LOST): _S.DISCONNECTED,
}


def move(state: ConnectionState, event: ConnectionEvent) -> ConnectionState:
    """Return the state after an event; raise if the table allows no such event in this state."""
    try:
        return TRANSITIONS[state, event]
    except KeyError:
        # Not a KafkaError: callers would attribute this bug to the broker.
        raise RuntimeError(f"a connection that is {state.value} can't {event.value}") from None

"""Find out why a peer closed a connection without an error, using the next connection.

A broker that receives TLS on a plaintext port, or no SASL on a port that requires it, just closes
the connection; so does a proxy without a broker, which may work again in a minute. A request
distinguishes these cases: the next connection to an address that has never answered a real request
sends it, once. It is sent in plaintext only if `security.protocol.probe.enable` allows that: an
attacker who can interrupt TLS on the network path would receive the request too, and could forge
the client's errors.

In: ends and starts of connections, from the network client. Out: `PlaintextPortError` or
`SaslExpectedError`, if a check confirms it. Must not: open additional connections, or send a
credential: in plaintext only ApiVersions is sent.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from enum import StrEnum
from typing import TYPE_CHECKING, cast

from odradek.common.errors import (
    KafkaError,
    MalformedMessageError,
    PlaintextPortError,
    SaslExpectedError,
    first_use,
)
from odradek.common.errors.kafka import UnsupportedSaslMechanismError
from odradek.network.connection import Connection
from odradek.network.connection_state import ConnectionState
from odradek.network.effects import AnyRequest
from odradek.network.failures import ended_in_handshake, ended_unexplained
from odradek.network.flow import Flow, Wait
from odradek.network.in_flight_requests import InFlightRequest

if TYPE_CHECKING:
    from odradek.protocol.messages.sasl_handshake import SaslHandshakeResponse

PATIENCE = 2.0
"""Seconds for a port to answer a plaintext request; a TLS port may just wait for more bytes."""
WITH_LIST = 1
"""The version of SaslHandshake whose response lists the mechanisms."""


class Suspicion(StrEnum):
    """Possible reasons why a peer closed a connection without an error."""

    NONE = ""
    PLAINTEXT_PORT = "plaintext"
    SASL_PORT = "sasl"
    ASKED = "asked"
    """The address was checked; it isn't checked again before it has answered a request."""


def suspect(
    connection: Connection, error: BaseException | str | None, *, plaintext: bool, sasl: bool
) -> None:
    """Note why the peer may have closed a connection; the next connection checks this.

    `plaintext`: the client uses TLS and may try a request in plaintext. `sasl`: it uses SASL.
    """
    record = connection.record
    if record.suspicion or record.proved_at > -math.inf or not ended_unexplained(error):
        return
    if connection.state is ConnectionState.CONNECTING:
        if plaintext:
            record.suspect_of(Suspicion.PLAINTEXT_PORT)
    elif connection.ready and not connection.proved and not sasl:
        record.suspect_of(Suspicion.SASL_PORT)


def begin(connection: Connection, now: float) -> bool:
    """Start a pending check; return whether this connection must be opened without TLS."""
    suspicion = connection.record.suspicion
    if suspicion not in (Suspicion.PLAINTEXT_PORT, Suspicion.SASL_PORT):
        return False
    connection.finds_out(suspicion, Suspicion.ASKED)
    if suspicion is Suspicion.SASL_PORT:
        return False
    connection.hurry(now + PATIENCE)
    return True


def ask(
    send: Callable[[Connection, AnyRequest, int, float], InFlightRequest],
    connection: Connection,
    now: float,
) -> Flow[float]:
    """Check the suspicion after ApiVersions; raise an error if it is confirmed."""
    if in_plaintext(connection):
        # Let the next connection check again, as the port may change.
        connection.record.suspect_of(connection.asks)
        raise PlaintextPortError("the port answers in plaintext, but this client speaks TLS")
    if connection.asks is not Suspicion.SASL_PORT:
        return now
    with first_use():
        from odradek.protocol.messages.sasl_handshake import SaslHandshakeRequest

    _, newest = connection.versions.get(SaslHandshakeRequest.API_KEY, (0, -1))
    if newest < WITH_LIST:
        return now
    request = send(connection, SaslHandshakeRequest(""), WITH_LIST, now)
    now = yield Wait((request.reply,))
    answer = cast("SaslHandshakeResponse", request.reply.result())
    if answer.error_code == UnsupportedSaslMechanismError.code:
        connection.record.suspect_of(connection.asks)
        offered = ", ".join(sorted(answer.mechanisms)) or "no mechanism"
        raise SaslExpectedError(
            f"the port requires SASL, which security.protocol doesn't include (it offers {offered})"
        )
    return now


def in_plaintext(connection: Connection) -> bool:
    """Return whether the connection is in plaintext only for the check, so isn't trusted."""
    return connection.asks is Suspicion.PLAINTEXT_PORT


def judged(connection: Connection, error: KafkaError) -> KafkaError:
    """Return a connection's error, replaced if it only results from the check in plaintext.

    A response that isn't Kafka's, such as HTTP from a proxy, proves nothing about the port, which
    may soon lead to a broker again, with TLS. If TCP couldn't be established, the check is dropped:
    another listener may use the port later, and is checked if necessary.
    """
    if in_plaintext(connection) and connection.state is ConnectionState.CONNECTING:
        connection.record.suspect_of(Suspicion.NONE)
    if in_plaintext(connection) and isinstance(error, MalformedMessageError):
        return ended_in_handshake(connection.address)
    return error

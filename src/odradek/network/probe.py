"""Finds out what an end without a word meant, by a question on the next dial.

A broker that is spoken to in TLS on a plaintext port, or without SASL on a port that wants it, just
closes; so does a proxy without a broker behind it, which will be there again in a minute. Only a
question tells them apart: the next dial of an address that never proved itself asks it, once.
In plaintext only where `security.protocol.probe.enable` allows it: whoever can cut TLS on the way
would be asked too, and could make a client's errors say what it likes.

In: what the network client sees of ends and dials. Out: `PlaintextPortError`, `SaslExpectedError`,
or nothing, and then the end was an ordinary failure. Must not: cost a dial of its own, nor send a
credential: in plaintext goes nothing but ApiVersions.
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
"""Seconds for a port to answer in plaintext; one that speaks TLS may wait for more."""
WITH_LIST = 1
"""The version of SaslHandshake that is asked with."""


class Suspicion(StrEnum):
    """What the silent end of a connection may have meant."""

    NONE = ""
    PLAINTEXT_PORT = "plaintext"
    SASL_PORT = "sasl"
    ASKED = "asked"
    """Known as well as can be, until the address proves itself."""


def suspect(
    connection: Connection, error: BaseException | str | None, *, plaintext: bool, sasl: bool
) -> None:
    """Note what the end of a connection may mean; the next connection attempt asks.

    `plaintext`: the client uses TLS and may ask without it. `sasl`: it authenticates.
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
    """Take over the question; say whether this connection has to be opened in plaintext."""
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
    """After ApiVersions were answered: raise what is known by that, or by one more question."""
    if in_plaintext(connection):
        connection.record.suspect_of(connection.asks)  # as long as that is so, it is what is asked
        raise PlaintextPortError("the port answers in plaintext, but this client speaks TLS")
    if connection.asks is not Suspicion.SASL_PORT:
        return now
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
    """It was opened without TLS, only to ask: what is said on it is nobody's whom we trust."""
    return connection.asks is Suspicion.PLAINTEXT_PORT


def judged(connection: Connection, error: KafkaError) -> KafkaError:
    """The error of a connection, made right where it was opened in plaintext only to ask.

    What isn't Kafka there, as a proxy that says HTTP to whoever speaks no TLS, tells nothing of
    the port: in TLS it may lead to a broker again in a moment. Nor does a dial without TCP: what
    listens there next is asked again, if it ends connections without a word.
    """
    if in_plaintext(connection) and connection.state is ConnectionState.CONNECTING:
        connection.record.suspect_of(Suspicion.NONE)
    if in_plaintext(connection) and isinstance(error, MalformedMessageError):
        return ended_in_handshake(connection.address)
    return error

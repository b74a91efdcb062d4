"""Authenticate again on a connection that is in use (KIP-368), without losing a request.

In: a connection whose session ends soon. Out: the connection, with a new session. If the
authentication fails, the connection is closed: its requests fail with `DisconnectedError` and are
retried by their senders. While the first token is obtained, which a token server may delay,
requests continue. From then on, new requests wait in the session. SaslHandshake follows the
requests in flight, since brokers answer in order; if no new request waits, it is only sent after
their responses, because a broker may hold a JoinGroup for minutes. Must not: use the connection
beyond the session's end without a token.
"""

from __future__ import annotations

from odradek.common.backoff import Backoff
from odradek.common.errors import AuthenticationError, KafkaError
from odradek.network.client_connections import ClientConnections
from odradek.network.connection import Connection
from odradek.network.flow import START, Flow, Wait
from odradek.network.sasl.authenticate import Authentication
from odradek.network.sasl.mechanism import Mechanism
from odradek.network.sasl.renewal import LONGEST_CALL
from odradek.network.sasl.session import SaslSession


def reauthenticate(
    network: ClientConnections, connection: Connection, mechanism: Mechanism, session: SaslSession
) -> Flow[None]:
    """Authenticate a connection again, once; the session schedules the next authentication."""
    now = yield START
    try:
        attempt, first = yield from _first_token(network, connection, mechanism, session, now)
        session.shut()
        while len(connection.in_flight) and not session.held:
            yield Wait((network.changed,))
            if connection.ended:
                return
        began = network.engine.now
        yield from attempt.shake_hands(again=True)
        # The broker had begun the new authentication when its response to SaslHandshake arrived.
        session.began(network.engine.now)
        deadline = network.engine.now + network.request_timeout
        lifetime, sent_at = yield from attempt.exchange(first, deadline)
    except KafkaError as error:
        network.fail(connection, error, network.engine.now)
        return
    if connection.ended:
        return
    now = network.engine.now
    session.renewed(lifetime, sent_at)
    network.events.emit(
        now,
        "reauthenticated",
        address=str(connection.address),
        held=len(session.held),
        seconds=round(now - began, 6),
    )
    network.let_go(connection, session.take_held(), now)


def _first_token(
    network: ClientConnections,
    connection: Connection,
    mechanism: Mechanism,
    session: SaslSession,
    now: float,
) -> Flow[tuple[Authentication, bytes | None]]:
    """Get new credentials and the first token; if that fails, retry until the session ends."""
    backoff = Backoff(network.retry_backoff, network.rng)
    while True:
        deadline = min(max(session.ends_at, now + 1.0), now + LONGEST_CALL)
        if network.fetching is not None and not network.fetching.done:
            now = yield Wait((network.fetching,), deadline)
        attempt = Authentication(network, connection, mechanism)
        try:
            first = yield from attempt.next_token(deadline)
        except AuthenticationError:
            now = network.engine.now
            until = backoff.failed(now)
            if until >= session.ends_at or connection.ended:
                raise
            now = yield Wait((), until)
        else:
            return attempt, first

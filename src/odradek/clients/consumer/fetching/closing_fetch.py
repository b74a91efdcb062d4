"""End fetch sessions when the consumer is closed, so that brokers can forget them (KIP-227).

In: each broker's session. Out: a fetch without partitions, with the epoch that ends a session;
brokers keep a limited number of sessions, for minutes. A broker answers the requests of a
connection in order, and holds a fetch while there are no records. If one is in flight, the closing
fetch therefore uses a second connection. Must not: delay a close by more than a moment; a broker
that can't be reached in time isn't notified.
"""

from __future__ import annotations

from collections.abc import Iterable

from odradek.clients.consumer.fetching.fetch_request_state import FetchRequestState
from odradek.network.connection import BESIDE, DATA
from odradek.network.flow import START, Completion, Flow, Wait
from odradek.network.network_client import NetworkClient
from odradek.protocol.message import Message
from odradek.protocol.messages.fetch import FetchRequest

CLOSING_PATIENCE = 0.25
"""Maximum number of seconds that a close waits for these fetches; two round trips are usual."""


def close_sessions(
    network: NetworkClient, sessions: Iterable[FetchRequestState], deadline: float
) -> Flow[None]:
    """End the session of each broker that is connected and answers."""
    now = yield START
    left = [asked for asked in sessions if _answers(network, asked)]
    replies: list[Completion[Message]] = []
    while now < deadline:
        for asked in list(left):
            purpose = BESIDE if asked.under_way else DATA
            connection = network.ready(asked.address, now, purpose=purpose)
            if connection is None:
                continue
            left.remove(asked)
            body = FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=0, **asked.session.ends())
            request = network.send_version(connection, body, asked.version, now)
            replies.append(request.reply)
        replies = [reply for reply in replies if not reply.done]
        if not left and not replies:
            return
        now = yield Wait((*replies, network.changed), deadline)


def _answers(network: NetworkClient, asked: FetchRequestState) -> bool:
    connection = network.connection(asked.address)
    return connection is not None and connection.ready and not connection.suspect

"""Fetch a newer token in the background, before sessions with the current token end (KIP-368).

In: a mechanism whose credentials expire, and the connections of its client. Out: newer credentials,
which the next authentication uses at once. Without this module, the token would be requested after
85 to 95 % of the session, and the session would end before a slow token server answers. Must not:
fetch for a client without sessions, which fetches when it connects.
"""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from odradek.common.backoff import Backoff
from odradek.common.types import Rng
from odradek.network.client_connections import ClientConnections
from odradek.network.flow import START, Flow, Wait
from odradek.network.sasl.mechanism import Conversation, Mechanism, WorkerCall

LONGEST_CALL = 30.0
"""Maximum time for a call that returns credentials, in seconds.

A call that hangs mustn't delay the next attempt for hours, as long as a session may last.
"""
LEAST_BETWEEN = 1.0
"""Minimum time in seconds between two calls of a function whose tokens expire at once."""


@runtime_checkable
class Renewing(Protocol):
    """A mechanism whose credentials expire."""

    def renewal_in(self) -> float | None:
        """Return the seconds until newer credentials are due; None if their expiry is unknown."""

    def renewal(self, rng: Rng) -> Conversation:
        """Return the generator that fetches newer credentials (see `Conversation`)."""


def keep_renewed(network: ClientConnections, mechanism: Mechanism) -> None:
    """Start the task that fetches credentials in the background, unless it already runs."""
    running = network.renewal
    if isinstance(mechanism, Renewing) and (running is None or running.done):
        network.renews_by(network.engine.start(_renew(network, mechanism)))


def _renew(network: ClientConnections, mechanism: Renewing) -> Flow[None]:
    engine, backoff = network.engine, Backoff(network.retry_backoff, network.rng)
    now = yield START
    while any(c.session is not None for c in network.connections.values()):
        left = mechanism.renewal_in()
        if left is None:
            return
        if left > 0.0:
            now = yield Wait((), now + left)
            continue
        talk = mechanism.renewal(network.rng)
        wanted = next(talk)
        if not isinstance(wanted, WorkerCall):
            return
        deadline = now + LONGEST_CALL
        call = engine.call(wanted.function, wanted.arguments, deadline=deadline, where="worker")
        network.fetches(call)
        now = yield Wait((call,))
        try:
            talk.send(call.result())
        except StopIteration:
            backoff.succeeded()
            now = yield Wait((), now + LEAST_BETWEEN)
        # The user's function failed: if it fails again, the next authentication reports it.
        except Exception:
            now = yield Wait((), backoff.failed(now))

"""Track how long a broker accepts requests after an authentication (KIP-368).

In: the lifetime that the broker announced. Out: when to authenticate again, and whether a request
has to wait until then. Must not: know mechanisms, or read a clock.
"""

from __future__ import annotations

import math

from odradek.common.types import Rng
from odradek.network.in_flight_requests import InFlightRequest, InFlightRequests

EARLIEST, LATEST = 0.85, 0.95
"""Bounds of the share of its lifetime after which a session is renewed, as in Java.

The share is random, so that clients that started together don't authenticate together.
"""
QUEUED = 2.0
"""Factor of the oldest request's wait so far: the expected wait until a new request is read.

A broker reads the next request of a connection only after it has answered the previous one, and
closes the connection if the session has ended by then.
"""
LEAST_BETWEEN = 1.05
"""Minimum seconds between two re-authentications; brokers refuse a second one within 1 s."""


class SaslSession:
    """The SASL session of one connection."""

    __slots__ = ("_rng", "begun_at", "due_at", "ends_at", "gated", "held", "renewing")

    def __init__(self, lifetime: float, began: float, rng: Rng) -> None:
        self._rng = rng
        self.begun_at = -math.inf
        """When the connection last started to authenticate again."""
        self.renewing = False
        """Whether the connection authenticates again now, or fetches credentials to do so."""
        self.gated = False
        """Whether new requests wait, because the broker would read them as SASL tokens."""
        self.held: list[InFlightRequest] = []
        """The requests that wait for the new session, in order."""
        self.due_at = self.ends_at = math.inf
        self.renewed(lifetime, began)

    def renewed(self, lifetime: float, began: float) -> None:
        """Start a new session at `began`, with a lifetime in seconds (0: unlimited)."""
        self.gated = self.renewing = False
        if lifetime <= 0.0:
            self.due_at = self.ends_at = math.inf
            return
        share = EARLIEST + (LATEST - EARLIEST) * self._rng.random()
        self.due_at = max(began + lifetime * share, self.begun_at + LEAST_BETWEEN)
        self.ends_at = began + lifetime

    def renews(self) -> None:
        """Note that the connection authenticates again, or fetches credentials to do so."""
        self.due_at, self.renewing = math.inf, True

    def shut(self) -> None:
        """Let new requests wait until the new session begins."""
        self.gated = True

    def began(self, now: float) -> None:
        """Note the time at which the broker had begun the new authentication."""
        self.begun_at = now

    def holds(self, now: float, in_flight: InFlightRequests) -> bool:
        """Return whether a request has to wait, as the broker may read it after the session's end.

        This may happen after a fetch that the broker may hold beyond the session's end, or after
        requests that the broker hasn't answered for a while.
        """
        if self.gated or self.held or now >= self.ends_at:  # `held`: keep the order of requests
            return True
        head = in_flight.head
        if head is not None and now + QUEUED * (now - head.sent_at) >= self.ends_at:
            return True
        return in_flight.patience_ends() >= self.ends_at

    def hold(self, request: InFlightRequest, now: float) -> None:
        """Let a request wait, and authenticate again as soon as possible."""
        self.held.append(request)
        if not self.renewing:
            self.due_at = min(self.due_at, max(now, self.begun_at + LEAST_BETWEEN))

    def take_held(self) -> list[InFlightRequest]:
        """Remove and return the waiting requests, in order."""
        held, self.held = self.held, []
        return held

"""How long a broker takes requests after an authentication (KIP-368), and what waits meanwhile.

In: the lifetime that the broker announced. Out: when to authenticate again, and whether a request
has to wait for that. Must not: know mechanisms or time.
"""

from __future__ import annotations

import math

from odradek.common.types import Rng
from odradek.network.in_flight_requests import InFlightRequest

EARLIEST, LATEST = 0.85, 0.95
"""Shares of the lifetime between which a connection authenticates again, as in Java: so many
clients that began together don't come back together."""
LEAST_BETWEEN = 1.05
"""Seconds between two re-authentications; brokers refuse two within one."""


class Session:
    """The session of one connection."""

    __slots__ = ("_rng", "begun_at", "due_at", "ends_at", "gated", "held")

    def __init__(self, lifetime: float, began: float, rng: Rng) -> None:
        self._rng = rng
        self.begun_at = -math.inf
        """When the connection last began to authenticate again."""
        self.gated = False
        """Requests wait: the broker would take them for SASL tokens."""
        self.held: list[InFlightRequest] = []
        """Those that wait, in their order."""
        self.due_at = self.ends_at = math.inf
        self.renewed(lifetime, began)

    def renewed(self, lifetime: float, began: float) -> None:
        """The broker takes requests for so long, counted from `began`; 0: for ever."""
        if lifetime <= 0.0:
            self.due_at = self.ends_at = math.inf
            return
        share = EARLIEST + (LATEST - EARLIEST) * self._rng.random()
        self.due_at = max(began + lifetime * share, self.begun_at + LEAST_BETWEEN)
        self.ends_at = max(began + lifetime, self.due_at)

    def holds(self, now: float) -> bool:
        """Whether a request has to wait."""
        return self.gated or now >= self.ends_at

    def take_held(self) -> list[InFlightRequest]:
        """What waited, in its order; nothing waits any more."""
        held, self.held = self.held, []
        return held

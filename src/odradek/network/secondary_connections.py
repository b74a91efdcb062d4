"""Open secondary connections, so that a held fetch or a push of metrics delays no other request.

A broker answers the requests of a connection in order, and holds a fetch for `fetch.max.wait.ms`
while there are no records; a receiver of metrics (KIP-714) may be slow. In: connection attempts to
secondary connections, and their ends. Out: whether one may be opened now. A secondary connection is
optional, so nothing is concluded from it: its failures don't count as failures of the address, and
its responses don't prove that the address works. If it is unavailable, silent or returns an error,
the request is sent on the first connection instead (a push of metrics isn't), and another secondary
connection is only tried after a while. Must not: delay a request beyond the end of the fetch,
except for a moment.

A secondary connection has its own state, and its cluster id is checked first. When it shared the
state of the address, a broker that accepted no further connection made a healthy client report an
outage, and a broker of another cluster returned its own offsets. It uses the IP of the first
connection, and never a proxy. Checks of leader epochs stay on the first connection because they
move positions; metadata requests stay there because a refresh isn't urgent.
"""

from __future__ import annotations

import math

from odradek.common.backoff import ExponentialBackoff
from odradek.common.sampled import Sampled
from odradek.common.types import Address, Rng
from odradek.network.cluster_connection_states import AddressState
from odradek.network.connection import SECONDARY

RETRY_WAITS = ExponentialBackoff(1.0, 300.0)
"""Seconds until the next attempt after a failure.

A broker that accepts no further connection or login mustn't receive attempts all the time.
"""
MIN_WAIT_S = 0.25
"""Minimum time in seconds for which a request waits for a secondary connection."""


class SecondaryState(AddressState):
    """Separate state for a secondary connection; only its requests count for the address."""

    __slots__ = ("_of",)

    def __init__(self, of: AddressState) -> None:
        super().__init__(of.address)
        self._of = of
        self.api_versions = of.api_versions

    def asked(self) -> None:
        self._of.asked()

    def answers(self) -> None:
        self._of.answers()

    def connection_ended(self, measured: Sampled, now: float) -> None:
        self._of.connection_ended(measured, now)


class SecondaryConnections:
    """One client's secondary connections: how often they failed, by address and purpose."""

    def __init__(self, rng: Rng) -> None:
        self._rng = rng
        self._failures: dict[tuple[Address, str], int] = {}
        self._again_at: dict[tuple[Address, str], float] = {}
        self._none_before = -math.inf

    def allowed_at(self, address: Address, purpose: str) -> float:
        """Return when the next attempt is allowed after earlier ones."""
        return max(self._again_at.get((address, purpose), -math.inf), self._none_before)

    def failed(self, address: Address, purpose: str, now: float, *, refused: bool) -> None:
        """Note a failed or useless attempt.

        `refused` means that the broker refused the credentials. Then no address is tried for a
        while: each attempt would be refused, and the broker might lock the account.
        """
        if refused:
            self._none_before = now + RETRY_WAITS.maximum
        failures = self._failures.get((address, purpose), 0)
        self._failures[address, purpose] = failures + 1
        self._again_at[address, purpose] = now + RETRY_WAITS.delay(failures, self._rng)

    def worked(self, address: Address, purpose: str) -> None:
        """Note that a secondary connection has received a response."""
        self._failures.pop((address, purpose), None)
        self._again_at.pop((address, purpose), None)

    def forget(self, address: Address) -> None:
        """Drop all state of an address."""
        for purpose in SECONDARY:
            self.worked(address, purpose)

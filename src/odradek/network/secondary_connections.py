"""Open secondary connections: a held fetch delays no other request, and a push of metrics none.

A broker answers the requests of a connection in order, and holds a fetch for `fetch.max.wait.ms`
while there are no records; a receiver of metrics (KIP-714) may be slow. In: attempts and ends of
such connections. Out: whether one may be opened now. It is optional, so nothing is concluded from
it: its failures don't count as failures of the address, its responses aren't proof. If it is
unavailable, silent or returns an error, the request is sent on the first connection instead (a push
of metrics isn't), and another secondary connection is only tried after a while. Must not delay a
request beyond the end of the fetch, except for a moment.

A secondary connection has its own state, and its cluster id is checked first. When it
shared the state of the address, a broker that accepted no further connection made a healthy client
report an outage, and a broker that led to another cluster returned its offsets. It uses the IP of
the first connection, and never a proxy. Checks of leader epochs stay on the first connection
because they move positions; metadata requests stay there because a refresh isn't urgent.
"""

from __future__ import annotations

import math

from odradek.common.backoff import ExponentialBackoff
from odradek.common.sampled import Sampled
from odradek.common.types import Address, Rng
from odradek.network.cluster_connection_states import AddressState
from odradek.network.connection import SECONDARY

AGAIN = ExponentialBackoff(1.0, 300.0)
"""Seconds until the next attempt after a failure, so that a broker which accepts no further
connection or login isn't asked for it all the time."""
PATIENCE = 0.25
"""Least time in seconds for which a request waits for such a connection."""


class AsideState(AddressState):
    """State of the address for such a connection, which only counts requests."""

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


class Asides:
    """One client's: how often they failed, by address and purpose."""

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

        With `refused`, its credentials were refused, and the others' would be, until the account is
        locked.
        """
        if refused:
            self._none_before = now + AGAIN.maximum
        failures = self._failures.get((address, purpose), 0)
        self._failures[address, purpose] = failures + 1
        self._again_at[address, purpose] = now + AGAIN.delay(failures, self._rng)

    def worked(self, address: Address, purpose: str) -> None:
        """One has answered."""
        self._failures.pop((address, purpose), None)
        self._again_at.pop((address, purpose), None)

    def forget(self, address: Address) -> None:
        """Drop all state of an address."""
        for purpose in SECONDARY:
            self.worked(address, purpose)

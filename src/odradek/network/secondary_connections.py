"""Open extra connections, so that a fetch or a push of metrics delays no other request.

A broker answers the requests of a connection in order, and holds a fetch for `fetch.max.wait.ms`
while there are no records; a receiver of metrics (KIP-714) may be slow. In: attempts to open such a
secondary connection, and their results. Out: when the next one may be opened. A secondary
connection is optional: its failures don't count as failures of the address, and its responses don't
prove that the address works. If it is unavailable, silent or returns an error, requests are sent on
the first connection (except a push of metrics), and another secondary connection is only tried
after a while. Must not: delay a request much beyond the end of the fetch.

A secondary connection has its own state, and its cluster id is checked first. If it shared the
state of the address, a broker that accepts no further connection would make a healthy client report
an outage, and a broker of another cluster could return its offsets. It uses the IP of the first
connection, and never a proxy. Checks of leader epochs stay on the first connection because they may
move the consumer's positions; metadata requests stay there because they aren't urgent.
"""

from __future__ import annotations

import math

from odradek.common.backoff import ExponentialBackoff
from odradek.common.sampled import Sampled
from odradek.common.types import Address, Rng
from odradek.network.cluster_connection_states import AddressState
from odradek.network.connection import SECONDARY

RETRY_WAITS = ExponentialBackoff(1.0, 300.0)
"""Seconds from a failure to the next attempt.

A broker that accepts no further connection or login mustn't receive attempts all the time.
"""
MIN_WAIT_S = 0.25
"""Minimum seconds for which a request waits for a secondary connection to be ready."""


class SecondaryState(AddressState):
    """State of a secondary connection; only requests and responses are counted for the address."""

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
    """The failures of one client's secondary connections, by address and purpose."""

    def __init__(self, rng: Rng) -> None:
        self._rng = rng
        self._failures: dict[tuple[Address, str], int] = {}
        self._again_at: dict[tuple[Address, str], float] = {}
        self._none_before = -math.inf

    def allowed_at(self, address: Address, purpose: str) -> float:
        """Return when the next attempt is allowed, considering earlier failures."""
        return max(self._again_at.get((address, purpose), -math.inf), self._none_before)

    def failed(self, address: Address, purpose: str, now: float, *, refused: bool) -> None:
        """Note a failed or useless attempt, and set the time of the next one.

        `refused` means that the broker refused the credentials. If so, no secondary connection to
        any address is tried for 300 s: it would be refused, too, and the broker might lock the
        account.
        """
        if refused:
            self._none_before = now + RETRY_WAITS.maximum
        failures = self._failures.get((address, purpose), 0)
        self._failures[address, purpose] = failures + 1
        self._again_at[address, purpose] = now + RETRY_WAITS.delay(failures, self._rng)

    def worked(self, address: Address, purpose: str) -> None:
        """Forget earlier failures, because a secondary connection has received a response."""
        self._failures.pop((address, purpose), None)
        self._again_at.pop((address, purpose), None)

    def forget(self, address: Address) -> None:
        """Forget the failures of an address."""
        for purpose in SECONDARY:
            self.worked(address, purpose)

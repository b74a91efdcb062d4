"""Decide when an address's refusal becomes the error of every waiting call (R-CS-4).

In: ends of connections, the ends of metadata rounds. Out: a refusal that applies until the next
attempt. An error that waiting can't cure (`KafkaError.sticky`: a wrong password, an untrusted
certificate) is raised immediately, but not while another broker may still accept the client: a
client with a good connection continues; and if one broker of several refuses, the round first tries
the others, for at most a second. Must not: end the client. The next round connects again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import NamedTuple

from odradek.common.errors import KafkaError, NotKafkaError, PlaintextPortError
from odradek.common.types import Address
from odradek.network.network_client import NetworkClient

GRACE = 1.0
"""Seconds for which a round tries other brokers, after the first refusal."""
RECENT = 10.0
"""Failures up to this many seconds before the first refusal count as the same problem."""
WEAK = (NotKafkaError, PlaintextPortError)
"""Errors that mean that another server uses the address.

Addresses are recycled. So if the cluster accepted this client before the outage, these errors only
count if all addresses have them.
"""


class Refusal(NamedTuple):
    """An error that all calls raise until the next attempt begins."""

    error: KafkaError
    until: float


def _nobody(refusal: Refusal) -> None:
    """Do nothing with a refusal: the default callback."""


class Refusals:
    """Refusals by the brokers of one client, by address."""

    def __init__(self, network: NetworkClient) -> None:
        self._network = network
        self._noted: dict[Address, KafkaError] = {}
        self._since = math.inf
        self.last: Refusal | None = None
        self.tell: Callable[[Refusal], None] = _nobody

    def told_to(self, tell: Callable[[Refusal], None]) -> None:
        """Set the function that is called with each new refusal."""
        self.tell = tell

    def note(self, address: Address, error: KafkaError, now: float) -> None:
        """Note that a connection to an address has ended with an error."""
        if error.sticky:
            self._noted[address] = error
            self._since = min(self._since, now)

    def forget(self) -> None:
        """Forget all refusals, because a broker accepted the client's credentials."""
        self._noted, self._since = {}, math.inf

    @property
    def due_at(self) -> float:
        """Time at which to check for a refusal although the round continues; infinite if none."""
        return self._since + GRACE

    def look(self, now: float, until: float | None = None) -> None:
        """Check whether a refusal applies; `until`: start of the next round, if this one failed."""
        if self._since == math.inf or (until is None and now < self.due_at):
            return
        states, since = self._network.states, self._since
        noted = {a: e for a, e in self._noted.items() if states.state(a).failures}
        self.forget()
        if self._connected() or not noted:
            return
        error = self._decisive(noted, since)
        if error is None:
            return
        if until is None:
            until = min(states.state(a).backoff_until for a in noted)
        self.last = Refusal(error, until)
        self.tell(self.last)

    def standing(self, now: float) -> KafkaError | None:
        """Return the error of a call that begins now, if a refusal applies."""
        last = self.last
        if last is None or now >= last.until or self._connected():
            return None
        return last.error

    def latest(self) -> KafkaError | None:
        """Return a refusal of an address that hasn't answered since, as the cause of a timeout."""
        for state in self._network.states.all():
            error = state.last_error
            if state.failures and isinstance(error, KafkaError) and error.sticky:
                return error
        return None

    def got_in(self) -> bool:
        """Return whether any address has ever accepted this client."""
        return self._network.states.proved_anywhere

    def _connected(self) -> bool:
        # A copy, because the caller's thread reads this while the host's thread may change it.
        connections = tuple(self._network.connections.values())
        return any(c.ready and not c.secondary for c in connections)

    def _decisive(self, noted: Mapping[Address, KafkaError], since: float) -> KafkaError | None:
        """Return the error that applies to all calls; None if the client should wait.

        A client that was accepted before waits for addresses that are only unreachable, unless more
        than half of the addresses refuse it: one address may belong to another cluster by now.
        """
        strong = [e for e in noted.values() if not isinstance(e, WEAK)]
        if self.got_in():
            recent = [
                isinstance(s.last_error, KafkaError) and s.last_error.sticky
                for s in self._network.states.all()
                if s.failures and s.last_error_at >= since - RECENT
            ]
            away, refusing = recent.count(False), recent.count(True)
            if away and (not strong or away >= refusing):
                return None
        return (strong or list(noted.values()))[0]

"""Decide when the refusal by one address becomes the error of all waiting calls (R-CS-4).

In: errors of connections, the ends of metadata rounds. Out: a refusal that applies until the next
attempt. A refusal is an error that waiting can't cure (`KafkaError.sticky`: a wrong password, an
untrusted certificate). It is raised quickly, but not while another broker may still accept the
client: with a good connection, the client continues; if one of several brokers refuses, the round
tries the others for up to a second. Must not: end the client.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import NamedTuple

from odradek.common.errors import KafkaError, NotKafkaError, PlaintextPortError
from odradek.common.types import Address
from odradek.network.network_client import NetworkClient

GRACE = 1.0
"""Seconds for which a round tries other brokers after the first refusal."""
RECENT = 10.0
"""Maximum seconds between a failure and the first refusal for both to count as one problem."""
WEAK = (NotKafkaError, PlaintextPortError)
"""Errors that mean that another kind of server uses the address.

Addresses are recycled. So if the cluster accepted this client before the outage, these errors only
count if all addresses have them.
"""


class Refusal(NamedTuple):
    """An error that all calls raise until the next connection attempt, at the time `until`."""

    error: KafkaError
    until: float


def _nobody(refusal: Refusal) -> None:
    """Ignore a refusal, as the default callback."""


class Refusals:
    """Refusals of one client by brokers, and the decision whether they apply to all calls."""

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
        """Note the error with which a connection to an address ended; only sticky errors count."""
        if error.sticky:
            self._noted[address] = error
            self._since = min(self._since, now)

    def forget(self) -> None:
        """Forget all refusals, because a broker accepted the client's credentials."""
        self._noted, self._since = {}, math.inf

    @property
    def due_at(self) -> float:
        """Time at which to check for a refusal while the round continues; infinite without one."""
        return self._since + GRACE

    def look(self, now: float, until: float | None = None) -> None:
        """Check whether a refusal applies; `until`: the next round's start, if this one failed."""
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
        """Return the error that a call must raise at once, if a refusal applies; None otherwise."""
        last = self.last
        if last is None or now >= last.until or self._connected():
            return None
        return last.error

    def latest(self) -> KafkaError | None:
        """Return a refusal by an address that hasn't worked since, as the cause of a timeout."""
        for state in self._network.states.all():
            error = state.last_error
            if state.failures and isinstance(error, KafkaError) and error.sticky:
                return error
        return None

    def got_in(self) -> bool:
        """Return whether any address has ever accepted this client."""
        return self._network.states.proved_anywhere

    def _connected(self) -> bool:
        # A copy, because the engine's thread may change the dict while a caller's thread reads it.
        connections = tuple(self._network.connections.values())
        return any(c.ready and not c.secondary for c in connections)

    def _decisive(self, noted: Mapping[Address, KafkaError], since: float) -> KafkaError | None:
        """Return the error that applies to all calls; None if the client should wait.

        A client that was accepted before waits for addresses that are only unreachable, unless more
        than half of the addresses refuse it: one address may belong to another cluster.
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

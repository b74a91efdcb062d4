"""R-CS-4: when what one address has against this client becomes the error of every waiting call.

In: ends of connections, the ends of metadata rounds. Out: a refusal that holds until the next
attempt. An error that waiting doesn't mend (`KafkaError.sticky`: a wrong password, a certificate
that can't be trusted) is told at once, but not while somebody else may still take us in: a client
with a good connection goes on; and where one broker of several refuses, the round goes on to the
others first, a second at the most. Must not: end the client. The next round dials again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import NamedTuple

from odradek.common.errors import KafkaError, NotKafkaError, PlaintextPortError
from odradek.common.types import Address
from odradek.network.connection import ASIDE
from odradek.network.network_client import NetworkClient

GRACE = 1.0
"""Seconds in which a round may find somebody who takes us in."""
RECENT = 10.0
"""Seconds before the first refusal in which an address that failed belongs to the same trouble."""
WEAK = (NotKafkaError, PlaintextPortError)
"""Something else listens at an address. In an outage of a cluster that had let us in this shows
nothing, since addresses are recycled, unless it is so at all of them."""


class Refusal(NamedTuple):
    """One error for all, until the next attempt begins."""

    error: KafkaError
    until: float


def _nobody(refusal: Refusal) -> None:
    """Stand for those who want to be told."""


class Refusals:
    """What the addresses of one client have against it."""

    def __init__(self, network: NetworkClient) -> None:
        self._network = network
        self._noted: dict[Address, KafkaError] = {}
        self._since = math.inf
        self.last: Refusal | None = None
        self.tell: Callable[[Refusal], None] = _nobody

    def told_to(self, tell: Callable[[Refusal], None]) -> None:
        """Tell of each refusal that begins."""
        self.tell = tell

    def note(self, address: Address, error: KafkaError, now: float) -> None:
        """A connection to an address has ended with an error."""
        if error.sticky:
            self._noted[address] = error
            self._since = min(self._since, now)

    def forget(self) -> None:
        """Somebody took us in."""
        self._noted, self._since = {}, math.inf

    @property
    def due_at(self) -> float:
        """When it is time to look, even if the round isn't over."""
        return self._since + GRACE

    def look(self, now: float, until: float | None = None) -> None:
        """See whether a refusal holds; `until`: a round is over, and the next one begins then."""
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
        """The error that a call gets which begins now."""
        last = self.last
        if last is None or now >= last.until or self._connected():
            return None
        return last.error

    def latest(self) -> KafkaError | None:
        """What an address has against us that hasn't proved itself since: a timeout's cause."""
        for state in self._network.states.all():
            error = state.last_error
            if state.failures and isinstance(error, KafkaError) and error.sticky:
                return error
        return None

    def got_in(self) -> bool:
        """Whether any address has ever let this client in."""
        return self._network.states.proved_anywhere

    def _connected(self) -> bool:
        # A copy: a call that begins asks from its own thread, beside the host's.
        connections = tuple(self._network.connections.values())
        return any(c.ready and c.purpose != ASIDE for c in connections)

    def _decisive(self, noted: Mapping[Address, KafkaError], since: float) -> KafkaError | None:
        """The error that says it for all, if any does.

        A client that had been let in rather waits for those that are only away, unless more than
        half of the addresses refuse it: one alone may be another cluster's by now.
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

"""Choose the broker to ask for metadata (R-MD-2), as a pure function.

In: the connected brokers that can be asked, with their state; the next address to connect to. Out:
use a connection, wait, connect to an address, or nothing can be done now. Must not: open a
connection, send or remember anything.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from enum import Enum
from typing import NamedTuple

from odradek.common.types import Address
from odradek.network.connection import Connection
from odradek.network.connection_policy import NextAttempt


class Action(Enum):
    """Actions to choose from, to get metadata."""

    USE = "use"
    WAIT = "wait"
    DIAL = "dial"
    NONE = "none"


class Candidate(NamedTuple):
    """An address that can be asked for metadata and has a connection, ready or pending."""

    address: Address
    connection: Connection
    suspect: bool
    young_until: float
    """If the connection is pending: time until which no connection to another address is opened."""
    bootstrap: bool = False
    older: bool = False
    """Whether its last response had an outdated epoch, so others are preferred to it (R-ID-4)."""

    @property
    def answering(self) -> bool:
        """Whether its connection is ready and not suspect."""
        return self.connection.ready and not self.suspect


class Choice(NamedTuple):
    """An action, the broker that it concerns, and the latest time to choose again."""

    action: Action
    candidate: Candidate | None = None
    """The candidate whose connection is used."""
    address: Address | None = None
    """The address to connect to."""
    until: float = math.inf


def choose(
    candidates: Sequence[Candidate], now: float, whom: Callable[[], NextAttempt | None]
) -> Choice:
    """Choose what to do, given the candidates that haven't failed in this round.

    In order of preference: use the connected broker with the fewest requests in flight (of several,
    the least recently used); wait for a recent connection attempt; connect to the address that
    `whom` returns; use a connected broker whose last response was outdated. No connection is opened
    while a connected broker can answer.
    """
    usable: list[Candidate] = []
    older: list[Candidate] = []
    young = -math.inf
    later = math.inf
    for candidate in candidates:
        connection = candidate.connection
        throttled = connection.throttled_until > now
        if throttled:
            later = min(later, connection.throttled_until)
        if not connection.ready:
            young = max(young, candidate.young_until)
        elif not throttled and connection.writable and not candidate.suspect:
            (older if candidate.older else usable).append(candidate)
    if usable:
        return Choice(Action.USE, min(usable, key=_load))
    if young > now:
        return Choice(Action.WAIT, until=young)
    found = whom()
    if found is not None and found.address is not None:
        return Choice(Action.DIAL, address=found.address)
    if older:
        return Choice(Action.USE, min(older, key=_load))
    if found is None:
        return Choice(Action.NONE, until=later)
    return Choice(Action.NONE, until=min(later, found.at))


def _load(candidate: Candidate) -> tuple[int, float]:
    connection = candidate.connection
    return (len(connection.in_flight), connection.last_used)

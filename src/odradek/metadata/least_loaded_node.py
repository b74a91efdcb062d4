"""R-MD-2: which broker to ask for metadata. A pure choice; whoever asks carries it out.

In: the candidates of a round with what is known of each. Out: use this connection, wait, dial this
address, or nothing can be done now. Must not: open, send or remember anything.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from enum import Enum
from typing import NamedTuple

from odradek.common.types import Address
from odradek.network.connection import Connection


class Action(Enum):
    """What the choice says."""

    USE = "use"
    WAIT = "wait"
    DIAL = "dial"
    NONE = "none"


class Candidate(NamedTuple):
    """One address of a round. Times are the engine's."""

    address: Address
    connection: Connection | None
    suspect: bool
    young_until: float
    """While its pending dial is younger than the round's spacing, it is waited for."""
    last_dial: float
    dial_at: float
    """When it may be dialled (its own backoff)."""
    bootstrap: bool = False

    @property
    def answering(self) -> bool:
        """It is connected and not suspect."""
        return self.connection is not None and self.connection.ready and not self.suspect


class Choice(NamedTuple):
    """The action, whom it concerns, and until when to wait at the most."""

    action: Action
    candidate: Candidate | None = None
    until: float = math.inf


def choose(candidates: Sequence[Candidate], now: float, *, dial_at: float) -> Choice:
    """Choose among candidates that haven't failed in this round.

    Connected and idle, least recently used first; then connected with the fewest in flight; then
    one that is being connected, while its dial is young; then the one whose last dial is oldest.
    `dial_at` is when the client's governor allows the next dial. No connection is opened while a
    connected broker can answer.
    """
    usable: list[Candidate] = []
    allowed: list[Candidate] = []
    young = -math.inf
    later = math.inf
    for candidate in candidates:
        connection = candidate.connection
        if connection is None:
            if candidate.dial_at <= now and dial_at <= now:
                allowed.append(candidate)
            else:
                later = min(later, max(candidate.dial_at, dial_at))
            continue
        throttled = connection.throttled_until > now
        if throttled:
            later = min(later, connection.throttled_until)
        if not connection.ready:
            young = max(young, candidate.young_until)
        elif not throttled and connection.writable and not candidate.suspect:
            usable.append(candidate)
    if usable:
        return Choice(Action.USE, min(usable, key=_load))
    if young > now:
        return Choice(Action.WAIT, until=young)
    if allowed:
        return Choice(Action.DIAL, min(allowed, key=_turn))
    return Choice(Action.NONE, until=later)


def _load(candidate: Candidate) -> tuple[int, float]:
    connection = candidate.connection
    return (len(connection.in_flight), connection.last_used) if connection else (0, 0.0)


def _turn(candidate: Candidate) -> tuple[bool, float]:
    return (not candidate.bootstrap, candidate.last_dial)

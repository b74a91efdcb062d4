"""R-MD-2: which broker to ask for metadata. A pure choice; whoever asks carries it out.

In: the candidates of a round with what is known of each. Out: use this connection, wait, dial this
address, or nothing can be done now. Must not: open, send or remember anything.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
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


@dataclass(frozen=True, slots=True)
class Choice:
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
    usable = [
        c
        for c in candidates
        if c.connection is not None
        and c.connection.ready
        and not c.suspect
        and c.connection.writable
        and c.connection.throttled_until <= now
    ]
    idle = [c for c in usable if c.connection is not None and not len(c.connection.in_flight)]
    if idle:
        return Choice(Action.USE, min(idle, key=_last_used))
    if usable:
        return Choice(Action.USE, min(usable, key=_load))
    young = [c.young_until for c in candidates if _pending(c) and c.young_until > now]
    if young:
        return Choice(Action.WAIT, until=max(young))
    free = [c for c in candidates if c.connection is None]
    allowed = [c for c in free if c.dial_at <= now]
    if allowed and dial_at <= now:
        return Choice(Action.DIAL, min(allowed, key=lambda c: (not c.bootstrap, c.last_dial)))
    waits = [max(c.dial_at, dial_at) for c in free]
    throttled = [
        c.connection.throttled_until
        for c in candidates
        if c.connection is not None and c.connection.throttled_until > now
    ]
    return Choice(Action.NONE, until=min([*waits, *throttled], default=math.inf))


def _pending(candidate: Candidate) -> bool:
    connection = candidate.connection
    return connection is not None and not connection.ready


def _last_used(candidate: Candidate) -> float:
    return candidate.connection.last_used if candidate.connection else 0.0


def _load(candidate: Candidate) -> tuple[int, float]:
    connection = candidate.connection
    return (len(connection.in_flight), connection.last_used) if connection else (0, 0.0)

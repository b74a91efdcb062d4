"""KIP-899's home: when the client starts again from `bootstrap.servers`, and what it remembers.

In: what is known of the known brokers. Out: whether to rebootstrap and why; the record of it.
Must not: forget the cluster id (R-RB-5), or count the passes of one outage as several (R-RB-4).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence

from odradek.common.errors import ClusterIdMismatchError
from odradek.common.types import Address

ENOUGH = 5
"""R-RB-3: this many known brokers that failed in a row count as all, in a large cluster."""


class Rebootstrap:
    """One rebootstrap, from its reason to its result."""

    __slots__ = ("address", "ended", "started", "why")

    def __init__(self, why: str, started: float) -> None:
        self.why = why
        self.started = started
        self.ended: float | None = None
        self.address: Address | None = None

    def end(self, now: float, address: Address) -> bool:
        """This address answered; whether it is the first time, as it may go on afterwards."""
        first = self.address is None
        self.ended, self.address = now, address
        return first

    def go_on(self) -> None:
        """It helped nothing: its outage is still there."""
        self.ended = None


class Silence:
    """Which known brokers' connections fell silent since the last good answer (R-RB-2)."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """A good answer came."""
        self.addresses: dict[Address, None] = {}
        self._asks = 0
        self._is_general = False
        self.since = math.inf
        """The last time that the first of them said anything, at the latest."""

    def fell(self, address: Address, at: float) -> None:
        """A connection is suspect; nothing came from it since `at`."""
        self.addresses[address] = None
        self.since = min(self.since, at)

    def asked(self) -> None:
        """One of them was asked for metadata, in vain."""
        self._asks += 1

    def general(self, known: int, heard_at: float) -> bool:
        """So many fell silent that those which idle prove nothing either.

        Asking each of them for the suspicion time would take minutes in a large cluster whose
        network went away. Silence over writes alone may be a dead replica's doing, so metadata must
        have been asked for in vain: twice, or once when nobody at all said anything meanwhile
        (`heard_at` is when the last byte came from anywhere). It stays so until a good answer: that
        a bootstrap address speaks says nothing of those that are silent.
        """
        if known and not self._is_general:
            enough = len(self.addresses) >= min(known, ENOUGH)
            asks = 1 if heard_at <= self.since else min(known, 2)
            self._is_general = enough and self._asks >= asks
        return self._is_general


def reason(
    known: Collection[Address],
    failed: Collection[Address],
    *,
    answering: bool,
    unavailable: Callable[[Address], bool],
) -> str | None:
    """Why the known set counts as unavailable (R-RB-3), or None while it doesn't.

    `failed` are the addresses that failed in a row since the last good answer. `answering` says
    that a connection to a known broker is established and not suspect (busy and throttled ones
    count): while one broker answers, no count leads to a rebootstrap. `unavailable` tells of one
    broker that it isn't connected, and that its latest dial failed or has been pending for the
    suspicion time (R-RB-2).
    """
    if not known or answering:
        return None
    total = len(known)
    if all(map(unavailable, known)):
        if total == 1:
            return "the only known broker isn't available"
        return f"none of the {total} known brokers is available"
    enough = min(total, ENOUGH)
    if len(failed) < enough:
        return None
    count = len(set(known).intersection(failed))
    if count < enough:
        return None
    return f"{count} of {total} known brokers failed in a row, and none answers"


def check_cluster_id(
    known: str | None, found: str | None, address: Address
) -> ClusterIdMismatchError | None:
    """R-RB-5: with nothing known before, anything is accepted; else the ids must be equal.

    An answer without an id (from brokers before 0.10.1, or through a proxy that drops it) says
    nothing, and so nothing against it.
    """
    if known is None or not found or known == found:
        return None
    return ClusterIdMismatchError(known, found, address)


def shuffled(
    addresses: Sequence[Address], shuffle: Callable[[list[Address]], None]
) -> list[Address]:
    """The bootstrap list in this client's own order, so that a fleet doesn't start in step."""
    order = list(addresses)
    shuffle(order)
    return order

"""Decide when the client restarts from `bootstrap.servers` (KIP-899), and remember the cluster id.

In: the state of the known brokers. Out: whether to rebootstrap and why; a record of the
rebootstrap. Must not: forget the cluster id (R-RB-5), or count the passes of one outage as several
(R-RB-4).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence

from odradek.common.errors import ClusterIdMismatchError
from odradek.common.types import Address

ENOUGH = 5
"""If this many known brokers fail in a row, a large cluster counts as unavailable (R-RB-3)."""


class Rebootstrap:
    """One rebootstrap, from its reason to its result."""

    __slots__ = ("address", "ended", "started", "why")

    def __init__(self, why: str, started: float) -> None:
        self.why = why
        self.started = started
        self.ended: float | None = None
        self.address: Address | None = None

    def end(self, now: float, address: Address) -> bool:
        """Note that an address answered; return whether this is the first time."""
        first = self.address is None
        self.ended, self.address = now, address
        return first

    def go_on(self) -> None:
        """Continue after a rebootstrap that didn't help, because its outage still lasts."""
        self.ended = None


class SilentConnections:
    """Known brokers whose connections became silent after the last good response (R-RB-2)."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Forget all silent connections, because a good response arrived."""
        self.addresses: dict[Address, None] = {}
        self._asks = 0
        self._is_general = False
        self.since = math.inf
        """No silent connection has received anything since this time."""

    def fell(self, address: Address, at: float) -> None:
        """Note that a connection is suspect: its broker has sent nothing since `at`."""
        self.addresses[address] = None
        self.since = min(self.since, at)

    def asked(self) -> None:
        """Count a metadata request that got no response on a silent connection."""
        self._asks += 1

    def general(self, known: int, heard_at: float) -> bool:
        """Return whether enough connections are silent that idle ones count as silent too.

        If a large cluster's network fails, waiting for the suspicion time at each broker would take
        minutes. Unanswered writes alone may be caused by a dead replica, so metadata requests must
        be unanswered as well: two of them, or one if no broker has sent anything meanwhile
        (`heard_at` is the time of the last received byte). The result remains true until a good
        response: an answer of a bootstrap address proves nothing about the silent brokers.
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
    """Return why the known brokers count as unavailable (R-RB-3), or None while they don't.

    `failed` contains the addresses that failed in a row since the last good response. `answering`
    means that a connection to a known broker is established and not suspect (busy and throttled
    ones count): while one broker answers, no count leads to a rebootstrap. `unavailable` returns
    whether a broker isn't connected and its latest connection attempt failed or has been pending
    for the suspicion time (R-RB-2).
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
    """Return an error if two cluster ids differ (R-RB-5); any id is accepted if none was known.

    A response without an id (from brokers before 0.10.1, or through a proxy that drops it) is
    accepted, too.
    """
    if known is None or not found or known == found:
        return None
    return ClusterIdMismatchError(known, found, address)


def shuffled(
    addresses: Sequence[Address], shuffle: Callable[[list[Address]], None]
) -> list[Address]:
    """Return the bootstrap addresses in random order."""
    order = list(addresses)
    shuffle(order)
    return order


class UnexpectedBrokers:
    """Reports by brokers that the client expected another broker (error 129, KIP-1242).

    The first report of an address starts a rebootstrap at once (R-RB-3). A repeated report, as when
    a proxy or a recycled address leads to another broker, counts as a failure of that address:
    another rebootstrap would end all good connections once per backoff.
    """

    def __init__(self, spacing: float) -> None:
        self._spacing = spacing
        """Seconds after a rebootstrap in which such a report doesn't start another one."""
        self._told: dict[Address, int] = {}

    def starts_again(self, address: Address, broker: int, since_start: float) -> bool:
        """Return whether a report starts a rebootstrap.

        `since_start`: seconds since the last rebootstrap for any reason started.
        """
        if self._told.get(address) == broker or since_start < self._spacing:
            return False
        self._told[address] = broker
        return True

    def led_right(self, address: Address) -> None:
        """Note that the expected broker answered at the address."""
        self._told.pop(address, None)

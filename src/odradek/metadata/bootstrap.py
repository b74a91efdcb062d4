"""Decide when the client restarts from `bootstrap.servers` (KIP-899), and check the cluster id.

In: the state of the known brokers. Out: whether to rebootstrap and why; a record of the
rebootstrap. Must not: accept another cluster id (R-RB-5), or count one outage several times
(R-RB-4).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence

from odradek.common.errors import ClusterIdMismatchError
from odradek.common.types import Address

ENOUGH = 5
"""Number of brokers whose failure in a row makes a large cluster unavailable (R-RB-3)."""


class Rebootstrap:
    """One rebootstrap: its reason, start, end, and the address that answered."""

    __slots__ = ("address", "ended", "started", "why")

    def __init__(self, why: str, started: float) -> None:
        self.why = why
        self.started = started
        self.ended: float | None = None
        self.address: Address | None = None

    def end(self, now: float, address: Address) -> bool:
        """End the rebootstrap, because an address answered; return False if it had ended before."""
        first = self.address is None
        self.ended, self.address = now, address
        return first

    def go_on(self) -> None:
        """Continue this rebootstrap, because no known broker was reached since it ended."""
        self.ended = None


class SilentConnections:
    """Known brokers with connections that fell silent after the last good response (R-RB-2)."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Forget all silent connections, because a good response arrived."""
        self.addresses: dict[Address, None] = {}
        self._asks = 0
        self._is_general = False
        self.since = math.inf
        """Time since which none of the silent connections has received a byte."""

    def fell(self, address: Address, at: float) -> None:
        """Add a connection that is suspect, because its broker has sent nothing since `at`."""
        self.addresses[address] = None
        self.since = min(self.since, at)

    def asked(self) -> None:
        """Count a metadata request on a silent connection, to which no response came."""
        self._asks += 1

    def general(self, known: int, heard_at: float) -> bool:
        """Return whether idle connections count as silent, too, because enough others are silent.

        If a large cluster's network fails, waiting for the suspicion time at each broker would take
        minutes. Unanswered writes alone may be caused by a dead replica, so metadata requests must
        be unanswered as well: two requests, or one if no broker has sent anything meanwhile
        (`heard_at` is the time of the last received byte). The result remains True until a good
        metadata response: one of a bootstrap address proves nothing about the silent brokers.
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
    """Return why the known brokers count as unavailable (R-RB-3); None if they don't.

    `failed` contains the addresses that failed in a row since the last good response. `answering`
    means that a connection to a known broker is established and not suspect (even if it is busy or
    throttled): while one broker answers, the client doesn't rebootstrap. `unavailable` returns
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
    """Return an error if a cluster id differs from the known one (R-RB-5); None otherwise.

    A response without a cluster id (of a broker before 0.10.1, or changed by a proxy) is accepted,
    as is any id while none is known.
    """
    if known is None or not found or known == found:
        return None
    return ClusterIdMismatchError(known, found, address)


def shuffled(
    addresses: Sequence[Address], shuffle: Callable[[list[Address]], None]
) -> list[Address]:
    """Return the addresses in random order."""
    order = list(addresses)
    shuffle(order)
    return order


class UnexpectedBrokers:
    """Errors of brokers that aren't the broker the client expected (error 129, KIP-1242).

    The first such error at an address starts a rebootstrap at once (R-RB-3). A repeated error, as
    when a proxy or a recycled address leads to another broker, counts as a failure of the address:
    another rebootstrap would end all good connections once per backoff.
    """

    def __init__(self, spacing: float) -> None:
        self._spacing = spacing
        """Seconds after a rebootstrap during which such an error doesn't start another one."""
        self._told: dict[Address, int] = {}

    def starts_again(self, address: Address, broker: int, since_start: float) -> bool:
        """Return whether a report of a wrong broker starts a rebootstrap.

        `since_start`: seconds since the last rebootstrap, whatever its reason, started.
        """
        if self._told.get(address) == broker or since_start < self._spacing:
            return False
        self._told[address] = broker
        return True

    def led_right(self, address: Address) -> None:
        """Note that the expected broker answered at the address."""
        self._told.pop(address, None)

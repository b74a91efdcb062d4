"""The one place that allows dials: whom this client may dial, when, and what for it waits.

In: questions about addresses; beginnings, ends and proofs of dials, as they come.
Out: `when` for one address, and why not yet (explain() prints it); `whom` among several. It joins
the records of the addresses (KIP-144) with the limit of the whole client
(`DialGovernor`, R-CS-8): each dial needs the consent of both, whoever wants it.
Must not: open anything, know which address leads what, or make a record of what wasn't dialled.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from enum import StrEnum
from typing import NamedTuple

from odradek.common.types import Address
from odradek.network.cluster_connection_states import AddressState, ClusterConnectionStates
from odradek.network.dial_governor import FRESH_SPACING, MAX_PENDING, DialGovernor

YOUNG = FRESH_SPACING.base
"""Seconds for which a pending dial is waited for before another address is dialled (R-MD-2)."""


class Why(StrEnum):
    """What a dial waits for."""

    NOTHING = ""
    BACKOFF = "its backoff"
    SPACING = "the client's limit of connection attempts"
    PENDING = "the end of another connection attempt"
    METADATA = "metadata"
    FIRST = "the random delay of the first connection (reconnect.first.jitter.ms)"


class When(NamedTuple):
    """When an address may be dialled; infinite where only an event can allow it."""

    at: float
    why: Why


def next_dial(seconds: float | None, why: str) -> str:
    """The policy's answer in words; `seconds` is None where only an event can allow the dial."""
    soon = "" if seconds is None else f"in {seconds:.2f} s, "
    return f"next connection attempt {soon}after {why}"


class Whom(NamedTuple):
    """The address to dial now; else None, and when one of them may be dialled."""

    address: Address | None
    at: float


class DialPolicy:
    """One client's answer to every wish to dial."""

    def __init__(
        self, states: ClusterConnectionStates, governor: DialGovernor, first_wait: float = 0.0
    ) -> None:
        """`first_wait`: seconds from the client's beginning to its first dial (R-CS-9)."""
        self._states = states
        self._governor = governor
        self._first_wait = first_wait
        self._opens_at = -math.inf

    # Questions

    def when(self, address: Address, now: float, *, for_metadata: bool = False) -> When:
        """When an address may be dialled, and what that waits for."""
        if now < self._opens_at:
            return When(self._opens_at, Why.FIRST)
        failed, again = self._states.standing(address)
        governor = self._governor
        wait = governor.wait(now, for_metadata=for_metadata, failed=failed, again=again)
        left = self._states.backoff_left(address, now)
        if left > wait:
            return When(now + left, Why.BACKOFF)
        if wait == math.inf:
            held = self.leaders_wait and not for_metadata
            return When(wait, Why.METADATA if held else Why.PENDING)
        return When(now + wait, Why.SPACING if wait else Why.NOTHING)

    def limited(self, address: Address) -> bool:
        """Whether the governor spaces connection attempts to an address (R-CS-8): then secondary
        connections, which are only a convenience, would take the turn of others.
        """
        return self._governor.engaged or self._states.standing(address)[0]

    def whom(
        self,
        starts: Iterable[Address],
        known: Iterable[Address],
        now: float,
        *,
        by: float | None = None,
    ) -> Whom | None:
        """Whom to dial for metadata (R-MD-2); None where there is nobody.

        Bootstrap addresses (`starts`) go first; among equals the one whose last dial is oldest.
        `by` is when the dial would be made, where that isn't now.
        """
        allowed = max(now + self._governor.wait(now, for_metadata=True), self._opens_at)
        by = now if by is None else by
        find, again_at = self._states.find, self._governor.again_at
        earliest, left = math.inf, False
        for addresses in (starts, known):
            best: Address | None = None
            oldest = math.inf
            for address in addresses:
                left = True
                record, at, dialled = find(address), -math.inf, -math.inf
                if record is not None:
                    at, dialled = record.backoff_until, record.last_dial
                    if record.dial_failed and again_at > at:
                        at = again_at
                if allowed > at:
                    at = allowed
                if at <= by:
                    if dialled < oldest:
                        best, oldest = address, dialled
                elif at < earliest:
                    earliest = at
            if best is not None:
                return Whom(best, by)
        return Whom(None, earliest) if left else None

    @property
    def leaders_wait(self) -> bool:
        """R-CS-8: nobody is dialled but for metadata, which can't be had yet."""
        return self._governor.engaged and self._governor.metadata_only

    @property
    def full(self) -> bool:
        """So many dials are pending that one has to end before the next (R-MD-3)."""
        return self._governor.pending >= MAX_PENDING

    @property
    def pending(self) -> int:
        """Dials that haven't ended yet, well or badly."""
        return self._governor.pending

    # What happens

    def started(self, now: float) -> None:
        """The client begins its work: its first dial waits from now on."""
        self._opens_at = now + self._first_wait

    def go_on(self) -> None:
        """It goes on with the work of another engine, so its first dial was long ago."""
        self._first_wait = 0.0

    def metadata_only(self, only: bool) -> bool:
        """Note whether metadata can be had from nobody; say whether leaders need wait no more."""
        return self._governor.for_metadata_only(only)

    def begun(self, record: AddressState, now: float, *, for_metadata: bool) -> float:
        """Note a dial that was allowed; return the seconds that its setup may take."""
        seconds = self._states.dialling(record, now)
        failed, again = record.failures > 0, record.dial_failed
        self._governor.dialled(now, for_metadata=for_metadata, failed=failed, again=again)
        return seconds

    def left(self, begun_at: float, now: float) -> None:
        """A dial whose name took time to resolve leaves only now."""
        self._governor.left(begun_at, now)

    def ended(self, record: AddressState) -> None:
        """A dial is pending no more, whatever came of it."""
        record.settled()
        self._governor.ended()

    def alarmed(self, now: float) -> None:
        """Something fails, though it says nothing against one address: dials are spaced."""
        self._governor.failed(now)

    def failed(
        self,
        record: AddressState,
        now: float,
        error: BaseException,
        *,
        connecting: bool,
        proved: bool,
    ) -> float:
        """A dial failed, or a connection in use; return when the address may be dialled again.

        `proved` says that the connection had proved itself, so its dial wasn't in vain (R-RB-2).
        """
        until = self._states.failed(record.address, now, error, connecting=connecting)
        if not proved:
            record.dialled_in_vain()
        self._governor.failed(now)
        return until

    def proved(self, address: Address, now: float) -> None:
        """The address answered a real request: neither of the two limits holds any more."""
        self._states.proved(address, now)
        self._governor.proved()

    def disproved(self, address: Address) -> None:
        """The answer was another cluster's (R-RB-5): both limits go on growing."""
        self._states.disproved(address)
        self._governor.disproved()

"""Decide which connection attempts are allowed: which address, when, and why not yet.

In: addresses; the start, end and first response of attempts. Out: `when` an attempt to one address
is allowed, and why not yet (explain() prints it); `whom` to connect to among several addresses. The
backoff of the address (KIP-144) and the limit of the whole client (`ConnectionLimiter`, R-CS-8)
must both allow an attempt, whatever its purpose. Must not: open connections, know which broker
leads a partition, or create a state for an address that wasn't tried.

The wait before a client's first attempt begins when the engine starts, not at the first call of
`when`, because `explain()` calls `when` too, even from other threads. An engine that is recreated
after an interrupted step doesn't wait.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from enum import StrEnum
from typing import NamedTuple

from odradek.common.types import Address
from odradek.network.cluster_connection_states import AddressState, ClusterConnectionStates
from odradek.network.connection_limiter import FRESH_SPACING, MAX_PENDING, ConnectionLimiter

PENDING_ATTEMPT_WAIT_S = FRESH_SPACING.base
"""Seconds to wait for a pending attempt before another address is tried (R-MD-2)."""


class AttemptDelay(StrEnum):
    """Reasons why an attempt waits."""

    NOTHING = ""
    BACKOFF = "its backoff"
    SPACING = "the client's limit of connection attempts"
    PENDING = "the end of another connection attempt"
    METADATA = "metadata"
    FIRST = "the random delay of the first connection (reconnect.first.jitter.ms)"


class AllowedTime(NamedTuple):
    """Time at which an attempt is allowed (infinite if it waits for an event), and the reason."""

    at: float
    why: AttemptDelay


def next_dial(seconds: float | None, why: str) -> str:
    """Describe the next attempt for users; `seconds` is None if it waits for an event."""
    soon = "" if seconds is None else f"in {seconds:.2f} s, "
    return f"next connection attempt {soon}after {why}"


class NextAttempt(NamedTuple):
    """The address to connect to now; if it is None, an attempt is allowed at the time `at`."""

    address: Address | None
    at: float


class ConnectionPolicy:
    """One client's policy for connection attempts."""

    def __init__(
        self, states: ClusterConnectionStates, governor: ConnectionLimiter, first_wait: float = 0.0
    ) -> None:
        """Set `first_wait`, the seconds from the client's start to its first attempt (R-CS-9)."""
        self._states = states
        self._governor = governor
        self._first_wait = first_wait
        self._opens_at = -math.inf

    # Questions about the next attempt

    def when(self, address: Address, now: float, *, for_metadata: bool = False) -> AllowedTime:
        """Return when an attempt to an address is allowed, and why not before."""
        if now < self._opens_at:
            return AllowedTime(self._opens_at, AttemptDelay.FIRST)
        failed, again = self._states.standing(address)
        governor = self._governor
        wait = governor.wait(now, for_metadata=for_metadata, failed=failed, again=again)
        left = self._states.backoff_left(address, now)
        if left > wait:
            return AllowedTime(now + left, AttemptDelay.BACKOFF)
        if wait == math.inf:
            held = self.leaders_wait and not for_metadata
            return AllowedTime(wait, AttemptDelay.METADATA if held else AttemptDelay.PENDING)
        return AllowedTime(now + wait, AttemptDelay.SPACING if wait else AttemptDelay.NOTHING)

    def limited(self, address: Address) -> bool:
        """Return whether the limiter delays connection attempts to an address (R-CS-8).

        If so, no secondary connection is opened, because it would delay the other attempts.

        """
        return self._governor.engaged or self._states.standing(address)[0]

    def whom(
        self,
        starts: Iterable[Address],
        known: Iterable[Address],
        now: float,
        *,
        by: float | None = None,
    ) -> NextAttempt | None:
        """Return the address to connect to for metadata (R-MD-2); None if there is none.

        Bootstrap addresses (`starts`) have priority over `known` ones; within each group, the least
        recently tried address is chosen. `by` is the time of the attempt; the default is `now`.
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
                return NextAttempt(best, by)
        return NextAttempt(None, earliest) if left else None

    @property
    def leaders_wait(self) -> bool:
        """Whether only attempts for metadata are allowed, as no metadata is available (R-CS-8)."""
        return self._governor.engaged and self._governor.metadata_only

    @property
    def full(self) -> bool:
        """Whether a pending attempt has to end before the next one may start (R-MD-3)."""
        return self._governor.pending >= MAX_PENDING

    @property
    def pending(self) -> int:
        """Number of attempts that haven't ended yet."""
        return self._governor.pending

    # Events of attempts

    def started(self, now: float) -> None:
        """Start the wait before the client's first attempt, because the engine has started."""
        self._opens_at = now + self._first_wait

    def go_on(self) -> None:
        """Skip the wait before the first attempt, because this engine replaces an earlier one."""
        self._first_wait = 0.0

    def metadata_only(self, only: bool) -> bool:
        """Set whether only attempts for metadata are allowed; return True if this rule ends now."""
        return self._governor.for_metadata_only(only)

    def begun(self, record: AddressState, now: float, *, for_metadata: bool) -> float:
        """Note the start of an allowed attempt; return its setup timeout in seconds."""
        seconds = self._states.dialling(record, now)
        failed, again = record.failures > 0, record.dial_failed
        self._governor.dialled(now, for_metadata=for_metadata, failed=failed, again=again)
        return seconds

    def left(self, begun_at: float, now: float) -> None:
        """Move an attempt's start from `begun_at` to `now`, since resolving its name took time."""
        self._governor.left(begun_at, now)

    def ended(self, record: AddressState) -> None:
        """Count an attempt as no longer pending, whatever its result."""
        record.settled()
        self._governor.ended()

    def alarmed(self, now: float) -> None:
        """Limit attempts as after a failure, although no address's backoff grows."""
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
        """Note a failed attempt or connection; return when the address may be tried again.

        With `proved`, the connection had answered a real request before it failed (R-RB-2).
        """
        until = self._states.failed(record.address, now, error, connecting=connecting)
        if not proved:
            record.dialled_in_vain()
        self._governor.failed(now)
        return until

    def proved(self, address: Address, now: float) -> None:
        """Lift the backoff and the client's limit, because the address answered a real request."""
        self._states.proved(address, now)
        self._governor.proved()

    def disproved(self, address: Address) -> None:
        """Restore the backoff and the limit that a response of another cluster lifted (R-RB-5)."""
        self._states.disproved(address)
        self._governor.disproved()

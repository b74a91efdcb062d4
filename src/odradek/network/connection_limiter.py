"""Limit how often a client connects while it knows of a failure (R-CS-8, R-MD-3).

In: connection attempts, failures, proofs (responses to real requests). Out: when the next attempt
is allowed. From the first failure until a proof, the client waits between any two attempts: briefly
for the first few addresses that haven't failed, up to 1 s (doubling) for the others. A client
without a failure isn't limited. If `reconnect.backoff.ms` is set, no wait is longer than that,
unless the maximum number of attempts per second would be exceeded. Must not: choose the address.
"""

from __future__ import annotations

import math
from collections import deque

from odradek.common.backoff import ExponentialBackoff
from odradek.common.types import Rng

RETRY_SPACING = ExponentialBackoff(0.1, 1.2)
"""Wait before the next attempt to a failed address; four fit in the first second (KIP-580).

The wait grows to 1 s ± 20 %, so that a total outage of five minutes costs 300 attempts.
"""
FRESH_SPACING = ExponentialBackoff(0.05, 0.1)
"""Wait before an attempt to an address that hasn't failed: 50 ms ± 20 %.

Five known brokers and a bootstrap address are then tried within a third of a second.
"""
FRESH = 6
"""Maximum number of attempts after a wait of `FRESH_SPACING` until a request is answered."""
MAX_PENDING = 6
"""Maximum number of pending attempts of one client while it is limited (R-MD-3)."""
MAX_PER_SECOND = 6
"""Maximum number of attempts in any one second (R-RB-7).

The waits don't limit bursts before the first failure, or after a response lifted them.
"""


class ConnectionLimiter:
    """The limit on one client's connection attempts."""

    def __init__(self, rng: Rng, longest: float = math.inf, most: int = MAX_PER_SECOND) -> None:
        """Set the limits; `longest` is `reconnect.backoff.ms` in seconds, if the user has set it.

        KIP-144: "for users who have set `reconnect.backoff` explicitly, the behaviour will remain".
        So no wait is longer than `longest`, unless `most` attempts per second would be exceeded.
        """
        self._rng = rng
        self._longest = max(longest, 1.0 / most)
        self._most = most
        self._dials = 0
        self._before_proof = 0
        self._fresh = 0
        self.again_at = -math.inf
        """Time from which the limit allows an attempt to an address that failed."""
        self._recent: deque[float] = deque(maxlen=self._most)
        self.engaged = False
        self.metadata_only = False
        """Whether no metadata is available.

        Then connections to leaders wait until a metadata request succeeds.
        """
        self.next_dial_at = -math.inf
        self.pending = 0

    def wait(
        self, now: float, *, for_metadata: bool, failed: bool = False, again: bool = False
    ) -> float:
        """Return the seconds until an attempt is allowed; infinite if it waits for another event.

        `failed` means that the address has failed since it last answered a request: then the limit
        remains even if another address answers. `again` means that the latest attempt to it failed.

        """
        limited = self.engaged or failed
        if not limited and not for_metadata:
            return 0.0
        if self.engaged and self.metadata_only and not for_metadata:
            return math.inf
        # A proof ends no pending attempt, so their number is limited even after a proof.
        if self.pending >= MAX_PENDING:
            return math.inf
        at = self.again_at if again else self.next_dial_at
        recent = self._recent
        if len(recent) == self._most and recent[0] + 1.001 > at:  # 1 ms more, because of rounding
            at = recent[0] + 1.001
        return at - now if at > now else 0.0

    def dialled(
        self, now: float, *, for_metadata: bool, failed: bool = False, again: bool = False
    ) -> None:
        """Note the start of an attempt, and draw the wait until the next one."""
        self.pending += 1
        self._recent.append(now)
        if self.engaged or for_metadata or failed:
            fresh = self._fresh < FRESH
            self.again_at = self.next_dial_at = now + self._spacing(RETRY_SPACING, self._dials)
            if fresh:
                self.next_dial_at = now + self._spacing(FRESH_SPACING)
            if fresh and not again:
                self._fresh += 1
                self._dials = max(self._dials, 1)  # all attempts after short waits count as one
            else:
                self._dials += 1

    def _spacing(self, spacing: ExponentialBackoff, dials: int = 0) -> float:
        return min(spacing.delay(dials, self._rng), self._longest)

    def left(self, asked_at: float, now: float) -> None:
        """Move an attempt's start from `asked_at` to `now`, since resolving its name took time."""
        if asked_at in self._recent:
            self._recent.remove(asked_at)
        self._recent.append(now)

    def for_metadata_only(self, only: bool) -> bool:
        """Set whether only attempts for metadata are allowed; return True if this rule ends now."""
        over = self.metadata_only and not only
        self.metadata_only = only
        return over

    def ended(self) -> None:
        """Count an attempt as no longer pending, whatever its result."""
        self.pending -= 1

    def failed(self, now: float) -> None:
        """Limit attempts from now on, because an attempt or connection failed."""
        if not self.engaged:
            self.engaged = True
            self.next_dial_at = max(self.next_dial_at, now + self._spacing(FRESH_SPACING))
            self.again_at = max(self.again_at, now + self._spacing(RETRY_SPACING))
            self._dials = max(self._dials, 1)

    def proved(self) -> None:
        """Lift the limit, because a connection has answered a real request."""
        self._before_proof = self._dials
        self.engaged = False
        self._dials = self._fresh = 0
        self.next_dial_at = self.again_at = -math.inf

    def disproved(self) -> None:
        """Restore the waits that a response reset, because it came from another cluster."""
        self._dials = max(self._dials, self._before_proof)

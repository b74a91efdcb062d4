"""R-CS-8 and R-MD-3: how often one client may dial while it knows of a failure.

In: dials, failures, proofs. Out: when the next dial is allowed. From the first failure until a
connection has proved itself all dials of the client, whatever for, share one spacing: short for the
first few addresses that haven't failed, doubling to 1 s for the others; a client without a failure
isn't limited. Where somebody has set `reconnect.backoff.ms`, no spacing is longer than that.
Must not: choose whom to dial.
"""

from __future__ import annotations

import math
from collections import deque

from odradek.common.backoff import ExponentialBackoff
from odradek.common.types import Rng

SPACING = ExponentialBackoff(0.1, 1.2)
"""Wait before an address that failed is dialled again: four tries in the first second, as in
KIP-580; in the end 1 s ± 20 %, so that a total outage of five minutes costs 300 dials."""
FRESH_SPACING = ExponentialBackoff(0.05, 0.1)
"""Wait before an address that hasn't failed: 50 ms ± 20 %, so that five known brokers and a
bootstrap address are tried within a third of a second."""
FRESH = 6
"""So many dials may be spaced so closely before a proof; large clusters have more addresses."""
MAX_PENDING = 6
"""Dials that may be pending in one client while it is limited (R-MD-3)."""
MAX_PER_SECOND = 6
"""R-RB-7: dials in any one second. The spacing alone doesn't bound what a burst of dials before
the first failure and proofs that come and go add up to."""
SHORTEST = 0.001
"""A backoff of 0 is taken for this where dials of a second are counted."""


class DialGovernor:
    """One client's limit on its dials."""

    def __init__(self, rng: Rng, longest: float = math.inf) -> None:
        """`longest`: seconds of `reconnect.backoff.ms`, where the user has set it.

        KIP-144: "for users who have set `reconnect.backoff` explicitly, the behaviour will remain".
        So no spacing is longer; what each address waits grows as it is configured to.
        """
        self._rng = rng
        self._longest = longest
        self._most = max(MAX_PER_SECOND, 1 + math.ceil(1.0 / max(longest, SHORTEST)))
        self._dials = 0
        self._before_proof = 0
        self._fresh = 0
        self.again_at = -math.inf
        """When an address that failed may be dialled, as far as this limit goes."""
        self._recent: deque[float] = deque(maxlen=self._most)
        self.engaged = False
        self.metadata_only = False
        """Set while no metadata can be had: leaders wait for the round's success."""
        self.next_dial_at = -math.inf
        self.pending = 0

    def wait(
        self, now: float, *, for_metadata: bool, failed: bool = False, again: bool = False
    ) -> float:
        """Seconds until a dial is allowed; infinite where only another event can allow it.

        `failed` says that the address itself failed and hasn't proved itself since: then a proof
        of another one doesn't lift the limit. `again` says that it was dialled in vain since then.
        """
        limited = self.engaged or failed
        if not limited and not for_metadata:
            return 0.0
        if self.engaged and self.metadata_only and not for_metadata:
            return math.inf
        if self.pending >= MAX_PENDING:  # also after a proof, which ends no dial that hangs
            return math.inf
        at = self.again_at if again else self.next_dial_at
        recent = self._recent
        if len(recent) == self._most and recent[0] + 1.001 > at:  # a bit more: floats
            at = recent[0] + 1.001
        return at - now if at > now else 0.0

    def dialled(
        self, now: float, *, for_metadata: bool, failed: bool = False, again: bool = False
    ) -> None:
        """Note a dial; the wait for the next one is drawn here, once."""
        self.pending += 1
        self._recent.append(now)
        if self.engaged or for_metadata or failed:
            fresh = self._fresh < FRESH
            self.again_at = self.next_dial_at = now + self._spacing(SPACING, self._dials)
            if fresh:
                self.next_dial_at = now + self._spacing(FRESH_SPACING)
            if fresh and not again:
                self._fresh += 1
                self._dials = max(self._dials, 1)  # all of them together are the first try
            else:
                self._dials += 1

    def _spacing(self, spacing: ExponentialBackoff, dials: int = 0) -> float:
        return min(spacing.delay(dials, self._rng), self._longest)

    def left(self, asked_at: float, now: float) -> None:
        """A dial whose name took time to resolve leaves only now: it counts from now on."""
        if asked_at in self._recent:
            self._recent.remove(asked_at)
        self._recent.append(now)

    def for_metadata_only(self, only: bool) -> bool:
        """Note whether no metadata can be had; say whether that is over."""
        over = self.metadata_only and not only
        self.metadata_only = only
        return over

    def ended(self) -> None:
        """A pending dial has ended, well or badly."""
        self.pending -= 1

    def failed(self, now: float) -> None:
        """Note a failure, of a dial or of a connection in use: from now on dials are spaced."""
        if not self.engaged:
            self.engaged = True
            self.next_dial_at = max(self.next_dial_at, now + self._spacing(FRESH_SPACING))
            self.again_at = max(self.again_at, now + self._spacing(SPACING))
            self._dials = max(self._dials, 1)

    def proved(self) -> None:
        """A connection has proved itself: the limit is lifted."""
        self._before_proof = self._dials
        self.engaged = False
        self._dials = self._fresh = 0
        self.next_dial_at = self.again_at = -math.inf

    def disproved(self) -> None:
        """The last proof was none (another cluster's answer): the spacing goes on growing."""
        self._dials = max(self._dials, self._before_proof)

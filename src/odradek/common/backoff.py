"""Calculate every backoff and growing timeout of the project (KIP-580).

In: the number of failures in a row, and a random generator as an argument. Out: seconds to wait.
Must not: read a clock, or be called twice for one failure: the caller stores the deadline (R-BO-3),
because jitter that is drawn again at every poll ends up at its minimum. R-BO-5: without jitter, the
waits are those of KIP-580's table.
"""

from __future__ import annotations

import math

from odradek.common.types import Rng

STEADY = 10
"""Number of constant waits of `ExponentialBackoff.steady`: 1 s in all, with the default base."""
JITTER = 0.2
"""Relative jitter (KIP-144 and KIP-580): 20 % below to 20 % above the computed value."""
DOUBLINGS = 512
"""Maximum number of doublings that are computed, which sensible bases and maximums never reach."""


class ExponentialBackoff:
    """Calculate waits that double from `base` to `maximum`, in seconds, with jitter.

    R-BO-1: before jitter is applied, the wait is limited to maximum / 1.2, so that even with jitter
    it doesn't exceed the maximum. KIP-580's formula applies the maximum after the jitter, so that
    long waits have no jitter, and clients that failed together keep connecting together. Java
    applies the maximum before the jitter and again after it, so that half of the long waits are
    equal; docs/recovery.md shows what brokers see of each formula.
    """

    __slots__ = ("base", "jitter", "maximum", "same")

    def __init__(self, base: float, maximum: float, jitter: float = JITTER, same: int = 0) -> None:
        """Set the policy; the first `same` waits are exactly the base, and later ones double."""
        if not 0.0 <= jitter <= 1.0:
            raise ValueError(f"jitter must be between 0 and 1, but got {jitter}")
        if base < 0 or maximum < 0:
            raise ValueError(f"backoff can't be negative: {base}, {maximum}")
        self.base = base
        self.maximum = maximum
        self.jitter = jitter
        self.same = same

    def steady(self) -> ExponentialBackoff:
        """Return this backoff with constant first waits, as classic groups need it (R-RT-1)."""
        return ExponentialBackoff(self.base, self.maximum, self.jitter, STEADY)

    @property
    def constant(self) -> bool:
        """Whether all waits are the maximum, because the base isn't below it (R-BO-2)."""
        return self.base >= self.maximum

    @property
    def shortest(self) -> float:
        """The wait in seconds after a first failure, before jitter is applied."""
        return self.maximum if self.constant else self.base

    def delay(self, failures: int, rng: Rng) -> float:
        """Return the seconds to wait after a failure.

        `failures` is the number of failures before this one, in a row; for 0, the wait is the base.
        """
        base, maximum, jitter = self.base, self.maximum, self.jitter
        if base >= maximum:  # `constant`
            return maximum
        if failures < self.same:
            return base
        failures -= self.same
        # R-BO-4: a million failures, or a tiny base, must not overflow.
        if failures > DOUBLINGS:
            failures = DOUBLINGS
        value = math.ldexp(base, failures)
        top = maximum / (1.0 + jitter)
        if value > top:
            value = top
        if jitter:
            value *= 1.0 - jitter + 2.0 * jitter * rng.random()
            if value > maximum:  # by rounding
                value = maximum
        return value


class Backoff:
    """The failures in a row of one operation, and the deadline drawn after the last failure."""

    __slots__ = ("_policy", "_rng", "failures", "until")

    def __init__(self, policy: ExponentialBackoff, rng: Rng) -> None:
        self._policy = policy
        self._rng = rng
        self.failures = 0
        self.until = -math.inf

    def failed(self, now: float) -> float:
        """Count a failure; return the time from which the next attempt is allowed."""
        self.until = now + self._policy.delay(self.failures, self._rng)
        self.failures += 1
        return self.until

    def go_on(self, failures: int) -> None:
        """Set the number of failures in a row, from which the next wait is calculated."""
        self.failures = failures

    def succeeded(self) -> None:
        """Reset the backoff: after the next failure the wait is the base again."""
        self.failures = 0
        self.until = -math.inf

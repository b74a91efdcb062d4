"""Calculate every backoff and growing timeout of the project (KIP-580).

In: the number of failures in a row, and a random generator as an argument. Out: seconds to wait.
Must not: read a clock, or be called twice for the same failure: the caller stores the deadline
(R-BO-3), because a jitter that is drawn again at every poll ends up at its minimum. R-BO-5.
"""

from __future__ import annotations

import math

from odradek.common.types import Rng

STEADY = 10
"""Number of equal waits of `ExponentialBackoff.steady`: a second in all, with the usual base."""
JITTER = 0.2
"""Relative jitter (KIP-144 and KIP-580): 20 % below to 20 % above the computed value."""
DOUBLINGS = 512
"""Maximum number of doublings that are computed; more than any two sensible waits need."""


class ExponentialBackoff:
    """Calculate waits that double from `base` to `maximum`, in seconds, with jitter.

    R-BO-1: the curve is clamped before the jitter is applied, so far below the maximum that all of
    the jitter fits under it: at maximum / 1.2. KIP-580's formula taken literally caps a value that
    is already jittered but not clamped, and so loses all jitter at the cap: clients that failed
    together keep connecting together. Java clamps the curve at the maximum, which leaves half of
    all waits equal; docs/recovery.md shows what brokers see of each.
    """

    __slots__ = ("base", "jitter", "maximum", "same")

    def __init__(self, base: float, maximum: float, jitter: float = JITTER, same: int = 0) -> None:
        """Let the first `same` waits be exactly the base, before they double."""
        if not 0.0 <= jitter <= 1.0:
            raise ValueError(f"jitter must be between 0 and 1, but got {jitter}")
        if base < 0 or maximum < 0:
            raise ValueError(f"backoff can't be negative: {base}, {maximum}")
        self.base = base
        self.maximum = maximum
        self.jitter = jitter
        self.same = same

    def steady(self) -> ExponentialBackoff:
        """Return the backoff of classic groups, whose first waits are constant (R-RT-1)."""
        return ExponentialBackoff(self.base, self.maximum, self.jitter, STEADY)

    @property
    def constant(self) -> bool:
        """Whether all waits are the maximum, because the base isn't below it (R-BO-2)."""
        return self.base >= self.maximum

    @property
    def shortest(self) -> float:
        """The wait after a first failure, without the jitter."""
        return self.maximum if self.constant else self.base

    def delay(self, failures: int, rng: Rng) -> float:
        """Return the seconds to wait after a failure.

        `failures` counts the failures before it (0 for the first), as KIP-580's table does: its
        first delay is the base itself.
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
    """A running backoff: counts failures and keeps the deadline that was drawn for the last one."""

    __slots__ = ("_policy", "_rng", "failures", "until")

    def __init__(self, policy: ExponentialBackoff, rng: Rng) -> None:
        self._policy = policy
        self._rng = rng
        self.failures = 0
        self.until = -math.inf

    def failed(self, now: float) -> float:
        """Note a failure; return the time before which the next attempt isn't allowed."""
        self.until = now + self._policy.delay(self.failures, self._rng)
        self.failures += 1
        return self.until

    def go_on(self, failures: int) -> None:
        """Set the number of failures, from which the next wait is calculated."""
        self.failures = failures

    def succeeded(self) -> None:
        """Reset the backoff: after the next failure the wait is the base again."""
        self.failures = 0
        self.until = -math.inf

"""Measure recent values as Kafka's Java clients do: in two samples of 30 s each.

In: values with their times. Out: number, sum and maximum of the values in the current and the
previous sample. So an average covers the last 30 to 60 s, as with the defaults of
`metrics.sample.window.ms` and `metrics.num.samples` in Java. Must not: read a clock, lock, or store
values.

`records-lag-max` is the current maximum; in Java, the window's maximum.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

WINDOW = 30.0
"""Duration of one sample, in seconds."""
KEPT = 2.0 * WINDOW
"""Seconds after its start for which a sample is used."""


class Sampled:
    """Recent values of one measured quantity; one thread writes them, any thread may read.

    A class that measures each request inherits this class and inlines `record`, to avoid a function
    call per request.
    """

    __slots__ = ("_before", "_begun", "_count", "_largest", "_past", "_until", "_whole")

    def __init__(self) -> None:
        self._begun = self._until = -math.inf
        self._count = 0
        self._whole = 0.0
        self._largest = -math.inf
        self._before = (-math.inf, 0, 0.0, -math.inf)
        self._past = (0, 0.0)
        """Values of `_count` and `_whole` at the start of the current sample.

        `_count` and `_whole` only grow, so a reader in another thread never sees a total decrease.
        """

    def record(self, value: float, now: float) -> None:
        """Add a measured value."""
        if now >= self._until:
            self._turn(now)
        self._count += 1
        self._whole += value
        if value > self._largest:
            self._largest = value

    def _turn(self, now: float) -> None:
        """Start the next sample, because the time of the current one is over."""
        count, whole = self._past
        self._before = (self._begun, self._count - count, self._whole - whole, self._largest)
        self._past = (self._count, self._whole)
        self._begun, self._until, self._largest = now, now + WINDOW, -math.inf

    def take_over(self, other: Sampled, now: float) -> None:
        """Add the measurements of another object, which is no longer needed."""
        count, whole = other.count, other.total
        if now >= self._until:
            self._turn(now)
        older, before = count, whole
        for number, of_these, most in other.lately(now):
            self._largest = max(self._largest, most)
            older, before = older - number, before - of_these
        self._past = (self._past[0] + older, self._past[1] + before)
        self._count += count
        self._whole += whole

    @property
    def count(self) -> int:
        """Number of all values so far."""
        return self._count

    @property
    def total(self) -> float:
        """Sum of all values so far."""
        return self._whole

    def lately(self, now: float) -> list[tuple[int, float, float]]:
        """Return number, sum and maximum of the values of each sample that isn't too old."""
        count, whole = self._past
        running = (self._begun, self._count - count, self._whole - whole, self._largest)
        return [one[1:] for one in (running, self._before) if one[1] and now < one[0] + KEPT]


def average(measured: Iterable[Sampled], now: float) -> float:
    """Return the average of recent values of several measurements; NaN if there is no value."""
    seen = [one for sampled in measured for one in sampled.lately(now)]
    count = sum(one[0] for one in seen)
    return sum(one[1] for one in seen) / count if count else math.nan


def largest(measured: Iterable[Sampled], now: float) -> float:
    """Return the largest recent value of several measurements; NaN if there is no value."""
    return max((one[2] for sampled in measured for one in sampled.lately(now)), default=math.nan)

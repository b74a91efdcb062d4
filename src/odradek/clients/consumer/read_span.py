"""Track the range of offsets of one partition that a consumer has returned to its caller.

In: moves of the position by seeks and resets. Out: whether an offset is in the range. A returned
record costs nothing extra, as the position itself is the range's end. Must not: know partitions or
topics.
"""

from __future__ import annotations


class ReadSpan:
    """Range from the lowest start to the highest position, during one ownership of a partition."""

    __slots__ = ("high", "low")

    def __init__(self) -> None:
        self.low: int | None = None
        """Lowest offset at which reading started; None before it has started."""
        self.high = -1
        """Highest position from which a seek or a reset moved away."""

    def moved(self, before: int | None, position: int | None) -> None:
        """Note that the position moves without a returned record."""
        if self.low is not None and before is not None and before > self.high:
            self.high = before
        if position is not None and (self.low is None or position < self.low):
            self.low = position

    def covers(self, offset: int, position: int | None) -> bool:
        """Return whether an offset lies in the range, whose end is now at `position`."""
        if self.low is None:
            return False
        return self.low <= offset <= max(self.low, self.high, -1 if position is None else position)

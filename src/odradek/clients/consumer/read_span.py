"""The offsets of one partition that a consumer has handed to its caller, as a range.

In: moves of the position that aren't records' handing out (seeks, resets). Out: whether an offset
lies in the range. It costs nothing per record, as the position itself is the range's end while
records are handed out. Must not: know partitions or topics.
"""

from __future__ import annotations


class ReadSpan:
    """From the lowest start to the highest position, under one ownership of one topic."""

    __slots__ = ("high", "low")

    def __init__(self) -> None:
        self.low: int | None = None
        """The lowest offset that reading began at; None before the first."""
        self.high = -1
        """The highest position that was left by a seek or a reset."""

    def moved(self, before: int | None, position: int | None) -> None:
        """Note that the position moves without a record."""
        if self.low is not None and before is not None and before > self.high:
            self.high = before
        if position is not None and (self.low is None or position < self.low):
            self.low = position

    def covers(self, offset: int, position: int | None) -> bool:
        """Return whether an offset lies in the range, whose end is now at `position`."""
        if self.low is None:
            return False
        return self.low <= offset <= max(self.low, self.high, -1 if position is None else position)

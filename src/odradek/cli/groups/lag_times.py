"""Compute groups' lag in seconds: when the first unread record of a group was written.

In: the ends of a log at each measurement, and brokers' answers to "which record was the first of
this time or later?". Out: an estimate of a record's time, and the most useful time to ask for. No
API returns an offset's time, and reading the record costs a batch of up to a MiB; so a record's
time is interpolated between two known points of its log. Must not: access a cluster, or read a
clock.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from typing import NamedTuple

MOST_POINTS = 120
"""Points that are kept of one log; older ones are thinned out."""
SHARE = 0.05
"""Of a lag in seconds: two points that are no farther apart than this are near enough."""
START = 0.0
"""The time that is asked for first: the answer is the log's oldest record, and its time."""


class LogPoint(NamedTuple):
    """At this time the log's end was at this offset: no later record had been written."""

    offset: int
    time: float
    """Seconds since the epoch."""


class LogTimes:
    """When the records of one partition were written, as far as is known.

    `grain`: two points that are as many seconds apart are near enough for any lag.
    """

    def __init__(self, grain: float) -> None:
        self._grain = grain
        self._points: list[LogPoint] = []
        """Rising, in offsets and times. Where the end stood still, its first and last time."""
        self._whole = False
        """The log's oldest record was asked for."""
        self._asked = 0

    def seen(self, end: int, now: float) -> None:
        """Just now the log's end is at this offset."""
        points = self._points
        if points and points[-1].offset > end:  # cut, or made again
            points.clear()
            self._whole = False
        while points and points[-1].time > now:  # our clock was set back
            points.pop()
        if len(points) > 1 and points[-2].offset == end:
            points.pop()
        points.append(LogPoint(end, now))
        if len(points) > MOST_POINTS:
            del points[1 : MOST_POINTS // 2 : 2]

    def answered(self, time: float, offset: int | None, written: float | None) -> None:
        """Note a broker's answer: the first record of this time or later, and its time.

        None if there is no such record. Contradictions to known points are ignored: producers write
        the times of their own clocks.
        """
        self._asked += 1
        self._whole = self._whole or time == START
        if offset is None:
            if time > START and self._points:
                self._add(LogPoint(self._points[-1].offset, time))
            return
        if time > START:
            self._add(LogPoint(offset, time))
        if written is not None:
            self._add(LogPoint(offset, written))
            self._add(LogPoint(offset + 1, written))

    def _add(self, point: LogPoint) -> None:
        points = self._points
        at = bisect_right(points, point)
        if at and points[at - 1].time > point.time:
            return
        if at < len(points) and points[at].time < point.time:
            return
        points.insert(at, point)

    def keep(self, lowest: int) -> None:
        """Forget points that aren't needed by readers at or after this offset."""
        unneeded = max(self._after(lowest) - 1, 0)
        del self._points[:unneeded]
        self._whole = self._whole and not unneeded

    def written(self, offset: int) -> float | None:
        """Return when the record was written, in seconds since the epoch.

        None if that isn't known: the log ends before it, or no older point is known.
        """
        around = self._around(offset)
        return None if around is None else _between(*around)

    def question(self, offsets: Iterable[int], now: float) -> float | None:
        """Return the next time to ask for, in seconds since the epoch.

        It is for readers at these offsets; None if the known points are close enough for all.
        """
        widest, chosen = 0.0, None
        for offset in offsets:
            if not self._points or offset >= self._points[-1].offset:
                continue  # nothing is left to read
            around = self._around(offset)
            if around is None:
                if not self._whole:
                    return START
                continue
            _, low, high = around
            width = high.time - low.time
            near = max(self._grain, SHARE * (now - _between(*around)))
            if width > near and width > widest:
                widest, chosen = width, (around, near)
        if chosen is None:
            return None
        around, near = chosen
        _, low, high = around
        # By turns: just before the record and just after it, if the log grew evenly, and the
        # middle, which always halves.
        asides = {1: -0.4 * near, 2: 0.4 * near}
        if (turn := self._asked % 3) not in asides:
            return (low.time + high.time) / 2
        return min(max(_between(*around) + asides[turn], low.time), high.time)

    def _around(self, offset: int) -> tuple[int, LogPoint, LogPoint] | None:
        """Return the record's offset, the last point before it was written, and the first after it.

        The oldest record represents those that retention deleted.
        """
        if self._whole and self._points:
            offset = max(offset, self._points[0].offset)
        at = self._after(offset)
        if at in (0, len(self._points)):
            return None
        return offset, self._points[at - 1], self._points[at]

    def _after(self, offset: int) -> int:
        """Return the number of points that aren't after the record."""
        return bisect_right(self._points, offset, key=lambda point: point.offset)


def _between(offset: int, low: LogPoint, high: LogPoint) -> float:
    """When the record was written, if the log grew evenly between two points."""
    share = (offset - low.offset + 0.5) / (high.offset - low.offset)
    return low.time + share * (high.time - low.time)

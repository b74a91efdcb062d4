"""Compute groups' lag in seconds, from the time when a group's first unread record was written.

In: the log end at each measurement, and results of offset lookups by time. Out: an estimate of a
record's time, and the most useful time to look up next. No API returns an offset's time, and
reading the record costs a batch of up to a MiB; so a record's time is interpolated between two
known points of its log. Must not: access a cluster, or read a clock.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from typing import NamedTuple

MOST_POINTS = 120
"""Maximum number of stored points of a log; older points are thinned out."""
SHARE = 0.05
"""Fraction of a lag in seconds: points at this distance are close enough for an estimate."""
START = 0.0
"""Time of the first lookup, which returns the log's oldest record and its time."""


class LogPoint(NamedTuple):
    """Log end offset at a time: no later record had been written."""

    offset: int
    time: float
    """Seconds since the epoch."""


class LogTimes:
    """Known points of time at which records of one partition were written.

    `grain`: points at this distance in seconds are close enough for any lag.
    """

    def __init__(self, grain: float) -> None:
        self._grain = grain
        self._points: list[LogPoint] = []
        """Points with ascending offsets and times; for an unchanged log end, its first and last."""
        self._whole = False
        """Whether the log's oldest record was looked up."""
        self._asked = 0

    def seen(self, end: int, now: float) -> None:
        """Add the current log end."""
        points = self._points
        if points and points[-1].offset > end:  # the log was truncated or recreated
            points.clear()
            self._whole = False
        while points and points[-1].time > now:  # this machine's clock was set back
            points.pop()
        if len(points) > 1 and points[-2].offset == end:
            points.pop()
        points.append(LogPoint(end, now))
        if len(points) > MOST_POINTS:
            del points[1 : MOST_POINTS // 2 : 2]

    def answered(self, time: float, offset: int | None, written: float | None) -> None:
        """Add the result of a lookup: the first record at or after a time, and its time.

        `offset` is None if there is no such record. Results that contradict known points are
        ignored, because producers use their own clocks.
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
        """Drop points that aren't needed for offsets from this one on."""
        unneeded = max(self._after(lowest) - 1, 0)
        del self._points[:unneeded]
        self._whole = self._whole and not unneeded

    def written(self, offset: int) -> float | None:
        """Return the estimated time at which a record was written, in seconds since the epoch.

        None if it is unknown: the log ends before the record, or no older point is known.
        """
        around = self._around(offset)
        return None if around is None else _between(*around)

    def question(self, offsets: Iterable[int], now: float) -> float | None:
        """Return the next time to look up for these offsets, in seconds since the epoch.

        None if the known points are close enough for all of them.
        """
        widest, chosen = 0.0, None
        for offset in offsets:
            if not self._points or offset >= self._points[-1].offset:
                continue  # the group has read all records
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
        # Take turns: just before the estimate, just after it, and the middle of the interval, which
        # halves the interval even if the estimate is wrong.
        asides = {1: -0.4 * near, 2: 0.4 * near}
        if (turn := self._asked % 3) not in asides:
            return (low.time + high.time) / 2
        return min(max(_between(*around) + asides[turn], low.time), high.time)

    def _around(self, offset: int) -> tuple[int, LogPoint, LogPoint] | None:
        """Return the record's offset, and the points just before and after it was written.

        A record that retention has deleted is replaced by the oldest one.
        """
        if self._whole and self._points:
            offset = max(offset, self._points[0].offset)
        at = self._after(offset)
        if at in (0, len(self._points)):
            return None
        return offset, self._points[at - 1], self._points[at]

    def _after(self, offset: int) -> int:
        """Return the number of points up to the record's offset."""
        return bisect_right(self._points, offset, key=lambda point: point.offset)


def _between(offset: int, low: LogPoint, high: LogPoint) -> float:
    """Interpolate the time at which a record was written between two points."""
    share = (offset - low.offset + 0.5) / (high.offset - low.offset)
    return low.time + share * (high.time - low.time)

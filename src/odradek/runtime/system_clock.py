"""Provide the system's clocks, which also work while a test has frozen time.

In: nothing. Out: monotonic seconds, a sleep, the date. I/O hosts, and packages that wait without a
client, use it. Must not: be used by an engine, which takes the time as an argument.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from functools import partial
from types import BuiltinFunctionType

LINUX = sys.platform == "linux"


def monotonic_clock() -> Callable[[], float]:
    """Return a monotonic clock that a test can't freeze.

    freezegun replaces functions: a module that is imported meanwhile would keep the replacement for
    ever. time-machine 2 changes what `time.monotonic` itself returns, but not `time.perf_counter`,
    which reads the same clock on Linux and is as fast.
    """
    return _real(time.perf_counter if LINUX else time.monotonic, "CLOCK_MONOTONIC")


def wall_clock() -> Callable[[], float]:
    """Return the original `time.time`, even if a test has replaced it."""
    return _real(time.time, "CLOCK_REALTIME")


def _real(function: Callable[[], float], clock: str) -> Callable[[], float]:
    if isinstance(function, BuiltinFunctionType) or not hasattr(time, clock):
        return function
    return partial(time.clock_gettime, getattr(time, clock))


def monotonic(clock: Callable[[], float] = monotonic_clock()) -> float:  # noqa: B008
    """Return monotonic seconds.

    freezegun replaces all module variables that refer to `time.monotonic`, but no parameters.
    """
    return clock()


class SystemClock:
    """The system's monotonic clock, and a way to wait."""

    def now(self) -> float:
        """Return monotonic seconds."""
        return monotonic()

    def date_ms(self) -> int:
        """Return milliseconds since 1970, comparable between the processes of this machine."""
        return time.time_ns() // 1_000_000

    def pause(self, seconds: float) -> None:
        """Sleep; for synchronous calls that don't belong to a client."""
        time.sleep(seconds)

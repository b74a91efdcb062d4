"""Provide the real clock, for packages that wait outside any client.

In: nothing. Out: monotonic seconds, a pause, the date. Spark's synchronous callbacks use it. Must
not be used by an engine, which takes the time as an argument.
"""

from __future__ import annotations

import time


class SystemClock:
    """Monotonic seconds, and a way to wait."""

    def now(self) -> float:
        """Give monotonic seconds."""
        return time.monotonic()

    def date_ms(self) -> int:
        """Return milliseconds since 1970, the same for other processes of this machine."""
        return time.time_ns() // 1_000_000

    def pause(self, seconds: float) -> None:
        """Wait; only calls that Spark itself makes synchronously use this."""
        time.sleep(seconds)

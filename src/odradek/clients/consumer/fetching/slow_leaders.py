"""Limit fetches from leaders whose responses don't arrive in time (R-TI-1).

In: results of fetches. Out: the number of bytes to request. A response that times out before it is
complete would be as large the next time, and never arrive. Must not: send a request.
"""

from __future__ import annotations

from odradek.common.errors import NoMemoryError, ResponseTimeoutError
from odradek.common.types import Address


class SlowLeaders:
    """Limits of the bytes per fetch for leaders whose last response timed out, by address."""

    def __init__(self, usual: int, soon: float) -> None:
        """Set `soon`: a response that takes at most this number of seconds wasn't slow."""
        self._usual = usual
        self._soon = soon
        self.limits: dict[Address, int] = {}

    def limit(self, address: Address, most: int) -> int:
        """Return the number of bytes to request, at most `most`."""
        return min(most, self.limits.get(address, most))

    def lost(self, address: Address, error: BaseException) -> None:
        """Reduce the limit after a response that timed out or was too large.

        The new limit is half of what had arrived, or half of the former limit.
        """
        if isinstance(error, ResponseTimeoutError) and error.received:
            self.limits[address] = max(error.received // 2, 1)
        elif isinstance(error, NoMemoryError):
            self.limits[address] = max(self.limit(address, self._usual) // 2, 1)

    def answered(self, address: Address, seconds: float) -> None:
        """Double the limit after a response with records that took at most `soon` seconds."""
        most = self.limits.get(address)
        if most is None or seconds > self._soon:
            return
        if 2 * most < self._usual:
            self.limits[address] = 2 * most
        else:
            del self.limits[address]

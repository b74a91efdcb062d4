"""Limit fetches from leaders whose responses don't arrive in time (R-TI-1).

In: how fetches end. Out: the number of bytes to request. A response that is given up before it is
complete would be as large the next time, and never arrive. Must not send a request.
"""

from __future__ import annotations

from odradek.common.errors import NoMemoryError, ResponseTimeoutError
from odradek.common.types import Address


class SlowLeaders:
    """The limits of leaders whose last response was given up, by address."""

    def __init__(self, usual: int, soon: float) -> None:
        """`soon`: the most seconds of a fetch whose response wasn't slow."""
        self._usual = usual
        self._soon = soon
        self.limits: dict[Address, int] = {}

    def limit(self, address: Address, most: int) -> int:
        """Return the number of bytes to request, at most `most`."""
        return min(most, self.limits.get(address, most))

    def lost(self, address: Address, error: BaseException) -> None:
        """Request half of what had arrived when a response was given up, or of what had no room."""
        if isinstance(error, ResponseTimeoutError) and error.received:
            self.limits[address] = max(error.received // 2, 1)
        elif isinstance(error, NoMemoryError):
            self.limits[address] = max(self.limit(address, self._usual) // 2, 1)

    def answered(self, address: Address, seconds: float) -> None:
        """Double the limit after a response with records that arrived soon."""
        most = self.limits.get(address)
        if most is None or seconds > self._soon:
            return
        if 2 * most < self._usual:
            self.limits[address] = 2 * most
        else:
            del self.limits[address]

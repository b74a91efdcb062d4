"""Decide whether an unexpected broker (error 129, KIP-1242) means a rebootstrap.

In: the address of such a broker, and the broker that was expected there. Out: whether the bootstrap
addresses are asked. They are asked at once (R-RB-3), but not again for an address that keeps
reporting the same: while a proxy or a recycled address leads to another broker, that would end all
good connections once per backoff. Then it counts as a failure of that address. Must not know
connections, or decide whether the known brokers are available.
"""

from __future__ import annotations

from odradek.common.types import Address


class Misled:
    """Reports of unexpected brokers to one client."""

    def __init__(self, spacing: float) -> None:
        self._spacing = spacing
        """Seconds after a rebootstrap in which such an error doesn't start another one."""
        self._told: dict[Address, int] = {}

    def starts_again(self, address: Address, broker: int, since_start: float) -> bool:
        """Whether this is a reason to start again from the bootstrap addresses.

        `since_start`: seconds since that was begun last, whatever for.
        """
        if self._told.get(address) == broker or since_start < self._spacing:
            return False
        self._told[address] = broker
        return True

    def led_right(self, address: Address) -> None:
        """Note that the expected broker answered there."""
        self._told.pop(address, None)

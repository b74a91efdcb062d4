"""Brokers that say they aren't the one that was meant (129 to ApiVersions, KIP-1242): start again?

In: the address of such a broker, and which broker was meant there. Out: whether the bootstrap
addresses are asked. They are at once (R-RB-3), but not again and again for an address of which they
go on saying the same: while a proxy or a recycled address leads elsewhere, that would end all good
connections once per backoff. Then it is a failure of that address, as any other.
Must not: know connections, or decide whether the known brokers are available.
"""

from __future__ import annotations

from odradek.common.types import Address


class Misled:
    """What was said to one client."""

    def __init__(self, spacing: float) -> None:
        self._spacing = spacing
        """Seconds after one start in which none follows for such a reason."""
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
        """A broker there was the one that was meant."""
        self._told.pop(address, None)

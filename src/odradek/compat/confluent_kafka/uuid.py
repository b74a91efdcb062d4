"""`Uuid`: id of a topic, 128 bits, in the text form that Kafka uses.

In: two halves, or the text of a UUID. Out: its text in base64, without padding.
"""

from __future__ import annotations

from base64 import b64encode
from uuid import UUID

_SIGNED = 1 << 63
_WHOLE = 1 << 64


class Uuid:
    """Id of 128 bits; its halves are signed 64-bit numbers."""

    __slots__ = ("_least", "_most")

    def __init__(self, most_significant_bits: int, least_significant_bits: int) -> None:
        self._most = _signed(most_significant_bits)
        self._least = _signed(least_significant_bits)

    def get_most_significant_bits(self) -> int:
        """Return the upper 64 bits, as a signed number."""
        return self._most

    def get_least_significant_bits(self) -> int:
        """Return the lower 64 bits, as a signed number."""
        return self._least

    def __str__(self) -> str:
        whole = b"".join((half % _WHOLE).to_bytes(8, "big") for half in (self._most, self._least))
        return b64encode(whole).decode().rstrip("=")

    __repr__ = __str__

    def __hash__(self) -> int:
        return hash((self._most, self._least))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Uuid):
            return NotImplemented
        return (self._most, self._least) == (other._most, other._least)


def _signed(half: int) -> int:
    return (half + _SIGNED) % _WHOLE - _SIGNED


def uuid_from(text: str) -> Uuid:
    """Convert the text of a UUID to an id."""
    return Uuid(*divmod(UUID(text).int, _WHOLE))

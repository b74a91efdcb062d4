"""Track one partition's ownership by one member of a group (R-ID-1).

In: the offsets that a position is set to from outside, the end of the ownership. Out: whether the
partition is still owned, and whether an offset can belong to this ownership. An ownership survives
an eager rebalance in which the same member is assigned the partition in the next generation, so it
outlives the partition's state. Must not: know the group, or be touched for each record.
"""

from __future__ import annotations

from typing import Any

from odradek.clients.consumer.read_span import ReadSpan


class Ownership:
    """One partition, from its assignment to a member until another member may own it."""

    __slots__ = ("announced", "ended", "given_back_by", "replaces", "span")

    def __init__(self) -> None:
        self.ended = False
        """Whether the partition was lost, or revoked and then not assigned to the member again."""
        self.given_back_by: Any = None
        """The member and its generation, if it has revoked the partition; otherwise None.

        The next assignment shows whether the member gets the partition again.
        """
        self.replaces = False
        """Whether the caller knows an earlier, ended ownership, and may have records of it."""
        self.announced = False
        """Whether the caller was notified of this ownership, by on_assigned or else by `poll`."""
        self.span = ReadSpan()
        """Offsets returned to the caller under this ownership, of the current topic."""

    def give_back(self, member: Any) -> None:
        """Note the member that gave the partition back for a rebalance."""
        self.given_back_by = member

    def resume(self) -> None:
        """Note that the same member was assigned the partition again."""
        self.given_back_by = None

    def end(self) -> None:
        """End the ownership: another member may own the partition from now on."""
        self.ended = True

    def replace(self, earlier: bool) -> None:
        """Note whether the caller knows an earlier ownership, which has ended."""
        self.replaces = earlier

    def announce(self) -> None:
        """Note that the caller was notified of this ownership."""
        self.announced = True

    def begin_span(self) -> None:
        """Start a new span of offsets, because the topic was recreated."""
        self.span = ReadSpan()

    @property
    def unknown(self) -> bool:
        """Whether the caller only knows an earlier ownership of this partition."""
        return self.replaces and not self.announced

    def covers(self, offset: int, position: int | None) -> bool:
        """Return whether a record before `offset` may have been returned under this ownership.

        `position` is the partition's current one. An offset that both this ownership and an earlier
        one have returned counts for this one.
        """
        return not self.replaces or self.span.covers(offset, position)

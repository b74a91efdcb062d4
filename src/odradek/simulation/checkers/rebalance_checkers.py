"""Check that a cooperative member joins again as soon as it has revoked partitions (KIP-429).

In: the revocations of one member, its state. Out: a violation. If the member didn't join again, the
group's leader would notice the partitions without an owner, but only after two heartbeats; until
then no member reads them, and no other checker reports that. Must not: change the member.
"""

from __future__ import annotations

from odradek.clients.consumer.group.membership import MemberState
from odradek.simulation.checkers.invariants import Violation

AT_ONCE = 0.4
"""Seconds in which a member starts to join again; the client needs no response for that."""


class RejoinsAtOnce:
    """The last revocation of a member in a stable generation, until it joins again."""

    def __init__(self) -> None:
        self._revoked: tuple[float, int] | None = None
        """Time of the revocation, and the member's generation."""

    def revoked(self, now: float, state: MemberState, generation: int) -> None:
        """Note that on_revoked was called.

        An eager member revokes only after it has left the stable state.
        """
        self._revoked = (now, generation) if state is MemberState.STABLE else None

    def excuse(self) -> None:
        """Expect nothing, because the process is stopped or the member leaves."""
        self._revoked = None

    def wait(self, now: float) -> None:
        """Allow the member more time, because a commit in progress delays the revocation."""
        if self._revoked is not None:
            self._revoked = now, self._revoked[1]

    def look(self, now: float, state: MemberState, generation: int) -> Violation | None:
        """Return a violation if the member doesn't leave the generation in which it has revoked."""
        if self._revoked is None:
            return None
        since, revoked_in = self._revoked
        if state is not MemberState.STABLE or generation != revoked_in:
            self._revoked = None
        elif now - since > AT_ONCE:
            return Violation(
                f"{now}: a member remains in generation {generation}, though it has revoked "
                f"partitions at {since}: no other member can have them before it joins again"
            )
        return None

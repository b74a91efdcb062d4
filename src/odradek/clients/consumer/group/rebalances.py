"""How often a member was rebalanced, and how long that took.

In: the events of its group, as all listeners get them. Out: numbers for metrics. A rebalance begins
when the member leaves the stable state, or subscribes, and ends when it is stable; what it went
through between the two is one rebalance. Must not: know either protocol.
"""

from __future__ import annotations

from odradek.clients.consumer.group.membership import MemberState
from odradek.common.events import Event
from odradek.common.sampled import Sampled

_NO_MEMBER = (MemberState.UNJOINED, MemberState.LEAVING, MemberState.FATAL)


class Rebalances:
    """Of one consumer, whatever it has subscribed to meanwhile."""

    def __init__(self) -> None:
        self.latency = Sampled()
        """Seconds of each that was gone through to its end."""
        self.ended_at: float | None = None
        """When the last of them ended."""
        self._begun_at: float | None = None

    def note(self, event: Event) -> None:
        """Take note of a change of the member's state."""
        if event.kind != "group":
            return
        state = event.fields["state"]
        if state in _NO_MEMBER:
            self._begun_at = None
        elif state != MemberState.STABLE:
            if self._begun_at is None:
                self._begun_at = event.at
        elif self._begun_at is not None:
            self.latency.record(event.at - self._begun_at, event.at)
            self._begun_at, self.ended_at = None, event.at

"""Count a member's rebalances and measure their duration.

In: events of the consumer. Out: numbers for metrics. A rebalance begins
when the member leaves the stable state, or subscribes, and ends when it is stable again; the states
in between are part of the same rebalance. Must not: know either protocol.
"""

from __future__ import annotations

from odradek.clients.consumer.group.membership import MemberState
from odradek.common.events import Event
from odradek.common.sampled import Sampled

_NO_MEMBER = (MemberState.UNJOINED, MemberState.LEAVING, MemberState.FATAL)


class Rebalances:
    """The rebalances of one consumer, in all of its subscriptions."""

    def __init__(self) -> None:
        self.latency = Sampled()
        """Durations of finished rebalances in seconds."""
        self.ended_at: float | None = None
        """Time at which the last rebalance ended; None before the first one."""
        self._begun_at: float | None = None

    def note(self, event: Event) -> None:
        """Note a change of the member's state."""
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

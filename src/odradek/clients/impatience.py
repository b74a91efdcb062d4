"""R-RB-6: `metadata.unavailable.timeout.ms`, for programs that want an error instead of patience.

In: since when no broker can be reached, and the calls that wait. Out: `NoBrokerAvailableError` for
each of them once that has lasted for so long; a call that begins later has a second in which
somebody may turn out to be there again. Must not: end the client, which goes on trying, or records,
which have `max.block.ms` and `delivery.timeout.ms`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from odradek.common.errors import KafkaError
from odradek.network.flow import Completion

if TYPE_CHECKING:
    from odradek.clients.client_engine import ClientEngine

LEAST = 1.0
"""Each call tries at least so long, up to its timeout, before it raises for want of a broker."""
POLL = "records"
"""What a consumer's poll() waits for."""


class Impatience:
    """A component of an engine that has such a limit."""

    resting = False

    def __init__(self, engine: ClientEngine, *, polls_alone: bool) -> None:
        """`polls_alone`: nobody has given the option, so other calls have their own timeouts."""
        self._engine = engine
        self._polls_alone = polls_alone
        self._begun: dict[Completion[Any], float] = {}
        """When each call that waits was first seen, while no broker can be reached."""

    def advance(self, now: float) -> bool:
        """End the calls whose time is up."""
        engine = self._engine
        if engine.unavailable_since() is None:
            self._begun.clear()
            return False
        waits = {call: what for call, what in engine.callers() if not call.done}
        if self._polls_alone:
            waits = {call: what for call, what in waits.items() if what == POLL}
        self._begun = {call: self._begun.get(call, now) for call in waits}
        until = engine.unavailable_until()
        for call, begun in list(self._begun.items()):
            if now >= max(until, begun + LEAST):
                del self._begun[call]
                engine.cancel_now(call, engine.unavailable(waits[call], now))
        return False

    def next_deadline(self, now: float) -> float | None:
        """When the next call's time is up."""
        if not self._begun:
            return None
        return max(self._engine.unavailable_until(), min(self._begun.values()) + LEAST)

    def abort(self, error: KafkaError, now: float) -> None:
        """The client has ended, and every call with it."""
        self._begun.clear()

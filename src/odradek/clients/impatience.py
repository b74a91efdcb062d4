"""R-RB-6: `metadata.unavailable.timeout.ms`, for programs that want an error instead of patience.

In: since when no broker can be reached, and the calls that wait. Out: `NoBrokerAvailableError` for
each of them once that has lasted for so long; a call that begins later has a second in which
somebody may turn out to be there again. Must not: end the client, which goes on trying, or records,
which have `max.block.ms` and `delivery.timeout.ms`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from odradek.common.errors import KafkaError
from odradek.network.flow import Completion

LEAST = 1.0
"""Each call tries at least so long, up to its timeout, before it raises for want of a broker."""
POLL = "records"
"""What a consumer's poll() waits for."""


class Impatience:
    """A component of an engine that has such a limit."""

    resting = False

    def __init__(
        self,
        callers: Callable[[], list[tuple[Completion[Any], str]]],
        unavailable_until: Callable[[], float],
        give_up: Callable[[Completion[Any], str, float], None],
        *,
        polls_alone: bool,
    ) -> None:
        """`callers` returns the calls that wait, and for what; `unavailable_until` when they may
        say that no broker can be reached, infinity while one can; `give_up` ends a call.

        `polls_alone`: the user hasn't set the option, so other calls have their own timeouts.
        """
        self._callers = callers
        self._unavailable_until = unavailable_until
        self._give_up = give_up
        self._polls_alone = polls_alone
        self._begun: dict[Completion[Any], float] = {}
        """When each call that waits was first seen, while no broker can be reached."""

    def advance(self, now: float) -> bool:
        """End the calls whose time is up."""
        until = self._unavailable_until()
        if until == math.inf:
            self._begun.clear()
            return False
        waits = {call: what for call, what in self._callers() if not call.done}
        if self._polls_alone:
            waits = {call: what for call, what in waits.items() if what == POLL}
        self._begun = {call: self._begun.get(call, now) for call in waits}
        for call, begun in list(self._begun.items()):
            if now >= max(until, begun + LEAST):
                del self._begun[call]
                self._give_up(call, waits[call], now)
        return False

    def next_deadline(self, now: float) -> float | None:
        """When the next call's time is up."""
        if not self._begun:
            return None
        return max(self._unavailable_until(), min(self._begun.values()) + LEAST)

    def abort(self, error: KafkaError, now: float) -> None:
        """The client has ended, and every call with it."""
        self._begun.clear()

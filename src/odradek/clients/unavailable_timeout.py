"""Fail calls early if no broker can be reached (`metadata.unavailable.timeout.ms`, R-RB-6).

In: since when no broker can be reached, and the waiting calls. Out: `NoBrokerAvailableError` for
each of them after this timeout; a call that begins later has at least one second, in which a broker
may answer again. Must not: end the client, which continues to retry, or records, which have
`max.block.ms` and `delivery.timeout.ms`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from odradek.common.errors import KafkaError
from odradek.network.flow import Completion

MIN_TRY_S = 1.0
"""Minimum number of seconds before `metadata.unavailable.timeout.ms` ends a call."""
POLL_WAIT = "records"
"""Name of the wait of a consumer's poll()."""


class UnavailableTimeout:
    """The engine component that applies `metadata.unavailable.timeout.ms`."""

    resting = False

    def __init__(
        self,
        callers: Callable[[], list[tuple[Completion[Any], str]]],
        unavailable_until: Callable[[], float],
        give_up: Callable[[Completion[Any], str, float], None],
        *,
        polls_alone: bool,
    ) -> None:
        """Set the functions that list waiting calls, and end them.

        `callers` returns the calls that wait, and what they wait for; `unavailable_until` the time
        from which on they fail, infinity while a broker can be reached; `give_up` ends a call.
        `polls_alone` means that the user hasn't set the option, so other calls have their own
        timeouts.
        """
        self._callers = callers
        self._unavailable_until = unavailable_until
        self._give_up = give_up
        self._polls_alone = polls_alone
        self._begun: dict[Completion[Any], float] = {}
        """Time at which each waiting call was first seen, while no broker can be reached."""

    def advance(self, now: float) -> bool:
        """End the calls that have timed out."""
        until = self._unavailable_until()
        if until == math.inf:
            self._begun.clear()
            return False
        waits = {call: what for call, what in self._callers() if not call.done}
        if self._polls_alone:
            waits = {call: what for call, what in waits.items() if what == POLL_WAIT}
        self._begun = {call: self._begun.get(call, now) for call in waits}
        for call, begun in list(self._begun.items()):
            if now >= max(until, begun + MIN_TRY_S):
                del self._begun[call]
                self._give_up(call, waits[call], now)
        return False

    def next_deadline(self, now: float) -> float | None:
        """Return when the next call times out."""
        if not self._begun:
            return None
        return max(self._unavailable_until(), min(self._begun.values()) + MIN_TRY_S)

    def abort(self, error: KafkaError, now: float) -> None:
        """Forget all calls, because the client has ended."""
        self._begun.clear()

"""Implement virtual time: a heap of scheduled actions, and random generators by name.

In: actions with a time. Out: the actions in the order of (time, serial), so that runs can be
repeated exactly. Time jumps from one action to the next, without waiting. Must not read a real
clock, or let one client's random numbers depend on the number of clients.
"""

from __future__ import annotations

import heapq
import math
import random
from collections.abc import Callable

MAX_ACTIONS_AT_ONCE = 1_000_000
"""Maximum number of actions at one instant before the run counts as stuck, which is a bug."""
SWEPT_AT = 10_000
"""Number of scheduled actions from which on cancelled actions are removed."""

Action = Callable[[], None]


class StuckError(AssertionError):
    """Virtual time doesn't advance although actions run, or a client waits and no event is left."""


class Timer:
    """One scheduled action, which can be cancelled."""

    __slots__ = ("action", "when")

    def __init__(self, when: float, action: Action) -> None:
        self.when = when
        self.action: Action | None = action

    def cancel(self) -> None:
        """Cancel the action; it remains in the heap until its time, without effect."""
        self.action = None


class VirtualTime:
    """The clock of a simulation, in seconds."""

    __slots__ = ("_at_once", "_heap", "_serial", "_swept_at", "fired", "now")

    def __init__(self, start: float = 0.0) -> None:
        self.now = start
        self.fired = 0
        """Number of actions that have run so far."""
        self._heap: list[tuple[float, int, Timer]] = []
        self._serial = 0
        self._at_once = 0
        self._swept_at = SWEPT_AT

    def at(self, when: float, action: Action) -> Timer:
        """Schedule an action at `when`; a past time means now, after all other due actions."""
        if when < self.now:
            when = self.now
        timer = Timer(when, action)
        self._serial += 1
        if len(self._heap) >= self._swept_at:
            self._sweep()
        heapq.heappush(self._heap, (when, self._serial, timer))
        return timer

    def _sweep(self) -> None:
        """Remove the cancelled actions, which may be most (each heartbeat cancels a timeout)."""
        self._heap[:] = [entry for entry in self._heap if entry[2].action is not None]
        heapq.heapify(self._heap)
        self._swept_at = 2 * len(self._heap) + SWEPT_AT

    def after(self, seconds: float, action: Action) -> Timer:
        """Schedule an action this many seconds from now."""
        return self.at(self.now + seconds, action)

    def next_at(self) -> float | None:
        """Return the time of the next action; None if there is none."""
        heap = self._heap
        while heap and heap[0][2].action is None:
            heapq.heappop(heap)
        return heap[0][0] if heap else None

    def fire_next(self) -> bool:
        """Advance to the next action and run it; return False if no action is scheduled."""
        return self._fire(math.inf, most=1)

    def run_until(self, when: float) -> None:
        """Run all actions that are due up to `when`, and set the time to `when`."""
        self._fire(when, most=math.inf)
        self.now = max(self.now, when)

    def _fire(self, limit: float, *, most: float) -> bool:
        """Run at most `most` actions that are due up to `limit`; return False if fewer were due."""
        heap, pop, done = self._heap, heapq.heappop, 0
        while heap and heap[0][0] <= limit:
            when, _, timer = pop(heap)
            action = timer.action
            if action is None:  # the action was cancelled
                continue
            timer.action = None
            if when > self.now:
                self.now = when
                self._at_once = 0
            self._at_once += 1
            if self._at_once > MAX_ACTIONS_AT_ONCE:
                raise StuckError(f"more than {MAX_ACTIONS_AT_ONCE} actions at {self.now} s")
            self.fired += 1
            done += 1
            action()
            if done >= most:
                return True
        return False


def derived_rng(seed: int, name: str) -> random.Random:
    """Return a generator that depends on the seed and the name alone, not on earlier calls."""
    return random.Random(f"{seed}/{name}")  # hashed by SHA-512, so equal in all processes

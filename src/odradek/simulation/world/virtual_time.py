"""Virtual time: a heap of what will happen, and generators whose numbers depend on names only.

In: actions with a time. Out: the actions in the order of (time, serial), so that a run is the same
each time. Time jumps from one action to the next; nobody waits. Must not: read a real clock, or let
one client's draws depend on how many clients there are.
"""

from __future__ import annotations

import heapq
import math
import random
from collections.abc import Callable

MAX_ACTIONS_AT_ONCE = 1_000_000
"""Actions at one instant before the run counts as stuck, which is a bug of somebody."""
SWEPT_AT = 10_000
"""Planned actions from which on it is worth looking for cancelled ones."""

Action = Callable[[], None]


class StuckError(AssertionError):
    """Virtual time doesn't move on although things keep happening."""


class Timer:
    """One planned action; may be cancelled."""

    __slots__ = ("action", "when")

    def __init__(self, when: float, action: Action) -> None:
        self.when = when
        self.action: Action | None = action

    def cancel(self) -> None:
        """Forget the action; it stays in the heap until its time and costs nothing else."""
        self.action = None


class VirtualTime:
    """The clock of a simulated world, in seconds."""

    __slots__ = ("_at_once", "_heap", "_serial", "_swept_at", "fired", "now")

    def __init__(self, start: float = 0.0) -> None:
        self.now = start
        self.fired = 0
        """Actions that have happened so far."""
        self._heap: list[tuple[float, int, Timer]] = []
        self._serial = 0
        self._at_once = 0
        self._swept_at = SWEPT_AT

    def at(self, when: float, action: Action) -> Timer:
        """Plan an action; what lies in the past happens now, after what is planned for now."""
        if when < self.now:
            when = self.now
        timer = Timer(when, action)
        self._serial += 1
        if len(self._heap) >= self._swept_at:
            self._sweep()
        heapq.heappush(self._heap, (when, self._serial, timer))
        return timer

    def _sweep(self) -> None:
        """Forget the cancelled actions, which may be most (each heartbeat leaves one)."""
        self._heap[:] = [entry for entry in self._heap if entry[2].action is not None]
        heapq.heapify(self._heap)
        self._swept_at = 2 * len(self._heap) + SWEPT_AT

    def after(self, seconds: float, action: Action) -> Timer:
        """Plan an action from now on."""
        return self.at(self.now + seconds, action)

    def next_at(self) -> float | None:
        """When the next action is due; None when nothing will ever happen by itself."""
        heap = self._heap
        while heap and heap[0][2].action is None:
            heapq.heappop(heap)
        return heap[0][0] if heap else None

    def fire_next(self) -> bool:
        """Go on to the next action and do it; False when there is none."""
        return self._fire(math.inf, most=1)

    def run_until(self, when: float) -> None:
        """Do everything that is due up to `when`, which then is the time."""
        self._fire(when, most=math.inf)
        self.now = max(self.now, when)

    def _fire(self, limit: float, *, most: float) -> bool:
        """Do what is due up to `limit`, at most so many actions; False if there were fewer."""
        heap, pop, done = self._heap, heapq.heappop, 0
        while heap and heap[0][0] <= limit:
            when, _, timer = pop(heap)
            action = timer.action
            if action is None:  # cancelled
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
    """A generator whose numbers depend on the seed and the name alone, not on who came before."""
    return random.Random(f"{seed}/{name}")  # a text is hashed by SHA-512: the same in every process

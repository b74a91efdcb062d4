"""Count the steps of a host's engine: endless stepping is a bug.

In: each step, and whether a deadline alone caused it. Out: an entry among the world's hot loops, or
`StuckError` if time doesn't advance. Must not read a clock.
"""

from __future__ import annotations

from odradek.simulation.world.virtual_time import StuckError

STEPS_AT_ONCE = 10_000
"""Maximum number of steps of one engine at one instant before it counts as stuck."""
COUNTED_FROM = 100
"""Number of steps within a second from which on steps at one instant are counted; few clients take
that many."""
STEP_LIMIT = 20_000
TIMED_STEP_LIMIT = 1_000
"""Maximum number of steps per virtual second that only a deadline causes; more of them are reported
as a hot loop."""


class StepCount:
    """The part of a simulated host that counts its steps."""

    def __init__(self, name: str, hot_loops: list[str]) -> None:
        self.name = name
        self.steps = 0
        self.timed_steps = 0
        """Number of steps caused only by a deadline, without an input and without a caller."""
        self.step_limit = STEP_LIMIT
        self.timed_step_limit = TIMED_STEP_LIMIT
        self._hot_loops = hot_loops
        self._instant = -1.0
        self._at_once = 0
        self._second = -1
        self._steps_before = self._timed_before = 0

    def limit_steps(self, in_a_second: int, timed: int) -> None:
        """Set the limits of steps in a virtual second, and of those caused by a deadline alone."""
        self.step_limit, self.timed_step_limit = in_a_second, timed

    def count(self, now: float, *, timed: bool) -> None:
        """Count a step; raise `StuckError` if time doesn't advance."""
        self.steps += 1
        self.timed_steps += timed
        if now >= self._second + 1:
            self._second = int(now)
            self._steps_before, self._timed_before = self.steps - 1, self.timed_steps - timed
        steps = self.steps - self._steps_before
        timed_steps = self.timed_steps - self._timed_before
        if steps == self.step_limit + 1 or (timed and timed_steps == self.timed_step_limit + 1):
            self._hot_loops.append(f"{self.name}: {steps} steps in second {self._second}")
        if steps > COUNTED_FROM:
            if now != self._instant:
                self._instant, self._at_once = now, 0
            self._at_once += 1
            if self._at_once > STEPS_AT_ONCE:
                raise StuckError(f"{self.name}: more than {STEPS_AT_ONCE} steps at {now} s")

"""Count the steps of a client's engine: endless stepping is a bug.

In: each step, and whether a deadline alone caused it. Out: an entry in the simulation's
`hot_loops`, or `StuckError` if time doesn't advance. Must not read a clock.
"""

from __future__ import annotations

from odradek.simulation.world.virtual_time import StuckError

STEPS_AT_ONCE = 10_000
"""Maximum number of steps of one engine at one instant, before the engine counts as stuck."""
COUNTED_FROM = 100
"""Steps at one instant are counted only after this many steps within the second, which few clients
reach."""
STEP_LIMIT = 20_000
TIMED_STEP_LIMIT = 1_000
"""Maximum number of steps per virtual second that only a deadline causes; one step more is reported
as a hot loop."""


class StepCount:
    """The part of a client's I/O host that counts the engine's steps."""

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
        """Limit the engine's steps per virtual second: all steps, and those only due to a timer."""
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

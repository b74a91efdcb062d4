"""Runs a schedule with every checker on, and random schedules by the thousand.

In: a schedule, or seeds. Out: a `RunOutcome`: what was violated, if anything, and what the run
cost. Must not: read a clock; who runs this by time looks at his own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from odradek.simulation.runs.group_runs import run_of
from odradek.simulation.runs.random_schedules import Family, random_schedule
from odradek.simulation.runs.schedule import Schedule
from odradek.simulation.world.link import Mode
from odradek.simulation.world.world import HostMaker


@dataclass(frozen=True, slots=True)
class RunOutcome:
    """What came of one run."""

    schedule: Schedule
    violation: str | None
    """The first violated invariant in words; None when all held."""
    seconds: float
    """Virtual seconds until all clients had found their way back."""
    steps: int
    dials: int
    requests: int
    records: int
    """Sent by producers."""
    trace: tuple[str, ...] = ()
    hits: Mapping[str, int] = field(default_factory=dict)
    """How often faults took effect, by what they did."""
    late: Mapping[str, int] = field(default_factory=dict)
    """Requests that arrived after their connection had ended, by API."""

    @property
    def ok(self) -> bool:
        """Whether every invariant held."""
        return self.violation is None


def run_schedule(
    schedule: Schedule,
    *,
    mode: Mode | None = None,
    hosts: HostMaker | None = None,
    trace: bool = False,
) -> RunOutcome:
    """Run a schedule; `mode` overrides the schedule's own, `trace` keeps every client's events.

    `hosts` makes other hosts of the clients than `SimulatedHost`.
    """
    run = run_of(schedule, mode=mode, hosts=hosts)
    violation = None
    try:
        run.play()
    except AssertionError as found:  # a violation, or virtual time that doesn't move on
        violation = f"{type(found).__name__}: {found}"
    return RunOutcome(
        schedule,
        violation,
        run.world.now,
        sum(host.steps for host in run.world.hosts.values()),
        sum(driver.wire.dials for driver in run.drivers),
        sum(driver.wire.requests for driver in run.drivers),
        sum(getattr(driver, "serial", 0) for driver in run.drivers),
        tuple(run.lines()) if trace else (),
        run.hits(),
        sum((cluster.late for cluster in (*run.stage.left, run.stage.cluster)), Counter()),
    )


def explore(
    seeds: Iterable[int],
    *,
    short: bool = True,
    family: Family | None = None,
    hosts: HostMaker | None = None,
    go_on: Callable[[], bool] = lambda: True,
) -> Iterator[RunOutcome]:
    """Run the random schedules of these seeds, one after the other, for as long as `go_on` says.

    `family` keeps to one kind of schedule, whichever the seeds would have.
    """
    for seed in seeds:
        if not go_on():
            return
        yield run_schedule(random_schedule(seed, short=short, family=family), hosts=hosts)

"""Run a schedule, or thousands of random schedules, with all checkers.

In: a schedule, or seeds. Out: a `RunOutcome` for each: the violation, if any, and the size of the
run. Must not read a clock; a caller with a time limit reads its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from odradek.simulation.checkers.history import History
from odradek.simulation.runs.group_runs import run_of
from odradek.simulation.runs.random_schedules import Family, random_schedule
from odradek.simulation.runs.schedule import Schedule
from odradek.simulation.world.link import Mode
from odradek.simulation.world.world import HostMaker


@dataclass(frozen=True, slots=True)
class RunOutcome:
    """Result of one schedule's run."""

    schedule: Schedule
    violation: str | None
    """Text of the first violated invariant; None if all invariants held."""
    seconds: float
    """Virtual seconds until all clients had recovered."""
    steps: int
    dials: int
    requests: int
    records: int
    """Number of records that producers sent."""
    trace: tuple[str, ...] = ()
    hits: Mapping[str, int] = field(default_factory=dict)
    """How often faults had an effect, by a name of the effect."""
    late: Mapping[str, int] = field(default_factory=dict)
    """Number of requests that arrived after their connection had ended, by API name."""
    history: History | None = None
    """The calls of all clients."""

    @property
    def ok(self) -> bool:
        """Whether every invariant held in the run."""
        return self.violation is None


def run_schedule(
    schedule: Schedule,
    *,
    mode: Mode | None = None,
    hosts: HostMaker | None = None,
    trace: bool = False,
) -> RunOutcome:
    """Run a schedule; `mode` overrides its mode, `trace` collects the events of every client.

    `hosts` creates the clients' I/O hosts, by default `SimulatedHost`.
    """
    run = run_of(schedule, mode=mode, hosts=hosts)
    violation = None
    try:
        run.play()
    except AssertionError as found:  # a violation, or virtual time doesn't advance
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
        run.history,
    )


def explore(
    seeds: Iterable[int],
    *,
    short: bool = True,
    family: Family | None = None,
    hosts: HostMaker | None = None,
    go_on: Callable[[], bool] = lambda: True,
) -> Iterator[RunOutcome]:
    """Run the random schedules of these seeds, one after the other, while `go_on` is True.

    `family` is the kind of schedule; without it, the seed chooses.
    """
    for seed in seeds:
        if not go_on():
            return
        yield run_schedule(random_schedule(seed, short=short, family=family), hosts=hosts)

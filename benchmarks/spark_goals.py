"""Goals of the Spark benchmark, and whether they are met.

In: the JSON of `benchmarks.spark`. Out: goals with the reached values. Must not: measure, or report
a goal as met that wasn't measured.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

Found = dict[str, Any]
OURS = ("odradek-4.2", "odradek")
BOTH = {"odradek-4.2": "empty-4.2", "odradek": "empty-new"}


def runs_of(lane: Found) -> list[Found]:
    """Return a lane's runs (of one connector on one Spark) that didn't fail."""
    return [run for run in lane["runs"] if "error" not in run]


def median(row: Found, lane: str, figure: Callable[[Found], float]) -> float | None:
    """Return the median of a measured value over a lane's runs; None without runs."""
    runs = runs_of(row["lanes"].get(lane, {"runs": []}))
    return statistics.median(map(figure, runs)) if runs else None


def rate(run: Found) -> float:
    """Return a run's speed in rows per second."""
    return float(run["rows"] / run["seconds"])


def cpu(run: Found) -> float:
    """Return a run's microseconds of CPU per row."""
    return float(run["cpu_s"] / run["rows"] * 1e6)


def python_cpu(run: Found) -> float:
    """Return a run's microseconds of CPU per row in Python, without Spark's own CPU time."""
    return float(run.get("python_s", 0.0) / run["rows"] * 1e6)


def ratio(
    row: Found, lane: str, against: str, figure: Callable[[Found], float] = rate
) -> float | None:
    """Return a lane's median divided by the median of another lane."""
    mine, theirs = median(row, lane, figure), median(row, against, figure)
    return mine / theirs if mine is not None and theirs else None


@dataclass(frozen=True, slots=True)
class Goal:
    """A limit for a measured value; `aim` is a more ambitious limit."""

    row: str
    text: str
    lane: str
    limit: float
    reach: Callable[[Found, str], float | None]
    aim: float | None = None
    at_most: bool = False
    unit: str = " ×"
    or_next: bool = False
    """Whether it is enough to meet either this goal or the following one."""

    def met(self, reached: float, limit: float) -> bool:
        """Return whether a value is within a limit."""
        return reached <= limit if self.at_most else reached >= limit

    def verdict(self, reached: float) -> str:
        """Return the verdict as text, with the aim if there is one."""
        short = "not met, so the next counts" if self.or_next else "**missed**"
        said = "met" if self.met(reached, self.limit) else short
        if self.aim is not None:
            said += f", aim {'met' if self.met(reached, self.aim) else 'missed'}"
        return said

    def wanted(self) -> str:
        """Return the goal's limit and aim as text."""
        sign = "≤" if self.at_most else "≥"
        more = f" (aim {self.aim:g})" if self.aim is not None else ""
        return f"{sign} {self.limit:g}{self.unit}{more}"


def _faster(row: str, text: str, against: str, limit: float, aim: float | None) -> Iterator[Goal]:
    for lane in OURS:
        yield Goal(row, text, lane, limit, lambda found, mine: ratio(found, mine, against), aim)


def _quick(row: str, what: str, figure: str) -> Iterator[Goal]:
    for lane, empty in BOTH.items():
        yield Goal(
            row, f"{what}, beside the JVM connector", lane, 1.5,
            lambda found, mine: ratio(found, mine, "jvm", lambda run: float(run[figure])),
            at_most=True,
        )  # fmt: skip
        if row == "batches":
            yield Goal(
                row, f"{what}, above an empty Python source", lane, 0.1,
                lambda found, mine, empty=empty: above(found, mine, empty, figure),  # type: ignore[misc]
                at_most=True, unit=" s",
            )  # fmt: skip


def above(row: Found, lane: str, empty: str, figure: str) -> float | None:
    """Return by how many seconds a lane's median exceeds that of the lane `empty`."""
    mine = median(row, lane, lambda run: float(run[figure]))
    theirs = median(row, empty, lambda run: float(run[figure]))
    return mine - theirs if mine is not None and theirs is not None else None


def scaled(row: Found, lane: str) -> float | None:
    """Return the speed of two executors divided by that of one.

    If the broker or the machine is the limit, CPU time per row shows whether two executors cost
    more: if not, two would be twice as fast on separate machines.
    """
    return ratio(row, lane, "executors-1")


def _planned(figure: str) -> Callable[[Found, str], float | None]:
    return lambda found, lane: median(found, lane, lambda run: float(run[figure]))


GOALS: tuple[Goal, ...] = (
    *_faster("read/noop", "all columns, beside the JVM connector", "jvm", 2, 2.5),
    *_faster("read/noop", "all columns, beside it tuned", "jvm-tuned", 1.4, 1.7),
    *_faster("read/sum", "`sum(length(value))`, beside the JVM connector", "jvm", 2, 2.5),
    *_faster("read/sum", "`sum(length(value))`, beside it tuned", "jvm-tuned", 1.4, 1.7),
    *_faster("read/value", "`value` alone, beside the JVM connector", "jvm", 3, 4),
    *_faster("sink", "sink, at_least_once, beside the JVM sink", "jvm", 2, None),
    Goal("sink", "sink, exactly_once, beside the JVM sink", "odradek-once", 2,
         lambda found, mine: ratio(found, mine, "jvm")),
    *_quick("batches", "cold micro-batch", "cold_s"),
    *_quick("batches", "warm micro-batch", "warm_s"),
    Goal("scale", "two executors, beside one, where the broker allows it", "executors-2", 1.7,
         scaled, or_next=True),
    Goal("scale", "… else CPU of a row with two, beside one", "executors-2", 1.1,
         lambda found, mine: ratio(found, mine, "executors-1", cpu), at_most=True),
    Goal("planning", "planning 10,000 partitions, warm", "10000", 1, _planned("warm_s"),
         at_most=True, unit=" s"),
    Goal("planning", "offsets of 10,000 partitions as JSON", "10000", 1e6, _planned("json_bytes"),
         at_most=True, unit=" bytes"),
)  # fmt: skip
"""All goals. For `scale` it is enough to meet one of its two goals: speed, or CPU time per row."""


def judged(store: Found) -> Iterator[tuple[Goal, Found, float | None]]:
    """Yield each goal whose row was measured, its lane, and the reached value (None: failed)."""
    for goal in GOALS:
        row = store["rows"].get(goal.row)
        if row is not None and goal.lane in row["lanes"]:
            yield goal, row["lanes"][goal.lane], goal.reach(row, goal.lane)

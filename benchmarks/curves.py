"""Describe the growth of a measured value along a row's points: slope; flat, linear or worse.

In: the results of a row with a `per`. Out: the lines of one table: for each client and value the
medians at all points, the slope by least squares (in the value's unit, per the number that `per`
states) and a verdict. Must not: leave a point out, or fit anything but a line.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from benchmarks.rows import Lane, Row
    from benchmarks.table import Results

NOISE = 0.35
"""Growth counts as flat if the line changes from end to end by less than this share of its mean."""
STEEPER = 1.6
"""If the last section is steeper than the earlier ones by this factor, growth isn't linear."""


@dataclass(frozen=True, slots=True)
class Figure:
    """A measured value whose growth is described: title, unit, and the growth to be ignored."""

    key: str
    title: str
    scale: float = 1.0
    small: float = 0.0
    """Growth from end to end below this value is ignored."""


FIGURES = (
    Figure("cpu_per_million", "CPU s per million", small=0.05),
    Figure("ready_cpu_ms", "CPU ms until all is read", small=5.0),
    Figure("rss_ready", "memory, MB", 1e6, small=3.0),
    Figure("idle_cpu_ms", "CPU ms per idle second", small=1.5),
    Figure("idle_requests", "requests per idle second", small=2.5),
    Figure("threads", "threads", small=3.0),
    Figure("descriptors", "file descriptors", small=4.0),
)


def slope(points: Sequence[tuple[float, float]]) -> float:
    """Return the slope of the least-squares line through these points."""
    middle_x = sum(x for x, _ in points) / len(points)
    middle_y = sum(y for _, y in points) / len(points)
    spread = sum((x - middle_x) ** 2 for x, _ in points)
    return sum((x - middle_x) * (y - middle_y) for x, y in points) / spread if spread else 0.0


def verdict(points: Sequence[tuple[float, float]], small: float = 0.0) -> str:
    """Return whether growth is flat (or below `small`), linear, slower, faster, or negative."""
    if len(points) < 3:
        return "too few points"
    (first_x, first), (before_x, before), (last_x, last) = points[0], points[-2], points[-1]
    values = [y for _, y in points]
    grown = slope(points) * (last_x - first_x)
    if max(values) - min(values) < small or abs(grown) < NOISE * sum(values) / len(values):
        return "flat"
    if grown < 0:
        return "falls"
    until = (before - first) / (before_x - first_x)
    at_last = (last - before) / (last_x - before_x)
    if before - first < small or until <= 0:
        # The earlier sections are flat, so the last section's slope can't be compared with theirs.
        return "linear"
    if at_last > STEEPER * until:
        return "more than linear"
    return "less than linear" if at_last < until / STEEPER else "linear"


def table(results: Results, row: Row, lanes: list[Lane]) -> Iterator[str]:
    """Yield the lines of the table of one row's growth."""
    places = sorted({lane.at for lane in lanes})
    heads = " | ".join(f"{at:,.0f}" for at in places)
    many, _, _ = row.per.partition(" ")
    step = int(many.replace(",", ""))
    yield f"| | of | {heads} | for {row.per} more | |"
    yield "|---|---|" + "--:|" * (len(places) + 1) + "---|"
    for figure in FIGURES:
        for series in dict.fromkeys(lane.series for lane in lanes):
            found: dict[float, float] = {}
            failed: dict[float, str] = {}
            for lane in lanes:
                if lane.series == series:
                    median = results.median(row.key, lane.key, figure.key)
                    if median is not None:
                        found[lane.at] = median / figure.scale
                    elif not results.runs(row.key, lane.key):
                        failed[lane.at] = results.error(row.key, lane.key)
            if not found:
                continue
            cells = (_cell(at, found, failed) for at in places)
            points = sorted(found.items())
            rise, said = digits(step * slope(points)), verdict(points, figure.small)
            yield f"| {figure.title} | {series} | {' | '.join(cells)} | {rise} | {said} |"


def _cell(at: float, found: dict[float, float], failed: dict[float, str]) -> str:
    if at in found:
        return digits(found[at])
    return f"failed: {failed[at][:60]}" if at in failed else ""


def digits(value: float) -> str:
    """Format a number with three significant digits; counts have no decimals."""
    if abs(value - round(value)) < 1e-9 or abs(value) >= 100:
        return f"{value:,.0f}"
    if abs(value) >= 10:
        return f"{value:.1f}"
    return f"{value:.2f}" if abs(value) >= 0.095 else f"{value:.3f}"

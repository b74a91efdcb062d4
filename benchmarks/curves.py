"""How a figure grows along a row's points: a slope, and whether that is flat, linear or worse.

In: what was measured of a row with a `per`. Out: the lines of one table: of each client and figure
the medians at all points, the slope by least squares (in the figure's unit, for as many more of
what is counted as `per` says) and a verdict. Must not: leave a point out, or fit anything but a
line.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from benchmarks.rows import Lane, Row
    from benchmarks.table import Results

NOISE = 0.35
"""A line that rises or falls by less than this share of its middle, from end to end, is flat."""
STEEPER = 1.6
"""The last stretch is so many times as steep as all before it: more than linear, or less."""


@dataclass(frozen=True, slots=True)
class Figure:
    """One number of a measurement: what is shown of it, and what counts as nothing."""

    key: str
    title: str
    scale: float = 1.0
    small: float = 0.0
    """Growth of less than this, end to end, is no growth."""


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
    """The rise of the line through these points with the least squares, for one more of x."""
    middle_x = sum(x for x, _ in points) / len(points)
    middle_y = sum(y for _, y in points) / len(points)
    spread = sum((x - middle_x) ** 2 for x, _ in points)
    return sum((x - middle_x) * (y - middle_y) for x, y in points) / spread if spread else 0.0


def verdict(points: Sequence[tuple[float, float]], small: float = 0.0) -> str:
    """Flat, linear, or else; `small` is what counts as nothing."""
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
        # All before was flat or noise: only the line as a whole tells.
        return "linear"
    if at_last > STEEPER * until:
        return "more than linear"
    return "less than linear" if at_last < until / STEEPER else "linear"


def table(results: Results, row: Row, lanes: list[Lane]) -> Iterator[str]:
    """The lines of a row's table."""
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
    """Three digits that matter; none behind the point of what is counted."""
    if abs(value - round(value)) < 1e-9 or abs(value) >= 100:
        return f"{value:,.0f}"
    if abs(value) >= 10:
        return f"{value:.1f}"
    return f"{value:.2f}" if abs(value) >= 0.095 else f"{value:.3f}"

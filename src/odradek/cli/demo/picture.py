"""Description of a picture: curves in panels that share a time axis.

In: lines, a band for the outage, marks. Out: values that `svg` draws. Must not: interpret the
numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

BLUE, ORANGE, GREEN, RED = "#1f77b4", "#e67e00", "#2a8a3e", "#c0392b"
PURPLE, GREY, BLACK = "#7d3c98", "#999999", "#222222"


@dataclass(frozen=True, slots=True)
class Line:
    """Curve through points of (seconds, value)."""

    label: str
    colour: str
    points: Sequence[tuple[float, float]]
    width: float = 1.6


@dataclass(frozen=True, slots=True)
class Panel:
    """One of several panels, drawn below each other."""

    label: str
    lines: Sequence[Line] = ()
    height: float = 1.0
    """Height relative to the other panels."""

    @property
    def top(self) -> float:
        """Value at the panel's upper edge."""
        return 1.05 * (max((v for line in self.lines for _, v in line.points), default=0.0) or 1.0)


@dataclass(frozen=True, slots=True)
class Band:
    """Period that is shaded in all panels."""

    label: str
    colour: str
    start: float
    stop: float


@dataclass(frozen=True, slots=True)
class Mark:
    """Time with a dotted line in all panels; marks with the same label share a legend entry."""

    label: str
    colour: str
    at: float


@dataclass(frozen=True, slots=True)
class Entry:
    """Entry of the legend."""

    kind: Literal["band", "mark"]
    label: str
    colour: str


@dataclass(frozen=True, slots=True)
class PanelPicture:
    """Panels that share one time axis in seconds."""

    title: str
    """Title of the picture."""
    panels: Sequence[Panel]
    bands: Sequence[Band] = ()
    marks: Sequence[Mark] = ()
    subtitle: str = ""
    """Description of the run."""
    x_label: str = "seconds"

    @property
    def end(self) -> float:
        """The latest time in the picture, in seconds."""
        at = [x for panel in self.panels for line in panel.lines for x, _ in line.points]
        at += [band.stop for band in self.bands] + [mark.at for mark in self.marks]
        return max(at, default=0.0) or 1.0

    def legend(self) -> list[Entry]:
        """Return the legend of all panels; lines have their names beside them."""
        entries = [Entry("band", band.label, band.colour) for band in self.bands]
        entries += [Entry("mark", mark.label, mark.colour) for mark in self.marks]
        return list(dict.fromkeys(entries))


def labels(panel: Panel, apart: float) -> list[tuple[float, Line]]:
    """Return the height of each line's name beside its end, as a fraction of the panel.

    Names of lines that end close together are `apart` from each other.
    """
    named = [(line.points[-1][1] / panel.top, line) for line in panel.lines if line.points]
    named.sort(key=lambda at: -at[0])  # the highest line's name comes first
    placed: list[tuple[float, Line]] = []
    limit = 1.0 - apart / 2
    for n, (at, line) in enumerate(named):
        lowest = apart * (len(named) - n - 0.5)  # leaves space for the names of lower lines
        limit = min(limit, max(at, lowest))
        placed.append((limit, line))
        limit -= apart
    return placed

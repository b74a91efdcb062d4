"""What a picture shows, said once; drawn as SVG always and as PNG where matplotlib is installed.

In: lines, lanes, a band for the outage, marks. Out: `<stem>.svg`, which needs nothing but us, and
`<stem>.png`. Must not: know what the numbers mean.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

BLUE, ORANGE, GREEN, RED = "#1f77b4", "#e67e00", "#2a8a3e", "#c0392b"
PURPLE, GREY, BLACK = "#7d3c98", "#999999", "#222222"


@dataclass(frozen=True, slots=True)
class Line:
    """A curve: points of (seconds, value)."""

    label: str
    colour: str
    points: Sequence[tuple[float, float]]
    width: float = 1.6


@dataclass(frozen=True, slots=True)
class Lane:
    """A bar of one client along the time: spans of (start, end, colour), and a word about it."""

    name: str
    spans: Sequence[tuple[float, float, str]]
    note: str = ""


@dataclass(frozen=True, slots=True)
class Panel:
    """One of the axes below each other: curves or lanes, not both."""

    label: str
    lines: Sequence[Line] = ()
    lanes: Sequence[Lane] = ()
    height: float = 1.0
    """Compared with the other panels."""

    @property
    def top(self) -> float:
        """The value at its upper edge."""
        return 1.05 * (max((v for line in self.lines for _, v in line.points), default=0.0) or 1.0)


@dataclass(frozen=True, slots=True)
class Band:
    """A stretch of time, shaded in all panels."""

    label: str
    colour: str
    start: float
    stop: float


@dataclass(frozen=True, slots=True)
class Mark:
    """A moment, dotted in all panels; those with one label share a word of the legend."""

    label: str
    colour: str
    at: float


@dataclass(frozen=True, slots=True)
class Entry:
    """One word of the legend."""

    kind: Literal["band", "mark", "box"]
    label: str
    colour: str


@dataclass(frozen=True, slots=True)
class PanelPicture:
    """Panels that share one axis of seconds."""

    title: str
    """What it shows to have happened."""
    panels: Sequence[Panel]
    bands: Sequence[Band] = ()
    marks: Sequence[Mark] = ()
    key: Sequence[tuple[str, str]] = ()
    """What the colours of the lanes mean: (label, colour)."""
    subtitle: str = ""
    """What was done."""
    x_label: str = "seconds"

    @property
    def end(self) -> float:
        """The last second that anything is drawn at."""
        at = [x for panel in self.panels for line in panel.lines for x, _ in line.points]
        at += [x for panel in self.panels for lane in panel.lanes for _, x, _ in lane.spans]
        at += [band.stop for band in self.bands] + [mark.at for mark in self.marks]
        return max(at, default=0.0) or 1.0

    def legend(self) -> list[Entry]:
        """What holds for all panels; lines have their names beside them."""
        entries = [Entry("box", label, colour) for label, colour in self.key]
        entries += [Entry("band", band.label, band.colour) for band in self.bands]
        entries += [Entry("mark", mark.label, mark.colour) for mark in self.marks]
        return list(dict.fromkeys(entries))


def labels(panel: Panel, apart: float) -> list[tuple[float, Line]]:
    """The height of each line's name beside its end, as a share of the panel (0 to 1).

    Lines that end together have their names below each other, `apart` from each other.
    """
    named = [(line.points[-1][1] / panel.top, line) for line in panel.lines if line.points]
    named.sort(key=lambda at: -at[0])  # of those that end together the first one stays above
    placed: list[tuple[float, Line]] = []
    limit = 1.0 - apart / 2
    for n, (at, line) in enumerate(named):
        lowest = apart * (len(named) - n - 0.5)  # room for those that come below
        limit = min(limit, max(at, lowest))
        placed.append((limit, line))
        limit -= apart
    return placed


def draw(picture: PanelPicture, stem: Path) -> list[Path]:
    """Write the picture, and say which files it is in."""
    drawn = [stem.with_suffix(".svg")]
    if find_spec("matplotlib") is not None:
        drawn.append(stem.with_suffix(".png"))
    for file in drawn:
        write(picture, file)
    return drawn


def write(picture: PanelPicture, file: Path) -> None:
    """Write the picture into this one file, as PNG (by matplotlib) or as SVG by its ending."""
    if file.suffix == ".png":
        from odradek.cli.demo import png

        png.render(picture, file)
    else:
        from odradek.cli.demo import svg

        file.write_text(svg.render(picture), encoding="utf-8")

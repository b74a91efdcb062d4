"""Draw a picture as SVG without a library, so that the demo needs no extra.

In: a `PanelPicture`. Out: the text of an SVG file. Must not: import other packages.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from html import escape
from pathlib import Path

from odradek.cli.demo.picture import Line, Panel, PanelPicture
from odradek.cli.demo.picture import labels as picture_labels

WIDTH = 1150
LEFT, RIGHT, TOP, BOTTOM = 80, 270, 62, 76
PANEL, GAP = 270, 22
CHARACTER, TEXT = 6.6, 18
"""Approximate width of a letter, and height of a line of text, in pixels."""
BOLD = 0.56
"""Approximate width of a bold letter, as a fraction of the font size."""
STYLE = (
    "text{font-family:Helvetica,Arial,sans-serif;font-size:12px;fill:#222}"
    ".title{font-weight:bold}.tick{fill:#555}.grid{stroke:#ddd}.frame{fill:none;stroke:#888}"
)


class Scale:
    """Converts seconds or values to pixels."""

    def __init__(self, low: float, high: float, first: float, last: float) -> None:
        self._low, self._first = low, first
        self._factor = (last - first) / ((high - low) or 1.0)

    def __call__(self, value: float) -> float:
        """Return a position in pixels, rounded to a tenth."""
        return round(self._first + (value - self._low) * self._factor, 1)


def ticks(high: float, most: int) -> list[float]:
    """Return round numbers from 0 to `high`, with at most `most` intervals."""
    if high <= 0:
        return [0.0]
    magnitude = 10.0 ** math.floor(math.log10(high / most))
    step = next(m * magnitude for m in (1, 2, 5, 10, 20) if high / (m * magnitude) <= most)
    return [n * step for n in range(int(high / step + 1e-9) + 1)]


def write(picture: PanelPicture, file: Path) -> None:
    """Write the picture into this file, as SVG."""
    file.write_text(render(picture), encoding="utf-8")


def render(picture: PanelPicture) -> str:
    """Return the text of the whole SVG file."""
    x = Scale(0.0, picture.end, LEFT, WIDTH - RIGHT)
    body: list[str] = []
    top = float(TOP)
    for panel in picture.panels:
        height = PANEL * panel.height
        body += _panel(picture, panel, x, (LEFT, top, WIDTH - RIGHT, top + height))
        top += height + GAP
    bottom = top - GAP
    for tick in ticks(picture.end, 12):
        body.append(_text(x(tick), bottom + 18, f"{tick:,g}", "tick", "middle"))
    body.append(_text((LEFT + WIDTH - RIGHT) / 2, bottom + 36, picture.x_label, "", "middle"))
    body += _legend(picture, LEFT, bottom + 60)
    height = round(bottom + BOTTOM)
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
        f'width="{WIDTH}" height="{height}"><style>{STYLE}</style>'
        f'<rect width="{WIDTH}" height="{height}" fill="white"/>'
    )
    titles = [_title(picture.title)]
    titles.append(_text(20, 46, picture.subtitle, "tick", "start"))
    return "\n".join([head, *titles, *body, "</svg>"]) + "\n"


Box = tuple[float, float, float, float]
"""Left, top, right, bottom in pixels."""


def _panel(picture: PanelPicture, panel: Panel, x: Scale, box: Box) -> Iterator[str]:
    left, top, right, bottom = box
    for band in picture.bands:
        start, stop = x(band.start), x(band.stop)
        yield _box(start, top, stop - start, bottom - top, band.colour, opacity=0.14)
    yield from _lines(panel, x, box)
    for mark in picture.marks:
        at = x(mark.at)
        yield _line((at, top), (at, bottom), mark.colour, dotted=True)
    size = f'width="{right - left}" height="{bottom - top}"'
    yield f'<rect class="frame" x="{left}" y="{top}" {size}/>'
    apart = TEXT / (bottom - top)
    for share, named in picture_labels(panel, apart):
        y = round(bottom - share * (bottom - top), 1)
        words = escape(named.label)
        yield f'<text x="{right + 10}" y="{y + 4}" style="fill:{named.colour}">{words}</text>'


def _lines(panel: Panel, x: Scale, box: Box) -> Iterator[str]:
    left, top, right, bottom = box
    y = Scale(0.0, panel.top, bottom, top)
    for tick in ticks(panel.top, 6):
        yield f'<line class="grid" x1="{left}" x2="{right}" y1="{y(tick)}" y2="{y(tick)}"/>'
        yield _text(left - 8, y(tick) + 4, f"{tick:,g}", "tick", "end")
    middle = (top + bottom) / 2
    yield (
        f'<text transform="translate({left - 58} {middle}) rotate(-90)" text-anchor="middle">'
        f"{escape(panel.label)}</text>"
    )
    for line in panel.lines:
        yield _curve(line, x, y)


def _curve(line: Line, x: Scale, y: Scale) -> str:
    points = " ".join(f"{x(at)},{y(value)}" for at, value in line.points)
    return (
        f'<polyline points="{points}" fill="none" stroke="{line.colour}" '
        f'stroke-width="{line.width}"/>'
    )


def _legend(picture: PanelPicture, left: float, y: float) -> Iterator[str]:
    for entry in picture.legend():
        if entry.kind == "mark":
            yield _line((left, y), (left + 24, y), entry.colour, dotted=True)
        else:
            yield _box(left, y - 6, 24, 12, entry.colour, opacity=0.14)
        yield _text(left + 32, y + 4, entry.label, "", "start")
        left += 56 + CHARACTER * len(entry.label)


def _title(words: str) -> str:
    """Return the title, in a smaller font if it is too long for the width."""
    size = round(min(16.0, (WIDTH - 40) / (BOLD * max(1, len(words)))), 1)
    return f'<text x="20" y="26" class="title" style="font-size:{size}px">{escape(words)}</text>'


def _text(x: float, y: float, words: str, kind: str, anchor: str) -> str:
    name = f' class="{kind}"' if kind else ""
    return f'<text x="{x}" y="{y}"{name} text-anchor="{anchor}">{escape(words)}</text>'


def _line(
    start: tuple[float, float],
    stop: tuple[float, float],
    colour: str,
    width: float = 1.6,
    *,
    dotted: bool,
) -> str:
    dots = ' stroke-dasharray="2 3"' if dotted else ""
    return (
        f'<line x1="{start[0]}" y1="{start[1]}" x2="{stop[0]}" y2="{stop[1]}" '
        f'stroke="{colour}" stroke-width="{width}"{dots}/>'
    )


def _box(x: float, y: float, width: float, height: float, colour: str, *, opacity: float) -> str:
    return (
        f'<rect x="{x}" y="{round(y, 1)}" width="{round(max(width, 0.0), 1)}" '
        f'height="{round(height, 1)}" fill="{colour}" fill-opacity="{opacity}"/>'
    )

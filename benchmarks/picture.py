"""The picture of the benchmarks for the README: bars of records per second, as SVG.

In: results. Out: the text of an SVG file. Written by hand, so that no drawing library is needed.
Must not: draw what wasn't measured, or cut an axis: every bar begins at nought.
"""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from benchmarks.rows import ROWS, Row
from benchmarks.table import Results

DRAWN = ("consume", "consume-lz4", "consume-1k", "produce", "produce-lz4")
WIDTH, LABELS, RIGHT, TOP, BAR, GAP, TITLE = 860, 250, 90, 56, 15, 5, 46
OURS, THEIRS, CEILING = "#c2410c", "#94a3b8", "#d6d3d1"
STYLE = (
    "text{font-family:Helvetica,Arial,sans-serif;font-size:12px;fill:#222}"
    ".head{font-size:16px}.row{font-size:13px;font-weight:bold}.small{fill:#555;font-size:11px}"
)


def render(results: Results, note: str) -> str:
    """The whole file; `note` says on what it was measured."""
    rows = [ROWS[key] for key in DRAWN if results.measured(ROWS[key])]
    body: list[str] = []
    top = float(TOP)
    for row in rows:
        lines = list(_panel(results, row, top))
        body += lines
        top += TITLE + len(_speeds(results, row)) * (BAR + GAP)
    height = round(top + 20)
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
        f'width="{WIDTH}" height="{height}"><style>{STYLE}</style>'
        f'<rect width="{WIDTH}" height="{height}" fill="white"/>'
    )
    title = _text(20, 26, "Million records a second (more is better)", "head")
    return "\n".join([head, title, _text(20, 44, note, "small"), *body, "</svg>"]) + "\n"


def _speeds(results: Results, row: Row) -> list[tuple[str, str, float]]:
    """Lanes with figures, the quickest first."""
    found = [
        (lane.client, lane.title, speed)
        for lane in results.measured(row)
        if (speed := results.median(row.key, lane.key, "speed")) is not None
    ]
    return sorted(found, key=lambda lane: -lane[2])


def _panel(results: Results, row: Row, top: float) -> Iterator[str]:
    speeds = _speeds(results, row)
    yield _text(20, top + 24, row.title, "row")
    longest = max((speed for _, _, speed in speeds), default=1.0)
    room = WIDTH - LABELS - RIGHT
    for n, (client, title, speed) in enumerate(speeds):
        at = top + TITLE - 12 + n * (BAR + GAP)
        colour = {"odradek": OURS, "raw": CEILING}.get(client, THEIRS)
        wide = max(1.0, room * speed / longest)
        yield _text(LABELS - 8, at + BAR - 3, title, "", "end")
        yield (
            f'<rect x="{LABELS}" y="{at:.1f}" width="{wide:.1f}" height="{BAR}" fill="{colour}"/>'
        )
        yield _text(LABELS + wide + 6, at + BAR - 3, f"{speed / 1e6:.2f}", "small")


def _text(x: float, y: float, words: str, kind: str, anchor: str = "start") -> str:
    name = f' class="{kind}"' if kind else ""
    return f'<text x="{x:.1f}" y="{y:.1f}"{name} text-anchor="{anchor}">{escape(words)}</text>'

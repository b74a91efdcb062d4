"""Draw the picture of the benchmarks for the README: bars of records per second, as SVG.

In: results. Out: the text of an SVG file, written without a drawing library. Must not: draw a value
that wasn't measured, or cut an axis: every bar starts at zero.
"""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from benchmarks.rows import ROWS, Row
from benchmarks.table import Results

DRAWN = ("consume", "produce", "consume-lz4", "produce-lz4")
"""Keys of the drawn rows from left to right, two in a line."""
WIDTH, TOP, BAR, GAP, HEAD = 860, 70, 15, 5, 34
COLUMN, LABELS, FIGURE = WIDTH // 2, 188, 42
"""Width of one panel, of the clients' names in it, and of the number after the longest bar."""
OURS, THEIRS = "#c2410c", "#94a3b8"
STYLE = (
    "text{font-family:Helvetica,Arial,sans-serif;font-size:12px;fill:#222}"
    ".head{font-size:16px}.row{font-size:13px;font-weight:bold}.small{fill:#555;font-size:11px}"
)


def render(results: Results, note: str) -> str:
    """Return the text of the SVG file; `note` describes the machine."""
    rows = [ROWS[key] for key in DRAWN if results.measured(ROWS[key])]
    panels = [(row, _speeds(results, row)) for row in rows]
    body: list[str] = []
    top = float(TOP)
    for pair in (panels[n : n + 2] for n in range(0, len(panels), 2)):
        for column, (row, speeds) in enumerate(pair):
            body += _panel(row, speeds, column * COLUMN, top)
        top += HEAD + max(len(speeds) for _, speeds in pair) * (BAR + GAP) + 16
    height = round(top)
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
        f'width="{WIDTH}" height="{height}"><style>{STYLE}</style>'
        f'<rect width="{WIDTH}" height="{height}" fill="white"/>'
    )
    title = _text(20, 26, "Million records a second (more is better)", "head")
    quickest = "of each other client its quickest way; each panel has a scale of its own"
    notes = [_text(20, 44, note, "small"), _text(20, 60, quickest, "small")]
    return "\n".join([head, title, *notes, *body, "</svg>"]) + "\n"


def _speeds(results: Results, row: Row) -> list[tuple[str, str, float]]:
    """Return each client's highest speed, for Odradek with and without Arrow, sorted by speed."""
    best: dict[tuple[str, bool], tuple[str, str, float]] = {}
    for lane in results.measured(row):
        speed = results.median(row.key, lane.key, "speed")
        if speed is None or lane.client == "raw":  # "raw" isn't a client but the broker's limit
            continue
        way = (lane.client, lane.client == "odradek" and "Arrow" in lane.title)
        if way not in best or speed > best[way][2]:
            best[way] = (lane.client, lane.title, speed)
    return sorted(best.values(), key=lambda lane: -lane[2])


def _panel(
    row: Row, speeds: list[tuple[str, str, float]], left: float, top: float
) -> Iterator[str]:
    yield _text(left + 20, top + 16, row.title, "row")
    longest = max((speed for _, _, speed in speeds), default=1.0)
    begin, room = left + LABELS, COLUMN - LABELS - FIGURE
    for n, (client, title, speed) in enumerate(speeds):
        at = top + HEAD - 6 + n * (BAR + GAP)
        colour = OURS if client == "odradek" else THEIRS
        wide = max(1.0, room * speed / longest)
        yield _text(begin - 8, at + BAR - 3, title, "", "end")
        yield f'<rect x="{begin}" y="{at:.1f}" width="{wide:.1f}" height="{BAR}" fill="{colour}"/>'
        yield _text(begin + wide + 6, at + BAR - 3, f"{speed / 1e6:.2f}", "small")


def _text(x: float, y: float, words: str, kind: str, anchor: str = "start") -> str:
    name = f' class="{kind}"' if kind else ""
    return f'<text x="{x:.1f}" y="{y:.1f}"{name} text-anchor="{anchor}">{escape(words)}</text>'

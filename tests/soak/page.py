"""The report of a soak as one HTML page with its pictures.

In: reports as JSON documents, the course of each round. Out: a file that needs no other file. Must
not: judge the results.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from odradek.cli.demo.picture import (
    BLUE,
    GREEN,
    ORANGE,
    PURPLE,
    RED,
    Band,
    Line,
    Panel,
    PanelPicture,
)
from odradek.cli.demo.svg import render

COLOURS = {
    "kill": RED,
    "pause": ORANGE,
    "move": PURPLE,
    "roll": BLUE,
    "reassign": GREEN,
    "throttle": "#8c6d1f",
    "lose answers": "#0b7a75",
}
LINES = (BLUE, ORANGE, GREEN, RED, PURPLE, "#8c6d1f", "#0b7a75", "#555555", "#c2185b", "#4e79a7")
STYLE = """
body { font: 15px/1.5 Helvetica, Arial, sans-serif; color: #222; max-width: 1160px;
  margin: 2em auto; padding: 0 1em; }
table { border-collapse: collapse; margin: 1em 0; }
th, td { border-bottom: 1px solid #ddd; padding: .25em .8em; text-align: left; }
td.n { text-align: right; font-variant-numeric: tabular-nums; }
.bad { color: #a32018; font-weight: bold; } .good { color: #1d6b31; font-weight: bold; }
svg { max-width: 100%; height: auto; } pre { white-space: pre-wrap; }
"""
GOOD = "Nothing was lost, duplicated or out of order."
Points = Sequence[Sequence[float]]


def rates(points: Points) -> list[tuple[float, float]]:
    """Return the increase per second between consecutive points."""
    pairs = itertools.pairwise(points)
    return [(b[0], max(0.0, (b[1] - a[1]) / (b[0] - a[0]))) for a, b in pairs if b[0] > a[0]]


def picture(title: str, course: Mapping[str, Any]) -> str:
    """Return the faults, the throughput, the lag and the resources of a round as SVG."""
    series: Mapping[str, Points] = course["series"]

    def lines(prefix: str, *, rate: bool = False, first: int = 0) -> list[Line]:
        found = [(name, points) for name, points in series.items() if name.startswith(prefix)]
        return [
            Line(
                name.partition(", ")[2] or name,
                LINES[(first + n) % len(LINES)],
                rates(points) if rate else [(x, y) for x, y in points],
            )
            for n, (name, points) in enumerate(found)
        ]

    done = [*lines("acknowledged", rate=True), *lines("processed", rate=True, first=1)]
    panels = [
        Panel("records/s", done),
        Panel("lag, records", lines("lag", first=1), 0.7),
        Panel("memory, MB", lines("memory_mb"), 1.0),
        Panel("objects", lines("objects"), 0.8),
        Panel("descriptors", lines("descriptors"), 0.7),
        Panel("log lines/min", [_per_minute(line) for line in lines("log_lines", rate=True)], 0.7),
    ]
    bands = [Band(kind, COLOURS[kind], begun, ended) for kind, begun, ended in course["faults"]]
    return render(PanelPicture(title, panels, bands, subtitle="bands: faults of brokers"))


def _per_minute(line: Line) -> Line:
    return Line(line.label, line.colour, [(x, y * 60.0) for x, y in line.points])


def page(title: str, document: Mapping[str, Any], courses: Iterable[Mapping[str, Any]]) -> str:
    """Return the whole page."""
    ok = document["ok"]
    body = [
        f"<h1>{escape(title)}</h1>",
        f'<p class="{"good" if ok else "bad"}">{GOOD if ok else "FAILED"}</p>',
    ]
    failures = [*document["missed"], *(f for r in document["rounds"] for f in r["failures"])]
    if failures:
        body.append("<ul>" + "".join(f"<li>{escape(text)}</li>" for text in failures) + "</ul>")
    body += ["<h2>Coverage</h2>", table(("fault or event", "count"), document["coverage"].items())]
    for n, (report, course) in enumerate(zip(document["rounds"], courses, strict=True)):
        words = f"Round {n}: seed {report['seed']}, {report['seconds']:,.0f} s"
        body += [f"<h2>{words}</h2>", picture(words, course)]
        slopes = [
            (f"{kind}, {process}", per_hour)
            for kind, found in report["slopes"].items()
            for process, per_hour in found.items()
        ]
        body += ["<h3>Growth per hour</h3>", table(("resource, process", "per hour"), slopes)]
    text = escape(json.dumps(document, indent=1))
    body.append(f"<details><summary>The report as JSON</summary><pre>{text}</pre></details>")
    return (
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}'
        f"</title><style>{STYLE}</style></head><body>\n" + "\n".join(body) + "\n</body></html>\n"
    )


def table(head: Sequence[str], rows: Iterable[tuple[str, float]]) -> str:
    """Return a table of names and numbers."""
    body = "".join(
        f'<tr><td>{escape(name)}</td><td class="n{"" if value else " bad"}">{value:,}</td></tr>'
        for name, value in rows
    )
    names = "".join(f"<th>{escape(word)}</th>" for word in head)
    return f"<table><tr>{names}</tr>{body}</table>"


def write(path: Path, title: str, document: Mapping[str, Any], courses: Any) -> None:
    """Write the page."""
    path.write_text(page(title, document, courses), encoding="utf-8")

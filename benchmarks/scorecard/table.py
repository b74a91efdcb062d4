"""Write the scorecard's table: medians with ranges, and which client is first in each row.

In: the report (see `run.Scorecard.report`). Out: text for the terminal, Markdown for the
documentation. Must not: leave anything out because it looks bad.
"""

from __future__ import annotations

from typing import Any

from benchmarks.scorecard.rows import ROWS, Figure
from rich.console import Console
from rich.table import Table

OURS = {"odradek": "Odradek", "odradek-asyncio": "Odradek in an event loop"}
"""Odradek's columns, with their names in the list of rows in which they aren't first."""
FIRST = "●"
NEVER = "never"
NOT_COUNTED = "not counted"


def number(value: float | None, unit: str = "") -> str:
    """Format a value; a count has no unit and, unless it is an average, no decimals."""
    if value is None:
        return NEVER
    if not unit and value == int(value):
        return f"{int(value):,}"
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def rank(figure: Figure, cells: dict[str, dict[str, Any]]) -> set[str]:
    """Return the clients whose medians are the best or tied with the best."""
    medians = {
        client: figures[figure.name]["median"]
        for client, figures in cells.items()
        if figures[figure.name]["median"] is not None
        and (figure.needs is None or figures[figure.needs]["median"] is not None)
    }
    if not medians:
        return set()
    limit = min(medians.values()) * (1 + figure.share) + figure.slack
    if figure.enough is not None:
        limit = max(limit, figure.enough)
    return {client for client, median in medians.items() if median <= limit}


def lost(report: dict[str, Any], ours: str = "odradek") -> list[str]:
    """Return the rows and values in which Odradek's column isn't first or tied, or has no value."""
    found = []
    for key, row in report["rows"].items():
        cell = row["cells"].get(ours)
        if cell is None:
            continue
        if cell["not_run"]:
            found.append(f"{key} ({row['title']}): not run")
            continue
        for figure in ROWS[key].figures:
            counted = cell["figures"][figure.name]["counted"]
            if figure.ranked and counted and ours not in row["first"][figure.name]:
                found.append(f"{key} ({row['title']}): {figure.title}")
    return found


def text_of(report: dict[str, Any], key: str, figure: Figure, client: str) -> str:
    """Return the text of one table cell."""
    row = report["rows"][key]
    cell = row["cells"][client]
    if cell["not_run"]:
        return "not run"
    found = cell["figures"][figure.name]
    if not found["counted"]:
        return NOT_COUNTED
    text = number(found["median"], figure.unit)
    if figure.words is not None:
        none, some, unasked = figure.words
        asked = figure.needs is None or cell["figures"][figure.needs]["median"] is not None
        text = unasked if not asked else some.format(text) if found["median"] else none
    low, high = number(found["min"], figure.unit), number(found["max"], figure.unit)
    if low != high:
        text += f" ({low} to {high})"
    if figure.ranked and client in row["first"][figure.name]:
        text += f" {FIRST}"
    return text


def _columns(report: dict[str, Any]) -> list[str]:
    versions = report["versions"]
    return [f"{title} {versions.get(key, '')}".strip() for key, title in report["clients"].items()]


def _lines(report: dict[str, Any]) -> list[list[str]]:
    lines = []
    for key, row in report["rows"].items():
        for i, figure in enumerate(ROWS[key].figures):
            unit = f" [{figure.unit}]" if figure.unit else ""
            name = f"{key}: {row['title']}: {figure.title}" if not i else f"… {figure.title}"
            cells = [text_of(report, key, figure, client) for client in report["clients"]]
            lines.append([name + unit, *cells])
    return lines


def remarks(report: dict[str, Any]) -> list[str]:
    """Return the remarks that are shown below the table."""
    at = report["machine"]
    runs = report["runs"]
    dates = sorted({cell["date"] for row in report["rows"].values()
                    for cell in row["cells"].values() if cell.get("date")})  # fmt: skip
    when = f"Measured on {report['date']}:"
    if len(dates) > 1:  # `--update` keeps results that it doesn't measure again
        when = f"Measured on {' and '.join(dates)}; on the last day:"
    found = [
        f"{runs} runs a cell, median (range); lower is better; {FIRST} first or tied first."
        if runs > 1
        else f"One run a cell; lower is better; {FIRST} first or tied first.",
        (
            f"{when} {at['cpu']}, {at['cores']} cores, {at['system']}, "
            f"Python {at['python']}, load {at['load']} at the end."
        ),
    ]
    reasons: dict[str, list[str]] = {}
    for key, row in report["rows"].items():
        for client, cell in row["cells"].items():
            if cell["not_run"]:
                text = f"{report['clients'][client]}: {cell['not_run']}"
                reasons.setdefault(text, []).append(key)
    found += [f"Not run ({', '.join(keys)}): {text}" for text, keys in reasons.items()]
    for key, row in report["rows"].items():
        failed = [
            f"{report['clients'][client]} ({run['error']})"
            for client, cell in row["cells"].items()
            if not cell["not_run"]
            for run in cell["runs"]
            if run["error"]
        ]
        if failed:
            found.append(f"Runs of row {key} that failed and aren't counted: {'; '.join(failed)}")
    if "C" in report["rows"]:
        without = [
            report["clients"][client]
            for client, cell in report["rows"]["C"]["cells"].items()
            if not cell["not_run"]
            and all((r.get("notes") or {}).get("metadata_version", 13) < 13 for r in cell["runs"])
        ]
        if without:
            found.append(
                f"Row C: {' and '.join(without)} can't receive error 129, which exists since "
                "Metadata version 13; older versions receive partitions without a leader."
            )
    ties = [
        f"{key} {number(figure.enough, figure.unit)}{figure.unit and ' '}{figure.unit}"
        for key in report["rows"]
        for figure in ROWS[key].figures
        if figure.ranked and figure.enough is not None
    ]
    if ties:
        found.append(f"Tied first whatever the best is, up to: {', '.join(ties)} (METHOD.md: why).")
    for ours, name in OURS.items():
        if ours in report["clients"]:
            losses = lost(report, ours)
            found.append(
                f"{name} isn't first or tied first in: " + "; ".join(losses)
                if losses
                else f"{name} is first or tied first in every row above."
            )
    return found


README_BEGIN = "<!-- scorecard: make scorecard writes what follows -->"
README_END = "<!-- scorecard: end -->"
README_ROWS = {
    "D3": "Three brokers replaced, connections refused: seconds to the first accepted record",
    "E3": "Three brokers replaced, connection attempts unanswered: seconds to the first accepted "
    "record",
    "B": "Connections accepted, then reset: attempts in 40 s",
    "G": "Bootstrap address leads to the wrong cluster: records it accepted in 60 s",
}
"""Rows in the README by key, and their titles there."""
INTRODUCTION = """\
# Scorecard

This page compares client libraries while the brokers fail, move, or answer wrongly. Each library
runs in its own process, with its default settings, against the same simulated brokers.
`make scorecard` writes this page; [METHOD.md](../benchmarks/scorecard/METHOD.md) describes each row
and how it is measured. Times of recovery are the brokers', by one clock for all libraries; those of
rows I and J are the calling program's.

A cell has the median of the runs, then their range. Lower is better. "Never" means not within 60 s.
● marks the best result and those tied with it: within a quarter of the best and 0.25 s for times,
within a fifth for connection attempts, or
[good enough](../benchmarks/scorecard/METHOD.md#when-two-are-tied) whatever the best is. Throughput
is measured on another page: [performance.md](performance.md).

"""


def markdown(report: dict[str, Any]) -> str:
    """Return the page for the documentation."""
    notes = "\n".join(f"- {remark}" for remark in remarks(report))
    lines = _markdown_table(["", *_columns(report)], _lines(report))
    return f"{INTRODUCTION}{lines}\n\n{notes}\n"


def into_readme(text: str, report: dict[str, Any]) -> str:
    """Return the README with four rows' medians between its marks; raise if it has no marks."""
    before, begin, rest = text.partition(README_BEGIN)
    _, end, after = rest.partition(README_END)
    if not begin or not end:
        raise ValueError(f"there is no place between {README_BEGIN} and {README_END}")
    clients = [client for client in report["clients"] if client != "odradek-asyncio"]
    lines = [
        [title, *(_median(report, key, client) for client in clients)]
        for key, title in README_ROWS.items()
        if key in report["rows"]
    ]
    short = _markdown_table(["", *(report["clients"][client] for client in clients)], lines)
    return f"{before}{begin}\n{short}\n{end}{after}"


def _median(report: dict[str, Any], key: str, client: str) -> str:
    """Return the text of a cell in the README: only the median."""
    return text_of(report, key, ROWS[key].figures[0], client).partition(" (")[0].strip(f" {FIRST}")


def _markdown_table(header: list[str], lines: list[list[str]]) -> str:
    rows = ["| " + " | ".join(header) + " |", "|---" * len(header) + "|"]
    rows += ["| " + " | ".join(cell.replace("|", "/") for cell in cells) + " |" for cells in lines]
    return "\n".join(rows)


def show(report: dict[str, Any]) -> None:
    """Print the table on the terminal."""
    console = Console(width=None if Console().is_terminal else 200)
    shown = Table(show_lines=False, header_style="bold")
    for i, name in enumerate(["", *_columns(report)]):
        shown.add_column(name, justify="left" if not i else "right")
    for line in _lines(report):
        shown.add_row(*line)
    console.print(shown)
    for remark in remarks(report):
        console.print(remark, markup=False, highlight=False, soft_wrap=True)

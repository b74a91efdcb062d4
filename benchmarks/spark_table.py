"""Write tables of the results of `benchmarks.spark`, and of the goals.

    python -m benchmarks.spark_table [artifacts/bench-spark.json] [--docs]

In: its JSON. Out: Markdown; with --docs the tables between the marks `<!-- bench-spark NAME -->`
and `<!-- end -->` of docs/spark.md and docs/performance.md, and the JSON in docs. Must not:
measure, change the text between the tables, or leave out failures.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.spark_goals import cpu, judged, median, python_cpu, rate, ratio, runs_of

ROOT = Path(__file__).resolve().parent.parent
FOUND = ROOT / "artifacts" / "bench-spark.json"
DOCS = ROOT / "docs"
PAGES = ("spark.md", "performance.md")
_MARKED = re.compile(r"(<!-- bench-spark (?P<name>.+?) -->\n)(.*?)(<!-- end -->)", re.DOTALL)
SHORT = (
    ("read/noop", "all columns into noop"),
    ("read/sum", "`sum(length(value))`"),
    ("read/count", "`count`"),
    ("read/value", "`value` alone into noop"),
    ("sink", "the sink, at_least_once"),
    ("copy", "a topic into a topic, at_least_once"),
)


def markdown(store: dict[str, Any]) -> str:
    """Return all tables as Markdown."""
    return f"{taken(store)}\n\n{goals(store)}\n\n{details(store)}\n"


def taken(store: dict[str, Any]) -> str:
    """Return the circumstances of the measurement, and which rows are missing."""
    sitting = store["sitting"]
    machine = sitting["machine"]
    text = (
        f"Taken on {sitting['id']} UTC at commit {sitting['commit']}: {machine['cpu']}, "
        f"{machine['cores']} cores shared with the broker (Kafka {sitting['kafka']}), load "
        f"{machine['load']} at the start, Python "
        f"{machine['python']}, pyarrow {sitting['packages']['pyarrow']}, local[2], "
        f"{sitting['records']:,} records of 100 bytes with keys of 16 in 4 partitions, "
        f"medians of {sitting['runs']} runs (lowest–highest)."
    )
    for later in store.get("again", []):
        text += f"\n\n{', '.join(later['rows'])}: once more on {later['id']} UTC ({later['why']})."
    if store["skipped"]:
        text += f"\n\nNot measured: {store['skipped']}"
    return text


def goals(store: dict[str, Any]) -> str:
    """Return a table of the goals with the reached values."""
    lines = [_line(["", "Spark", "goal", "reached", ""]), _line(["---"] * 5)]
    for goal, lane, reached in judged(store):
        cells = ["failed", "**missed**"]
        if reached is not None:
            shown = f"{reached:,.0f}" if reached >= 1000 else f"{reached:.2f}"
            cells = [f"{shown}{goal.unit}", goal.verdict(reached)]
        lines.append(_line([goal.text, lane["spark"], goal.wanted(), *cells]))
    return "\n".join(lines)


def summary(store: dict[str, Any]) -> str:
    """Return a table of million rows per second by query, with the ratio to the JVM connector's."""
    columns = ("jvm", "jvm-tuned", "odradek-4.2", "odradek")
    head = ("", "JVM 4.2.0", "JVM 4.2.0, tuned", *_ours(store, columns[2:]))
    lines = [_line([*head]), _line(["---"] * len(head))]
    for key, title in SHORT:
        row = store["rows"].get(key)
        if row is None:
            continue
        cells = []
        for lane in columns:
            speed = median(row, lane, rate)
            text = f"{speed / 1e6:.2f}" if speed is not None else "–"
            if lane in columns[2:]:
                times = [ratio(row, lane, other) for other in columns[:2]]
                shown = [f"{found:.1f} ×" for found in times if found is not None]
                text += f" ({', '.join(shown)})" if shown else ""
            cells.append(text)
        lines.append(_line([title, *cells]))
    return "\n".join(lines)


def _ours(store: dict[str, Any], lanes: tuple[str, ...]) -> list[str]:
    rows = [row["lanes"] for row in store["rows"].values()]
    sparks = [next((row[lane]["spark"] for row in rows if lane in row), "–") for lane in lanes]
    return [f"Odradek on {spark}" for spark in sparks]


def details(store: dict[str, Any]) -> str:
    """Return one table of all measured values for each row."""
    parts = []
    for key, row in store["rows"].items():
        table = _TABLES.get(key, _speeds)(row)
        parts.append(f"**{row['title']}**\n\n{table}")
    return "\n\n".join(parts)


def _speeds(row: dict[str, Any]) -> str:
    others = [lane for lane in ("jvm", "jvm-tuned", "executors-1") if lane in row["lanes"]]
    head = ["", "Spark", "M rows/s", "range", "µs CPU a row", "of it Python"]
    head += [f"× {other}" for other in others]
    lines = [_line(head), _line(["---"] * len(head))]
    for name, lane in row["lanes"].items():
        speeds = [rate(run) / 1e6 for run in runs_of(lane)]
        middle, used = median(row, name, rate), median(row, name, cpu)
        python = median(row, name, python_cpu)
        if middle is None:
            lines.append(_failed(lane, len(head)))
            continue
        against = [ratio(row, name, other) for other in others]
        lines.append(_line([
            lane["title"], lane["spark"], f"{middle / 1e6:.2f}",
            f"{min(speeds):.2f}–{max(speeds):.2f}", f"{used:.2f}", f"{python:.2f}",
            *(f"{found:.2f}" if found is not None else "" for found in against),
        ]))  # fmt: skip
    return "\n".join(lines)


def _batches(row: dict[str, Any]) -> str:
    head = ["", "Spark", "first batch from start(), s", "warm batch, s", "range"]
    lines = [_line(head), _line(["---"] * len(head))]
    for name, lane in row["lanes"].items():
        warm = [run["warm_s"] for run in runs_of(lane)]
        middle = median(row, name, lambda run: float(run["warm_s"]))
        cold = median(row, name, lambda run: float(run["cold_s"]))
        if middle is None:
            lines.append(_failed(lane, len(head)))
            continue
        lines.append(_line([
            lane["title"], lane["spark"], f"{cold:.2f}", f"{middle:.3f}",
            f"{min(warm):.3f}–{max(warm):.3f}",
        ]))  # fmt: skip
    return "\n".join(lines)


def _planning(row: dict[str, Any]) -> str:
    head = [
        "partitions",
        "first batch, s",
        "warm batch, s",
        "without the cluster, s",
        "JSON, bytes",
    ]
    lines = [_line(head), _line(["---"] * len(head))]
    for name, lane in row["lanes"].items():
        if not runs_of(lane):
            lines.append(_failed(lane, len(head)))
            continue
        found = [median(row, name, lambda run, key=key: float(run[key]))  # type: ignore[misc]
                 for key in ("first_s", "warm_s", "alone_s")]  # fmt: skip
        size = median(row, name, lambda run: float(run["json_bytes"]))
        lines.append(_line([lane["title"], *(f"{s:.2f}" for s in found), f"{size:,.0f}"]))
    return "\n".join(lines)


_TABLES = {"batches": _batches, "batches-sink": _batches, "planning": _planning}


def _failed(lane: dict[str, Any], cells: int) -> str:
    why = lane["runs"][-1]["error"][-200:].replace("\n", " ") if lane["runs"] else "no run"
    return _line([lane["title"], lane["spark"], "failed", why, *[""] * (cells - 4)])


def _line(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


TABLES: dict[str, Callable[[dict[str, Any]], str]] = {
    "taken": taken,
    "summary": summary,
    "goals": goals,
    "details": details,
}


def filled(text: str, store: dict[str, Any]) -> str:
    """Return a page with new tables between its marks."""
    return _MARKED.sub(lambda mark: f"{mark[1]}\n{TABLES[mark['name']](store)}\n\n{mark[4]}", text)


def main() -> None:
    """Print the tables, or write them to their pages."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("json", type=Path, nargs="?", default=FOUND)
    parser.add_argument("--docs", action="store_true", help="write them into docs")
    options = parser.parse_args()
    store = json.loads(options.json.read_text())
    if not options.docs:
        print(markdown(store))
        return
    for page in (DOCS / name for name in PAGES):
        page.write_text(filled(page.read_text(), store))
    (DOCS / "bench-spark.json").write_text(json.dumps(store, indent=1) + "\n")


if __name__ == "__main__":
    main()

"""Write the tables of docs/performance.md and its picture from docs/bench.json.

In: docs/bench.json, written by `run` and `stages`; with `--from FILE` that file's results are
merged first. Out: docs/performance.md with new tables between its marks (`<!-- bench NAME -->` …
`<!-- end -->`), docs/bench.svg. Must not: measure anything, or change the text between the tables.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks import picture, table
from benchmarks.rows import ROWS
from benchmarks.run import read, write

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
JSON, PAGE, PICTURE = DOCS / "bench.json", DOCS / "performance.md", DOCS / "bench.svg"
_MARKED = re.compile(r"(<!-- bench (?P<name>.+?) -->\n)(.*?)(<!-- end -->)", re.DOTALL)


def merge(store: dict[str, Any], newer: dict[str, Any]) -> None:
    """Merge another file's results into the stored results; they replace older ones."""
    for part in ("sittings", "results"):
        store[part].update(newer[part])
    if "stages" in newer:
        store["stages"] = newer["stages"]


def stages_table(store: dict[str, Any]) -> str:
    """Return a table with the cost of each stage of a record's path."""
    found = store.get("stages")
    if found is None:
        return "Not measured."
    lines = ["| stage | ns per record |", "|---|--:|"]
    lines += [f"| {name} | {table.number(ns)} |" for name, ns in found["ns_per_record"].items()]
    at = found["machine"]
    lines += ["", f"One core of: {at['cpu']}, load {at['load']}; {found['kernel']} kernel."]
    return "\n".join(lines)


def tables(store: dict[str, Any]) -> dict[str, Callable[[], str]]:
    """Return functions that write the tables, by the names of the marks."""
    made: dict[str, Callable[[], str]] = {
        "stages": lambda: stages_table(store),
        "circumstances": lambda: table.circumstances(store).partition("\n\n")[2],
    }
    for variant in table.variants(store):
        results = table.Results(store, variant)
        made[f"goals, {variant}"] = partial(table.goals_table, results)
        for row in ROWS.values():
            if results.measured(row):
                made[f"{row.key}, {variant}"] = partial(table.row_table, results, row)
    return made


def filled(text: str, store: dict[str, Any]) -> tuple[str, list[str]]:
    """Return the page with new tables, and the names of marks without results."""
    made = tables(store)
    missing = []

    def fill(mark: re.Match[str]) -> str:
        name = mark["name"]
        if name not in made:
            missing.append(name)
        content = made[name]() if name in made else "Not measured."
        return f"{mark[1]}\n{content}\n\n{mark[4]}"

    return _MARKED.sub(fill, text), missing


def main() -> None:
    """Merge results, write the page and its picture, and print which results are missing."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--from", dest="newer", type=Path, help="results to put in first")
    options = parser.parse_args()
    store = read(JSON)
    if options.newer:
        merge(store, read(options.newer))
        write(JSON, store)
    page, missing = filled(PAGE.read_text(), store)
    PAGE.write_text(page)
    results = table.Results(store, table.ALL_CORES)
    PICTURE.write_text(picture.render(results, table.in_a_line(store)))
    for name in missing:
        print(f"{PAGE.name}: nothing measured for the table {name!r}", file=sys.stderr)


if __name__ == "__main__":
    main()

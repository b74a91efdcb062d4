"""Run all libraries through all rows, print the table, and write it as JSON: `make scorecard`.

In: the rows, the libraries, the number of runs. Out: a table on stdout, `--json` and `--markdown`.
Rows that Odradek loses remain in the table and are listed below it; the exit status only says
whether the scorecard could be created (0), not who is first.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import json
import os
import statistics
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.about import machine
from benchmarks.scorecard import table
from benchmarks.scorecard.clients import CLIENTS, NotRunError
from benchmarks.scorecard.rows import ROWS, Row

ROOT = Path(__file__).resolve().parents[2]
CELL_GRACE = 120.0
SIDE_BY_SIDE = 8


@dataclass
class Slots:
    """Limits how many cells run in parallel; a cell that measures a rate takes a core's share."""

    total: int
    free: int = field(init=False)
    _changed: threading.Condition = field(default_factory=threading.Condition)

    def __post_init__(self) -> None:
        self.free = self.total

    def take(self, size: int) -> None:
        """Wait until this number of slots is free, and take the slots."""
        with self._changed:
            self._changed.wait_for(lambda: self.free >= size)
            self.free -= size

    def give(self, size: int) -> None:
        """Free this number of slots."""
        with self._changed:
            self.free += size
            self._changed.notify_all()


def run_cell(row: Row, command: list[str]) -> dict[str, Any]:
    """Run one cell (one library, one row, one run) in a separate process."""
    arguments = [sys.executable, "-m", "benchmarks.scorecard.cell", row.key, "--", *command]
    try:
        done = subprocess.run(
            arguments,
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=row.seconds + CELL_GRACE,
            check=False,
        )
        result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    except subprocess.TimeoutExpired:
        return {"error": "the cell didn't end in time", "figures": {}}
    except (IndexError, ValueError):
        said = done.stderr.strip().splitlines()[-1:] or ["it said nothing"]
        return {"error": f"the cell failed: {said[0][:300]}", "figures": {}}
    return result


class Scorecard:
    """All cells of one call: each library in each row, in several runs."""

    def __init__(self, rows: list[str], clients: list[str], runs: int, side_by_side: int) -> None:
        self.rows, self.clients, self.runs = rows, clients, runs
        self.slots = Slots(side_by_side)
        cores = max(1, os.cpu_count() or 1)
        self.rate_size = max(1, side_by_side // cores)
        self.results: dict[str, dict[str, list[dict[str, Any]]]] = {
            row: {client: [] for client in clients} for row in rows
        }
        self.not_run: dict[str, str] = {}
        self.commands: dict[str, list[str]] = {}
        self._lock = threading.Lock()
        self._done = 0

    def keep(self, earlier: dict[str, Any]) -> None:
        """Keep the results of an earlier report that this call doesn't measure again."""
        for client, why in earlier["not_run"].items():
            if client not in self.clients:
                self.not_run[client] = why
        for row, found in earlier["rows"].items():
            for client, cell in found["cells"].items():
                measured = row in self.rows and client in self.clients
                if row in ROWS and client in CLIENTS and not measured:
                    self.results.setdefault(row, {})[client] = cell["runs"]

    def prepare(self) -> None:
        """Install and build all that the libraries' drivers need."""
        for client in self.clients:
            try:
                self.commands[client] = CLIENTS[client].command()
            except NotRunError as error:
                self.not_run[client] = str(error)
                progress(f"{CLIENTS[client].title}: not run: {error}")

    def run(self) -> None:
        """Run all cells, one run after the other, so that a slow time affects all libraries."""
        plan = [
            (ROWS[row], client)
            for _ in range(self.runs)
            for row in sorted(self.rows, key=lambda key: ROWS[key].rate)
            for client in self.clients
            if client in self.commands
        ]
        with concurrent.futures.ThreadPoolExecutor(self.slots.total) as pool:
            futures = []
            for row, client in plan:
                size = self.rate_size if row.rate else 1
                self.slots.take(size)
                futures.append(pool.submit(self._one, row, client, size, len(plan)))
            for future in futures:
                future.result()

    def _one(self, row: Row, client: str, size: int, planned: int) -> None:
        try:
            result = run_cell(row, self.commands[client])
        finally:
            self.slots.give(size)
        result["date"] = today()
        with self._lock:
            self.results[row.key][client].append(result)
            self._done += 1
            said = result["error"] or ", ".join(
                f"{k} {table.number(v)}" for k, v in result["figures"].items()
            )
            progress(f"[{self._done}/{planned}] {row.key} {CLIENTS[client].title}: {said}")

    def report(self, seconds: float) -> dict[str, Any]:
        """Return all results, with medians and ranks, for the JSON file."""
        rows = {key: self._row(ROWS[key]) for key in ROWS if key in self.results}
        measured = {client for cells in self.results.values() for client in cells}
        return {
            "date": today(),
            "machine": machine(),
            "runs": self.runs,
            "seconds": round(seconds, 1),
            "clients": {key: client.title for key, client in CLIENTS.items() if key in measured},
            "versions": self._versions(),
            "not_run": self.not_run,
            "rows": rows,
        }

    def _versions(self) -> dict[str, str]:
        found: dict[str, str] = {}
        for cells in self.results.values():
            for client, runs in cells.items():
                for run in runs:
                    if run.get("version"):
                        found[client] = run["version"]
        return found

    def _row(self, row: Row) -> dict[str, Any]:
        cells: dict[str, Any] = {}
        for client in CLIENTS:
            runs = self.results[row.key].get(client)
            if runs is None:
                if any(client in others for others in self.results.values()):
                    cells[client] = {"not_run": "left out", "runs": []}
                continue
            good = [run for run in runs if run["error"] is None]
            if good:
                cells[client] = {
                    "not_run": None,
                    "date": max(run["date"] for run in good),
                    "figures": {f.name: summary(f.name, good) for f in row.figures},
                    "runs": runs,
                }
            else:
                why = runs[0]["error"] if runs else self.not_run.get(client, "no run")
                cells[client] = {"not_run": why, "runs": runs}
        ranks = {
            f.name: table.rank(
                f, {c: cell["figures"] for c, cell in cells.items() if not cell["not_run"]}
            )
            for f in row.figures
            if f.ranked
        }
        return {
            "title": row.title,
            "what": (getattr(row.script, "func", row.script).__doc__ or "").strip(),
            "cells": cells,
            "first": {name: sorted(found) for name, found in ranks.items()},
        }


def summary(name: str, runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Return median and range of one value; None means "never" and is more than any number."""
    values = [run["figures"][name] for run in runs if name in run["figures"]]
    if not values:
        return {"median": None, "min": None, "max": None, "counted": False, "never": 0}
    known = sorted(v for v in values if v is not None)
    never = len(values) - len(known)
    ordered: list[float] = [*known, *([float("inf")] * never)]
    median = statistics.median_low(ordered) if never else statistics.median(ordered)
    return {
        "median": None if median == float("inf") else median,
        "min": known[0] if known else None,
        "max": None if never else known[-1],
        "counted": True,
        "never": never,
    }


def today() -> str:
    """Return today's date in UTC."""
    return datetime.now(UTC).strftime("%Y-%m-%d")


def progress(text: str) -> None:
    """Print a line about progress to stderr."""
    print(text, file=sys.stderr, flush=True)


def chosen(text: str | None, known: list[str], what: str, parser: argparse.ArgumentParser) -> Any:
    """Return the keys that `text` lists, in the table's order."""
    if not text:
        return known
    asked = [part.strip() for part in text.split(",") if part.strip()]
    folded = {key.lower(): key for key in known}
    unknown = [part for part in asked if part.lower() not in folded]
    if unknown or not asked:
        parser.error(f"no such {what}: {', '.join(unknown)}; there are: {', '.join(known)}")
    wanted = {folded[part.lower()] for part in asked}
    return [key for key in known if key in wanted]


def main() -> None:
    """Measure, print the table, write the files."""
    rows = "\n".join(f"  {row.key:4s}{row.title}" for row in ROWS.values())
    parser = argparse.ArgumentParser(
        prog="make scorecard",
        description="Client libraries against the same simulated brokers; see METHOD.md beside it.",
        epilog=f"rows:\n{rows}\nclients: {', '.join(CLIENTS)}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--rows", help="some of them, with commas between (default: all)")
    parser.add_argument("--clients", help="some of them, with commas between (default: all)")
    parser.add_argument("--runs", type=int, default=3, help="of each cell (%(default)s)")
    parser.add_argument("--side-by-side", type=int, default=SIDE_BY_SIDE, metavar="N",
                        help="cells at once that count nothing per time (%(default)s)")  # fmt: skip
    parser.add_argument("--json", type=Path, default=ROOT / "artifacts" / "scorecard.json")
    parser.add_argument("--markdown", type=Path, default=ROOT / "artifacts" / "scorecard.md")
    parser.add_argument("--readme", type=Path, help="a file to write the ranked figures into")
    parser.add_argument("--update", action="store_true",
                        help="keep what --json already has and isn't measured now")  # fmt: skip
    options = parser.parse_args()
    if options.runs < 1 or options.side_by_side < 1:
        parser.error("--runs and --side-by-side must be 1 or more")
    card = Scorecard(
        chosen(options.rows, list(ROWS), "row", parser),
        chosen(options.clients, list(CLIENTS), "client", parser),
        options.runs,
        options.side_by_side,
    )
    if options.update and options.json.is_file():
        card.keep(json.loads(options.json.read_text()))
    begin = time.monotonic()
    card.prepare()
    card.run()
    report = card.report(time.monotonic() - begin)
    for path in (options.json, options.markdown):
        path.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(json.dumps(report, indent=1) + "\n")
    options.markdown.write_text(table.markdown(report))
    if options.readme:
        options.readme.write_text(table.into_readme(options.readme.read_text(), report))
    table.show(report)
    progress(f"written: {options.json}, {options.markdown}")


if __name__ == "__main__":
    main()

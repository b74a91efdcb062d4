"""Measure a few ratios to other clients per commit, to detect regressions: `make bench-history`.

In: the number of runs and records. Out: one line added to docs/bench-history.jsonl (commit,
machine, median and range of each ratio), a table of the latest lines, and exit status 1 if a ratio
is worse than it was on such a machine. Only ratios are compared: a machine's speed differs from day
to day, but the two sides of a ratio are measured one after the other, run by run.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.rows import ROWS, Row
from benchmarks.run import ROOT, Bench, progress
from benchmarks.table import number
from benchmarks.topics import Topics, new_cluster

FILE = ROOT / "docs" / "bench-history.jsonl"
RECORDS, RUNS = 2_000_000, 5
WORSE = 0.1
"""Share by which a ratio's best run must be worse than the usual value to count as a regression."""
USUAL = 5
"""Number of earlier measurements whose median is the usual value of a ratio."""
SHOWN = 6


class Ratio(NamedTuple):
    """A measured value of one client (lane), divided by that of another client in the same row."""

    row: str
    lane: str
    against: str
    figure: str = "speed"

    @property
    def key(self) -> str:
        """Name of the ratio in the file."""
        return f"{self.row}: {self.lane} / {self.against}, {self.figure}"

    @property
    def less_is_better(self) -> bool:
        """Whether a smaller ratio is better: true for times and costs, false for speeds."""
        return self.figure != "speed"


RATIOS = (
    Ratio("consume", "odradek-arrow", "raw"),
    Ratio("consume", "odradek-arrow", "raw", "cpu_per_million"),
    Ratio("consume", "odradek-arrow", "confluent-arrow"),
    Ratio("consume", "odradek-records", "confluent"),
    Ratio("produce", "odradek-arrow", "confluent"),
    Ratio("produce", "odradek-many", "confluent"),
    Ratio("produce", "odradek-send", "confluent"),
    Ratio("round-trip", "odradek", "confluent", "p50_ms"),
    Ratio("asyncio-consume", "odradek", "aiokafka"),
    Ratio("asyncio-consume", "odradek-arrow", "odradek-one"),
    Ratio("asyncio-round-trip", "odradek", "aiokafka", "p50_ms"),
    Ratio("start", "odradek", "confluent", "first_read_ms"),
)
"""Odradek's ratios to the fastest Python client, a bare socket, or another way to use Odradek."""


def rows() -> list[Row]:
    """Return the rows of these ratios, with only the clients (lanes) that the ratios compare."""
    wanted: dict[str, set[str]] = {}
    for ratio in RATIOS:
        wanted.setdefault(ratio.row, set()).update((ratio.lane, ratio.against))
    return [
        replace(ROWS[key], lanes=tuple(lane for lane in ROWS[key].lanes if lane.key in lanes))
        for key, lanes in wanted.items()
    ]


def paired(ratio: Ratio, store: dict[str, Any]) -> list[float]:
    """Return the ratio in each run in which both clients have a result."""
    ours, theirs = (
        store["results"].get(f"all cores/{ratio.row}/{lane}", {"runs": []})["runs"]
        for lane in (ratio.lane, ratio.against)
    )
    return [
        our[ratio.figure] / their[ratio.figure]
        for our, their in zip(ours, theirs, strict=False)
        if our.get(ratio.figure) and their.get(ratio.figure)
    ]


def line(store: dict[str, Any], sitting: dict[str, Any]) -> dict[str, Any]:
    """Return the line to add to the file: median, lowest and highest value of each ratio."""
    found = {ratio.key: paired(ratio, store) for ratio in RATIOS}
    return {
        "at": sitting["id"],
        "commit": sitting["commit"],
        "machine": sitting["machine"],
        "kafka": sitting["kafka"],
        "records": sitting["records"],
        "runs": sitting["runs"],
        "ratios": {
            key: [round(x, 4) for x in (statistics.median(all_), min(all_), max(all_))]
            for key, all_ in found.items()
            if all_
        },
    }


def usual(ratio: Ratio, newest: dict[str, Any], earlier: list[dict[str, Any]]) -> float | None:
    """Return the median of a ratio in recent lines from such a machine; None without any.

    A regression doesn't become usual by being measured again: to accept it, remove the ratio from
    that line's `worse`.
    """
    same = [
        past["ratios"][ratio.key][0]
        for past in earlier
        if ratio.key in past["ratios"]
        and ratio.key not in past["worse"]
        and _kind(past) == _kind(newest)
    ]
    return statistics.median(same[-USUAL:]) if same else None


def _kind(of: dict[str, Any]) -> tuple[object, ...]:
    machine = of["machine"]
    return machine["cpu"], machine["cores"], machine["python"].rpartition(".")[0], of["records"]


def verdict(ratio: Ratio, newest: dict[str, Any], earlier: list[dict[str, Any]]) -> str:
    """Return `worse` or `better` if all runs of the newest line agree; else an empty string."""
    before, now = usual(ratio, newest, earlier), newest["ratios"].get(ratio.key)
    if now is None:
        return "no figure"
    if before is None:
        return ""
    _, low, high = now
    if low > before * (1 + WORSE):
        return "worse" if ratio.less_is_better else "better"
    if high < before * (1 - WORSE):
        return "better" if ratio.less_is_better else "worse"
    return ""


def table(lines: list[dict[str, Any]]) -> Iterator[str]:
    """Yield a table of a ratio's latest values, the newest last, with its range and verdict."""
    shown = lines[-SHOWN:]
    heads = [f"{one['at'][:10]} {one['commit']}" for one in shown]
    yield f"| ours / theirs | {' | '.join(heads)} | range | |"
    yield "|---|" + "--:|" * len(shown) + "---|---|"
    for ratio in RATIOS:
        cells = [one["ratios"].get(ratio.key) for one in shown]
        middles = [f"{number(cell[0])}×" if cell else "" for cell in cells]
        newest = cells[-1]
        spread = f"{number(newest[1])} to {number(newest[2])}" if newest else ""
        told = verdict(ratio, shown[-1], lines[:-1])
        better = "less" if ratio.less_is_better else "more"
        yield f"| {ratio.key} ({better} is better) | {' | '.join(middles)} | {spread} | {told} |"


def read(file: Path) -> list[dict[str, Any]]:
    """Return all lines of the file, the oldest first."""
    if not file.is_file():
        return []
    return [json.loads(text) for text in file.read_text(encoding="utf-8").splitlines() if text]


def main() -> None:
    """Measure the ratios, add a line to the file, print the table."""
    parser = argparse.ArgumentParser(
        prog="make bench-history", description=__doc__.split("\n\n")[0]
    )
    add = parser.add_argument
    add("--runs", type=int, default=RUNS, help="of each measurement (%(default)s)")
    add("--records", type=int, default=RECORDS, help="of a topic (%(default)s)")
    add("--file", type=Path, default=FILE, help="where the lines are (docs/bench-history.jsonl)")
    add("--dry-run", action="store_true", help="measure and show, add nothing")
    add("--table", action="store_true", help="measure nothing, show the existing rows")
    options = parser.parse_args()
    if options.runs < 1 or options.records < 1000:
        parser.error("--runs must be 1 or more, --records 1000 or more")
    options.cpus = options.batch_size = None
    lines = read(options.file)
    if not options.table:
        newest = measured(options)
        newest["worse"] = [r.key for r in RATIOS if verdict(r, newest, lines) == "worse"]
        lines.append(newest)
        if not options.dry_run:
            with options.file.open("a", encoding="utf-8") as file:
                file.write(json.dumps(lines[-1]) + "\n")
    if not lines:
        sys.exit(f"{options.file} has no line yet: run it without --table")
    print("\n".join(table(lines)))
    worse = [r.key for r in RATIOS if verdict(r, lines[-1], lines[:-1]) in ("worse", "no figure")]
    if worse:
        sys.exit(f"worse than usual on such a machine, or without a figure: {'; '.join(worse)}")


def measured(options: argparse.Namespace) -> dict[str, Any]:
    """Measure the ratios and return the new line."""
    with tempfile.TemporaryDirectory() as folder:
        options.json = Path(folder) / "bench.json"
        store: dict[str, Any] = {"sittings": {}, "results": {}}
        bench = Bench(options, rows(), store)
        bench.prepare()
        with new_cluster(tls=False) as cluster:
            bench.sitting["kafka"] = cluster.version
            bench.run(Topics(cluster, Path(folder), options.records))
        if (load := bench.sitting["machine"]["load"]) > 1:
            progress(f"the machine was busy at the start (load {load}): ratios scatter more then")
        return line(store, bench.sitting)


if __name__ == "__main__":
    main()

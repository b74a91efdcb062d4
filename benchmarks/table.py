"""Turn results into tables: medians with ranges, ratios, goals met and missed.

In: the store that `run` writes. Out: Markdown. Must not: leave anything out because it looks bad,
or compare results of different sittings (calls of the benchmark) without a note.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from typing import Any

from benchmarks import curves
from benchmarks.rows import ROWS, Goal, Lane, Row

Store = dict[str, Any]
OTHER_SITTING = "†"
ALL_CORES = "all cores"
_FIGURES = {
    "lag_p99_ms": ("ms that the loop is late, p99", 1.0),
    "lag_max_ms": ("ms that the loop is late, at most", 1.0),
    "speed": ("records/s", 1.0),
    "cpu_per_million": ("CPU s per million", 1.0),
    "p50_ms": ("p50 ms", 1.0),
    "p99_ms": ("p99 ms", 1.0),
    "first_acknowledged_ms": ("first acknowledged, ms", 1.0),
    "first_read_ms": ("first read, ms", 1.0),
    "first_in_classic_group_ms": ("first read in a classic group, ms", 1.0),
    "first_in_consumer_group_ms": ("first read in a KIP-848 group, ms", 1.0),
    "seek_ms": ("from seek to the record, ms", 1.0),
    "resume_ms": ("from resume to the record, ms", 1.0),
    "end_offsets_ms": ("end offset of a partition, ms", 1.0),
    "import_ms": ("import, ms", 1.0),
    "first_answer_ms": ("first answer, ms", 1.0),
    "answer_ms": ("later ones, ms", 1.0),
    "answer_cpu_ms": ("CPU ms of these", 1.0),
    "same_answer_ms": ("the same again, ms", 1.0),
    "step_cpu_ms": ("CPU ms of the longest step", 1.0),
    "rss_growth": ("peak RSS above the start, MB", 1e6),
    "rss_drift": ("RSS, last pass over the third, MB", 1e6),
}


def derived(result: dict[str, Any]) -> dict[str, Any]:
    """Add values computed from others to a driver's result."""
    if "seconds" in result:
        result["speed"] = result["records"] / result["seconds"]
        result["cpu_per_million"] = 1e6 * result["cpu"] / result["records"]
        result["bytes_per_second"] = result["bytes"] / result["seconds"]
        result["rss_growth"] = result["peak_rss"] - result["rss_before"]
    if levels := result.get("rss_after_pass"):
        result["rss_drift"] = levels[-1] - levels[min(2, len(levels) - 1)]
    return result


def in_short(result: dict[str, Any]) -> str:
    """Return one measurement's result as a line about progress."""
    if "error" in result:
        return f"FAILED: {result['error']}"
    if "speed" in result:
        return (
            f"{result['speed'] / 1e6:.3f} M/s, {result['cpu_per_million']:.3f} CPU s/M, "
            f"{result['seconds']:.2f} s, RSS +{result['rss_growth'] / 1e6:.0f} MB"
        )
    shown = {k: v for k, v in result.items() if k.endswith("_ms") or k in ("threads", "rss_ready")}
    return ", ".join(f"{k} {v:.2f}" for k, v in shown.items())


class Results:
    """The results of one variant (circumstances such as the number of cores)."""

    def __init__(self, store: Store, variant: str) -> None:
        self._store, self.variant = store, variant
        self._found = {
            key.removeprefix(f"{variant}/"): result
            for key, result in store["results"].items()
            if key.startswith(f"{variant}/")
        }

    def __contains__(self, row_and_lane: str) -> bool:
        return row_and_lane in self._found

    def measured(self, row: Row) -> list[Lane]:
        """Return a row's lanes (clients) that have results, including failures."""
        return [lane for lane in row.lanes if f"{row.key}/{lane.key}" in self._found]

    def sitting(self, row: str, lane: str) -> str:
        """Return the sitting (call of the benchmark) in which a lane was measured."""
        return str(self._found[f"{row}/{lane}"]["sitting"])

    def runs(self, row: str, lane: str) -> list[dict[str, Any]]:
        """Return the successful measurements of a lane."""
        found = self._found.get(f"{row}/{lane}", {"runs": []})
        return [run for run in found["runs"] if "error" not in run]

    def error(self, row: str, lane: str) -> str:
        """Return why a lane has no result."""
        errors = [r["error"] for r in self._found[f"{row}/{lane}"]["runs"] if "error" in r]
        return errors[0] if errors else "no run"

    def values(self, row: str, lane: str, figure: str) -> list[float]:
        """Return one measured value in all runs of a lane."""
        return [run[figure] for run in self.runs(row, lane) if figure in run]

    def median(self, row: str, lane: str, figure: str) -> float | None:
        """Return the median of a measured value; None without values."""
        values = self.values(row, lane, figure)
        return statistics.median(values) if values else None

    def goal(self, row: str, goal: Goal) -> tuple[float, bool] | None:
        """Return the reached value of a goal, and whether it meets the goal."""
        ours = self.median(row, goal.lane, goal.figure)
        theirs = self.median(row, goal.against, goal.figure) if goal.against else 1.0
        if ours is None or not theirs:
            return None
        reached = ours / theirs
        return reached, reached <= goal.limit if goal.at_most else reached >= goal.limit


def variants(store: Store) -> list[str]:
    """Return the variants that have results; the one with all cores is first."""
    return sorted({key.split("/")[0] for key in store["results"]}, key=lambda v: (v[0] != "a", v))


def markdown(store: Store) -> str:
    """Return all tables."""
    parts = []
    for variant in variants(store):
        results = Results(store, variant)
        parts += [f"## {variant[0].upper()}{variant[1:]}", goals_table(results)]
        for row in ROWS.values():
            if results.measured(row):
                parts += [f"### {row.title}", row_table(results, row)]
    return "\n\n".join([*parts, circumstances(store)]) + "\n"


def goals_table(results: Results) -> str:
    """Return a table of the goals with the reached values."""
    lines = ["| | against | goal | reached | |", "|---|---|--:|--:|---|"]
    for row in ROWS.values():
        titles = {lane.key: lane.title for lane in row.lanes}
        for goal in row.goals:
            if f"{row.key}/{goal.lane}" not in results:
                continue
            found = results.goal(row.key, goal)
            unit, scale = _FIGURES[goal.figure]
            sign = "≤" if goal.at_most else "≥"
            if goal.against is None:
                against, times = unit, ""
            else:
                against, times = titles[goal.against], "×"
                if goal.figure != "speed":
                    against += f", {unit}"
                other = f"{row.key}/{goal.against}"
                if other in results and results.sitting(row.key, goal.lane) != results.sitting(
                    row.key, goal.against
                ):
                    against += f" {OTHER_SITTING}"
            lines.append(
                f"| {row.title}: {titles[goal.lane]} | {against} | "
                f"{sign} {goal.limit / scale:g}{times} | {_verdict(found, scale, times)} |"
            )
    return "\n".join(lines)


def _verdict(found: tuple[float, bool] | None, scale: float, times: str) -> str:
    """Return the reached value and the verdict about a goal as text."""
    if found is None:
        return "| no figure"
    reached, met = found
    return f"{number(reached / scale)}{times} | {'met' if met else 'MISSED'}"


def row_table(results: Results, row: Row) -> str:
    """Return the table of one row."""
    lanes = results.measured(row)
    if row.per:
        return "\n".join(curves.table(results, row, lanes))
    if any(results.values(row.key, lane.key, "speed") for lane in lanes):
        return "\n".join(_speeds(results, row, lanes))
    return "\n".join(_times(results, row, lanes))


def _speeds(results: Results, row: Row, lanes: list[Lane]) -> Iterator[str]:
    first = lanes[0]
    base = results.median(row.key, first.key, "speed")
    yield (
        f"| | million records/s | {first.title} is | CPU s per million | its CPU | MB/s | "
        "peak RSS MB (grown by) | delivers |"
    )
    yield "|---|--:|--:|--:|--:|--:|--:|---|"
    for lane in lanes:
        runs = results.runs(row.key, lane.key)
        if not runs:
            yield f"| {lane.title} | failed: {results.error(row.key, lane.key)} | | | | | | |"
            continue
        speed = spread(results.values(row.key, lane.key, "speed"), 1e6)
        median = results.median(row.key, lane.key, "speed")
        ratio = f"{number(base / median)}×" if base and median and lane != first else ""
        if results.sitting(row.key, lane.key) != results.sitting(row.key, first.key):
            ratio += f" {OTHER_SITTING}"
        cpu = spread(results.values(row.key, lane.key, "cpu_per_million"))
        own, other = (
            results.median(row.key, key, "cpu_per_million") for key in (first.key, lane.key)
        )
        share = f"{number(own / other)}×" if own and other and lane != first else ""
        size = statistics.median(r["bytes_per_second"] for r in runs) / 1e6
        peak = statistics.median(r["peak_rss"] for r in runs) / 1e6
        growth = statistics.median(r["rss_growth"] for r in runs) / 1e6
        yield (
            f"| {lane.title} | {speed} | {ratio} | {cpu} | {share} | "
            f"{f'{size:,.0f}' if size else 'not counted'} | "
            f"{peak:,.0f} ({growth:,.0f}) | {runs[0]['delivers']}{_lag(results, row, lane)} |"
        )


def _lag(results: Results, row: Row, lane: Lane) -> str:
    """Return the text of an event loop's lag if it was measured, else ""."""
    p99, most = (results.median(row.key, lane.key, f"lag_{which}_ms") for which in ("p99", "max"))
    return "" if p99 is None or most is None else f"; loop late p99 {p99:.1f}, max {most:.1f} ms"


def _times(results: Results, row: Row, lanes: list[Lane]) -> Iterator[str]:
    names = [name for name in _FIGURES if any(results.values(row.key, x.key, name) for x in lanes)]
    yield f"| | {' | '.join(_FIGURES[name][0] for name in names)} |"
    yield "|---|" + "--:|" * len(names)
    for lane in lanes:
        if results.runs(row.key, lane.key):
            cells = (
                spread(results.values(row.key, lane.key, name), _FIGURES[name][1]) for name in names
            )
            yield f"| {lane.title} | {' | '.join(cells)} |"
        else:
            yield f"| {lane.title} | failed: {results.error(row.key, lane.key)} |"


def circumstances(store: Store) -> str:
    """Return machine, versions and skipped clients of each sitting (call) that has results."""
    lines = ["## Circumstances", ""]
    for found in store["sittings"].values():
        at = found["machine"]
        lines.append(
            f"- {found['id']} UTC, commit {found['commit']}: {at['cpu']}, {at['cores']} cores, "
            f"load {at['load']} at the start, Python {at['python']}, Kafka {found['kafka']}, "
            f"{found['records']:,} records, {found['runs']} runs"
        )
        lines += [f"  - skipped: {name}: {why}" for name, why in found["skipped"].items()]
    versions = sorted(
        {
            (run["library"], run["version"])
            for result in store["results"].values()
            for run in result["runs"]
            if run.get("version")
        }
    )
    lines.append("- versions: " + ", ".join(f"{name} {version}" for name, version in versions))
    lines.append(f"- {OTHER_SITTING}: measured in another sitting than what it is compared with")
    return "\n".join(lines)


def in_a_line(store: Store) -> str:
    """Return the circumstances of the newest call of the benchmark, for a picture's subtitle."""
    found = list(store["sittings"].values())
    if not found:
        return "nothing measured"
    at = found[-1]["machine"]
    return (
        f"{at['cpu']}, {at['cores']} cores shared with one broker of Kafka {found[-1]['kafka']}; "
        f"medians; {found[-1]['id'][:10]}"
    )


def spread(values: list[float], scale: float = 1.0) -> str:
    """Return median and range of some values as text."""
    if not values:
        return ""
    middle, low, high = (
        number(v / scale) for v in (statistics.median(values), min(values), max(values))
    )
    return middle if low == high else f"{middle} ({low} to {high})"


def number(value: float) -> str:
    """Format a number with three significant digits."""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    if abs(value) >= 10:
        return f"{value:.1f}"
    return f"{value:.2f}" if abs(value) >= 0.095 else f"{value:.3f}"

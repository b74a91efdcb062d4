"""Tables of what `benchmarks.spark` measured, and how far the goals are.

In: its JSON. Out: Markdown. Must not: measure, or leave out what failed.
"""

from __future__ import annotations

import statistics
from typing import Any

GOALS = {
    "read/noop": (("jvm", 2.0), ("jvm-tuned", 1.4)),
    "read/sum": (("jvm", 2.0), ("jvm-tuned", 1.4)),
    "read/value": (("jvm", 3.0),),
    "sink": (("jvm", 2.0),),
}
"""How many times as fast as another lane Odradek is to be, at least."""


def runs_of(lane: dict[str, Any]) -> list[dict[str, Any]]:
    """The runs that didn't fail."""
    return [run for run in lane["runs"] if "error" not in run]


def rates(lane: dict[str, Any]) -> list[float]:
    """Rows a second of each run."""
    return [run["rows"] / run["seconds"] for run in runs_of(lane)]


def ratio(row: dict[str, Any], lane: str, against: str) -> float | None:
    """A lane's median speed over another's."""
    lanes = row["lanes"]
    if lane not in lanes or against not in lanes:
        return None
    mine, theirs = rates(lanes[lane]), rates(lanes[against])
    return statistics.median(mine) / statistics.median(theirs) if mine and theirs else None


def markdown(store: dict[str, Any]) -> str:
    """Everything."""
    sitting = store["sitting"]
    machine = sitting["machine"]
    taken = (
        f"Taken on {sitting['id']} UTC at commit {sitting['commit']}: {machine['cpu']}, "
        f"{machine['cores']} cores shared with the broker (Kafka {sitting['kafka']}), Python "
        f"{machine['python']}, pyarrow {sitting['packages']['pyarrow']}, local[2], "
        f"{sitting['records']:,} records of 100 bytes with keys of 16 in 4 partitions, "
        f"medians of {sitting['runs']} runs (lowest–highest).\n"
    )
    parts = [taken]
    if store["skipped"]:
        parts.append(f"Not measured: {store['skipped']}\n")
    for key, row in store["rows"].items():
        table = _batches(row) if key == "batches" else _speeds(key, row)
        parts.append(f"**{row['title']}**\n\n{table}\n")
    return "\n".join(parts)


def _speeds(key: str, row: dict[str, Any]) -> str:
    others = [lane for lane in ("jvm", "jvm-tuned", "executors-1") if lane in row["lanes"]]
    head = ["", "Spark", "M rows/s", "range", "µs CPU a row", *(f"× {other}" for other in others)]
    lines = [_line(head), _line(["---"] * len(head))]
    for name, lane in row["lanes"].items():
        speeds = rates(lane)
        if not speeds:
            why = lane["runs"][-1]["error"][-200:].replace("\n", " ") if lane["runs"] else "no run"
            lines.append(
                _line([lane["title"], lane["spark"], "failed", why, *[""] * (len(head) - 4)])
            )
            continue
        cpu = statistics.median(run["cpu_s"] / run["rows"] * 1e6 for run in runs_of(lane))
        against = [ratio(row, name, other) for other in others]
        cells = [f"{found:.2f}" if found is not None else "" for found in against]
        millions = [speed / 1e6 for speed in speeds]
        lines.append(_line([
            lane["title"], lane["spark"], f"{statistics.median(millions):.2f}",
            f"{min(millions):.2f}–{max(millions):.2f}", f"{cpu:.2f}", *cells,
        ]))  # fmt: skip
    for other, goal in GOALS.get(key, ()):
        for name in ("odradek-4.2", "odradek"):
            found = ratio(row, name, other)
            if found is not None:
                lane = row["lanes"][name]
                met = "met" if found >= goal else "missed"
                lines.append(
                    f"\nGoal {goal:g} × {row['lanes'][other]['title']}, on {lane['spark']}: {met}."
                )
    return "\n".join(lines)


def _batches(row: dict[str, Any]) -> str:
    head = ["", "Spark", "first batch from start(), s", "warm batch, s", "range"]
    lines = [_line(head), _line(["---"] * len(head))]
    for lane in row["lanes"].values():
        runs = runs_of(lane)
        if not runs:
            lines.append(_line([lane["title"], lane["spark"], "failed", "", ""]))
            continue
        warm = [run["warm_s"] for run in runs]
        cold = statistics.median(run["cold_s"] for run in runs)
        lines.append(_line([
            lane["title"], lane["spark"], f"{cold:.2f}", f"{statistics.median(warm):.3f}",
            f"{min(warm):.3f}–{max(warm):.3f}",
        ]))  # fmt: skip
    return "\n".join(lines)


def _line(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"

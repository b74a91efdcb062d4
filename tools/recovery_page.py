"""Write the tables and the picture of docs/recovery.md from the output of simulations.

In: the output of `odradek simulate recovery --json` and `odradek simulate fleet --json` (`--results
FOLDER`, all its *.json), and docs/recovery.json, all results so far, one a line. Out:
docs/recovery.json with the new results merged in (of the same fault, brokers and strategy, the one
with more runs is kept; of equals, the new one), the tables between the marks in docs/recovery.md,
docs/recovery.svg. Must not: run simulations, or omit those that weren't run: their cells say so.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

from odradek.simulation.measurements.recovery import RecoveryFault
from odradek.simulation.measurements.recovery_figures import GOALS, SIZES

ROOT = Path(__file__).resolve().parent.parent
# Settings of the page's simulations; DRAWN is written as in the results.
LIMIT = 60.0
COSTS = ("cpu_s", "us_per_dial", "seconds", "ms_per_client")
DRAWN = "1 to brokers, drawn log-uniformly"
MAIN = (RecoveryFault.REFUSED, RecoveryFault.BLACKHOLED, RecoveryFault.SILENT)
OUTAGES = (RecoveryFault.OUTAGE_REFUSED, RecoveryFault.OUTAGE_BLACKHOLED)
OTHERS = tuple(fault for fault in RecoveryFault if fault not in MAIN + OUTAGES)

Result = dict[str, Any]


class WrongInputError(Exception):
    """A file isn't a valid result of a simulation."""


@dataclass(slots=True)
class Results:
    """All results that the page shows."""

    recovery: dict[tuple[str, int, str], Result] = field(default_factory=dict)  # fault, N, strategy
    fleet: dict[tuple[int, int, str], Result] = field(default_factory=dict)  # clients, N, policy

    def add(self, file: Path) -> None:
        """Add the results in a command's output, or in a file that `write` wrote."""
        try:
            found = json.loads(file.read_text(encoding="utf-8"))
            settings = found.get("settings", {})
            for one in found.get("results", [found]):
                self._merge(one, settings)
        except (ValueError, LookupError, AttributeError, TypeError) as error:
            raise WrongInputError(f"{file} isn't a whole result: {error!r}") from error

    def _merge(self, one: Result, settings: Result) -> None:
        # How long the simulation took isn't a property of the client.
        one = {k: v for k, v in one.items() if k not in (*COSTS, "settings")}
        if one.pop("setting", ""):
            raise ValueError("a fleet with settings of its own isn't what ships")
        if "policy" in one:
            self.fleet[one["clients"], one["brokers"], one["policy"]] = one
            return
        if settings.get("limit_s") != LIMIT or settings.get("partitions") != DRAWN:
            raise ValueError(f"not run with --limit {LIMIT:g} and drawn partitions: {settings}")
        key = (RecoveryFault(one["fault"]).value, one["brokers"], one["strategy"])
        if key not in self.recovery or self.recovery[key]["runs"] <= one["runs"]:
            self.recovery[key] = one

    def write(self, file: Path) -> None:
        """Write all results, one a line."""
        order = [fault.value for fault in RecoveryFault]
        keys = sorted(self.recovery, key=lambda k: (order.index(k[0]), k[2], k[1]))
        every = [self.recovery[k] for k in keys] + [self.fleet[k] for k in sorted(self.fleet)]
        lines = ",\n".join(json.dumps(one, separators=(",", ":")) for one in every)
        settings = json.dumps({"limit_s": LIMIT, "partitions": DRAWN})
        file.write_text(f'{{"settings": {settings}, "results": [\n{lines}\n]}}\n', encoding="utf-8")


def main(arguments: Sequence[str] | None = None) -> int:
    """Merge the results and write the page; return 1 if a file can't be used."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--results", type=Path, help="a folder of *.json to merge in")
    parser.add_argument("--docs", type=Path, default=ROOT / "docs", help="where the page is")
    given = parser.parse_args(arguments)
    store, page = given.docs / "recovery.json", given.docs / "recovery.md"
    files = [store] if store.is_file() else []
    if given.results:  # of two equal results, the later one is kept
        files += sorted(given.results.glob("*.json"), key=lambda f: (f.stat().st_mtime_ns, f.name))
    results = Results()
    try:
        for file in files:
            results.add(file)
        written = fill(page.read_text(encoding="utf-8"), tables(results))
    except WrongInputError as error:
        print(error, file=sys.stderr)
        return 1
    results.write(store)
    page.write_text(written, encoding="utf-8")
    draw(results, given.docs / "recovery.svg")
    for one in results.recovery.values():
        if one["strategy"] == "odradek" and one["missed"]:
            print(f"missed: {one['fault']}, {one['brokers']} brokers: {'; '.join(one['missed'])}")
    print(f"{page}: {len(results.recovery)} cells of recovery, {len(results.fleet)} fleets")
    return 0


def fill(page: str, parts: dict[str, list[str]]) -> str:
    """Replace the text between the marks of each part; each mark must occur exactly once."""
    for name, lines in parts.items():
        mark = re.compile(rf"(<!-- recovery: {name} -->\n).*?(<!-- recovery: end -->)", re.DOTALL)
        page, count = mark.subn(r"\1\n" + "\n".join(lines) + r"\n\n\2", page)
        if count != 1:
            raise WrongInputError(f"the page has {count} marks <!-- recovery: {name} -->, not 1")
    return page


def tables(results: Results) -> dict[str, list[str]]:
    """Return the lines of each part of the page, by the name of its mark."""
    return {
        "main": recovery_table(results, MAIN),
        "others": recovery_table(results, OTHERS),
        "outage": outage_table(results),
        "fleet": fleet_table(results),
    }


def recovery_table(results: Results, faults: Iterable[RecoveryFault]) -> list[str]:
    """Return the times that R-RB-7 limits, for Odradek and Java, by fault and number of brokers."""
    lines = header(
        "fault", "N", "contact p50 / p99", "ack p50 / p99", "connection attempts p50",
        "most in 1 s", "metadata requests p50", "runs", "Java: contact p50 / p99", "never",
        "connection attempts p50", "most in 1 s", "runs",
    )  # fmt: skip
    figures = ("contact", "ack", "dials.p50", "dials.max_per_s", "metadata_requests.p50", "runs")
    of_java = ("contact", "never", "dials.p50", "dials.max_per_s", "runs")
    for fault in faults:
        for brokers in SIZES:
            ours = results.recovery.get((fault.value, brokers, "odradek"))
            theirs = results.recovery.get((fault.value, brokers, "java"))
            cells = [named(fault.value, ours), f"{brokers:,}"]
            lines.append(row([*cells, *columns(ours, figures), *columns(theirs, of_java)]))
    return lines


def outage_table(results: Results) -> list[str]:
    """Return the cost of an outage of all brokers, and the time that a client needs afterwards."""
    lines = header(
        "fault", "N", "connection attempts p50", "most", "then contact p50 / p99", "runs"
    )
    figures = ("dials.p50", "dials.max", "contact", "runs")
    for fault in OUTAGES:
        for brokers in SIZES:
            ours = results.recovery.get((fault.value, brokers, "odradek"))
            cells = [named(fault.value.removeprefix("outage-"), ours), f"{brokers:,}"]
            lines.append(row([*cells, *columns(ours, figures)]))
    return lines


def columns(one: Result | None, names: Sequence[str]) -> list[str]:
    """Return the results with these names, such as `ack.p50`; a name without a point: p50 / p99."""
    if one is None:
        return ["not run", *[""] * (len(names) - 1)]
    found = []
    for name in names:
        first, _, second = name.partition(".")
        value = one[first][second] if second else one[first]
        found.append(spread(value) if isinstance(value, dict) else str(value))
    return found


def fleet_table(results: Results) -> list[str]:
    """Return the load that fleets cause on their brokers."""
    lines = header(
        "policy", "clients, brokers", "tries, mean (most)",
        "connection attempts of a client per s at the cap", "peak over mean (by chance)",
        "half back after, last", "connection attempts of a client after the return",
        "fullest 10 ms then",
    )  # fmt: skip
    for key in sorted(results.fleet, key=lambda k: (-k[0], -k[1], k[2])):
        one = results.fleet[key]
        first, cap, back = one["first_second"], one["cap"], one["return"]
        cells = [
            named(one["policy"], one if one["policy"] == "odradek" else None),
            f"{one['clients']:,}, {one['brokers']}",
            f"{first['tries_mean']:.1f} ({first['tries_max']})",
            f"{cap['dials_per_client_and_s']:.2f}",
            f"{cap['peak_over_mean']:.2f} ({cap['by_chance']:.2f})",
            f"{seconds(back['back_p50_s'])}, {seconds(back['back_max_s'])}",
            f"{back['dials_per_client']:.2f}",
            str(back["dials_in_fullest_10ms"]),
        ]
        lines.append(row(cells))
    return lines


def header(*titles: str) -> list[str]:
    """Return the first two lines of a Markdown table."""
    return [row(titles), "|" + "---|" * len(titles)]


def row(cells: Iterable[str]) -> str:
    """Return one row of a Markdown table."""
    return f"| {' | '.join(cells)} |".replace("  |", " |")


def named(name: str, ours: Result | None) -> str:
    """Return a strategy's name, in bold if the shipped client misses a goal in this row."""
    return f"**{name}**" if ours and ours["missed"] else name


def spread(value: Result) -> str:
    """Return the median and the 99th percentile as text."""
    return f"{seconds(value['p50'])} / {seconds(value['p99'])}"


def seconds(value: float | None) -> str:
    """Return a time in seconds as text, or "never"."""
    return "never" if value is None else f"{value:.2f} s"


def draw(results: Results, file: Path) -> None:
    """Draw the contact time by number of brokers, one panel for each main fault; deterministic."""
    figure = Figure(figsize=(10, 3.4))
    panels = figure.subplots(1, len(MAIN), sharey=True)
    looks = (("odradek", "Odradek", "#1f77b4", "o"), ("java", "Java's criterion", "#e67e00", "s"))
    for panel, fault in zip(panels, MAIN, strict=True):
        for strategy, label, color, marker in looks:
            sizes = [n for n in SIZES if (fault.value, n, strategy) in results.recovery]
            for p, style in (("p50", ":"), ("p99", "-")):
                found = [results.recovery[fault.value, n, strategy]["contact"][p] for n in sizes]
                panel.plot(
                    sizes, [LIMIT if t is None else t for t in found], style,
                    color=color, marker=marker, markersize=3, label=f"{label}, {p}",
                )  # fmt: skip
        panel.axhline(GOALS[fault].contact, color="#2a8a3e", label="goal for p99")
        panel.axhline(LIMIT, color="#999999", linestyle="--", linewidth=0.8)
        panel.set(xscale="log", yscale="log", xlim=(0.8, 1300), ylim=(0.08, 120))
        panel.set(title=fault.value, xlabel="brokers known, all replaced")
        panel.xaxis.set_major_formatter("{x:g}")
        panel.yaxis.set_major_formatter("{x:g}")
        panel.grid(alpha=0.3)
    panels[0].set_ylabel("seconds to the first contact")
    panels[-1].text(1, LIMIT * 1.2, f"never (in {LIMIT:g} s)", fontsize=8, color="#666666")
    panels[-1].legend(fontsize=7, loc="lower left")
    figure.tight_layout()
    with mpl.rc_context({"svg.hashsalt": "odradek", "svg.fonttype": "none"}):
        figure.savefig(file, metadata={"Date": None})


if __name__ == "__main__":
    sys.exit(main())

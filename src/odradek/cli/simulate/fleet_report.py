"""Report simulated fleets: a page of text for each, a table for comparison, two pictures.

In: summaries and counts (`Load`) of fleets. Out: text on stdout, SVG files. Must not: count itself.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from odradek.cli.frame.results import counted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from odradek.cli.demo.picture import PanelPicture
    from odradek.simulation.measurements.fleet import Load

STEP = 10
"""Number of windows per point of a curve: 100 ms."""
PHASES = ("before", "during", "after")
COLUMNS = (
    "policy",
    "1st sec.",
    "per sec.",
    "peak",
    "chance",
    "half back",
    "99 %",
    "last",
    "attempts",
    "metadata",
)


def show(one: dict[str, Any]) -> None:
    """Print the full result of one fleet."""
    setting = f" with {one['setting']}" if one["setting"] else ""
    typer.echo(
        f"{one['policy']}{setting}: {counted(one['clients'], 'client')}, "
        f"{counted(one['brokers'], 'broker')}, {one['outage_s']:g} s of outage "
        f"({one['seconds']:g} s, {one['ms_per_client']:.2f} ms per client)"
    )
    typer.echo("  average per second (max)    " + "".join(f"{p:>18}" for p in PHASES))
    for index in range(min(one["brokers"], 5)):
        for what in ("dials", "metadata"):
            cells = []
            for phase in PHASES:
                rate = one[phase][index][f"{what}_per_s"]
                cells.append(f"{rate['mean']:>9.1f} ({rate['max']:>6})")
            typer.echo(
                f"  broker {index + 1:<4} {'attempts' if what == 'dials' else what:<16}"
                + " ".join(cells)
            )
    first, cap, back = one["first_second"], one["cap"], one["return"]
    typer.echo(
        f"  first second: {first['tries_mean']:.2f} connection attempts per client at the "
        f"broker it tries most (max {first['tries_max']})"
    )
    typer.echo(
        f"  at the limit: {cap['dials_per_client_and_s']:.2f} connection attempts per client "
        f"and second; ratio of the busiest 10 ms to the mean "
        f"{cap['peak_over_mean']:.2f} ({cap['by_chance']:.2f} if attempts were random)"
    )
    typer.echo(
        f"  return: {back['back']} clients back, half after {back['back_p50_s']} s, the last "
        f"after {back['back_max_s']} s; {back['dials_per_client']:.2f} connection attempts and "
        f"{back['metadata_per_client']:.2f} metadata requests per client; at most "
        f"{counted(back['dials_in_fullest_10ms'], 'connection attempt')} in 10 ms"
    )
    for text in one["missed"]:
        typer.echo(f"  {'missed' if ships(one) else 'would miss'}: {text}")


def ships(one: dict[str, Any]) -> bool:
    """Return whether a case is Odradek with its defaults, to which the goals apply."""
    return bool(one["policy"] == "odradek" and not one["setting"])


def compare(found: Sequence[dict[str, Any]]) -> None:
    """Print several cases in one table."""
    names = [f"{one['policy']} {one['setting']}".strip() for one in found]
    width = max(len(name) for name in names)
    head = [f"{COLUMNS[0]:<{width}}", *(f"{name:>9}" for name in COLUMNS[1:])]
    typer.echo("\n" + " ".join(head))
    for name, one in zip(names, found, strict=True):
        cap, back = one["cap"], one["return"]
        cells = [
            f"{one['first_second']['tries_mean']:.2f}",
            f"{cap['dials_per_client_and_s']:.2f}",
            f"{cap['peak_over_mean']:.2f}",
            f"{cap['by_chance']:.2f}",
            *(
                "–" if value is None else f"{value:.2f} s"
                for value in (back["back_p50_s"], back["back_p99_s"], back["back_max_s"])
            ),
            f"{back['dials_per_client']:.2f}",
            f"{back['metadata_per_client']:.2f}",
        ]
        typer.echo(f"{name:<{width}} " + " ".join(f"{cell:>9}" for cell in cells))
    typer.echo(
        "Connection attempts per client: in the first second, at one broker (1st sec.); per second "
        "at the limit (per sec.); after the brokers returned (attempts). metadata: requests per "
        "client after the return; peak: busiest 10 ms divided by the mean; chance: the same if "
        "attempts were random"
    )


def draw(loads: Sequence[Load], file: Path) -> list[Path]:
    """Draw the load of the busiest broker in one picture, the clients' recovery in another."""
    from odradek.cli.demo.svg import write

    recovery = file.with_name(f"{file.stem}-recovery{file.suffix}")
    for made, path in ((_arrivals(loads), file), (_recoveries(loads), recovery)):
        write(made, path)
    return [file, recovery]


def _named(load: Load) -> str:
    return f"{load.case.policy} {load.case.setting}".strip()


def _arrivals(loads: Sequence[Load]) -> PanelPicture:
    from odradek.cli.demo.picture import BLUE, GREY, ORANGE, Band, Line, Panel, PanelPicture
    from odradek.simulation.measurements.fleet_figures import DIALS

    panels = []
    for load in loads:
        dials, asked = _busiest(load, DIALS), _busiest(load, ("metadata",))
        panels.append(
            Panel(
                _named(load),
                [
                    Line("connection attempts per second", BLUE, dials),
                    Line("metadata requests", ORANGE, asked),
                ],
            )
        )
    case = loads[0].case
    return PanelPicture(
        f"{loads[0].clients:,} clients, {case.outage:g} s without any of {case.brokers} "
        "brokers: load of the busiest broker",
        panels,
        bands=[Band("outage", GREY, 0.0, case.outage)],
        x_label="seconds since the outage began",
    )


def _recoveries(loads: Sequence[Load]) -> PanelPicture:
    """Return the percentage of acknowledged clients, by seconds since the outage's end."""
    from odradek.cli.demo.picture import BLUE, Line, Panel, PanelPicture
    from odradek.simulation.measurements.fleet_figures import spread

    panels = []
    for load in loads:
        points, count = [(0.0, 0.0)], 0
        for at, clients in sorted(spread(load, "back").items()):
            count += clients
            points.append((at / 1000, 100 * count / max(1, load.clients)))
        panels.append(Panel(_named(load), [Line("% of clients back", BLUE, points)]))
    return PanelPicture(
        f"{loads[0].clients:,} clients after {loads[0].case.outage:g} s without brokers: first "
        "acknowledgement",
        panels,
        x_label="seconds since the brokers returned",
    )


def _busiest(load: Load, what: Sequence[str]) -> list[tuple[float, float]]:
    """Return rates at the busiest broker, in steps of 100 ms."""
    from odradek.simulation.measurements.fleet import AFTER, WINDOWS
    from odradek.simulation.measurements.fleet_figures import by_window

    totals = [by_window(load, what, n).total() for n in range(1, load.case.brokers + 1)]
    counts = [0] * (round((load.case.outage + AFTER) * WINDOWS) // STEP + 1)
    for window, count in by_window(load, what, totals.index(max(totals)) + 1).items():
        if 0 <= window // STEP < len(counts):
            counts[window // STEP] += count
    return [(i * STEP / WINDOWS, n * WINDOWS / STEP) for i, n in enumerate(counts)]

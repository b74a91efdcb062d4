"""`odradek simulate fleet`: an outage as the brokers see it, with a thousand clients waiting.

In: how many clients, how long, which policies. Out: dials and metadata requests per second at each
broker before, during and after, as text, JSON and a picture. Exit statuses: 0 done, 1 what ships
misses a goal, 2 wrong use. Must not: judge other policies by our goals; they stand for comparison.
"""

from __future__ import annotations

import json as jsonlib
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from odradek.simulation.fleet import Seen

STEP = 0.1


def fleet(
    clients: Annotated[int, typer.Option(min=1, max=100_000, help="How many clients.")] = 1000,
    outage: Annotated[float, typer.Option(min=1.0, help="Seconds that nobody can be reached.")] = (
        60.0
    ),
    policy: Annotated[
        str,
        typer.Option(help="odradek, java, constant or kip580-literal; several with commas."),
    ] = "odradek",
    brokers: Annotated[int, typer.Option(min=1, max=1000, help="How many brokers.")] = 3,
    seed: Annotated[int, typer.Option(min=0, help="The same seed gives the same result.")] = 1,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    picture: Annotated[
        Path | None, typer.Option(help="Draw it: FILE.svg, or FILE.png with matplotlib.")
    ] = None,
) -> None:
    """Take a fleet of producers through an outage of all brokers, in virtual time.

    Each client has just got a record to write when the outage begins, and writes on after it. What
    is counted is what arrives at each broker. Policies: odradek is what ships; java, constant (a
    backoff of 100 ms, as before KIP-144 and KIP-580) and kip580-literal (that KIP's formula word
    for word) are simulated.
    """
    from odradek.simulation.fleet import run
    from odradek.simulation.fleet_figures import figures
    from odradek.simulation.strategies import STRATEGIES

    policies = policy.split(",")
    for word in policies:
        if word not in STRATEGIES:
            raise typer.BadParameter(f"there is no {word!r}; there are {', '.join(STRATEGIES)}")
    if picture is not None and picture.suffix not in (".svg", ".png"):
        raise typer.BadParameter("--picture takes a file that ends with .svg or .png")
    fleets, found = [], []
    for word in policies:
        print(f"{clients} clients, {word} …", file=sys.stderr, flush=True)
        begin = time.process_time()
        seen = run(clients, brokers, outage, word, seed)
        cpu = time.process_time() - begin
        fleets.append(seen)
        found.append(
            {
                **figures(seen),
                "seed": seed,
                "cpu_s": round(cpu, 2),
                "us_per_dial": round(1e6 * cpu / max(1, len(seen.dials)), 1),
            }
        )
    if picture is not None:
        draw(fleets, picture)
    if json:
        typer.echo(jsonlib.dumps(found[0] if len(found) == 1 else {"results": found}))
    else:
        for one in found:
            _show(one)
    if any(one["missed"] for one in found if one["policy"] == "odradek"):
        raise typer.Exit(1)


def _show(one: dict[str, Any]) -> None:
    typer.echo(
        f"{one['policy']}: {one['clients']} clients, {one['brokers']} brokers, "
        f"{one['outage_s']:g} s of outage ({one['cpu_s']} s of one core, "
        f"{one['us_per_dial']:.0f} µs per dial)"
    )
    typer.echo("  per second, mean (most)     " + "".join(f"{p:>18}" for p in _PHASES))
    for index in range(min(one["brokers"], 5)):
        for what in ("dials", "metadata"):
            cells = []
            for phase in _PHASES:
                rate = one[phase][index][f"{what}_per_s"]
                cells.append(f"{rate['mean']:>9.1f} ({rate['max']:>6})")
            typer.echo(f"  broker {index + 1:<4} {what:<16}" + " ".join(cells))
    first, cap, back = one["first_second"], one["cap"], one["return"]
    typer.echo(
        f"  first second: {first['tries_mean']:.2f} tries of a client at the broker it dials most "
        f"(most {first['tries_max']})"
    )
    typer.echo(
        f"  at the cap: {cap['dials_per_client_and_s']:.2f} dials of a client per second; peak over"
        f" mean per 10 ms {cap['peak_over_mean']:.2f} (by chance alone {cap['by_chance']:.2f})"
    )
    typer.echo(
        f"  return: {back['back']} clients back, half after {back['back_p50_s']} s, the last after "
        f"{back['back_max_s']} s; {back['dials_per_client']:.2f} dials and "
        f"{back['metadata_per_client']:.2f} metadata requests of each; at most "
        f"{back['dials_in_fullest_10ms']} dials in 10 ms"
    )
    for text in one["missed"]:
        typer.echo(f"  {'missed' if one['policy'] == 'odradek' else 'would miss'}: {text}")


_PHASES = ("before", "during", "after")


def draw(fleets: list[Seen], file: Path) -> None:
    """One panel for each policy: what the busiest broker sees, as dials and requests per second."""
    from odradek.cli.demo.picture import BLUE, GREY, ORANGE, Band, Line, Panel, Picture

    panels = []
    for seen in fleets:
        dials, asked = _busiest(seen, seen.dials), _busiest(seen, seen.metadata)
        panels.append(
            Panel(
                seen.strategy,
                [Line("dials per second", BLUE, dials), Line("metadata requests", ORANGE, asked)],
            )
        )
    first = fleets[0]
    made = Picture(
        f"{first.clients} clients, {first.outage:g} s without any of {first.brokers} brokers: "
        "what one broker sees",
        panels,
        bands=[Band("outage", GREY, 0.0, first.outage)],
        x_label="seconds since the outage began",
    )
    if file.suffix == ".png":
        from odradek.cli.demo import png

        png.render(made, file)
    else:
        from odradek.cli.demo import svg

        file.write_text(svg.render(made), encoding="utf-8")


def _busiest(seen: Seen, arrived: list[tuple[float, int]]) -> list[tuple[float, float]]:
    """Rates at the broker where most arrives, in steps of 100 ms."""
    from odradek.simulation.fleet import AFTER

    counts = [0] * (round((seen.outage + AFTER) / STEP) + 1)
    totals = [0] * (seen.brokers + 1)
    for _, broker in arrived:
        totals[broker] += 1
    busiest = totals.index(max(totals))
    for at, broker in arrived:
        if broker == busiest and 0 <= at < seen.outage + AFTER:
            counts[int(at / STEP)] += 1
    return [(round(i * STEP, 1), count / STEP) for i, count in enumerate(counts)]

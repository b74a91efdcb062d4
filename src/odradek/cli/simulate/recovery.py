"""`odradek simulate recovery`: time until a client finds a cluster whose brokers were replaced.

In: numbers of brokers, faults, strategies, numbers of runs. Out: the distributions, as a table or
as JSON. Exit statuses: 0 done, 1 Odradek's strategy misses a goal, 2 wrong use. Must not: define
faults.
"""

from __future__ import annotations

import json as jsonlib
import multiprocessing
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from odradek.cli.simulate.collector import seldom_collecting

if TYPE_CHECKING:
    from odradek.simulation.measurements.recovery import RecoveryRun

CHUNK = 10
PROGRESS_S = 2.0


@dataclass(frozen=True, slots=True)
class Cell:
    """Parameters of the runs whose results form one distribution."""

    brokers: int
    fault: str
    strategy: str


@dataclass(frozen=True, slots=True)
class RecoveryTask:
    """Runs with the same parameters for one worker process."""

    cell: Cell
    seeds: tuple[int, ...]
    limit: float
    partitions: int | None


def run_task(task: RecoveryTask) -> tuple[Cell, list[RecoveryRun]]:
    """Run a task's seeds (in a worker process if there are several jobs)."""
    from odradek.simulation.measurements.recovery import RecoveryFault, recover

    cell = task.cell
    with seldom_collecting():
        runs = [
            recover(
                cell.brokers,
                RecoveryFault(cell.fault),
                seed,
                strategy=cell.strategy,
                limit=task.limit,
                partitions=task.partitions,
            )
            for seed in task.seeds
        ]
    return cell, runs


def recovery(
    brokers: Annotated[str, typer.Option(help="Numbers of brokers, comma-separated.")] = "3",
    fault: Annotated[
        str, typer.Option(help="Behavior of the old addresses, comma-separated; see above.")
    ] = "refused",
    runs: Annotated[
        int, typer.Option(min=1, help="Runs per combination, each with its own seed.")
    ] = 200,
    strategy: Annotated[
        str, typer.Option(help="odradek, java, constant or kip580-literal; comma-separated.")
    ] = "odradek",
    everything: Annotated[
        bool,
        typer.Option(
            "--all", help="Every fault with 1 to 1,000 brokers, and Java's rules for comparison."
        ),
    ] = False,
    seed: Annotated[
        int, typer.Option(min=0, help="Random seed; the same seed leads to the same result.")
    ] = 1,
    jobs: Annotated[int, typer.Option(min=1, max=256, help="Number of parallel processes.")] = 1,
    limit: Annotated[
        float,
        typer.Option(min=1.0, help="Virtual seconds after which a run counts as never recovered."),
    ] = 60.0,
    partitions: Annotated[
        int | None,
        typer.Option(
            min=1, show_default="random, 1 to --brokers", help="Number of partitions written to."
        ),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Measure how soon a producer recovers when all brokers are replaced, in virtual time.

    The producer sends a record every 50 ms over established connections; at one instant, all
    brokers that it knows are replaced by as many others. Measured from that instant on, in virtual
    time: the time until a live broker handles the client's first request after ApiVersions
    (contact) and until the first record is acknowledged (ack), connection attempts, metadata
    requests.

    Faults, by what the old addresses do: refused, blackholed (connection attempts time out), silent
    (established connections fall silent, too), accept-reset, ready-then-close (after ApiVersions),
    slow-handshake (ApiVersions takes 5 s), idle-then-replaced (an hour without a call; time counts
    from the next call), dns-moved (the bootstrap name resolves to other addresses, too).
    outage-refused and outage-blackholed: all brokers are gone for 5 minutes; attempts are counted
    during the outage, times from its end.
    """
    cells = _cells(brokers, fault, strategy, everything=everything)
    found = _measure(cells, runs, seed, jobs, limit, partitions)
    settings = {
        "runs": runs,
        "seed": seed,
        "limit_s": limit,
        "partitions": partitions or "1 to brokers, drawn log-uniformly",
    }
    if json:
        result: dict[str, Any] = {"settings": settings, "results": found}
        if len(found) == 1:
            result = {"settings": settings, **found[0]}
        typer.echo(jsonlib.dumps(result))
    else:
        _show(found)
    if any(one["missed"] for one in found if one["strategy"] == "odradek"):
        raise typer.Exit(1)


def _cells(brokers: str, fault: str, strategy: str, *, everything: bool) -> list[Cell]:
    from odradek.simulation.measurements.recovery import RecoveryFault
    from odradek.simulation.measurements.recovery_figures import SIZES
    from odradek.simulation.measurements.strategies import STRATEGIES

    try:
        sizes = [int(word) for word in brokers.split(",")]
    except ValueError:
        raise typer.BadParameter(f"--brokers must be numbers, not {brokers!r}") from None
    if min(sizes) < 1 or max(sizes) > 5000:
        raise typer.BadParameter("--brokers: 1 to 5000")
    faults, strategies = fault.split(","), strategy.split(",")
    known = [f.value for f in RecoveryFault]
    if everything:
        sizes, faults, strategies = list(SIZES), known, ["odradek", "java"]
    for word, words in (*((f, known) for f in faults), *((s, STRATEGIES) for s in strategies)):
        if word not in words:
            raise typer.BadParameter(f"unknown {word!r}; use one of {', '.join(words)}")
    return [Cell(n, f, s) for f in faults for n in sizes for s in strategies]


def _measure(
    cells: list[Cell], runs: int, seed: int, jobs: int, limit: float, partitions: int | None
) -> list[dict[str, Any]]:
    from odradek.simulation.measurements.recovery import RecoveryFault
    from odradek.simulation.measurements.recovery_figures import figures

    seeds = [seed * 1_000_000 + n for n in range(runs)]
    chunks = [tuple(seeds[i : i + CHUNK]) for i in range(0, runs, CHUNK)]
    tasks = [RecoveryTask(cell, chunk, limit, partitions) for cell in cells for chunk in chunks]
    collected: dict[Cell, list[RecoveryRun]] = {cell: [] for cell in cells}
    begin = shown = time.monotonic()
    for done, (cell, some) in enumerate(_run(tasks, jobs), 1):
        collected[cell] += some
        if time.monotonic() - shown >= PROGRESS_S:
            shown = time.monotonic()
            print(
                f"{done} of {len(tasks)} parts after {shown - begin:.0f} s: {cell.fault}, "
                f"{cell.brokers} brokers, {cell.strategy}",
                file=sys.stderr,
                flush=True,
            )
    return [
        {**asdict(cell), **figures(RecoveryFault(cell.fault), some)}
        for cell, some in collected.items()
    ]


def _run(tasks: list[RecoveryTask], jobs: int) -> Iterator[tuple[Cell, list[RecoveryRun]]]:
    if jobs == 1:
        yield from map(run_task, tasks)
        return
    with multiprocessing.get_context("spawn").Pool(jobs) as pool:
        yield from pool.imap(run_task, tasks)


def _show(found: list[dict[str, Any]]) -> None:
    typer.echo(
        f"{'fault':18} {'brokers':>7} {'strategy':>14} | {'contact p50':>11} {'p99':>7} |"
        f" {'ack p50':>7} {'p99':>7} | {'attempts p50':>12} {'max/s':>5} | {'metadata':>8} | never"
    )
    for one in found:
        contact, ack, dials = one["contact"], one["ack"], one["dials"]
        typer.echo(
            f"{one['fault']:18} {one['brokers']:7} {one['strategy']:>14} |"
            f" {_s(contact['p50']):>11} {_s(contact['p99']):>7} |"
            f" {_s(ack['p50']):>7} {_s(ack['p99']):>7} |"
            f" {dials['p50']:12} {dials['max_per_s']:5} | {one['metadata_requests']['p50']:8} |"
            f" {one['never'] or '-'}"
        )
        if one["missed"] and one["strategy"] == "odradek":
            typer.echo(f"  missed: {'; '.join(one['missed'])}")


def _s(value: float | None) -> str:
    return "never" if value is None else f"{value:.2f} s"

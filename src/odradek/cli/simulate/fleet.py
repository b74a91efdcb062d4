"""Run `odradek simulate fleet`: the brokers' load in an outage, with up to a million clients.

In: the number of clients, the duration, policies and settings, and whether one process, several
processes or Spark simulate. Out: connection attempts and metadata requests per second at each
broker before, during and after, and how clients recover, as text, JSON, pictures and Parquet
tables. Exit statuses: 0 done, 1 Odradek's policy misses a goal, 2 wrong use, 130 stopped by Ctrl-C.
Must not: apply our goals to other policies and settings, which are only for comparison.
"""

from __future__ import annotations

import json as jsonlib
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from odradek.cli.simulate.fleet_report import compare, draw, ships, show
from odradek.common.extras import require_extra

if TYPE_CHECKING:
    from odradek.cli.simulate.fleet_tables import Book
    from odradek.simulation.measurements.fleet import Load
    from odradek.simulation.measurements.fleet_slices import FleetPlan, Slice

Done = Iterator[tuple[list["Slice"], list["Load"]]]
SHOWN_EVERY = 2.0
SLICES, LARGEST_SLICE = 100, 500
"""Minimum number of parts of a fleet (so that progress shows early); maximum clients per part."""


@dataclass(frozen=True, slots=True)
class FleetWorkers:
    """Workers of a simulation: a number of local processes, or Spark."""

    jobs: int
    spark: bool
    master: str | None
    shards: int | None


@dataclass(frozen=True, slots=True)
class Outputs:
    """Kinds of output other than text on stdout, by the flags that request them."""

    json: bool
    picture: Path | None
    tables: Path | None
    events: Path | None
    sample: int


def fleet(
    clients: Annotated[int, typer.Option(min=1, max=100_000_000, help="Number of clients.")] = 1000,
    outage: Annotated[
        float, typer.Option(min=1.0, help="Seconds during which no broker can be reached.")
    ] = (60.0),
    policy: Annotated[
        str, typer.Option(help="odradek, java, constant or kip580-literal; comma-separated.")
    ] = "odradek",
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="OPTION=VALUE[,VALUE…] of all clients; may be repeated."),
    ] = None,
    brokers: Annotated[int, typer.Option(min=1, max=1000, help="Number of brokers.")] = 3,
    seed: Annotated[
        int, typer.Option(min=0, help="Random seed; the same seed leads to the same result.")
    ] = 1,
    jobs: Annotated[int, typer.Option(min=1, max=256, help="Number of parallel processes.")] = 1,
    spark: Annotated[bool, typer.Option("--spark", help="Simulate on Spark's executors.")] = False,
    master: Annotated[str | None, typer.Option(help="Spark's master; implies --spark.")] = None,
    shards: Annotated[
        int | None,
        typer.Option(min=1, show_default="8 per core", help="Number of concurrent Spark tasks."),
    ] = None,
    slice_size: Annotated[
        int | None,
        typer.Option(
            "--slice",
            min=1,
            show_default="a hundredth of all, at most 500",
            help="Clients per task.",
        ),
    ] = None,
    tables: Annotated[
        Path | None,
        typer.Option(help="Folder for Parquet tables; an interrupted run continues from there."),
    ] = None,
    events: Annotated[
        Path | None, typer.Option(help="Folder for the events of some clients, as JSON lines.")
    ] = None,
    sample: Annotated[
        int, typer.Option(min=1, help="Number of clients whose events are written.")
    ] = 100,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    picture: Annotated[
        Path | None,
        typer.Option(
            help="Draw the load of the busiest broker in FILE.svg, and the recovery of the clients "
            "in FILE-recovery beside it."
        ),
    ] = None,
) -> None:
    """Simulate an outage of all brokers with a fleet of producers, in virtual time.

    Each client has a record to write when the outage begins, and writes again after it. The command
    counts what arrives at each broker. Policies: odradek is the real client; java, constant (a
    backoff of 100 ms, as before KIP-144 and KIP-580) and kip580-literal (the literal formula of
    that KIP) are simulated. The result doesn't depend on how the clients are divided into tasks.

    Example: odradek simulate fleet --clients 100 --events events --picture fleet.svg
    """
    from odradek.simulation.measurements.fleet_slices import FleetPlan

    if picture is not None and picture.suffix != ".svg":
        raise typer.BadParameter("--picture must end with .svg")
    size = slice_size or max(1, min(LARGEST_SLICE, clients // SLICES))
    plan = FleetPlan(_cases(policy, settings or [], brokers, outage, seed), clients, size)
    workers = FleetWorkers(jobs, spark or master is not None, master, shards)
    _take(plan, workers, Outputs(json, picture, tables, events, sample))


def _cases(
    policy: str, settings: Sequence[str], brokers: int, outage: float, seed: int
) -> tuple[Any, ...]:
    """Return cases for each policy with each combination of settings."""
    from odradek.common.errors import KafkaError
    from odradek.simulation.measurements.fleet import Case
    from odradek.simulation.measurements.strategies import STRATEGIES

    choices = []
    for text in settings:
        name, equals, values = text.partition("=")
        if not equals or not name or not values:
            raise typer.BadParameter(f"--set: expected OPTION=VALUE[,VALUE…], not {text!r}")
        choices.append([(name, value) for value in values.split(",")])
    cases = []
    for word in dict.fromkeys(policy.split(",")):
        if word not in STRATEGIES:
            raise typer.BadParameter(f"unknown policy {word!r}; use one of {', '.join(STRATEGIES)}")
        for chosen in product(*choices):
            case = Case(word, brokers, outage, seed, chosen)
            try:
                case.config()
            except (KafkaError, ValueError) as error:
                raise typer.BadParameter(f"--set {case.setting}: {error}") from None
            cases.append(case)
    return tuple(cases)


def _take(plan: FleetPlan, workers: FleetWorkers, outputs: Outputs) -> None:
    """Simulate the clients that remain, part by part, and print the whole result."""
    require_extra("pyarrow")
    from odradek.cli.simulate.fleet_tables import Book, OtherPlanError

    try:
        book = Book(plan, outputs.tables)
    except OtherPlanError as error:
        raise typer.BadParameter(str(error)) from None
    begin = time.perf_counter()
    before = sum(load.clients for load in book.loads)
    try:
        _simulate(plan, workers, book)
    except BaseException as error:
        if not _interrupted(error):
            raise
        where = outputs.tables
        typer.echo(
            "stopped; "
            + (
                f"run the same command again to continue from {where}"
                if where
                else "no results were kept"
            ),
            err=True,
        )
        raise typer.Exit(130) from None
    seconds = time.perf_counter() - begin
    simulated = max(1, sum(load.clients for load in book.loads) - before)
    book.finish()
    if outputs.events is not None:
        from odradek.cli.simulate.fleet_events import write_events

        write_events(plan, outputs.events, outputs.sample)
    _report(book.loads, seconds, 1000 * seconds / simulated, outputs)


def _interrupted(error: BaseException | None) -> bool:
    """Return whether Ctrl-C caused the error, directly or as its context (Spark's reader)."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__context__
    return error is not None


def _simulate(plan: FleetPlan, workers: FleetWorkers, book: Book) -> None:
    todo = book.todo()
    total = len(plan.cases) * plan.clients
    left = sum(part.clients for part in todo)
    shown = begin = time.perf_counter()
    print(f"{total - left:,} of {total:,} clients", file=sys.stderr, flush=True)
    done = 0
    for parts, loads in _done(plan, workers, todo):
        book.enter(parts, loads)
        done += sum(part.clients for part in parts)
        now = time.perf_counter()
        if now - shown >= SHOWN_EVERY:
            shown = now
            more = (now - begin) / done * (left - done)
            text = f"{total - left + done:,} of {total:,} clients, {done / (now - begin):,.0f}/s"
            print(f"{text}, {more:,.0f} s left", file=sys.stderr, flush=True)


def _done(plan: FleetPlan, workers: FleetWorkers, todo: list[Slice]) -> Done:
    """Yield parts of the fleet with their counts, as soon as they are simulated."""
    if not todo:
        return iter(())
    if workers.spark:
        from odradek.cli.simulate.fleet_spark import on_spark

        return on_spark(plan, todo, workers.master, workers.shards)
    return _here(plan, todo, workers.jobs)


def _here(plan: FleetPlan, todo: list[Slice], jobs: int) -> Done:
    if jobs == 1:
        for part in todo:
            yield [part], [plan.run(part)]
        return
    import multiprocessing
    import signal

    ignore = (signal.SIGINT, signal.SIG_IGN)  # this process ends the workers
    with multiprocessing.get_context("spawn").Pool(jobs, signal.signal, ignore) as pool:
        for part, load in pool.imap_unordered(_run, [(plan, part) for part in todo]):
            yield [part], [load]


def _run(task: tuple[FleetPlan, Slice]) -> tuple[Slice, Load]:
    plan, part = task
    return part, plan.run(part)


def _report(loads: list[Load], seconds: float, ms: float, outputs: Outputs) -> None:
    from odradek.simulation.measurements.fleet_figures import figures

    took = {"seconds": round(seconds, 2), "ms_per_client": round(ms, 3)}
    found = [{**figures(load), "seed": load.case.seed, **took} for load in loads]
    if outputs.picture is not None:
        draw(loads, outputs.picture)
    if outputs.json:
        typer.echo(jsonlib.dumps(found[0] if len(found) == 1 else {"results": found}))
    else:
        for one in found:
            show(one)
        if len(found) > 1:
            compare(found)
    if any(one["missed"] for one in found if ships(one)):
        raise typer.Exit(1)

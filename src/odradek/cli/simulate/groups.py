"""`odradek simulate groups`: whole consumer groups under random faults, every invariant checked.

In: seeds, or how long to go on. Out: how many were run, and for each that fails the violation and
its schedule; with `--trace` all that the members of one run did. Exit statuses: 0 all invariants
held, 1 one didn't, 2 wrong use. Must not: decide what an invariant is.
"""

from __future__ import annotations

import multiprocessing
import time
from collections import Counter
from collections.abc import Iterator
from itertools import count, islice
from typing import Annotated

import typer

from odradek.cli.simulate.explore import seed_range

CHUNK = 20
"""Seeds that a process is given at once."""

Totals = Counter[str]


def run_seeds(seeds: tuple[int, ...]) -> tuple[Totals, tuple[str, ...]]:
    """Run some seeds; gives what they cost, and a text for each violation."""
    from odradek.simulation.group_runs import random_group, run_group

    totals: Totals = Counter()
    failed = []
    for seed in seeds:
        outcome = run_group(random_group(seed))
        totals.update(
            groups=1,
            milliseconds=round(outcome.seconds * 1000),
            records=outcome.handed,
            again=outcome.again,
        )
        if outcome.violation is not None:
            failed.append(f"{outcome.violation}\n{outcome.schedule}")
    return totals, tuple(failed)


def groups(
    seconds: Annotated[
        float | None, typer.Option(min=0, help="Go on for so long [default: all of --seeds].")
    ] = None,
    seeds: Annotated[
        str | None, typer.Option(help="A..B, both included, or one [default: from a random one].")
    ] = None,
    jobs: Annotated[int, typer.Option(min=1, max=256, help="Processes that work at once.")] = 1,
    trace: Annotated[
        bool, typer.Option("--trace", help="Print every event of the members of one run.")
    ] = False,
) -> None:
    """Run consumer groups of up to four members, in both protocols, with every checker on.

    Each seed gives one group: settings, members that join, stop polling, leave, die and come back,
    and faults of brokers and coordinators with their times. Ends at the first violations.
    """
    if seconds is None and seeds is None:
        raise typer.BadParameter("say how long (--seconds), or which ones (--seeds A..B)")
    first, last = seed_range(seeds)
    if trace:
        _trace(first)
        return
    begin = time.monotonic()
    until = None if seconds is None else begin + seconds
    totals: Totals = Counter(groups=0, milliseconds=0, records=0, again=0)
    failed: tuple[str, ...] = ()
    for report, violations in _reports(_chunks(first, last, until), jobs):
        totals += report
        failed += violations
        if failed:
            break
    took = max(time.monotonic() - begin, 1e-9)
    typer.echo(
        f"{totals['groups']:,} groups from seed {first} on in {took:.1f} s "
        f"({totals['groups'] / took:.0f}/s): {totals['milliseconds'] / 1000:,.0f} virtual seconds, "
        f"{totals['records']:,} records handed out, {totals['again']:,} of them again; "
        f"{len(failed)} violated an invariant"
    )
    for text in failed:
        typer.echo(f"\n{text}")
    if failed:
        raise typer.Exit(1)


def _chunks(first: int, last: int | None, until: float | None) -> Iterator[tuple[int, ...]]:
    for begin in count(first, CHUNK):
        if (last is not None and begin > last) or (until is not None and time.monotonic() >= until):
            return
        end = begin + CHUNK if last is None else min(begin + CHUNK, last + 1)
        yield tuple(range(begin, end))


def _reports(
    chunks: Iterator[tuple[int, ...]], jobs: int
) -> Iterator[tuple[Totals, tuple[str, ...]]]:
    if jobs == 1:
        yield from map(run_seeds, chunks)
        return
    # Not a pool's imap: it would take all chunks at once, and there may be no end of them.
    with multiprocessing.get_context("spawn").Pool(jobs) as pool:
        running = [pool.apply_async(run_seeds, (chunk,)) for chunk in islice(chunks, jobs + 2)]
        while running:
            report = running.pop(0).get()
            following = next(chunks, None)
            if following is not None:
                running.append(pool.apply_async(run_seeds, (following,)))
            yield report


def _trace(seed: int) -> None:
    from odradek.simulation.group_runs import random_group, run_group

    outcome = run_group(random_group(seed), trace=True)
    typer.echo(str(outcome.schedule))
    for line in outcome.trace:
        typer.echo(line)
    typer.echo(outcome.violation or "every invariant held")
    if not outcome.ok:
        raise typer.Exit(1)

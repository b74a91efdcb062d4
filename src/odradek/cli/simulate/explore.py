"""Run `odradek simulate explore` and `replay`: check all invariants in random schedules of faults.

In: seeds, or a duration; or one schedule. Out: the number of runs; for the first failing run the
violation, the command that replays it, and a file with a minimized schedule. Exit statuses: 0 all
invariants held, 1 one didn't, 2 wrong use. Must not: define invariants.
"""

from __future__ import annotations

import json as jsonlib
import multiprocessing
import random
import shlex
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import count, islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from odradek.cli.simulate.collector import seldom_collecting
from odradek.cli.simulate.hosts import HOSTS, SIMULATED, flag, host_maker

if TYPE_CHECKING:
    from odradek.simulation.checkers.history import History as RunHistory
    from odradek.simulation.runs.explore import RunOutcome
    from odradek.simulation.runs.random_schedules import Family

CHUNK_SHORT, CHUNK_LONG = 40, 2
SHRINK_SECONDS = 60.0

COUNTED = ("schedules", "virtual_seconds", "steps", "dials", "requests", "records")

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
Kind = Annotated[
    str | None,
    typer.Option(
        "--family",
        show_default="chosen by each seed",
        help="plain, hostile, slow, transactions; or misled, groups, read-process-write, "
        "operators, shortages, which are never chosen by a seed.",
    ),
]
Short = Annotated[
    bool,
    typer.Option(
        "--short/--long",
        help="Simulate a few clients for seconds, or all kinds of clients for half a minute.",
    ),
]


History = Annotated[
    Path | None,
    typer.Option(
        "--history",
        help="Write the calls of all clients: FILE.edn in the form of Jepsen's Kafka workload, "
        "another name as JSON lines.",
    ),
]
Which = Annotated[str, typer.Option("--host", help=f"The runtime of the clients: {HOSTS}.")]


@dataclass(frozen=True, slots=True)
class SeedsTask:
    """Range of seeds for one worker process."""

    first: int
    length: int
    short: bool
    family: Family | None = None
    host: str = SIMULATED


@dataclass(frozen=True, slots=True)
class Report:
    """Result of running one task's seeds."""

    first: int
    totals: dict[str, float]
    failed: tuple[tuple[int, str], ...]
    """Failing seeds with their violations."""
    drawn: dict[str, int]
    """How often each kind of fault occurs in the schedules."""
    hits: dict[str, int]
    """How often faults had an effect on a client or broker, by kind of effect."""


def run_task(task: SeedsTask) -> Report:
    """Run the schedules of a task's seeds (in a worker process if there are several jobs)."""
    from odradek.simulation.runs.explore import explore as outcomes

    totals: Counter[str] = Counter()
    drawn: Counter[str] = Counter()
    hits: Counter[str] = Counter()
    failed = []
    with seldom_collecting():
        seeds = range(task.first, task.first + task.length)
        hosts = host_maker(task.host)
        for outcome in outcomes(seeds, short=task.short, family=task.family, hosts=hosts):
            totals.update(
                schedules=1,
                steps=outcome.steps,
                dials=outcome.dials,
                requests=outcome.requests,
                records=outcome.records,
            )
            totals["virtual_seconds"] += outcome.seconds  # type: ignore[assignment]  # a float
            drawn.update(fault.verb for fault in outcome.schedule.faults)
            hits.update(outcome.hits)
            if outcome.violation is not None:
                failed.append((outcome.schedule.seed, outcome.violation))
    return Report(task.first, dict(totals), tuple(failed), dict(drawn), dict(hits))


def explore(
    seconds: Annotated[
        float | None,
        typer.Option(min=0, show_default="all of --seeds", help="Seconds to run."),
    ] = None,
    seeds: Annotated[
        str | None,
        typer.Option(show_default="from a random one", help="Seeds A..B, both included."),
    ] = None,
    jobs: Annotated[int, typer.Option(min=1, max=256, help="Number of parallel processes.")] = 1,
    short: Short = True,
    family: Kind = None,
    host: Which = SIMULATED,
    directory: Annotated[
        Path, typer.Option(help="Folder for the schedule file of a failure.")
    ] = Path(),
    history: History = None,
    json: Json = False,
) -> None:
    """Run random schedules of faults against the clients, and check every invariant.

    Each seed determines one schedule: brokers, links, clients, and faults with their times. The
    first schedule that violates an invariant is shrunk and written to a file for `replay`.
    `--history` writes the calls of the first schedule that fails, or of the first one. A search of
    1,000 schedules or more that never hits an expected kind of trouble has the exit status 1.
    """
    from odradek.simulation.runs.coverage import missing

    if seconds is None and seeds is None:
        raise typer.BadParameter("use --seconds or --seeds A..B")
    first, last = seed_range(seeds)
    of = _family(family)
    host_maker(host)
    try:  # fail early, not after hours of simulation
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise typer.BadParameter(f"--directory {directory}: {error.strerror}") from None
    begin = time.monotonic()
    until = None if seconds is None else begin + seconds
    kind = SeedsTask(first, 0, short, of, host)
    totals, failed, faults = _explore(_tasks(kind, last, until), jobs)
    took = time.monotonic() - begin
    found = _smallest(failed[0], directory, kind) if failed else None
    unhit = missing(of, totals["schedules"], faults["drawn"], faults["took_effect"])
    if history is not None:
        _write(history, _again(failed[0][0] if failed else first, kind).history)
    result: dict[str, Any] = {
        "host": host,
        "first_seed": first,
        **{name: round(value, 3) for name, value in totals.items()},
        "seconds": round(took, 3),
        "schedules_per_second": round(totals["schedules"] / took, 1) if took else None,
        "faults": {name: dict(sorted(found.items())) for name, found in faults.items()},
        "missing": unhit,
        "failed": [{"seed": seed, "violation": text} for seed, text in failed],
        "shrunk": found,
    }
    if json:
        typer.echo(jsonlib.dumps(result))
    else:
        typer.echo(
            f"{totals['schedules']:,.0f} schedules from seed {first} on in {took:.1f} s "
            f"({totals['schedules'] / max(took, 1e-9):.0f}/s): "
            f"{totals['virtual_seconds']:,.0f} virtual seconds, {totals['dials']:,.0f} "
            f"connection attempts, {totals['requests']:,.0f} requests, "
            f"{totals['records']:,.0f} records; {len(failed)} violated an invariant"
        )
        for name, counts in faults.items():
            words = (f"{fault} {n:,}" for fault, n in sorted(counts.items()))
            typer.echo(f"faults {name.replace('_', ' ')}: {', '.join(words) or 'none'}")
        if unhit:
            typer.echo(f"never hit: {', '.join(unhit)}")
    if found is not None and not json:
        _tell(found)
    if found is not None or unhit:
        raise typer.Exit(1)


def seed_range(seeds: str | None) -> tuple[int, int | None]:
    """Parse `A..B` or `A`; without a text, return a random start and no end."""
    if seeds is None:
        return random.randrange(1 << 40), None
    begin, dots, end = seeds.partition("..")
    try:
        first, last = int(begin), int(end if dots else begin)
    except ValueError:
        raise typer.BadParameter(f"--seeds takes A..B, not {seeds!r}") from None
    if last < first:
        raise typer.BadParameter(f"--seeds {seeds}: the last seed is before the first")
    return first, last


def _family(name: str | None) -> Family | None:
    """Check the name of a family of schedules (`FAMILIES`)."""
    from odradek.simulation.runs.random_schedules import FAMILIES

    for family in FAMILIES:
        if name == family:
            return family
    if name is not None:
        raise typer.BadParameter(f"--family must be one of {', '.join(FAMILIES)}, not {name!r}")
    return None


def _tasks(kind: SeedsTask, last: int | None, until: float | None) -> Iterator[SeedsTask]:
    """Yield tasks of this kind, starting with its first seed."""
    length = CHUNK_SHORT if kind.short else CHUNK_LONG
    for begin in count(kind.first, length):
        if last is not None and begin > last:
            return
        if until is not None and time.monotonic() >= until:
            return
        left = length if last is None else min(length, last + 1 - begin)
        yield replace(kind, first=begin, length=left)


def _explore(
    tasks: Iterator[SeedsTask], jobs: int
) -> tuple[Counter[str], list[tuple[int, str]], dict[str, Counter[str]]]:
    """Run tasks until all are done, the time is up, or one has failed.

    Returns the total cost, the failing seeds, and how many faults were drawn and took effect.
    """
    totals: Counter[str] = Counter(dict.fromkeys(COUNTED, 0))
    faults: dict[str, Counter[str]] = {"drawn": Counter(), "took_effect": Counter()}
    failed: list[tuple[int, str]] = []
    shown = begin = time.monotonic()
    for report in _reports(tasks, jobs):
        totals.update(report.totals)
        failed += report.failed
        faults["drawn"].update(report.drawn)
        faults["took_effect"].update(report.hits)
        now = time.monotonic()
        if now - shown >= 2.0:
            shown = now
            rate = totals["schedules"] / (now - begin)
            typer.echo(f"{totals['schedules']:,} schedules, {rate:.0f}/s", err=True)
        if failed:
            break
    return totals, sorted(failed), faults


def _reports(tasks: Iterator[SeedsTask], jobs: int) -> Iterator[Report]:
    if jobs == 1:
        yield from map(run_task, tasks)
        return
    # A pool's imap would consume all tasks at once, but their number may be unlimited.
    with multiprocessing.get_context("spawn").Pool(jobs) as pool:
        running = [pool.apply_async(run_task, (task,)) for task in islice(tasks, jobs + 2)]
        while running:
            report = running.pop(0).get()
            following = next(tasks, None)
            if following is not None:
                running.append(pool.apply_async(run_task, (following,)))
            yield report


def _smallest(failure: tuple[int, str], directory: Path, like: SeedsTask) -> dict[str, Any]:
    """Shrink a failing schedule, within a minute, and write it to a file."""
    from odradek.simulation.runs.explore import run_schedule
    from odradek.simulation.runs.random_schedules import random_schedule
    from odradek.simulation.runs.shrink import kind, shrunk

    seed, text = failure
    typer.echo(f"seed {seed} violates an invariant; shrinking its schedule", err=True)
    end = time.monotonic() + SHRINK_SECONDS
    hosts = host_maker(like.host)
    small = shrunk(
        random_schedule(seed, short=like.short, family=like.family),
        lambda one: kind(run_schedule(one, hosts=hosts).violation) == kind(text),
        lambda: time.monotonic() < end,
    )
    path = directory / f"failing-seed-{seed}.json"
    path.write_text(small.to_json(), encoding="utf-8")
    return {
        "seed": seed,
        "violation": text,
        "replay": f"odradek simulate replay --seed {seed}{'' if like.short else ' --long'}"
        f"{'' if like.family is None else f' --family {like.family}'}{flag(like.host)}",
        "file": str(path),
        "replay_file": f"odradek simulate replay {shlex.quote(str(path))}{flag(like.host)}",
        "schedule": str(small),
    }


def _again(seed: int, like: SeedsTask) -> RunOutcome:
    """Run the schedule of a seed again, to write its history."""
    from odradek.simulation.runs.explore import run_schedule
    from odradek.simulation.runs.random_schedules import random_schedule

    schedule = random_schedule(seed, short=like.short, family=like.family)
    return run_schedule(schedule, hosts=host_maker(like.host))


def _write(path: Path, history: RunHistory | None) -> None:
    """Write a history as EDN or JSON lines, depending on the file's extension."""
    from odradek.simulation.checkers.history_edn import edn_lines

    if history is not None:
        lines = edn_lines(history) if path.suffix == ".edn" else history.lines()
        try:
            path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        except OSError as error:
            raise typer.BadParameter(f"--history {path}: {error.strerror}") from None


def _tell(found: dict[str, Any]) -> None:
    typer.echo(f"\nseed {found['seed']} violates an invariant:\n  {found['violation']}")
    typer.echo(f"replay it: {found['replay']}")
    typer.echo(f"shrunk: {found['replay_file']}\n{found['schedule']}")


def replay(
    file: Annotated[
        Path | None, typer.Argument(help="A schedule file.", show_default=False)
    ] = None,
    seed: Annotated[int | None, typer.Option(help="The seed of a random schedule.")] = None,
    short: Short = True,
    family: Kind = None,
    host: Which = SIMULATED,
    trace: Annotated[bool, typer.Option(help="Print every event of every client.")] = False,
    verbs: Annotated[
        bool, typer.Option("--verbs", help="List the faults with their arguments.")
    ] = False,
    history: History = None,
    json: Json = False,
) -> None:
    """Run one schedule, from its seed or from a file; each run of a schedule is the same.

    A schedule file is a JSON object: `seed`, `brokers`, `partitions`, `mode` (messages or bytes),
    `heal_at` (virtual seconds at which all faults end), `link` (latency, jitter, bandwidth, loss),
    `clients` (each with name, kind: producer, consumer, admin, metadata, transactional, member or
    processor, operations, start, config, volume, habits, writes) and `faults` (each with at, verb,
    arguments), `topics` and `cluster`. Only `seed` and `clients` are needed.
    `--verbs` lists the verbs with their arguments.
    """
    from odradek.simulation.faults.fault_table import ScheduleError, describe
    from odradek.simulation.runs.explore import run_schedule
    from odradek.simulation.runs.random_schedules import random_schedule
    from odradek.simulation.runs.schedule import load

    if verbs:
        typer.echo(describe())
        return
    if (file is None) == (seed is None):
        raise typer.BadParameter("pass a schedule file or --seed")
    of, hosts = _family(family), host_maker(host)
    try:
        if file is not None:
            schedule = load(file)
        else:
            schedule = random_schedule(seed or 0, short=short, family=of)
    except ScheduleError as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(2) from None
    outcome = run_schedule(schedule, hosts=hosts, trace=trace)
    if history is not None:
        _write(history, outcome.history)
    if json:
        plain = {
            "schedule": jsonlib.loads(schedule.to_json()),
            "host": host,
            "violation": outcome.violation,
            "virtual_seconds": round(outcome.seconds, 6),
            "steps": outcome.steps,
            "dials": outcome.dials,
            "requests": outcome.requests,
            "records": outcome.records,
            "hits": dict(sorted(outcome.hits.items())),
            "trace": list(outcome.trace),
        }
        typer.echo(jsonlib.dumps(plain))
    else:
        typer.echo(str(schedule))
        for line in outcome.trace:
            typer.echo(line)
        typer.echo(
            f"{outcome.seconds:.3f} virtual seconds, {outcome.dials} connection attempts, "
            f"{outcome.requests} requests, {outcome.records} records"
        )
        typer.echo(outcome.violation or "every invariant held")
    sys.exit(0 if outcome.ok else 1)

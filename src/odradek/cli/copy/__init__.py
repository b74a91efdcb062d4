"""Run `odradek copy`: copy a topic's records to another topic, in the same or another cluster.

In: two topics, addresses. Out: the same records, with keys, headers, timestamps and partitions, in
the same order; the progress, as committed offsets of a group in the destination's cluster. Exit
statuses: 0 (also after SIGTERM), 1 it failed, 2 wrong use, 130 Ctrl-C. After any end, the same
command continues the copy. Must not: change the source.
"""

from __future__ import annotations

import json as jsonlib
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass

import typer

from odradek.api.admin import Admin
from odradek.api.consumer import Consumer
from odradek.api.producer import Producer
from odradek.cli import INTERRUPTED
from odradek.cli.console.offset_positions import (
    LogPlace,
    PlaceKind,
    check_reached,
    end_place,
    log_place,
    offsets_at,
)
from odradek.cli.console.properties import refuse
from odradek.cli.console.waiting import ending, say, telling_of_waiting, terminable
from odradek.cli.copy import flags
from odradek.cli.copy.clusters import CopyCluster, sides
from odradek.cli.copy.copying import CopyBooks, Copying
from odradek.cli.copy.planning import CopiedTopics, CopyPlan, plan
from odradek.cli.copy.report import CopyReport, in_a_sentence, summary
from odradek.cli.copy.writers import AtLeastOnceWriter, CopyWriter, TransactionalWriter
from odradek.cli.frame.results import as_document, counted
from odradek.common.errors import ConfigurationError, KafkaError
from odradek.common.types import TopicPartition

PATIENCE = 60.0
"""Timeout in seconds of each call before the first record (default of default.api.timeout.ms)."""
CLOSING = 10.0
"""Timeout in seconds for ending an open transaction."""
AT_ONCE = 0.2
"""Seconds after which the reason for a slow end of the copy is printed."""


def copy(
    context: typer.Context,
    source: flags.Source,
    destination: flags.Destination,
    from_bootstrap_server: flags.FromServer = None,
    to_bootstrap_server: flags.ToServer = None,
    from_profile: flags.FromProfile = None,
    to_profile: flags.ToProfile = None,
    from_command_config: flags.FromConfig = None,
    to_command_config: flags.ToConfig = None,
    from_command_property: flags.FromProperty = None,
    to_command_property: flags.ToProperty = None,
    offset: flags.Offset = "beginning",
    until: flags.Until = None,
    follow: flags.Follow = False,
    create: flags.Create = False,
    restart: flags.Restart = False,
    at_least_once: flags.AtLeastOnce = False,
    json: flags.Json = False,
) -> None:
    """Copy a topic: each record once, in order, with key, headers, timestamp and partition.

    The same command continues an earlier copy, however that ended.

    Example: odradek copy flights flights-copy --bootstrap-server localhost:9092 --create
    """
    with ending("odradek copy"), as_document(json=json), terminable() as end:
        if follow and until is not None:
            refuse("--follow can't be given with --until")
        start = log_place(offset, "--offset")
        stop = None if follow else end_place(until or "end", "--until")
        for place in (start, stop):
            if place is not None and place.kind is PlaceKind.STORED:
                refuse("--offset stored can't be given: a copy always continues where it stopped")
        reading, writing = sides(context.params)
        for warning in dict.fromkeys((reading.warning, writing.warning)):
            if warning:
                say(warning)
        work: _Work | None = None
        told = False
        try:
            with ExitStack() as stack:
                work = _prepared(stack, reading, writing, create=create, exactly=not at_least_once)
                with work.writer.alone():
                    _begin(work, start, restart=restart)
                    ends = None if stop is None else _at(work, stop)
                    interrupted, seconds = _carried_out(work, ends, quiet=json)
                # Print before the clients are closed, which Ctrl-C may interrupt.
                _tell(work, seconds, json=json)
                told = True
        except KeyboardInterrupt:
            if json and not told:  # Ctrl-C came before the first record
                _tell(work, 0.0, json=json)
            raise typer.Exit(0 if end.terminated else INTERRUPTED) from None
        if interrupted and not end.terminated:
            raise typer.Exit(INTERRUPTED)


@dataclass(slots=True)
class _Work:
    """Clients and state of a copy."""

    plan: CopyPlan
    admin: Admin
    """Admin client of the destination."""
    watch: CopiedTopics
    consumer: Consumer
    producer: Producer
    writer: CopyWriter
    books: CopyBooks
    missed: int = 0
    """Number of offsets that were deleted before they could be copied."""


def _prepared(
    stack: ExitStack, reading: CopyCluster, writing: CopyCluster, *, create: bool, exactly: bool
) -> _Work:
    """Describe both topics and create the clients; raises `UsageError` for invalid options."""
    given, target = reading.consumer(), writing.admin()
    writing.producer("x" if exactly else None)
    text = f"waiting for {reading.servers} or {writing.servers} to answer"
    with telling_of_waiting(text):
        there = stack.enter_context(Admin(reading.admin()))
        admin = stack.enter_context(Admin(target))
        found = plan(there, admin, reading, writing, create=create)
        producer = Producer(writing.producer(found.name if exactly else None))
        stack.enter_context(_closing(producer, exactly=exactly))
        consumer = stack.enter_context(Consumer(given, background=True))
        writer: CopyWriter = TransactionalWriter(producer, found)
        if not exactly:
            writer = AtLeastOnceWriter(producer, admin, found)
        watch = CopiedTopics(there, admin, found)
        return _Work(found, admin, watch, consumer, producer, writer, CopyBooks({}))


@contextmanager
def _closing(producer: Producer, *, exactly: bool) -> Iterator[None]:
    """Close the producer after the block, which aborts an open transaction."""
    try:
        yield
    finally:
        how = "aborting the open transaction" if exactly else "sending the last records"
        text = f"ending: {how}, for at most {CLOSING:.0f} s; "
        # A timeout is harmless: the coordinator or the next run aborts the transaction.
        with (
            telling_of_waiting(f"{text}Ctrl-C ends at once", AT_ONCE),
            suppress(KafkaError),
        ):
            producer.close(CLOSING)


def _tell(work: _Work | None, seconds: float, *, json: bool) -> None:
    """Print the result; `work` is None if Ctrl-C came before the copy was prepared."""
    books = CopyBooks({}) if work is None else work.books
    name, missed = (None, 0) if work is None else (work.plan.name, work.missed)
    if json:
        typer.echo(jsonlib.dumps({"group": name, **summary(books, seconds, missed)}))
    else:
        say(in_a_sentence(books, seconds, str(name)))


def _at(work: _Work, place: LogPlace) -> dict[int, int]:
    """Return the offset of a position in each partition of the source."""
    partitions = [work.plan.source_of(p) for p in range(work.plan.partitions)]
    found = offsets_at(work.consumer, partitions, place, patience=PATIENCE, tell=say)
    return {tp.partition: offset for tp, offset in found.items()}


def _begin(work: _Work, start: LogPlace, *, restart: bool) -> None:
    """Determine each partition's start offset, and commit the start offsets."""
    positions = work.writer.progress(restart=restart)
    if not positions and not restart:
        _refuse_records(work)
    starts = _at(work, start)
    new = {
        work.plan.source_of(p): starts[p] for p in range(work.plan.partitions) if p not in positions
    }
    check_reached(work.consumer, start, new, patience=PATIENCE, tell=say)
    first = _at(work, LogPlace(PlaceKind.BEGINNING))
    for partition in range(work.plan.partitions):
        at = positions.get(partition, starts[partition])
        if at < first[partition] and partition in positions:
            gone = first[partition] - at
            work.missed += gone
            say(
                f"{counted(gone, 'offset')} of {work.plan.source_of(partition)} "
                f"{'was' if gone == 1 else 'were'} deleted before being copied"
            )
        work.books.positions[partition] = max(at, first[partition])
    # Commit before the first record, so that a killed copy finds its start.
    work.writer.commit(work.books.positions)


def _refuse_records(work: _Work) -> None:
    """Reject a destination with records but without progress: an earlier copy may be its source."""
    partitions = [TopicPartition(work.plan.destination, p) for p in range(work.plan.partitions)]
    least = work.admin.list_offsets(dict.fromkeys(partitions, "EARLIEST"))
    most = work.admin.list_offsets(dict.fromkeys(partitions, "LATEST"))
    if any((most[tp].offset or 0) > (least[tp].offset or 0) for tp in partitions):
        raise ConfigurationError(
            f"{work.plan.destination} contains records, but group {work.plan.name} has no "
            "progress of a copy: they may be the same records. Use --restart to copy them "
            "again"
        )


def _carried_out(work: _Work, ends: dict[int, int] | None, *, quiet: bool) -> tuple[bool, float]:
    """Copy; return whether a signal ended the copy, and its duration in seconds."""
    copying = Copying(work.consumer, work.writer, work.plan, work.books, time.monotonic, work.watch)

    def troubles() -> str | None:
        with suppress(KafkaError):
            return work.consumer.health().reason or work.producer.health().reason
        return None

    report = CopyReport(work.books, ends, troubles, quiet=quiet)
    with report:
        try:
            copying.run(ends)
        except KeyboardInterrupt:
            return True, report.seconds
    return False, report.seconds

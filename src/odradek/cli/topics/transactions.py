"""`odradek transactions`: list, describe and abort transactions, as kafka-transactions does.

In: transactional ids, partitions. Out: states from coordinators and leaders; aborted transactions.
Must not: abort a transaction that wasn't named.
"""

from __future__ import annotations

from typing import Annotated, Any

import typer

from odradek.cli.console.properties import refuse
from odradek.cli.frame.argument_values import listed, one_word
from odradek.cli.frame.commands import AdminRun, destroys, reads
from odradek.cli.frame.completion import topic_names
from odradek.cli.frame.merged_lists import told_by_brokers
from odradek.cli.frame.overviews import overview
from odradek.cli.frame.results import Result, ResultTable, counted
from odradek.cli.frame.timestamps import shown_moment
from odradek.cli.groups.rendering import partitions_by_topic
from odradek.cli.topics.partitions import partitions_of
from odradek.clients.admin.transactions import (
    LONGEST,
    STATES,
    AbortTransactionSpec,
    HangingTransaction,
)
from odradek.common.errors.kafka import TransactionalIdNotFoundError
from odradek.common.types import TopicPartition

app = overview("Transactions: list, describe, abort, hanging, producers.")

Ids = Annotated[list[str], typer.Argument(metavar="ID", help="Transactional ids.")]


@reads(app, "list")
def list_(
    run: AdminRun,
    state: Annotated[
        list[str] | None,
        typer.Option(help=f"Only those in this state; may be repeated: {', '.join(STATES)}."),
    ] = None,
    producer_id: Annotated[
        list[int] | None,
        typer.Option(min=0, metavar="N", help="Only those of this producer; may be repeated."),
    ] = None,
    running_longer_than: Annotated[
        float | None,
        typer.Option(
            min=0.0, metavar="SECONDS", help="Only transactions open for longer than this."
        ),
    ] = None,
    pattern: Annotated[
        str | None,
        typer.Option(metavar="REGEX", help="Only matching ids (brokers from 4.1 on)."),
    ] = None,
) -> Result:
    """List transactional ids, with their producers and states.

    Example: odradek transactions list --state Ongoing --running-longer-than 60
    --bootstrap-server localhost:9092
    """
    states = [one_word("--state", word, STATES) for word in state or ()]
    found, silent = told_by_brokers(
        lambda: run.admin.list_transactions(
            run.left(),
            states=states,
            producer_ids=producer_id or (),
            running_longer_than=running_longer_than,
            pattern=pattern,
        ),
        lambda t: t.transactional_id,
    )
    rows = [(t.transactional_id, t.producer_id, t.state) for t in found]
    heads = ("TRANSACTIONAL-ID", "PRODUCER-ID", "STATE")
    table = ResultTable(heads, rows, "No transactional ids found.")
    return Result({"transactions": found}, [table], silent)


@reads(app)
def describe(run: AdminRun, ids: Ids) -> Result:
    """Describe transactional ids: state, producer, partitions.

    Example: odradek transactions describe billing-1
    """
    found, failed = run.each(lambda: run.admin.describe_transactions(ids, run.left()))
    heads = (
        *("TRANSACTIONAL-ID", "PRODUCER-ID", "PRODUCER-EPOCH", "STATE", "TIMEOUT-MS", "BEGAN"),
        "PARTITIONS",
    )
    rows = [
        (
            *(name, t.producer_id, t.producer_epoch, t.state, t.timeout_ms),
            *(shown_moment(t.start_ms), partitions_by_topic(t.partitions)),
        )
        for name, t in found.items()
    ]
    return Result({"transactions": found}, [ResultTable(heads, rows)], failed)


@reads(app)
def producers(
    run: AdminRun,
    topics: Annotated[
        list[str],
        typer.Argument(
            metavar="TOPIC[:PARTITIONS]",
            help="Topics, such as flights, or some of their partitions, such as flights:0,2.",
            autocompletion=topic_names,
        ),
    ],
    broker_id: Annotated[
        int | None,
        typer.Option(min=0, metavar="N", help="Ask this broker instead of the leaders."),
    ] = None,
) -> Result:
    """Show the recent producers of partitions, and where their transactions begin.

    Example: odradek transactions producers flights:0
    """
    for error in run.absent_brokers(() if broker_id is None else (broker_id,)).values():
        raise error
    partitions, missing = partitions_of(run, topics)
    found, failed = (
        run.each(lambda: run.admin.describe_producers(partitions, run.left(), broker=broker_id))
        if partitions
        else ({}, {})
    )
    heads = (
        *("TOPIC", "PARTITION", "PRODUCER-ID", "PRODUCER-EPOCH", "COORDINATOR-EPOCH"),
        *("LAST-SEQUENCE", "LAST-TIMESTAMP", "TRANSACTION-START-OFFSET"),
    )
    rows = [
        (
            *(*at, p.producer_id, p.producer_epoch, p.coordinator_epoch, p.last_sequence),
            *(shown_moment(p.last_timestamp_ms), p.transaction_start_offset),
        )
        for at, states in found.items()
        for p in states
    ]
    document = [{**at._asdict(), "producers": states} for at, states in found.items()]
    table = ResultTable(heads, rows, "No recent producers.")
    return Result({"partitions": document}, [table], {**missing, **failed})


@reads(app)
def hanging(
    run: AdminRun,
    topic: Annotated[
        list[str] | None,
        typer.Option(
            help="Only this topic; may be repeated (default: all topics).",
            autocompletion=topic_names,
        ),
    ] = None,
    older_than: Annotated[
        float,
        typer.Option(
            min=0.0,
            metavar="SECONDS",
            help="Only transactions without a write for this long, which must be at least the "
            "brokers' transaction.max.timeout.ms.",
        ),
    ] = LONGEST,
) -> Result:
    """Find open transactions that no coordinator will end; they block read_committed consumers.

    Example: odradek transactions hanging --topic flights
    """
    found = run.admin.find_hanging_transactions(topic, run.left(), older_than=older_than)
    heads = (
        *("TOPIC", "PARTITION", "PRODUCER-ID", "PRODUCER-EPOCH", "COORDINATOR-EPOCH"),
        *("START-OFFSET", "LAST-TIMESTAMP"),
    )
    rows = [
        (
            *(*t.spec.partition, t.spec.producer_id, t.spec.producer_epoch),
            *(t.spec.coordinator_epoch, t.start_offset, shown_moment(t.last_timestamp_ms)),
        )
        for t in found
    ]
    table = ResultTable(heads, rows, "No hanging transactions found.")
    return Result({"hanging": [_plain(t) for t in found]}, [table])


@destroys(app)
def abort(
    run: AdminRun,
    ids: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="ID",
            help="Transactional ids, to fence their producers and abort their open transactions.",
            show_default=False,
        ),
    ] = None,
    topic: Annotated[
        str | None,
        typer.Option(
            help="The topic of a hanging transaction, with --partition and --start-offset.",
            autocompletion=topic_names,
        ),
    ] = None,
    partition: Annotated[
        int | None, typer.Option(min=0, metavar="N", help="The partition.")
    ] = None,
    start_offset: Annotated[
        int | None,
        typer.Option(min=0, metavar="N", help="The first offset of the hanging transaction."),
    ] = None,
) -> Result:
    """Abort transactions: those of transactional ids, or one that hangs in a partition.

    The coordinator of an id fences its producer, which can't continue. A hanging transaction
    (odradek transactions hanging) has no coordinator: the partition's leader ends it, at the offset
    where it begins.

    Example: odradek transactions abort --topic flights --partition 0 --start-offset 1234
    """
    place = (topic, partition, start_offset)
    if ids and any(one is not None for one in place):
        refuse("use transactional ids, or --topic with --partition and --start-offset")
    if ids:
        return _fence(run, list(dict.fromkeys(ids)))
    if topic is None or partition is None or start_offset is None:
        refuse(
            "no transaction is given: use transactional ids, or --topic with --partition and "
            "--start-offset"
        )
    return _end(run, TopicPartition(topic, partition), start_offset)


def _fence(run: AdminRun, ids: list[str]) -> Result:
    # Look up the ids first, because a coordinator would create unknown ones.
    there, failed = run.each(lambda: run.admin.describe_transactions(ids, run.left()))
    if run.dry_run:
        shown = [f"Would fence {name}, which is {t.state}." for name, t in there.items()]
        return Result({"dry_run": True, "would_fence": list(there)}, shown, failed)
    if not there:
        return Result({"fenced": {}}, (), failed)
    what = f"fence {counted(len(there), 'producer')} and abort open transactions: {listed(there)}"
    run.confirm(what)
    found, bad = run.each(lambda: run.admin.fence_producers(list(there), run.left()))
    shown = [f"Fenced {name}: its epoch is now {p.producer_epoch}." for name, p in found.items()]
    return Result({"fenced": found}, shown, {**failed, **bad})


def _end(run: AdminRun, at: TopicPartition, start_offset: int) -> Result:
    states = run.admin.describe_producers([at], run.left())[at]
    found = next((p for p in states if p.transaction_start_offset == start_offset), None)
    if found is None:
        open_ = sorted(
            p.transaction_start_offset for p in states if p.transaction_start_offset is not None
        )
        there = f"; open transactions begin at {', '.join(map(str, open_))}" if open_ else ""
        raise TransactionalIdNotFoundError(
            f"no open transaction of {at} begins at offset {start_offset}{there}"
        )
    spec = AbortTransactionSpec(
        at, found.producer_id, found.producer_epoch, found.coordinator_epoch
    )
    document = {**at._asdict(), "start_offset": start_offset, "producer_id": spec.producer_id}
    what = f"the transaction of producer {spec.producer_id} at {at}, offset {start_offset}"
    if run.dry_run:
        return Result({"dry_run": True, "would_abort": document}, [f"Would abort {what}."])
    run.confirm(f"abort {what}")
    run.admin.abort_transaction(spec, run.left())
    return Result({"aborted": document}, [f"Aborted {what}."])


def _plain(t: HangingTransaction) -> dict[str, Any]:
    spec = t.spec
    return {
        **spec.partition._asdict(),
        "producer_id": spec.producer_id,
        "producer_epoch": spec.producer_epoch,
        "coordinator_epoch": spec.coordinator_epoch,
        "start_offset": t.start_offset,
        "last_timestamp_ms": t.last_timestamp_ms,
    }

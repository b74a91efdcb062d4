"""`odradek logdirs`: the directories of brokers' logs, and replicas moved between them.

In: brokers, replicas as `flights:0:1`. Out: directories, or the moved replicas, in the formats of
`cli.frame`. Must not: wait until a replica has moved.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer

from odradek.cli.console.properties import refuse
from odradek.cli.frame.argument_values import MOST_INT32, whole_number
from odradek.cli.frame.commands import AdminRun, changes, reads
from odradek.cli.frame.completion import topic_names
from odradek.cli.frame.overviews import overview
from odradek.cli.frame.partition_arguments import parted, topic_partition
from odradek.cli.frame.results import Result, ResultTable
from odradek.clients.admin.log_dirs import (
    LogDirDescription,
    ReplicaInfo,
    TopicPartitionReplica,
)
from odradek.common.errors import KafkaError
from odradek.common.types import TopicPartition

Directory = tuple[int, str, LogDirDescription, Mapping[TopicPartition, ReplicaInfo]]
"""Broker id, path of a log directory, its description, and the requested replicas in it."""

app = overview("Log directories of brokers: describe, and move replicas.")


@reads(app)
def describe(
    run: AdminRun,
    broker: Annotated[
        list[int] | None,
        typer.Option(
            metavar="ID",
            min=0,
            help="Only this broker; may be repeated.",
            show_default="all brokers",
        ),
    ] = None,
    topic: Annotated[
        list[str] | None,
        typer.Option(
            help="Only this topic; may be repeated.",
            show_default="all topics",
            autocompletion=topic_names,
        ),
    ] = None,
    replicas: Annotated[
        bool,
        typer.Option("--replicas", help="Print a line for each replica instead of each directory."),
    ] = False,
) -> Result:
    """Show the log directories of brokers: what they contain and how much space is left.

    Sizes are in bytes.

    Example: odradek logdirs describe --broker 1 --topic flights --replicas
    """
    absent = run.absent_brokers(broker or ())
    asked = [one for one in dict.fromkeys(broker or ()) if one not in absent]
    found, failed = (
        run.each(lambda: run.admin.describe_log_dirs(asked or None, run.left()))
        if asked or not broker
        else ({}, {})
    )
    dirs: list[Directory] = [
        (
            number,
            path,
            one,
            {at: r for at, r in one.replicas.items() if not topic or at.topic in topic},
        )
        for number, paths in found.items()
        for path, one in (paths or {}).items()
    ]
    errors = {f"{path} of broker {n}": one.error for n, path, one, _ in dirs if one.error}
    document = [
        {
            "broker": number,
            "path": path,
            "error": one.error,
            "cordoned": one.cordoned,
            "total_bytes": one.total_bytes,
            "usable_bytes": one.usable_bytes,
            "replicas": [
                {"topic": at.topic, "partition": at.partition, "size": r.size,
                 "offset_lag": r.offset_lag, "future": r.future}
                for at, r in sorted(chosen.items())
            ],
        }
        for number, path, one, chosen in dirs
    ]  # fmt: skip
    table = _by_replica(dirs) if replicas else _by_directory(dirs)
    return Result({"log_dirs": document}, [table], {**absent, **failed, **errors})


def _by_replica(dirs: Sequence[Directory]) -> ResultTable:
    return ResultTable(
        ("broker", "directory", "topic", "partition", "size", "lag", "moving here"),
        [
            (number, path, *at, r.size, r.offset_lag, r.future)
            for number, path, _, chosen in dirs
            for at, r in sorted(chosen.items())
        ],
        "No replicas found.",
    )


def _by_directory(dirs: Sequence[Directory]) -> ResultTable:
    return ResultTable(
        ("broker", "directory", "replicas", "size", "total space", "free space", "state"),
        [
            (number, path, len(chosen), sum(r.size for r in chosen.values()),
             one.total_bytes, one.usable_bytes,
             "unusable" if one.error else "cordoned" if one.cordoned else "in use")
            for number, path, one, chosen in dirs
        ],
        "No directories found.",
    )  # fmt: skip


@changes(app)
def alter(
    run: AdminRun,
    places: Annotated[
        list[str],
        typer.Argument(
            metavar="TOPIC:PARTITION:BROKER=DIRECTORY",
            help="The new directory of a broker's replica, as an absolute path there.",
        ),
    ],
) -> Result:
    """Move replicas to other directories of their brokers.

    The brokers copy the records afterwards.

    Example: odradek logdirs alter flights:0:1=/disk2/kafka-logs
    """
    wanted: dict[TopicPartitionReplica, str] = {}
    for word in places:
        place, directory = parted(word, "TOPIC:PARTITION:BROKER=DIRECTORY")
        before, _, text = place.rpartition(":")
        number = whole_number(text, MOST_INT32)
        if ":" not in before or number is None:
            refuse(f"expected TOPIC:PARTITION:BROKER=DIRECTORY, not {word!r}")
        wanted[TopicPartitionReplica(*topic_partition(before), number)] = directory
    absent = run.absent_brokers(at.broker for at in wanted)
    lost: dict[Any, KafkaError] = {at: absent[at.broker] for at in wanted if at.broker in absent}
    wanted = {at: path for at, path in wanted.items() if at not in lost}
    if run.dry_run:
        there, failed = run.each(
            lambda: run.admin.describe_replica_log_dirs(list(wanted), run.left())
        )
        rows = [(*at, one.current, wanted[at]) for at, one in there.items()]
        table = ResultTable(("topic", "partition", "broker", "directory", "would move to"), rows)
        names = ("topic", "partition", "broker", "directory", "to")
        would = [dict(zip(names, row, strict=True)) for row in rows]
        return Result({"dry_run": True, "would_move": would}, [table], lost | failed)
    _, failed = run.each(lambda: run.admin.alter_replica_log_dirs(wanted, run.left()), wanted)
    moved = [{**at._asdict(), "to": path} for at, path in wanted.items() if at not in failed]
    table = ResultTable(
        ("topic", "partition", "broker", "moves to"), [tuple(one.values()) for one in moved]
    )
    return Result({"moved": moved}, [table], lost | failed)

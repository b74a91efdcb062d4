"""`odradek offsets`: look up offsets by a keyword or a time, as kafka-get-offsets does.

In: topics, partitions, a time. Out: an offset for each partition. Must not: access groups.
"""

from __future__ import annotations

from typing import Annotated

import typer

from odradek.cli.console.properties import refuse
from odradek.cli.frame.argument_values import one_word
from odradek.cli.frame.commands import AdminRun, reads
from odradek.cli.frame.completion import topic_names
from odradek.cli.frame.overviews import overview
from odradek.cli.frame.results import Result, ResultTable
from odradek.cli.frame.timestamps import parse_moment, shown_moment
from odradek.cli.topics.partitions import partitions_of
from odradek.clients.admin.offsets import ISOLATION_LEVELS, SPECS, OffsetSpec

app = overview("Offsets of partitions: list.")
WORDS = {word.lower().replace("_", "-"): word for word in SPECS}
NUMBERED = {f"-{number}": word for number, word in enumerate(WORDS, 1)}
"""Our keywords by the numbers that kafka-get-offsets accepts for them."""


def parse_time(text: str) -> OffsetSpec:
    """Parse a time: one of Kafka's keywords, or milliseconds since the epoch."""
    if text[:1].isdecimal():
        return parse_moment("--time", text)
    if text in NUMBERED:
        refuse(f"--time: use {NUMBERED[text]} instead of {text}")
    return WORDS[one_word("--time", text, tuple(WORDS))]


@reads(app, "list")
def list_(
    run: AdminRun,
    topics: Annotated[
        list[str],
        typer.Argument(
            metavar="TOPIC[:PARTITIONS]",
            help="Topics, such as flights, or some of their partitions, such as flights:0,2.",
            autocompletion=topic_names,
        ),
    ],
    time: Annotated[
        str,
        typer.Option(
            help=f"{', '.join(WORDS)}, or a time, for the first record at or after it: "
            "2026-03-01T12:30:00, in UTC unless it has a zone, or milliseconds since 1970."
        ),
    ] = "latest",
    isolation_level: Annotated[
        str,
        typer.Option(
            help="With read_committed, latest is the start of the first open transaction."
        ),
    ] = ISOLATION_LEVELS[0],
) -> Result:
    """List offsets of partitions: the first, the next, or that of a time.

    Example: odradek offsets list flights --time 2026-03-01T12:30:00
    """
    spec = parse_time(time)
    level = one_word("--isolation-level", isolation_level, ISOLATION_LEVELS)
    partitions, missing = partitions_of(run, topics)
    asked = dict.fromkeys(partitions, spec)
    found, failed = (
        run.each(lambda: run.admin.list_offsets(asked, run.left(), isolation_level=level))
        if asked
        else ({}, {})
    )
    rows = [
        (
            *at,
            o.offset,
            shown_moment(o.timestamp_ms),
            o.leader_epoch if o.leader_epoch >= 0 else None,
        )
        for at, o in found.items()
    ]
    document = [
        {
            **at._asdict(),
            "offset": o.offset,
            "timestamp_ms": o.timestamp_ms,
            "leader_epoch": o.leader_epoch,
        }
        for at, o in found.items()
    ]
    heads = ("TOPIC", "PARTITION", "OFFSET", "TIMESTAMP", "LEADER-EPOCH")
    return Result({"offsets": document}, [ResultTable(heads, rows)], {**missing, **failed})

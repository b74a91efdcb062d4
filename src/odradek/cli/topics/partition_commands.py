"""Commands of `odradek partitions`: list, reassign, elect leaders.

In: partitions as `flights:0`. Out: partitions, or the results of changes, in the formats of
`cli.frame`. Must not: wait until replicas have moved; `reassignments` reports the progress.
"""

from __future__ import annotations

import json as jsonlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from odradek.cli.console.properties import read_text, refuse
from odradek.cli.console.waiting import in_words, say
from odradek.cli.frame.commands import AdminRun, changes, destroys, reads
from odradek.cli.frame.overviews import overview
from odradek.cli.frame.partition_arguments import AnyTopicNames, parted, replicas, topic_partition
from odradek.cli.frame.results import Result, ResultTable
from odradek.clients.descriptions import PartitionDescription
from odradek.common.errors import KafkaError
from odradek.common.errors.kafka import UnknownTopicOrPartitionError
from odradek.common.types import TopicPartition

app = overview("Partitions: list, reassign, elect leaders, see reassignments.")

NOBODY = "No partition is being moved."


@reads(app, "list")
def list_(
    run: AdminRun,
    topics: AnyTopicNames = None,
    offsets: Annotated[
        bool, typer.Option("--offsets", help="Also print the first offset and the log end offset.")
    ] = False,
) -> Result:
    """List the partitions of topics with their leaders and replicas.

    Example: odradek partitions list flights --offsets
    """
    found, failed = _described(run, topics)
    ends: dict[TopicPartition, tuple[int | None, int | None]] = {}
    if offsets and found:
        first, no_first = run.each(
            lambda: run.admin.list_offsets(dict.fromkeys(found, "EARLIEST"), run.left())
        )
        last, no_last = run.each(
            lambda: run.admin.list_offsets(dict.fromkeys(found, "LATEST"), run.left())
        )
        failed = {**failed, **no_first, **no_last}
        ends = {at: (_offset(first.get(at)), _offset(last.get(at))) for at in found}
    document = [
        {"topic": at.topic, "partition": at.partition, "leader": p.leader,
         "leader_epoch": p.leader_epoch, "replicas": p.replicas, "isr": p.isr,
         "offline_replicas": p.offline_replicas,
         **({"first_offset": ends[at][0], "next_offset": ends[at][1]} if ends else {})}
        for at, p in found.items()
    ]  # fmt: skip
    heads = ("topic", "partition", "leader", "replicas", "isr", "offline")
    rows = [
        (*at, p.leader, p.replicas, p.isr, p.offline_replicas, *ends.get(at, ()))
        for at, p in found.items()
    ]
    more = ("first offset", "next offset") if ends else ()
    table = ResultTable((*heads, *more), rows, "No partitions found.")
    return Result({"partitions": document}, [table], failed)


@changes(app)
def reassign(
    run: AdminRun,
    places: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="TOPIC:PARTITION=BROKERS",
            help="The new replicas of a partition, the preferred leader first: flights:0=1,2,3. "
            "With --cancel, only TOPIC:PARTITION.",
        ),
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option(
            "--reassignment-json-file", help="The same, from a file of kafka-reassign-partitions."
        ),
    ] = None,
    cancel: Annotated[
        bool,
        typer.Option(
            "--cancel", help="Cancel running reassignments: replicas stay where they are."
        ),
    ] = False,
) -> Result:
    """Move partitions to other brokers.

    Brokers copy the records afterwards; `odradek partitions reassignments` shows what is under way.

    Example: odradek partitions reassign flights:0=2,3,1 flights:1=3,1,2
    """
    wanted: dict[TopicPartition, Sequence[int] | None] = {}
    for word in places or ():
        if cancel:
            wanted[topic_partition(word)] = None
        else:
            place, brokers = parted(word, "TOPIC:PARTITION=BROKERS, as in flights:0=1,2,3")
            wanted[topic_partition(place)] = replicas(brokers)
    if file is not None:
        from_file = _read_reassignment(file)
        wanted |= dict.fromkeys(from_file) if cancel else from_file
    if not wanted:
        refuse("no partition is given: use TOPIC:PARTITION=BROKERS or --reassignment-json-file")
    there, failed = _described(run, list(dict.fromkeys(at.topic for at in wanted)))
    # Errors of descriptions are ignored: for the same topic, the reassignment's error is clearer.
    before = {at: p.replicas for at, p in there.items() if at in wanted}
    if run.dry_run:
        failed |= _would_fail(run, wanted, there)
    else:
        untold, (_, failed) = (
            failed,
            run.each(lambda: run.admin.alter_partition_reassignments(wanted, run.left()), wanted),
        )
        moved = {at.topic for at in wanted if at not in failed}
        for topic, error in untold.items():
            if topic in moved:
                say(f"{run.tool}: the previous replicas of {topic} are unknown: {in_words(error)}")
    done = [at for at in wanted if at not in failed and at.topic not in failed]
    heads = ("topic", "partition", "before", "would become" if run.dry_run else "becomes")
    if cancel:
        heads = (*heads[:3], "move")
    moves = [(*at, before.get(at), wanted[at] or "cancelled") for at in done]
    document = [
        {"topic": at.topic, "partition": at.partition, "before": before.get(at), "to": wanted[at]}
        for at in done
    ]
    return Result(
        {"dry_run": run.dry_run, "reassigned": document}, [ResultTable(heads, moves)], failed
    )


@reads(app)
def reassignments(run: AdminRun, topics: AnyTopicNames = None) -> Result:
    """List the reassignments under way, of these topics or of all.

    Example: odradek partitions reassignments
    """
    found = run.admin.list_partition_reassignments(None, run.left())
    chosen = {at: one for at, one in found.items() if not topics or at.topic in topics}
    document = [
        {"topic": at.topic, "partition": at.partition, "replicas": one.replicas,
         "adding": one.adding, "removing": one.removing}
        for at, one in chosen.items()
    ]  # fmt: skip
    heads = ("topic", "partition", "replicas", "adding", "removing")
    rows = [(*at, one.replicas, one.adding, one.removing) for at, one in chosen.items()]
    return Result({"reassignments": document}, [ResultTable(heads, rows, NOBODY)])


@destroys(app, "elect-leaders")
def elect_leaders(
    run: AdminRun,
    partitions: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="TOPIC:PARTITION",
            help="Partitions.",
            show_default="all that need it",
        ),
    ] = None,
    unclean: Annotated[
        bool,
        typer.Option(
            "--unclean",
            help="For partitions without a leader: elect any replica that is alive, even if it "
            "lacks records, which are then lost.",
        ),
    ] = False,
) -> Result:
    """Make the first replica of each partition its leader again, where possible.

    Asks for confirmation only before an unclean election, which may lose records.

    Example: odradek partitions elect-leaders flights:0 flights:1
    """
    wanted = [topic_partition(word) for word in dict.fromkeys(partitions or ())] or None
    kind = "UNCLEAN" if unclean else "PREFERRED"
    if run.dry_run:
        found, failed = _described(run, wanted and list(dict.fromkeys(at.topic for at in wanted)))
        would = [
            at
            for at, p in found.items()
            if (wanted is None or at in wanted)
            and (p.leader is None if unclean else p.replicas[:1] != (p.leader,))
        ]
        failed |= _absent(wanted or (), found)
        shown = [f"Would elect a leader of {at.topic}:{at.partition}." for at in would]
        document = {"dry_run": True, "election": kind, "would_elect": would}
        return Result(
            document, shown or ([] if failed else ["No partition needs an election."]), failed
        )
    if unclean:
        which = "all partitions without a leader" if wanted is None else ", ".join(map(str, wanted))
        run.confirm(f"elect leaders that may lack records, which are then lost, for {which}")
    elected, failed = _elected(run, kind, wanted)
    shown = [f"Elected a leader of {at.topic}:{at.partition}." for at in elected]
    empty = [] if failed else ["No partition needed an election."]
    return Result({"election": kind, "elected": elected}, shown or empty, failed)


def _would_fail(
    run: AdminRun,
    wanted: Mapping[TopicPartition, Sequence[int] | None],
    there: Mapping[TopicPartition, PartitionDescription],
) -> dict[Any, KafkaError]:
    """Return the errors of a reassignment that a dry run can predict."""
    failed: dict[Any, KafkaError] = dict(_absent(wanted, there))
    known = run.absent_brokers(one for to in wanted.values() for one in to or ())
    for at, to in wanted.items():
        for one in to or ():
            if one in known:
                failed.setdefault(at, known[one])
    return failed


def _absent(
    wanted: Iterable[TopicPartition], there: Mapping[TopicPartition, PartitionDescription]
) -> dict[TopicPartition, KafkaError]:
    """Return errors for missing partitions of existing topics."""
    topics = {at.topic for at in there}
    return {
        at: UnknownTopicOrPartitionError(f"topic {at.topic} has no partition {at.partition}")
        for at in wanted
        if at.topic in topics and at not in there
    }


def _elected(
    run: AdminRun, kind: str, wanted: list[TopicPartition] | None
) -> tuple[list[TopicPartition], dict[Any, KafkaError]]:
    found, failed = run.each(
        lambda: dict.fromkeys(run.admin.elect_leaders(kind, wanted, run.left()), True)
    )
    return sorted(at for at, elected in found.items() if elected), failed


def _described(
    run: AdminRun, topics: Sequence[str] | None
) -> tuple[dict[TopicPartition, PartitionDescription], dict[Any, KafkaError]]:
    """Return the partitions of these topics (None: all), and errors by topic."""
    names = list(dict.fromkeys(topics or run.admin.list_topics(run.left())))
    found, failed = run.each(lambda: run.admin.describe_topics(names, run.left()))
    partitions = {
        TopicPartition(topic.name, one.partition): one
        for topic in found.values()
        if topic is not None
        for one in topic.partitions
    }
    return dict(sorted(partitions.items())), dict(failed)


def _offset(listed: Any) -> int | None:
    return None if listed is None else listed.offset


def _read_reassignment(path: Path) -> dict[TopicPartition, list[int]]:
    """Read a JSON file in the format of kafka-reassign-partitions."""
    try:
        document = jsonlib.loads(read_text(path))
        return {
            TopicPartition(str(one["topic"]), int(one["partition"])): [
                int(broker) for broker in one["replicas"]
            ]
            for one in document["partitions"]
        }
    except (ValueError, LookupError, TypeError, RecursionError) as error:
        refuse(
            f'{path} isn\'t {{"partitions": [{{"topic": …, "partition": …, "replicas": […]}}]}}: '
            f"{type(error).__name__}: {error}"
        )

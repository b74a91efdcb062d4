"""`odradek topics`: list, describe, create, change and delete topics, as kafka-topics does.

In: names and flags. Out: topics, or the results of changes, in the formats of `cli.frame`. Must
not: check the cluster's limits; brokers do.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Annotated, Any

import typer

from odradek.cli.console.properties import parse_values, refuse
from odradek.cli.frame.argument_values import whole_number
from odradek.cli.frame.commands import AdminRun, changes, destroys, reads
from odradek.cli.frame.overviews import overview
from odradek.cli.frame.partition_arguments import (
    AnyTopicNames,
    AppendOptions,
    DeleteOptions,
    SetOptions,
    SubtractOptions,
    TopicNames,
    changed_words,
    option_changes,
    parted,
    topic_partition,
)
from odradek.cli.frame.results import Result, ResultTable, counted
from odradek.clients.admin.admin_arguments import NewTopic
from odradek.clients.admin.configs import ConfigResource
from odradek.clients.descriptions import PartitionDescription, TopicDescription
from odradek.common.errors import KafkaError
from odradek.common.errors.kafka import TopicAlreadyExistsError, UnknownTopicOrPartitionError
from odradek.common.topic_names import check_topic
from odradek.common.types import TopicPartition

app = overview("Topics: list, describe, create, alter, delete.")

Partitions = Annotated[
    int, typer.Option(min=-1, metavar="N", help="Number of partitions; -1: the brokers' default.")
]
Replicas = Annotated[
    int,
    typer.Option(min=-1, metavar="N", help="Replicas of each partition; -1: the brokers' default."),
]
Internal = Annotated[
    bool, typer.Option("--include-internal", help="Include Kafka's internal topics.")
]


@reads(app, "list")
def list_(
    run: AdminRun,
    topic: Annotated[
        str | None, typer.Option(metavar="REGEX", help="Only topics whose full name matches.")
    ] = None,
    include_internal: Internal = False,
) -> Result:
    """List the topics that this client may see, one per line.

    Example: odradek topics list --topic 'flights-.*'
    """
    try:
        fits = re.compile(topic or ".*")
    except re.error as error:
        refuse(f"--topic: {topic!r} is not a valid regular expression: {error}")
    found = run.admin.list_topics(run.left(), include_internal=include_internal)
    chosen = [name for name in found if fits.fullmatch(name)]
    return Result({"topics": chosen}, chosen)


@changes(app)
def create(
    run: AdminRun,
    names: Annotated[list[str], typer.Argument(metavar="TOPIC", help="Topic names.")],
    partitions: Partitions = -1,
    replication_factor: Replicas = -1,
    config: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=VALUE", help="A topic option; may be repeated."),
    ] = None,
    if_not_exists: Annotated[
        bool, typer.Option("--if-not-exists", help="Don't fail if a topic already exists.")
    ] = False,
) -> Result:
    """Create topics, and wait until each partition has a leader.

    With --dry-run, the brokers only check the request.

    Example: odradek topics create flights --partitions 6 --config retention.ms=3600000
    """
    configs = parse_values(config or (), "--config")
    good, failed = usable(names)
    new = [NewTopic(name, partitions, replication_factor, configs) for name in good]
    found, refused = run.each(
        lambda: run.admin.create_topics(new, run.left(), validate_only=run.dry_run)
    )
    existed, failed = _parted(failed | refused, TopicAlreadyExistsError, none=not if_not_exists)
    for name in [at for at, error in failed.items() if isinstance(error, TopicAlreadyExistsError)]:
        failed[name] = TopicAlreadyExistsError(
            f"topic {name} already exists; --if-not-exists ignores that"
        )
    if run.dry_run:
        would = [name for name in good if name not in refused]
        shown = [f"Would create topic {name}." for name in would] + _there(existed)
        return Result({"dry_run": True, "would_create": would, "existed": existed}, shown, failed)
    made = {name: topic for name, topic in found.items() if topic is not None}
    document = {name: _made(topic) for name, topic in made.items()}
    shown = [
        f"Created topic {name}: {counted(one['partitions'], 'partition')}, "
        f"{counted(one['replication_factor'], 'replica')} each."
        for name, one in document.items()
    ]
    return Result({"created": document, "existed": existed}, shown + _there(existed), failed)


@destroys(app)
def delete(
    run: AdminRun,
    names: TopicNames,
    if_exists: Annotated[
        bool, typer.Option("--if-exists", help="Don't fail if a topic doesn't exist.")
    ] = False,
) -> Result:
    """Delete topics with all their records. This can't be undone.

    Example: odradek topics delete flights counts --if-exists --yes
    """
    good, failed = usable(names)
    if run.dry_run or run.asks:
        there, refused = run.each(lambda: run.admin.describe_topics(good, run.left()))
        good, failed = list(there), failed | refused
    gone = dict.fromkeys(good)
    if good and not run.dry_run:
        run.confirm(f"delete {counted(len(good), 'topic')} with all records: {', '.join(good)}")
        gone, refused = run.each(lambda: run.admin.delete_topics(good, run.left()), good)
        failed |= refused
    missing, failed = _parted(failed, UnknownTopicOrPartitionError, none=not if_exists)
    verb = "Would delete" if run.dry_run else "Deleted"
    shown = [f"{verb} topic {name}." for name in gone] + _missing(missing)
    if run.dry_run:
        return Result({"dry_run": True, "would_delete": good, "missing": missing}, shown, failed)
    return Result({"deleted": list(gone), "missing": missing}, shown, failed)


@reads(app)
def describe(
    run: AdminRun,
    names: AnyTopicNames = None,
    under_replicated: Annotated[
        bool,
        typer.Option(
            "--under-replicated", help="Only partitions with replicas that aren't in sync."
        ),
    ] = False,
    unavailable: Annotated[
        bool, typer.Option("--unavailable", help="Only partitions without a leader.")
    ] = False,
    include_internal: Internal = False,
) -> Result:
    """Describe topics: partitions, leaders, replicas and configs.

    Configs need the permission DESCRIBE_CONFIGS: without it, the rest is printed and the exit
    status is 1.

    Example: odradek topics describe flights --under-replicated
    """
    good, failed = usable(
        names or run.admin.list_topics(run.left(), include_internal=include_internal)
    )
    found, missing = run.each(lambda: run.admin.describe_topics(good, run.left()))
    topics = [topic for topic in found.values() if topic is not None]
    configs, hidden = _configs(run, [topic.name for topic in topics])
    only = under_replicated or unavailable
    shown = [
        (
            topic,
            [p for p in topic.partitions if not only or _sick(p, under_replicated, unavailable)],
        )
        for topic in topics
    ]
    shown = [(topic, partitions) for topic, partitions in shown if partitions or not only]
    document = [
        {
            "name": topic.name,
            "topic_id": topic.topic_id,
            "internal": topic.internal,
            "partition_count": len(topic.partitions),
            "replication_factor": len(topic.partitions[0].replicas) if topic.partitions else 0,
            "configs": configs.get(topic.name),
            "partitions": partitions,
        }
        for topic, partitions in shown
    ]
    heads = ("topic", "partition", "leader", "replicas", "isr", "offline")
    rows = [
        (topic.name, p.partition, p.leader, p.replicas, p.isr, p.offline_replicas)
        for topic, partitions in shown
        for p in partitions
    ]
    empty = "No matching partitions found." if only else "No topics found."
    told: list[ResultTable | str] = [] if only else [_heads_of(document)]
    return Result(
        {"topics": document}, [*told, ResultTable(heads, rows, empty)], failed | missing | hidden
    )


@changes(app)
def alter(
    run: AdminRun,
    names: TopicNames,
    set_: SetOptions = None,
    delete: DeleteOptions = None,
    append: AppendOptions = None,
    subtract: SubtractOptions = None,
) -> Result:
    """Change options of topics; other options keep their values.

    With --dry-run, the brokers only check the new values.

    Example: odradek topics alter flights --set retention.ms=3600000 --delete cleanup.policy
    """
    changes = option_changes(set_, delete, append, subtract)
    good, failed = usable(names)
    wanted = {ConfigResource("TOPIC", name): changes for name in good}
    _, refused = run.each(
        lambda: run.admin.incremental_alter_configs(wanted, run.left(), validate_only=run.dry_run),
        wanted,
    )
    failed |= {at.name: error for at, error in refused.items()}
    done = [name for name in good if name not in failed]
    verb = "Would change" if run.dry_run else "Changed"
    shown = [f"{verb} topic {name}: {changed_words(changes)}." for name in done]
    return Result({"dry_run": run.dry_run, "altered": done, "changes": changes}, shown, failed)


@changes(app, "create-partitions")
def create_partitions(
    run: AdminRun,
    names: TopicNames,
    partitions: Annotated[
        int, typer.Option(min=1, metavar="N", help="The new number of partitions of each topic.")
    ],
) -> Result:
    """Add partitions to topics. From then on, keys map to other partitions.

    With --dry-run, the brokers only check the request.

    Example: odradek topics create-partitions flights --partitions 12
    """
    good, failed = usable(names)
    wanted = dict.fromkeys(good, partitions)
    _, refused = run.each(
        lambda: run.admin.create_partitions(wanted, run.left(), validate_only=run.dry_run), good
    )
    failed |= refused
    done = [name for name in good if name not in failed]
    verb = "would have" if run.dry_run else "now has"
    shown = [f"Topic {name} {verb} {counted(partitions, 'partition')}." for name in done]
    return Result({"dry_run": run.dry_run, "topics": done, "partitions": partitions}, shown, failed)


@destroys(app, "delete-records")
def delete_records(
    run: AdminRun,
    before: Annotated[
        list[str],
        typer.Argument(
            metavar="TOPIC[:PARTITION]=OFFSET",
            help="Delete the records before this offset; end deletes all existing records. If no "
            "partition is named, this applies to all partitions.",
        ),
    ],
) -> Result:
    """Delete the records of partitions before an offset. This can't be undone.

    Example: odradek topics delete-records flights:0=1000 counts=end --yes
    """
    offsets, failed = _before_offsets(run, before)
    words = ", ".join(f"{at} before {_until(offset)}" for at, offset in offsets.items())
    if run.dry_run:
        begin = dict.fromkeys(offsets, "EARLIEST")
        there, refused = run.each(lambda: run.admin.list_offsets(begin, run.left()))
        rows = [
            (at.topic, at.partition, listed.offset, _until(offsets[at]))
            for at, listed in there.items()
            if listed is not None
        ]
        would = [
            {"topic": t, "partition": p, "first": first, "before": last}
            for t, p, first, last in rows
        ]
        table = ResultTable(("topic", "partition", "first offset", "new first offset"), rows)
        return Result({"dry_run": True, "would_delete": would}, [table], failed | refused)
    if offsets:
        run.confirm(f"delete records permanently: {words}")
    found, refused = run.each(lambda: run.admin.delete_records(offsets, run.left()))
    rows_left = [(at.topic, at.partition, first) for at, first in found.items()]
    document = [{"topic": t, "partition": p, "first_left": first} for t, p, first in rows_left]
    table = ResultTable(("topic", "partition", "first remaining offset"), rows_left)
    return Result({"deleted": document}, [table], failed | refused)


def _before_offsets(
    run: AdminRun, words: list[str]
) -> tuple[dict[TopicPartition, int], dict[Any, KafkaError]]:
    """Return offsets by partition, -1 for the end; a topic means all its partitions."""
    form = "TOPIC[:PARTITION]=OFFSET, as in flights:0=1000"
    offsets: dict[TopicPartition, int] = {}
    whole: dict[str, int] = {}
    for word in words:
        place, text = parted(word, form)
        offset = -1 if text == "end" else whole_number(text)
        if offset is None:
            refuse(f"{word!r}: the offset must be a number, or end")
        if ":" in place:
            offsets[topic_partition(place)] = offset
        else:
            whole[place] = offset
    if not whole:
        return offsets, {}
    found, failed = run.each(lambda: run.admin.describe_topics(list(whole), run.left()))
    for name, topic in found.items():
        for one in topic.partitions if topic is not None else ():
            offsets.setdefault(TopicPartition(str(name), one.partition), whole[str(name)])
    return offsets, failed


def _until(offset: int) -> str:
    return "the end" if offset < 0 else str(offset)


def _configs(
    run: AdminRun, names: list[str]
) -> tuple[dict[str, dict[str, str | None]], dict[Any, KafkaError]]:
    """Return the topics' configs by name, and the errors of those that couldn't be described."""
    wanted = [ConfigResource("TOPIC", name) for name in names]
    if not wanted:
        return {}, {}
    found, errors = run.each(lambda: run.admin.describe_configs(wanted, run.left()))
    seen = {
        at.name: {one.name: one.value for one in entries.values() if not one.default}
        for at, entries in found.items()
        if entries is not None
    }
    return seen, {at.name: error for at, error in errors.items()}


def _sick(partition: PartitionDescription, under_replicated: bool, unavailable: bool) -> bool:
    lacks = under_replicated and len(partition.isr) < len(partition.replicas)
    return lacks or (unavailable and partition.leader is None)


def _heads_of(topics: list[dict[str, Any]]) -> ResultTable:
    """Return a table with a row for each topic."""
    heads = ("topic", "id", "partitions", "replicas", "configs")
    rows = [
        (
            *(t["name"], t["topic_id"], t["partition_count"], t["replication_factor"]),
            None if t["configs"] is None else tuple(f"{k}={v}" for k, v in t["configs"].items()),
        )
        for t in topics
    ]
    return ResultTable(heads, rows)


def usable(names: Iterable[str]) -> tuple[list[str], dict[Any, KafkaError]]:
    """Return the valid names without duplicates, and errors of the invalid ones."""
    good: list[str] = []
    failed: dict[Any, KafkaError] = {}
    for name in dict.fromkeys(names):
        try:
            check_topic(name)
        except KafkaError as error:
            failed[name] = error
        else:
            good.append(name)
    return good, failed


def _parted(
    failed: dict[Any, KafkaError], kind: type[KafkaError], *, none: bool
) -> tuple[list[str], dict[Any, KafkaError]]:
    """Return items whose error means that nothing had to be done, and the other errors."""
    needless = [item for item, error in failed.items() if not none and isinstance(error, kind)]
    return needless, {item: error for item, error in failed.items() if item not in needless}


def _there(names: list[str]) -> list[str]:
    return [f"Topic {name} already existed." for name in names]


def _missing(names: list[str]) -> list[str]:
    return [f"Topic {name} didn't exist." for name in names]


def _made(topic: TopicDescription) -> dict[str, Any]:
    replicas = len(topic.partitions[0].replicas) if topic.partitions else 0
    return {
        "topic_id": topic.topic_id,
        "partitions": len(topic.partitions),
        "replication_factor": replicas,
    }

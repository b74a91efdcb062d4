"""Run `odradek groups reset-offsets` and `delete-offsets`: change committed offsets.

In: groups, partitions, a mode. Out: new offsets, committed for groups without members; or the plan,
as a table or in the file format of Kafka's tool. Must not: commit any part of a plan with an error.
"""

from __future__ import annotations

import time
from collections.abc import Container, Iterable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from odradek.cli.console.properties import read_text, refuse
from odradek.cli.console.waiting import say
from odradek.cli.frame.argument_values import listed
from odradek.cli.frame.commands import AdminRun
from odradek.cli.frame.completion import group_ids, topic_names
from odradek.cli.frame.results import Result, ResultTable, counted
from odradek.cli.groups.lookup import describe
from odradek.cli.groups.plans import Mode, Plan, parse_mode, plan, read, written
from odradek.cli.topics.partitions import parse_scope, partitions_of
from odradek.clients.admin.groups import SHARE
from odradek.clients.admin.offsets import OffsetSpec
from odradek.common.errors import KafkaError
from odradek.common.errors.kafka import GroupIdNotFoundError, NonEmptyGroupError
from odradek.common.printable import printable
from odradek.common.types import TopicPartition

Offsets = Mapping[TopicPartition, int]


Groups = Annotated[
    list[str], typer.Argument(metavar="GROUP", help="Group ids.", autocompletion=group_ids)
]
Topics = Annotated[
    list[str] | None,
    typer.Option(
        "--topic",
        metavar="TOPIC[:PARTITIONS]",
        help="The topic or partitions to reset, as flights or flights:0,2; may be repeated.",
        autocompletion=topic_names,
    ),
]
AllTopics = Annotated[
    bool, typer.Option("--all-topics", help="All partitions with a committed offset.")
]
ToEarliest = Annotated[bool, typer.Option("--to-earliest", help="To the earliest record.")]
ToLatest = Annotated[bool, typer.Option("--to-latest", help="To the end of the log.")]
ToCurrent = Annotated[
    bool,
    typer.Option(
        "--to-current", help="To the committed offset, or to the end of the log without one."
    ),
]
ToOffset = Annotated[int | None, typer.Option(min=0, metavar="N", help="To this offset.")]
ShiftBy = Annotated[
    int | None,
    typer.Option(
        metavar="N", help="To N records after the committed offset; -N: N records before it."
    ),
]
ToDatetime = Annotated[
    str | None,
    typer.Option(
        metavar="TIME",
        help="To the first record at or after this time: 2026-03-01T12:30:00.000, in UTC unless it "
        "has a zone (Z, +02:00).",
    ),
]
ByDuration = Annotated[
    str | None,
    typer.Option(metavar="DURATION", help="To the first record of the last PT1H30M, P7D …"),
]
FromFile = Annotated[
    Path | None, typer.Option(help="To the offsets of a CSV file, as written by --export.")
]
Export = Annotated[
    bool,
    typer.Option(
        "--export",
        help="Print the new offsets as CSV, without changing anything.",
    ),
]


def reset_offsets(
    run: AdminRun,
    groups: Groups,
    topics: Topics = None,
    all_topics: AllTopics = False,
    to_earliest: ToEarliest = False,
    to_latest: ToLatest = False,
    to_current: ToCurrent = False,
    to_offset: ToOffset = None,
    shift_by: ShiftBy = None,
    to_datetime: ToDatetime = None,
    by_duration: ByDuration = None,
    from_file: FromFile = None,
    export: Export = False,
) -> Result:
    """Set the committed offsets of groups without running members.

    Choose partitions by --topic or --all-topics, and the new offset by one of --to-earliest,
    --to-latest, --to-current, --to-offset, --shift-by, --to-datetime, --by-duration; or both by
    --from-file. An offset outside of the log is replaced by the nearer end of the log, with a
    warning.

    Example: odradek groups reset-offsets billing --topic flights --to-earliest --dry-run
    """
    flags = {
        "to-earliest": to_earliest,
        "to-latest": to_latest,
        "to-current": to_current,
        "to-offset": to_offset,
        "shift-by": shift_by,
        "to-datetime": to_datetime,
        "by-duration": by_duration,
        "from-file": from_file,
    }
    mode = parse_mode(flags, time.time())
    _check_scope(mode, topics, all_topics=all_topics)
    wanted = list(dict.fromkeys(groups))
    if export and len(wanted) > 1:
        _check_printable(wanted)
    given = _file(from_file, wanted)
    kinds, in_use = _in_use(run, wanted)
    failed: dict[Any, KafkaError] = dict(in_use)
    plans = {
        g: _plan(run, mode, g, topics, given.get(g), shares=kinds.get(g) == SHARE)
        for g in wanted
        if g not in failed
    }
    for group, made in plans.items():
        for text in made.warnings:
            say(f"{run.tool}: warning: {printable(f'group {group}: {text}', limit=None)}")
        failed |= {f"{group} {at}": error for at, error in made.errors.items()}
    offsets = {g: made.offsets for g, made in plans.items()}
    document: dict[str, Any] = {"dry_run": True} if run.dry_run or export else {}
    document["groups"] = {g: _document(made) for g, made in plans.items()}
    if failed or not any(offsets.values()):
        return Result(document, ["There are no offsets to set."] if not failed else (), failed)
    if export:
        return Result(document, written(offsets).removesuffix("\n").split("\n"))
    if not run.dry_run:
        run.confirm(_question(offsets))
        failed = _commit(run, offsets, kinds)
        plans = {g: _done(made, g, failed) for g, made in plans.items()}
        document["groups"] = {g: _document(made) for g, made in plans.items()}
    return Result(document, [_table({g: made.offsets for g, made in plans.items()})], failed)


def _done(made: Plan, group: str, failed: Container[str]) -> Plan:
    """Return the part of a plan without the partitions in `failed`."""
    offsets = {at: n for at, n in made.offsets.items() if f"{group} {at}" not in failed}
    return replace(made, offsets=offsets)


def _commit(
    run: AdminRun, offsets: Mapping[str, Offsets], kinds: Mapping[str, str]
) -> dict[Any, KafkaError]:
    """Commit new offsets; return errors. An error of one group doesn't affect the others."""
    failed: dict[Any, KafkaError] = {}
    for group, new in offsets.items():
        if not new:
            continue
        shares = kinds.get(group) == SHARE
        alter = run.admin.alter_share_group_offsets if shares else run.admin.alter_group_offsets
        try:
            _, bad = run.each(partial(alter, group, new, run.left()), new)
        except KafkaError as error:
            bad = dict.fromkeys(new, error)
        failed |= {f"{group} {at}": error for at, error in bad.items()}
    return failed


def _check_scope(mode: Mode, topics: list[str] | None, *, all_topics: bool) -> None:
    parse_scope(topics or ())  # check before connecting
    if mode.flag == "from-file":
        if topics or all_topics:
            refuse("--from-file already names the partitions: leave out --topic and --all-topics")
    elif bool(topics) == all_topics:
        refuse("choose the partitions, by --topic or by --all-topics")


def _check_printable(groups: Iterable[str]) -> None:
    """Check that the names of several groups in a plan are printable."""
    for group in groups:
        if printable(group, limit=None, lines=True) != group:
            refuse(
                f"--export: the id of group {group} contains control characters: export it alone"
            )


def _file(path: Path | None, groups: list[str]) -> dict[str, dict[TopicPartition, int]]:
    if path is None:
        return {}
    return read(read_text(path, "--from-file: "), groups, str(path))


def _in_use(run: AdminRun, groups: Iterable[str]) -> tuple[dict[str, str], dict[str, KafkaError]]:
    """Return groups' types, and errors for groups that have members or can't be described."""
    found, failed = describe(run, groups)
    for group, d in found.items():
        if d.members:
            text = (
                f"group {group} has {counted(len(d.members), 'member')} and is {d.state}: "
                "offsets can only be set while no member is running"
            )
            failed[group] = NonEmptyGroupError(text)
    # The commit creates a group that doesn't exist, as in Kafka's tool.
    bad = {g: e for g, e in failed.items() if not isinstance(e, GroupIdNotFoundError)}
    return {group: d.type for group, d in found.items()}, bad


def _plan(
    run: AdminRun,
    mode: Mode,
    group: str,
    topics: list[str] | None,
    given: Offsets | None,
    *,
    shares: bool,
) -> Plan:
    """Return the plan of one group, with errors of partitions."""
    committed = _committed(run, group, None, shares=shares)
    partitions = sorted(committed)
    errors: dict[Any, KafkaError] = {}
    if given is not None:
        partitions = list(given)
    elif topics:
        partitions, unknown = partitions_of(run, topics)
        errors.update(unknown)
    found: dict[OffsetSpec, dict[TopicPartition, int | None]] = {}
    for spec in mode.questions if partitions else ():
        specs: dict[TopicPartition, OffsetSpec] = dict.fromkeys(partitions, spec)
        there, bad = run.each(partial(run.admin.list_offsets, specs, run.left()))
        found[spec] = {at: one.offset for at, one in there.items()}
        errors.update(bad)
    made = plan(mode, [at for at in partitions if at not in errors], committed, found, given)
    made.errors.update(errors)
    return made


def _committed(
    run: AdminRun, group: str, partitions: list[TopicPartition] | None, *, shares: bool
) -> dict[TopicPartition, int]:
    """Return a group's committed offsets, or the start offsets of a share group."""
    wanted = {group: partitions}
    if shares:
        begins = run.admin.list_share_group_offsets(wanted, run.left())[group]
        for known in begins.values():
            if known.error is not None:
                raise known.error
        return {at: known.start_offset for at, known in begins.items()}
    listed = run.admin.list_group_offsets(wanted, run.left())[group]
    return {at: known.offset for at, known in listed.items()}


def _question(offsets: Mapping[str, Offsets]) -> str:
    moves = [f"{group} {at} to {n}" for group, new in offsets.items() for at, n in new.items()]
    return f"set {counted(len(moves), 'offset')}: {listed(moves)}"


def _table(offsets: Mapping[str, Offsets]) -> ResultTable:
    rows = [(group, *at, offset) for group, new in offsets.items() for at, offset in new.items()]
    return ResultTable(("GROUP", "TOPIC", "PARTITION", "NEW-OFFSET"), rows)


def _document(made: Plan) -> dict[str, Any]:
    offsets = [{**at._asdict(), "offset": n} for at, n in made.offsets.items()]
    return {"offsets": offsets, "warnings": made.warnings}


# Deleting offsets


def delete_offsets(
    run: AdminRun,
    group: Annotated[
        str, typer.Argument(metavar="GROUP", help="The group id.", autocompletion=group_ids)
    ],
    topic: Annotated[
        list[str],
        typer.Option(
            metavar="TOPIC[:PARTITIONS]",
            help="The topic or partitions, as flights or flights:0,2; may be repeated.",
            autocompletion=topic_names,
        ),
    ],
) -> Result:
    """Delete a group's committed offsets of topics that no member subscribes to.

    For a share group, this deletes its start offsets, of whole topics only.

    Example: odradek groups delete-offsets billing --topic flights:0,2 --yes
    """
    scope = parse_scope(topic)
    found, absent = describe(run, [group])
    if absent:
        return Result({"group": group, "deleted": []}, (), absent)
    shares = found[group].type == SHARE
    if shares and any(numbers is not None for numbers in scope.values()):
        refuse(f"{group} is a share group: its offsets can only be deleted for whole topics")
    partitions, missing = partitions_of(run, topic)
    if run.dry_run:
        committed = _committed(run, group, partitions, shares=shares)
        there = {str(at): offset for at, offset in committed.items()}
        lines = [f"Would delete offset {offset} of {at}." for at, offset in there.items()]
        return Result({"dry_run": True, "group": group, "would_delete": there}, lines, missing)
    gone: list[TopicPartition] = []
    failed: dict[Any, Any] = dict(missing)
    if partitions:
        run.confirm(f"delete offsets of {counted(len(partitions), 'partition')} of group {group}")
        done, bad = _delete(run, group, partitions, shares=shares)
        gone, failed = done, {**failed, **bad}
    lines = [f"Deleted the offset of {at}." for at in gone]
    return Result({"group": group, "deleted": [str(at) for at in gone]}, lines, failed)


def _delete(
    run: AdminRun, group: str, partitions: list[TopicPartition], *, shares: bool
) -> tuple[list[TopicPartition], dict[Any, KafkaError]]:
    """Delete offsets; return the partitions, and errors by partition or share group's topic."""
    if not shares:
        done, bad = run.each(
            lambda: run.admin.delete_group_offsets(group, partitions, run.left()), partitions
        )
        return list(done), dict(bad)
    topics = list(dict.fromkeys(at.topic for at in partitions))
    gone, wrong = run.each(
        lambda: run.admin.delete_share_group_offsets(group, topics, run.left()), topics
    )
    return [at for at in partitions if at.topic in gone], dict(wrong)

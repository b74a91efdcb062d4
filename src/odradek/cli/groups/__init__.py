"""`odradek groups`: list, describe, watch and delete groups, and change their offsets.

In: group ids and flags, with the names of Kafka's kafka-consumer-groups where possible. Out:
results in the formats of `cli.frame`. Must not: join a group.
"""

from __future__ import annotations

import re
from typing import Annotated, Any

import typer

from odradek.cli.console.properties import refuse
from odradek.cli.frame.argument_values import listed, one_word
from odradek.cli.frame.commands import AdminRun, destroys, reads
from odradek.cli.frame.completion import group_ids
from odradek.cli.frame.overviews import overview
from odradek.cli.frame.results import Result, ResultTable, counted
from odradek.cli.groups import exporting, lookup, offset_changes, rendering, watching
from odradek.cli.groups.endpoint import where_to_listen
from odradek.cli.groups.lookup import GroupSelection, all_consumer_groups
from odradek.clients.admin.groups import SHARE, STATES, TYPES
from odradek.common.errors import KafkaError
from odradek.common.errors.kafka import NonEmptyGroupError, UnknownMemberIdError

app = overview("Groups: list, describe, lag, members, reset-offsets, delete.")
NO_GROUPS = "No consumer groups found."

LONGEST_INTERVAL = 86400.0
"""Maximum interval of measurements in seconds: one day."""
Groups = Annotated[
    list[str],
    typer.Argument(metavar="GROUP", help="Group ids.", autocompletion=group_ids),
]
GroupsOrAll = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="GROUP",
        help="Group ids, not topics (default: all consumer groups).",
        autocompletion=group_ids,
        show_default=False,
    ),
]
Group = Annotated[
    str, typer.Argument(metavar="GROUP", help="The group id.", autocompletion=group_ids)
]


@reads(app, "list")
def list_(
    run: AdminRun,
    state: Annotated[
        list[str] | None,
        typer.Option(help=f"Only groups in this state; may be repeated: {', '.join(STATES)}."),
    ] = None,
    kind: Annotated[
        list[str] | None,
        typer.Option(
            "--type", help=f"Only groups of this type; may be repeated: {', '.join(TYPES)}."
        ),
    ] = None,
) -> Result:
    """List groups of all types, with their state.

    Example: odradek groups list --state Stable --bootstrap-server localhost:9092
    """
    found, silent = lookup.list_groups(
        run,
        run.left(),
        states=[one_word("--state", word, STATES) for word in state or ()],
        types=[one_word("--type", word, TYPES) for word in kind or ()],
    )
    rows = [(g.group_id, g.type, g.protocol_type, g.state) for g in found]
    heads = ("GROUP", "TYPE", "PROTOCOL", "STATE")
    return Result({"groups": found}, [ResultTable(heads, rows, "No groups found.")], silent)


@reads(app)
def describe(run: AdminRun, groups: GroupsOrAll = None) -> Result:
    """Describe groups: state, assignor, and the committed offset and lag of each partition.

    Example: odradek groups describe billing --bootstrap-server localhost:9092
    """
    looks, failed = GroupSelection(groups or ()).look(run)
    shown: list[ResultTable | str] = []
    for seen in looks.values():
        shown += [rendering.headline(seen.group), rendering.described(seen)]
    document = {g: {**rendering.facts(s.group), **rendering.read(s)} for g, s in looks.items()}
    return Result({"groups": document}, shown or [ResultTable((), (), NO_GROUPS)], failed)


@reads(app)
def members(run: AdminRun, groups: GroupsOrAll = None) -> Result:
    """List the members of groups with their assigned partitions.

    Example: odradek groups members billing --bootstrap-server localhost:9092
    """
    named, silent = (groups, {}) if groups else all_consumer_groups(run)
    found, failed = lookup.describe(run, named)
    document = {group: rendering.facts(description) for group, description in found.items()}
    return Result({"groups": document}, [rendering.members(found.values())], {**failed, **silent})


@reads(app)
def lag(
    run: AdminRun,
    groups: GroupsOrAll = None,
    watch: Annotated[bool, typer.Option("--watch", help="Repeat until Ctrl-C.")] = False,
    interval: Annotated[
        float | None,
        typer.Option(
            min=0.1,
            max=LONGEST_INTERVAL,
            metavar="SECONDS",
            show_default=False,
            help="Seconds between two measurements (default: 5, with --prometheus 15).",
        ),
    ] = None,
    count: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Stop after N measurements."),
    ] = None,
    prometheus: Annotated[
        str | None,
        typer.Option(
            metavar="[HOST]:PORT",
            help="Measure repeatedly and serve the results to Prometheus, until Ctrl-C.",
        ),
    ] = None,
    include: Annotated[
        str | None, typer.Option(metavar="REGEX", help="Only groups whose full id matches.")
    ] = None,
) -> Result:
    """Show the lag of groups, in total and by partition.

    With --watch, a table is updated repeatedly, with the rates of records read and written; if the
    output is piped or --json is given, a line is printed for each group and measurement. With
    --prometheus, the lag is served at http://HOST:PORT/metrics, in records and in seconds.

    Example: odradek groups lag billing --watch --bootstrap-server localhost:9092

    Example: odradek groups lag --prometheus :9308 --bootstrap-server localhost:9092
    """
    which = _which(groups, include)
    if prometheus is not None:
        if watch:
            refuse("use --watch or --prometheus, not both")
        where, every = where_to_listen(prometheus), interval or exporting.UNTIL_NEXT
        return exporting.export(run, exporting.LagExporter(which, every), where, every, count)
    for flag, given in (("--interval", interval), ("--count", count)):
        if given is not None and not watch:
            refuse(f"{flag} needs --watch or --prometheus")
    if watch:
        return watching.watch(run, which, interval or watching.UNTIL_NEXT, count)
    looks, failed = which.look(run)
    shown = [rendering.lags(looks.values())] if groups else []
    shown.append(rendering.sums(looks.values(), NO_GROUPS))
    document = {g: {"state": s.group.state, **rendering.read(s)} for g, s in looks.items()}
    return Result({"groups": document}, shown, failed)


def _which(groups: list[str] | None, include: str | None) -> GroupSelection:
    if include is None:
        return GroupSelection(groups or ())
    if groups:
        refuse("use group ids or --include, not both")
    try:
        return GroupSelection(include=re.compile(include))
    except re.error as error:
        refuse(f"--include: {include!r} is not a valid regular expression: {error}")


@destroys(app)
def delete(run: AdminRun, groups: Groups) -> Result:
    """Delete groups that have no members, with their committed offsets.

    Example: odradek groups delete billing --dry-run --bootstrap-server localhost:9092
    """
    wanted = list(dict.fromkeys(groups))
    if run.dry_run:
        found, failed = lookup.describe(run, wanted)
        able = [group for group, d in found.items() if not d.members]
        lines = [f"Would delete group {group}." for group in able]
        for group, d in found.items():
            if d.members:
                text = f"group {group} has {counted(len(d.members), 'member')}"
                failed[group] = NonEmptyGroupError(text)
        return Result({"dry_run": True, "would_delete": able}, lines, failed)
    what = f"delete {counted(len(wanted), 'group')} with all committed offsets"
    run.confirm(f"{what}: {listed(wanted)}")
    gone, failed = run.each(lambda: run.admin.delete_groups(wanted, run.left()), wanted)
    lines = [f"Deleted group {group}." for group in gone]
    return Result({"deleted": list(gone)}, lines, failed)


@destroys(app, "remove-members")
def remove_members(
    run: AdminRun,
    group: Group,
    instance_id: Annotated[
        list[str] | None,
        typer.Option(
            help="A static member, by its group.instance.id; may be repeated (default: all "
            "members)."
        ),
    ] = None,
    reason: Annotated[str | None, typer.Option(help="A reason for the broker's log.")] = None,
) -> Result:
    """Remove members from a group; members that are still running rejoin.

    Example: odradek groups remove-members billing --instance-id worker-3 --yes
    """
    found, failed = lookup.describe(run, [group])
    if failed:
        raise failed[group]
    if found[group].type == SHARE:
        refuse(f"{group} is a share group: Kafka can't remove members from share groups")
    inside = [m for m in found[group].members if not instance_id or m.instance_id in instance_id]
    names = [m.instance_id or m.member_id for m in inside]
    document: dict[str, Any] = {"group": group, "members": names}
    bad: dict[str, KafkaError] = {
        one: UnknownMemberIdError(f"group {group} has no member with the instance id {one!r}")
        for one in dict.fromkeys(instance_id or ())
        if one not in names
    }
    if not names:
        return Result(document, [] if bad else [f"Group {group} has no members."], bad)
    if run.dry_run:
        lines = [f"Would remove member {name} of group {group}." for name in names]
        return Result({"dry_run": True, **document}, lines, bad)
    run.confirm(f"remove {counted(len(inside), 'member')} from group {group}")
    static = names if instance_id else None
    _, refused = run.each(
        lambda: run.admin.remove_group_members(group, static, run.left(), reason=reason), names
    )
    gone = [name for name in names if name not in refused]
    lines = [f"Removed member {name} of group {group}." for name in gone]
    return Result({**document, "members": gone}, lines, bad | refused)


destroys(app, "delete-offsets")(offset_changes.delete_offsets)
destroys(app, "reset-offsets")(offset_changes.reset_offsets)

"""`odradek configs`: configurations of topics, brokers, loggers, groups and client metrics.

In: a kind of resource and names. Out: options with the sources of their values, or the changed
options, in the formats of `cli.frame`. Must not: interpret options; brokers do.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any

import typer

from odradek.cli.console.properties import refuse
from odradek.cli.frame.argument_values import MOST_INT32, whole_number
from odradek.cli.frame.commands import AdminRun, changes, reads
from odradek.cli.frame.overviews import overview
from odradek.cli.frame.partition_arguments import (
    AppendOptions,
    DeleteOptions,
    SetOptions,
    SubtractOptions,
    changed_words,
    option_changes,
)
from odradek.cli.frame.results import Result, ResultTable
from odradek.clients.admin.configs import ConfigEntry, ConfigResource
from odradek.common.errors import KafkaError

app = overview("Settings of topics, brokers, groups and others.")


class ResourceKind(StrEnum):
    """Kinds of resources with a configuration, in the command line's spelling."""

    TOPIC = "topic"
    BROKER = "broker"
    BROKER_LOGGER = "broker-logger"
    CLIENT_METRICS = "client-metrics"
    GROUP = "group"


KindWord = Annotated[
    ResourceKind,
    typer.Argument(metavar="KIND", help=f"One of {', '.join(one.value for one in ResourceKind)}."),
]
Default = Annotated[
    bool, typer.Option("--default", help="The default for all brokers, instead of single brokers.")
]


@reads(app)
def describe(
    run: AdminRun,
    kind: KindWord,
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="NAME", help="Names, or ids of brokers.", show_default="all"),
    ] = None,
    default: Default = False,
    every: Annotated[
        bool, typer.Option("--all", help="Include options that have their default.")
    ] = False,
    option: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY", help="Only this option, even if it has its default; may be repeated."
        ),
    ] = None,
    documentation: Annotated[
        bool,
        typer.Option(
            "--documentation", help="Include the brokers' descriptions of the options (in --json)."
        ),
    ] = False,
) -> Result:
    """Show what is set for topics, brokers and others, and where each value comes from.

    Brokers don't return the values of secrets.

    Example: odradek configs describe topic flights --all
    """
    wanted, absent = _there(run, _resources(run, kind, names, default=default))
    found, failed = (
        run.each(
            lambda: run.admin.describe_configs(
                wanted,
                run.left(),
                names=option or None,
                include_synonyms=True,
                include_documentation=documentation,
            )
        )
        if wanted
        else ({}, {})
    )
    chosen = {
        at: [one for one in entries.values() if every or option or _set_for_it(at, one)]
        for at, entries in found.items()
        if entries is not None
    }
    document = [
        {"type": at.type, "name": at.name, "configs": entries} for at, entries in chosen.items()
    ]
    rows = [
        (_named(at), one.name, "(secret)" if one.sensitive else one.value, one.source)
        for at, entries in chosen.items()
        for one in entries
    ]
    table = ResultTable((kind.value, "option", "value", "source"), rows, "Nothing is set.")
    return Result({"configs": document}, [table], {**absent, **failed})


@changes(app)
def alter(
    run: AdminRun,
    kind: KindWord,
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="NAME", help="Names, or ids of brokers.", show_default=False),
    ] = None,
    default: Default = False,
    set_: SetOptions = None,
    delete: DeleteOptions = None,
    append: AppendOptions = None,
    subtract: SubtractOptions = None,
) -> Result:
    """Change options of topics, brokers and others; other options keep their values.

    With --dry-run, the brokers only check the new values.

    Example: odradek configs alter broker --default --set log.cleaner.threads=2
    """
    if not names and not default:
        refuse("no name is given: name the resources, or use --default for all brokers")
    changed = option_changes(set_, delete, append, subtract)
    resources, absent = _there(run, _resources(run, kind, names, default=default))
    wanted = dict.fromkeys(resources, changed)
    _, failed = run.each(
        lambda: run.admin.incremental_alter_configs(wanted, run.left(), validate_only=run.dry_run),
        wanted,
    )
    failed = {**absent, **failed}
    done = [at for at in wanted if at not in failed]
    verb = "Would change" if run.dry_run else "Changed"
    shown = [f"{verb} {kind.value} {_named(at)}: {changed_words(changed)}." for at in done]
    return Result({"dry_run": run.dry_run, "altered": done, "changes": changed}, shown, failed)


def _resources(
    run: AdminRun, kind: ResourceKind, names: list[str] | None, *, default: bool
) -> list[ConfigResource]:
    kafka = kind.name
    if default:
        if kind is not ResourceKind.BROKER or names:
            refuse("--default needs the kind broker, without names")
        return [ConfigResource(kafka, "")]
    if not names:
        if kind is ResourceKind.TOPIC:
            names = run.admin.list_topics(run.left())
        elif kind in (ResourceKind.BROKER, ResourceKind.BROKER_LOGGER):
            names = [str(one.id) for one in run.admin.describe_cluster(run.left()).brokers]
        else:
            return run.admin.list_config_resources([kafka], run.left())
    return [ConfigResource(kafka, name) for name in dict.fromkeys(names)]


def _there(
    run: AdminRun, wanted: list[ConfigResource]
) -> tuple[list[ConfigResource], dict[Any, KafkaError]]:
    """Return the resources of existing brokers, and errors for those of missing brokers."""
    kinds = (ResourceKind.BROKER.name, ResourceKind.BROKER_LOGGER.name)
    ids = {at: whole_number(at.name, MOST_INT32) for at in wanted if at.type in kinds}
    absent = run.absent_brokers(one for one in ids.values() if one is not None)
    failed = {at: absent[one] for at, one in ids.items() if one is not None and one in absent}
    return [at for at in wanted if at not in failed], dict(failed)


OWN_SOURCES = {
    "TOPIC": "DYNAMIC_TOPIC_CONFIG",
    "BROKER": "DYNAMIC_BROKER_CONFIG",
    "CLIENT_METRICS": "DYNAMIC_CLIENT_METRICS_CONFIG",
    "GROUP": "DYNAMIC_GROUP_CONFIG",
}
"""By kind of resource, the source of options set for the resource itself (always, for loggers)."""


def _set_for_it(at: ConfigResource, entry: ConfigEntry) -> bool:
    """Return whether the option was set for this resource (as in kafka-configs without --all)."""
    if at == ConfigResource("BROKER", ""):
        return entry.source == "DYNAMIC_DEFAULT_BROKER_CONFIG"
    return entry.source == OWN_SOURCES.get(at.type, entry.source)


def _named(at: ConfigResource) -> str:
    return at.name or "(default)"

"""Run `odradek cluster describe | brokers | features | quorum | unregister …`.

In: flags. Out: the state of a cluster, or changes, in the formats of `cli.frame`; `start`, `status`
and `stop` are for clusters of this machine (`cli.cluster`). Must not: start or stop brokers.
"""

from __future__ import annotations

from typing import Annotated, Any

import typer

from odradek.cli.brokers.cluster import app
from odradek.cli.console.properties import refuse
from odradek.cli.frame.argument_values import whole_number
from odradek.cli.frame.commands import AdminRun, destroys, reads
from odradek.cli.frame.partition_arguments import parted
from odradek.cli.frame.results import Result, ResultTable, counted
from odradek.clients.admin.cluster import FeatureUpdate, QuorumReplica
from odradek.common.errors import KafkaError
from odradek.common.errors.kafka import BrokerIdNotRegisteredError, UnsupportedVersionError

__all__ = ["app"]

MOST_LEVEL = 2**15 - 1
"""Highest level of a feature: levels have 16 bits."""


@reads(app)
def describe(run: AdminRun) -> Result:
    """Describe a cluster: its id, its brokers, and the cluster operations that this client may use.

    Example: odradek cluster describe --bootstrap-server localhost:9092
    """
    found = run.admin.describe_cluster(run.left(), authorized_operations=True)
    allowed = found.authorized_operations
    shown = [
        f"cluster id   {found.cluster_id}",
        f"controller   {'none' if found.controller is None else f'through {found.controller}'}",
        f"brokers      {len(found.brokers)}",
        f"allowed      {', '.join(sorted(allowed)) if allowed is not None else 'not reported'}",
    ]
    heads = ("broker", "host", "port", "rack")
    rows = [(one.id, one.host, one.port, one.rack) for one in found.brokers]
    return Result({"cluster": found}, [*shown, ResultTable(heads, rows)])


@reads(app)
def brokers(
    run: AdminRun,
    fenced: Annotated[
        bool,
        typer.Option(
            "--fenced", help="Include brokers that are registered but fenced (4.0 and newer)."
        ),
    ] = False,
) -> Result:
    """List brokers: ids, addresses, racks, and how many partitions each leads and holds.

    Example: odradek cluster brokers --fenced
    """
    found = run.admin.describe_cluster(run.left(), include_fenced_brokers=fenced)
    topics = run.admin.list_topics(run.left(), include_internal=True)
    described, failed = run.each(lambda: run.admin.describe_topics(topics, run.left()))
    partitions = [p for topic in described.values() if topic is not None for p in topic.partitions]
    document = [
        {
            "id": one.id,
            "host": one.host,
            "port": one.port,
            "rack": one.rack,
            "fenced": one.fenced,
            "leads": sum(p.leader == one.id for p in partitions),
            "replicas": sum(one.id in p.replicas for p in partitions),
            "in_sync": sum(one.id in p.isr for p in partitions),
        }
        for one in found.brokers
    ]
    heads = ("broker", "host", "port", "rack", "fenced", "leads", "replicas", "in sync")
    rows = [tuple(one.values()) for one in document]
    return Result({"brokers": document}, [ResultTable(heads, rows)], failed)


@reads(app)
def features(run: AdminRun) -> Result:
    """List the features that brokers support, and their current levels.

    Example: odradek cluster features
    """
    found = run.admin.describe_features(run.left())
    heads = ("feature", "lowest", "highest", "current")
    rows = [(name, one.lowest, one.highest, one.level) for name, one in found.features.items()]
    return Result({"features": found.features, "epoch": found.epoch}, [ResultTable(heads, rows)])


@destroys(app, "set-features")
def update_features(
    run: AdminRun,
    levels: Annotated[
        list[str],
        typer.Argument(metavar="FEATURE=LEVEL", help="The new level of a feature; 0 turns it off."),
    ],
    downgrade: Annotated[
        bool, typer.Option("--downgrade", help="Allow a lower level, if no metadata is lost.")
    ] = False,
    unsafe: Annotated[
        bool, typer.Option("--unsafe", help="Allow a lower level, even if metadata is lost.")
    ] = False,
) -> Result:
    """Change the levels of features, all of them or none.

    Asks for confirmation: an older release may not start afterwards. With --dry-run, the controller
    only checks the request.

    Example: odradek cluster set-features metadata.version=29 --yes
    """
    kind = "UNSAFE_DOWNGRADE" if unsafe else "SAFE_DOWNGRADE" if downgrade else "UPGRADE"
    wanted = {}
    for word in levels:
        name, text = parted(word, "FEATURE=LEVEL, as in metadata.version=29")
        level = whole_number(text, MOST_LEVEL)
        if level is None:
            refuse(f"{word!r}: the level must be a number; odradek cluster features lists them")
        wanted[name] = FeatureUpdate(level, kind)
    words = ", ".join(f"{name} to {one.level}" for name, one in wanted.items())
    run.confirm(f"set {words}")
    run.admin.update_features(wanted, run.left(), validate_only=run.dry_run)
    done = {name: one.level for name, one in wanted.items()}
    shown = [f"{'Would set' if run.dry_run else 'Set'} {words}."]
    return Result({"dry_run": run.dry_run, "levels": done}, shown)


@reads(app)
def quorum(run: AdminRun) -> Result:
    """Describe the metadata quorum: the controllers and their followers.

    Times are milliseconds since the epoch; `lag` is the number of records that a node lacks.

    Example: odradek cluster quorum --json
    """
    found = run.admin.describe_metadata_quorum(run.left())
    shown = [
        f"leader          {found.leader_id}",
        f"leader epoch    {found.leader_epoch}",
        f"high watermark  {found.high_watermark}",
    ]
    everyone = [("voter", one) for one in found.voters]
    everyone += [("observer", one) for one in found.observers]
    end = max((one.log_end_offset for one in found.voters), default=found.high_watermark)

    def row(role: str, one: QuorumReplica) -> tuple[object, ...]:
        lag = end - one.log_end_offset if one.log_end_offset >= 0 else None
        role = "leader" if one.id == found.leader_id and role == "voter" else role
        return (
            *(one.id, role, one.directory_id, one.log_end_offset, lag),
            *(one.last_fetch_ms, one.last_caught_up_ms),
        )

    heads = (
        *("node", "role", "directory id", "log end offset", "lag"),
        *("last fetch", "last caught up"),
    )
    table = ResultTable(heads, [row(role, one) for role, one in everyone])
    return Result({"quorum": found}, [*shown, table])


@destroys(app)
def unregister(
    run: AdminRun,
    ids: Annotated[list[int], typer.Argument(metavar="ID", help="Broker ids.", min=0)],
    controller: Annotated[
        bool,
        typer.Option("--controller", help="The ids are those of controllers (Kafka 4.4)."),
    ] = False,
) -> Result:
    """Unregister brokers that are gone for good.

    Their replicas are lost: reassign their partitions first.

    Example: odradek cluster unregister 4 --yes
    """
    what = "controller" if controller else "broker"
    unique = list(dict.fromkeys(ids))
    words = ", ".join(map(str, unique))
    run.confirm(f"unregister {counted(len(unique), what)}: {words}")
    if run.dry_run:
        strange = {} if controller else _strange(run, unique)
        would = [one for one in unique if one not in strange]
        shown = [f"Would unregister {what} {one}." for one in would]
        document = {"dry_run": True, "kind": what, "would_unregister": would}
        return Result(document, shown, strange)
    failed: dict[Any, KafkaError] = {}
    for one in unique:
        try:
            if controller:
                run.admin.unregister_controller(one, run.left())
            else:
                run.admin.unregister_broker(one, run.left())
        except KafkaError as error:
            failed[one] = error
    gone = [one for one in unique if one not in failed]
    shown = [f"Unregistered {what} {one}." for one in gone]
    return Result({"kind": what, "unregistered": gone}, shown, failed)


def _strange(run: AdminRun, ids: list[int]) -> dict[int, KafkaError]:
    """Return errors for ids that aren't registered; none before Kafka 4.0.

    Older clusters don't report fenced brokers, which may be registered.
    """
    try:
        found = run.admin.describe_cluster(run.left(), include_fenced_brokers=True)
    except UnsupportedVersionError:
        return {}
    known = {one.id for one in found.brokers}
    return {
        one: BrokerIdNotRegisteredError(f"broker {one} isn't registered")
        for one in ids
        if one not in known
    }

"""`odradek events tables`: tables of load and outages from the events that clients wrote.

In: a folder of JSON lines (`events.dir`, `ODRADEK_EVENTS_DIR`, `simulate fleet --events`) or a
topic (`events.topic`). Out: the tables `load`, `storms`, `outages` and `recoveries` as Parquet, a
picture, and a summary. Exit statuses: 0 done, 1 no events found, 2 wrong use. Must not: compute;
Spark does.
"""

from __future__ import annotations

import json as jsonlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from odradek.cli.console.flags import BootstrapServer, ProfileName
from odradek.cli.console.properties import UsageError
from odradek.cli.console.waiting import say
from odradek.cli.frame.overviews import overview
from odradek.cli.frame.settings import Flags, client_settings
from odradek.cli.frame.spark_session import spark_session
from odradek.common.config import CONSUMER
from odradek.common.secret import Secret

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True, slots=True)
class OutputFiles:
    """Paths of the tables and of their picture; None if they aren't written."""

    out: Path | None
    picture: Path | None


app = overview("Turn clients' event logs into tables of load and outages.")


@app.callback()
def _root() -> None:
    """Make typer treat even a single command as a subcommand."""


@app.command("tables")
def tables(
    folder: Annotated[
        Path | None, typer.Argument(help="Folder with the event files.", show_default=False)
    ] = None,
    topic: Annotated[str | None, typer.Option(help="Read this topic instead.")] = None,
    option: Annotated[
        list[str] | None,
        typer.Option(
            help="NAME=VALUE for format('odradek'), such as kafka.bootstrap.servers=host:port; may "
            "be repeated."
        ),
    ] = None,
    command_config: Annotated[
        Path | None,
        typer.Option(
            help="A Java properties file with client options. Put passwords there: other users "
            "of the machine can read a command line."
        ),
    ] = None,
    bootstrap_server: BootstrapServer = None,
    profile: ProfileName = None,
    out: Annotated[Path | None, typer.Option(help="Folder for the tables, as Parquet.")] = None,
    picture: Annotated[
        Path | None,
        typer.Option(help="Draw the load and the outages in FILE.svg."),
    ] = None,
    storm: Annotated[
        int,
        typer.Option(
            min=1, help="Connection attempts per second at one broker that count as a storm."
        ),
    ] = 10,
    master: Annotated[str, typer.Option(help="Spark's master.")] = "local[2]",
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Turn clients' event logs into tables of load, storms, outages and recoveries.

    load: connection attempts and metadata requests at each broker in each second. storms:
    consecutive seconds with many connection attempts. outages: which client couldn't use which
    broker, from when to when. recoveries: when a client was held up, and what it did until its next
    record or acknowledgement. Real clients and `odradek simulate fleet --events` write the same
    format. The command needs PySpark and Java.

    Example: odradek events tables events --out tables --picture storms.svg
    """
    if (folder is None) == (topic is None):
        raise typer.BadParameter("use either a folder or --topic")
    if picture is not None and picture.suffix != ".svg":
        raise typer.BadParameter("--picture must end with .svg")
    options = {}
    if topic is not None:
        options = _options(option or [], bootstrap_server, command_config, profile)
    if folder is not None and not folder.is_dir():
        raise typer.BadParameter(f"folder {folder} doesn't exist")
    found = _made(folder, topic, options, OutputFiles(out, picture), storm, master)
    if json:
        typer.echo(jsonlib.dumps(found))
    else:
        _show(found, OutputFiles(out, picture))
    if not found["events"]:
        raise typer.Exit(1)


def _options(
    given: list[str], servers: str | None, file: Path | None, profile: str | None
) -> dict[str, str]:
    """Return options of Spark's source.

    Settings of profile and file become `kafka.*` options; options of the command line override
    them.
    """
    options = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals:
            raise typer.BadParameter(f"--option: expected NAME=VALUE, not {name!r}")
        options[name] = value
    start = options.get("kafka.bootstrap.servers") or servers
    try:
        found = client_settings(Flags(start, file, (), profile), CONSUMER, {})
        if found.profile.settings:
            found.checked(CONSUMER)  # an error names the profile's line
    except UsageError as error:
        raise typer.BadParameter(f"--topic needs a cluster: {error}") from error
    if found.profile.warning:
        say(found.profile.warning)
    return {f"kafka.{name}": _plain(value) for name, value in found.given.items()} | options


def _plain(value: Any) -> str:
    if isinstance(value, Secret):
        return value.reveal()
    return ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def _made(
    folder: Path | None,
    topic: str | None,
    options: dict[str, str],
    written: OutputFiles,
    storm: int,
    master: str,
) -> dict[str, Any]:
    """Write the tables, and return their numbers of rows."""
    from odradek.spark.analytics import event_tables

    with spark_session("odradek-events", master) as session:
        if topic is not None:
            events = event_tables.from_topic(session, topic, options)
        else:
            events = event_tables.from_folder(session, str(folder))
        events = events.cache()
        found: dict[str, Any] = {"events": events.count()}
        for name, table in event_tables.tables(events, storm).items():
            if written.out is not None:
                table.write.mode("overwrite").parquet(str(written.out / name))
            found[name] = table.count()
        found.update(_summary(event_tables.recovery_table(events)))
        if written.picture is not None and found["events"]:
            from odradek.cli.events.picture import draw

            draw(event_tables.course_table(events), written.picture, storm)
            found["picture"] = str(written.picture)
        return found


def _summary(recoveries: DataFrame) -> dict[str, Any]:
    from pyspark.sql import functions as f

    row = recoveries.agg(
        f.count_if(f.col("ended").isNull()).alias("not_back"),
        f.median("seconds").alias("held_up_p50_s"),
        f.max("seconds").alias("held_up_max_s"),
        f.avg("dials").alias("dials_mean"),
    ).collect()[0]
    return {k: round(v, 3) if isinstance(v, float) else v for k, v in row.asDict().items()}


def _show(found: dict[str, Any], written: OutputFiles) -> None:
    typer.echo(f"{found['events']:,} events")
    for name in ("load", "storms", "outages", "recoveries"):
        where = f"  {written.out / name}" if written.out is not None else ""
        typer.echo(f"  {name:<12}{found[name]:>9,} rows{where}")
    if found["recoveries"]:
        typer.echo(
            f"clients were held up {found['recoveries']:,} times, half of them for less than "
            f"{found['held_up_p50_s']} s, the longest for {found['held_up_max_s']} s, with "
            f"{found['dials_mean']} connection attempts on average; {found['not_back']} "
            "haven't recovered"
        )
    if "picture" in found:
        typer.echo(f"picture: {found['picture']}")

"""`odradek topics`: make, list and delete topics, as Kafka's kafka-topics tool does.

In: names and flags. Out: what was done, a line each, or with `--json` one object. Exit statuses: 0
done, 1 some of it wasn't (a line on stderr says why), 2 wrong use. Must not: retry by itself; the
admin client does, until default.api.timeout.ms is over.
"""

from __future__ import annotations

import json as jsonlib
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from odradek.api.admin import Admin
from odradek.cli.console.flags import BootstrapServer
from odradek.cli.console.properties import parse_words, read_client_file, refuse
from odradek.cli.console.waiting import checked, ending, in_words, say, telling_of_waiting
from odradek.cli.overviews import overview
from odradek.clients.admin.admin_arguments import NewTopic
from odradek.common.config import ADMIN
from odradek.common.errors import KafkaError, KafkaTimeoutError
from odradek.common.kafka_errors import TopicAlreadyExistsError, UnknownTopicOrPartitionError
from odradek.common.printable import printable

app = overview("Make, list and delete topics.")

Names = Annotated[list[str], typer.Argument(metavar="TOPIC", help="Names of topics.")]
CommandConfig = Annotated[
    Path | None,
    typer.Option(
        help="A file with options of the admin client, in Java's properties form. "
        "default.api.timeout.ms (60000) is how long a topic is tried."
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
Partitions = Annotated[
    int, typer.Option(min=-1, metavar="N", help="How many; -1: as the brokers are set.")
]
Replicas = Annotated[
    int, typer.Option(min=-1, metavar="N", help="Of each partition; -1: as the brokers are set.")
]


@contextmanager
def asking(bootstrap_server: str, path: Path | None) -> Iterator[Admin]:
    """An admin client; who waits for it for long is told so."""
    given = {
        "client.id": "topics",
        **read_client_file(path, ADMIN),
        "bootstrap.servers": bootstrap_server,
    }
    limit = checked(ADMIN, given)["default.api.timeout.ms"]
    text = f"{bootstrap_server} hasn't answered yet; it is asked for {limit:.0f} s"
    with Admin(given) as admin, telling_of_waiting(text):
        yield admin


def each(
    names: list[str], do: Callable[[str], str], no_error: type[KafkaError] | None, *, quiet: bool
) -> tuple[list[str], list[str], dict[str, str]]:
    """Do something with one topic after the other.

    Gives the names that it was done with, those of which `no_error` was said, and errors by name.
    After a timeout the others aren't tried: the cluster can't be had.
    """
    done: list[str] = []
    needless: list[str] = []
    failed: dict[str, str] = {}
    for name in dict.fromkeys(names):
        try:
            text = do(name)
        except KafkaError as error:
            if no_error is not None and isinstance(error, no_error):
                needless.append(name)
                continue
            failed[name] = in_words(error)
            say(f"odradek topics: {failed[name]}")
            if isinstance(error, KafkaTimeoutError):
                break
        else:
            done.append(name)
            if not quiet:
                typer.echo(printable(text))
    return done, needless, failed


@app.command()
def create(
    names: Names,
    bootstrap_server: BootstrapServer,
    partitions: Partitions = -1,
    replication_factor: Replicas = -1,
    config: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=VALUE", help="An option of the topics; may be repeated."),
    ] = None,
    if_not_exists: Annotated[
        bool, typer.Option("--if-not-exists", help="A topic that is there already is no error.")
    ] = False,
    command_config: CommandConfig = None,
    json: Json = False,
) -> None:
    """Make topics, and wait until each partition has a leader."""
    made: dict[str, dict[str, Any]] = {}
    with ending("odradek topics create"):
        configs = parse_words(config or (), "--config")
        with asking(bootstrap_server, command_config) as admin:

            def make(name: str) -> str:
                topic = NewTopic(name, partitions, replication_factor, configs)
                found = admin.create_topics([topic])[name]
                replicas = len(found.partitions[0].replicas) if found.partitions else 0
                made[name] = {
                    "topic_id": found.topic_id,
                    "partitions": len(found.partitions),
                    "replication_factor": replicas,
                }
                return (
                    f"Created topic {name}: {_counted(len(found.partitions), 'partition')}, "
                    f"{_counted(replicas, 'replica')} each."
                )

            no_error = TopicAlreadyExistsError if if_not_exists else None
            _, existed, failed = each(names, make, no_error, quiet=json)
    for name in existed:
        if not json:
            typer.echo(f"Topic {name} was there already.")
    _end({"created": made, "existed": existed, "failed": failed}, json=json)


@app.command("list")
def list_(
    bootstrap_server: BootstrapServer,
    topic: Annotated[
        str | None, typer.Option(metavar="REGEX", help="Only topics whose whole name this fits.")
    ] = None,
    include_internal: Annotated[
        bool, typer.Option("--include-internal", help="Kafka's own topics, too.")
    ] = False,
    command_config: CommandConfig = None,
    json: Json = False,
) -> None:
    """Print the names of the topics that this client may see, a line each."""
    with ending("odradek topics list"):
        try:
            fits = re.compile(topic or ".*")
        except re.error as error:
            refuse(f"--topic: {topic!r} is no regular expression: {error}")
        with asking(bootstrap_server, command_config) as admin:
            found = admin.list_topics(include_internal=include_internal)
    chosen = [name for name in found if fits.fullmatch(name)]
    if not json:
        for name in chosen:
            typer.echo(printable(name))
    _end({"topics": chosen}, json=json)


@app.command()
def delete(
    names: Names,
    bootstrap_server: BootstrapServer,
    if_exists: Annotated[
        bool, typer.Option("--if-exists", help="A topic that isn't there is no error.")
    ] = False,
    command_config: CommandConfig = None,
    json: Json = False,
) -> None:
    """Delete topics with all their records. Nothing brings them back."""
    with ending("odradek topics delete"), asking(bootstrap_server, command_config) as admin:

        def remove(name: str) -> str:
            admin.delete_topics(name)
            return f"Deleted topic {name}."

        no_error = UnknownTopicOrPartitionError if if_exists else None
        gone, missing, failed = each(names, remove, no_error, quiet=json)
    for name in missing:
        if not json:
            typer.echo(f"There was no topic {name}.")
    _end({"deleted": gone, "missing": missing, "failed": failed}, json=json)


def _end(found: dict[str, Any], *, json: bool) -> None:
    if json:
        typer.echo(jsonlib.dumps(found))
    if found.get("failed"):
        raise typer.Exit(1)


def _counted(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"

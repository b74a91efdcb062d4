"""`odradek doctor`: report a cluster's first problem, why it matters, and how to fix it.

In: a bootstrap address, client options, topics, a group. Out: one plain sentence before any table,
the other problems, and every step that was checked; or all of it as JSON. Exit statuses: 0 no
problem, 2 wrong use, one from 10 on for each kind of problem (`findings`), 130 Ctrl-C. Must not:
write anything to a cluster, or know more than `Admin.examine` and `explain()` report, except for
this machine itself (`environment`).
"""

from __future__ import annotations

import contextlib
import json as jsonlib
import logging
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

# Import everything before the first connection: Python sometimes loses a Ctrl-C during an import.
import typer
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from odradek.api.admin import Admin
from odradek.cli.console.flags import (
    Bootstrap,
    CommandConfig,
    OrOption,
    ProfileName,
    where_to_start,
)
from odradek.cli.console.properties import UsageError
from odradek.cli.console.waiting import ending, perhaps_unread, say, telling_of_waiting
from odradek.cli.doctor.checks import OK, WRONG, Check, checks
from odradek.cli.doctor.environment import look_around
from odradek.cli.doctor.findings import STATUSES, Finding, Seen, findings
from odradek.cli.doctor.registry import check_registry
from odradek.cli.explain.explanation_text import checked_topic
from odradek.cli.frame.results import as_document
from odradek.cli.frame.settings import BOOTSTRAP, COMMAND_CONFIG, PROFILE, Flags, settings
from odradek.cli.schemas.frame import RegistryConfig, RegistryProperty, registry_client
from odradek.clients.admin.examination import Examination
from odradek.common.config import Config
from odradek.common.errors import KafkaError
from odradek.runtime.credentials.allowed_sources import shown
from odradek.serialization.registry.client import SchemaRegistryClient

TIMEOUT = 15.0
"""Seconds for all checks; a connection attempt without an answer times out after 10 s."""
USUAL = {"client.id": "odradek-doctor", "security.protocol.probe.enable": "true"}
"""Default settings. The probe reconnects in plaintext if TLS fails, to find the reason."""
START = (BOOTSTRAP, COMMAND_CONFIG, PROFILE)
"""Environment variables that determine which cluster to check."""
WELL = "No problems found, as far as can be seen from here."
SHOWN = 10
"""Maximum number of findings that are printed after the first one."""


def doctor(
    bootstrap: Bootstrap = None,
    bootstrap_server: OrOption = None,
    topic: Annotated[
        list[str] | None,
        typer.Option(show_default="all topics", help="Check this topic; may be repeated."),
    ] = None,
    group: Annotated[
        str | None, typer.Option(help="Check this consumer group: its ACLs and its lag.")
    ] = None,
    registry: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="Check this schema registry, too; without bootstrap servers, only the registry.",
        ),
    ] = None,
    registry_config: RegistryConfig = None,
    registry_property: RegistryProperty = None,
    timeout: Annotated[float, typer.Option(min=0.0, help="Seconds for all checks.")] = TIMEOUT,
    command_config: CommandConfig = None,
    profile: ProfileName = None,
    config: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=VALUE", help="A client option; may be repeated."),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Check a cluster, and report the first problem and how to fix it.

    This is the command to begin with. To watch brokers stop and return, use odradek explain.

    Checks each step that a client takes, in order: host name, connection, TLS, login, Kafka's
    protocol, advertised addresses, topics, ACLs, groups, quotas. Reports the first problem first.
    Changes nothing in the cluster. The exit status is 0 if there is no problem, otherwise it says
    which kind of problem comes first (docs/doctor.md).

    Example: odradek doctor localhost:9092 --topic flights --group board
    """
    with ending("odradek doctor"), as_document(json=json):
        start = where_to_start(bootstrap, bootstrap_server)
        words = tuple(config or ())
        for name in topic or ():
            checked_topic(name)
        if group == "":
            raise UsageError("--group needs a group id, but is empty")
        flags = Flags(start, command_config, words, profile, spelling="--config")
        seen = None
        alone = flags == Flags(spelling="--config") and not (topic or group)
        if registry is None or not alone or any(map(os.environ.get, START)):
            given = settings(flags, usual=USUAL)
            if given.warning:
                say(given.warning)
            seen = _examined(given.given, given.config, topic, group, timeout)
        found = [] if seen is None else findings(seen)
        steps = [] if seen is None else checks(seen, found)
        if registry is not None:
            words = tuple(registry_property or ())
            more, step = _registry(registry, registry_config, words, timeout)
            found, steps = [*found, *more], [*steps, step]
    first = next((one for one in found if one.grave), None)
    status = 0 if first is None else STATUSES[first.kind]
    with perhaps_unread():
        if json:
            typer.echo(jsonlib.dumps(_as_dict(seen, found, steps, status), indent=2))
        else:
            _show(found, steps)
            sys.stdout.flush()
    raise typer.Exit(status)


def _examined(
    given: dict[str, Any],
    options: Config,
    topics: list[str] | None,
    group: str | None,
    timeout: float,
) -> Seen:
    """Examine the cluster, then the state of the admin client that examined it."""
    found: Examination | None = None
    error: KafkaError | None = None
    text = f"still checking, for at most {timeout:.0f} s"
    with _quiet(), Admin(given) as admin, telling_of_waiting(text):
        until = time.monotonic() + timeout
        try:
            found = admin.examine(topics, group, timeout=timeout)
        except KafkaError as failure:
            error = failure
        picture = admin.explain()
        left = until - time.monotonic()
    answering = [] if found is None else [a.address for a in found.reach.addresses if not a.error]
    protocol = options["security.protocol"]
    mechanism = options["sasl.mechanism"] if protocol.startswith("SASL") else None
    user = options["sasl.username"] if mechanism else None
    around = look_around(options, answering if left > 0 else [])
    return Seen(picture, error, found, protocol, mechanism, around, bool(topics), user)


def _registry(
    url: str, file: Path | None, words: tuple[str, ...], timeout: float
) -> tuple[list[Finding], Check]:
    """Check a schema registry."""

    def client(at: str) -> SchemaRegistryClient:
        return registry_client(at, file, words, timeout)[0]

    registry = client(url)
    with telling_of_waiting(f"still checking, for at most {timeout:.0f} s"):
        return check_registry(registry, shown(url), client)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Suppress the client's warnings, because the findings contain the same."""
    clients = logging.getLogger("odradek")
    before = clients.level
    clients.setLevel(logging.ERROR)
    try:
        yield
    finally:
        clients.setLevel(before)


def _show(found: list[Finding], steps: list[Check]) -> None:
    """Print the problems, then the table of steps."""
    console = Console(highlight=False)
    console.soft_wrap = not console.is_terminal  # no line breaks in a pipe, so that `grep` works
    grave = [one for one in found if one.grave]
    notes = [one for one in found if not one.grave]
    if grave:
        console.print(Text(grave[0].what, style="bold red"))
        console.print(Text(f"\nWhy it matters: {grave[0].why}"))
        console.print(Text(f"\nWhat to do: {grave[0].cure}"))
    else:
        console.print(Text(WELL, style="bold green"))
    _list(console, "Also wrong", grave[1:])
    _list(console, "Worth knowing", notes)
    table = Table(box=box.SIMPLE, pad_edge=False)
    for name in ("step", "", "seen"):
        table.add_column(name, overflow="fold")
    styles = {OK: "green", WRONG: "bold red"}
    for step in steps:
        table.add_row(
            Text(step.step), Text(step.state, style=styles.get(step.state, "")), Text(step.detail)
        )
    console.print(table)


def _list(console: Console, head: str, found: list[Finding]) -> None:
    if found:
        console.print(Text(f"\n{head}:", style="bold"))
    for one in found[:SHOWN]:
        console.print(Text(f"- {one.what} {one.cure}"))
    if len(found) > SHOWN:
        console.print(f"- … and {len(found) - SHOWN} more.")


def _as_dict(
    seen: Seen | None, found: list[Finding], steps: list[Check], status: int
) -> dict[str, Any]:
    first = next((one for one in found if one.grave), None)
    error = None if seen is None else seen.error
    return {
        "status": status,
        "kind": None if first is None else first.kind.value,
        "first": WELL if first is None else first.what,
        "findings": [one.to_dict() for one in found],
        "steps": [one.to_dict() for one in steps],
        "error": None if error is None else f"{type(error).__name__}: {error}",
        "explain": None if seen is None else seen.picture.to_dict(),
    }

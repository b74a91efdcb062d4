"""Run `odradek broker-api-versions`: print the API versions of each broker, as Kafka's tool does.

In: Kafka's flags. Out: a block per broker in the order of ids, or with `--json` one object. Exit
statuses: 0 every broker answered, 1 one didn't (its line says why), 2 wrong use. Must not: retry by
itself; the client retries each broker's request until its timeout (R-RT-1).

Differences from Kafka's tool: `usable` is only printed for APIs that Odradek supports, the ranges
of the others are shown anyway; a broker that doesn't answer makes the exit status 1.
"""

from __future__ import annotations

import json as jsonlib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from odradek.api.admin import Admin
from odradek.cli.console.flags import BootstrapServer, ProfileName
from odradek.cli.console.waiting import ending, in_words, perhaps_unread, say, telling_of_waiting
from odradek.cli.frame.results import as_document
from odradek.cli.frame.settings import COMMAND_CONFIG, AdminSettings, Flags, settings
from odradek.clients.admin.api_versions import ApiVersionRange, BrokerApiVersions
from odradek.common.errors import KafkaError
from odradek.common.events import Event
from odradek.common.printable import printable

DEFAULTS = {
    "client.id": "broker-api-versions",
    "request.timeout.ms": "5000",
    "default.api.timeout.ms": "15000",
}
"""Defaults: a request times out after 5 s, as in Kafka's tool, and is retried for 15 s."""
TOLD_FROM = 3
"""Failures are reported from the attempt with this number on."""


def settings_of(params: Mapping[str, Any]) -> AdminSettings:
    """Return the admin client's settings: profile, file and flags override the defaults."""
    flags = Flags(params["bootstrap_server"], params["command_config"], profile=params["profile"])
    return settings(flags, usual=DEFAULTS)


def broker_api_versions(
    context: typer.Context,
    bootstrap_server: BootstrapServer = None,
    command_config: Annotated[
        Path | None,
        typer.Option(
            help=f"A Java properties file with admin client options (or {COMMAND_CONFIG}). "
            "default.api.timeout.ms (15000) limits the duration of the command."
        ),
    ] = None,
    profile: ProfileName = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Print the API versions of each broker. The exit status is 1 if a broker didn't answer."""
    with ending("odradek broker-api-versions"), as_document(json=json):
        found = settings_of(context.params)
        if found.warning:
            say(found.warning)
        text = f"not every broker has answered yet; waiting for at most {found.timeout:.0f} s"
        with Admin(found.given) as admin, telling_of_waiting(text):
            admin.listen(_tell_retries)
            brokers = admin.describe_api_versions()
    with perhaps_unread():
        if json:
            typer.echo(jsonlib.dumps({"brokers": [as_dict(b) for b in brokers]}))
        else:
            for broker in brokers:
                typer.echo(as_text(broker))
    if any(b.error is not None for b in brokers):
        raise typer.Exit(1)


def _tell_retries(event: Event) -> None:
    if event.kind == "retry" and event.fields["attempt"] >= TOLD_FROM:
        fields = event.fields
        say(
            f"{fields['what']}: attempt {fields['attempt']} failed ({fields['error']}), next "
            f"in {fields['backoff']:.1f} s"
        )


def as_text(found: BrokerApiVersions) -> str:
    """Return the block of text about a broker."""
    broker = found.broker
    host, rack = printable(broker.host), printable(broker.rack or "null")
    head = f"{host}:{broker.port} (id: {broker.id} rack: {rack} isFenced: false) -> "
    if found.error is not None:
        return f"{head}ERROR: {_on_one_line(found.error)}"
    return head + "(\n\t" + ",\n\t".join(_line(api) for api in found.apis) + "\n)"


def _on_one_line(error: KafkaError) -> str:
    return "; ".join(text.strip() for text in in_words(error).splitlines())


def _line(api: ApiVersionRange) -> str:
    if api.name is None:
        return f"UNKNOWN({api.key}): {_span(api)}"
    head = f"{api.name}({api.key}): "
    if api.min_version is None:
        return f"{head}UNSUPPORTED"
    how = f"usable: {api.usable}" if api.usable is not None else f"unusable: {api.problem}"
    return f"{head}{_span(api)} [{how}]"


def _span(api: ApiVersionRange) -> str:
    if api.min_version == api.max_version:
        return str(api.min_version)
    return f"{api.min_version} to {api.max_version}"


def as_dict(found: BrokerApiVersions) -> dict[str, Any]:
    """Return a broker as plain data."""
    broker, error = found.broker, found.error
    return {
        "id": broker.id,
        "host": broker.host,
        "port": broker.port,
        "rack": broker.rack,
        "error": None if error is None else _on_one_line(error),
        "apis": [
            {
                "key": api.key,
                "name": api.name,
                "min": api.min_version,
                "max": api.max_version,
                "usable": api.usable,
                "problem": api.problem,
            }
            for api in found.apis
        ],
    }

"""`odradek options`: explain the options of the clients and of Spark's source and sink.

In: a name, Kafka's or another client's, or none for all. Out: type, default, range, text and other
names, as text or as one JSON object. Exit status 2 for an unknown name. Must not: duplicate the
tables of options; docs/configuration.md is also generated from `every_option`.
"""

from __future__ import annotations

import difflib
import json as jsonlib
import textwrap
from collections.abc import Iterator
from enum import StrEnum
from typing import Annotated, Any

import typer

from odradek.cli.console.properties import UsageError
from odradek.cli.frame.results import print_error
from odradek.common import config
from odradek.common.options.ignored_settings import reason
from odradek.common.options.migration_hints import CURES
from odradek.common.options.option_aliases import ALIASES, REFUSED, dotted
from odradek.common.options.table import GROUPS
from odradek.common.options.values import Option
from odradek.spark.options import option_table
from odradek.spark.sink import sink_options

Described = dict[str, Any]
WIDTH = 90
CHANGES_NOTHING = "any"
"""Type of options of other clients that are accepted and have no effect."""


class ClientKind(StrEnum):
    """Kinds of clients whose options can be listed."""

    PRODUCER = config.PRODUCER
    CONSUMER = config.CONSUMER
    ADMIN = config.ADMIN


def every_option() -> Iterator[Described]:
    """Yield all options in the order of docs/configuration.md, as in `--json`."""
    for group, members in GROUPS.items():
        for option in members:
            yield _of_client(group, option)
    sides = (("Spark source", option_table.OPTIONS), ("Spark sink", sink_options.OPTIONS))
    for group, table in sides:
        for one in table.values():
            yield _of_spark(group, one)


def _of_client(group: str, option: Option) -> Described:
    return {
        "name": option.name,
        "group": group,
        "clients": sorted(option.clients),
        "type": option.parse.kind,
        "range": option.parse.values or None,
        "default": option.default_text or None,
        "importance": option.importance,
        "text": option.doc,
        "kip": option.kip or None,
        "aliases": [alias for alias, name in ALIASES.items() if name == option.name],
        "java": option.java or None,
        "librdkafka": option.librdkafka or None,
        "why": option.why or None,
    }


def _of_spark(group: str, option: option_table.SparkOption) -> Described:
    return {
        "name": option.name,
        "group": group,
        "queries": sorted(option.queries),
        "default": option.default,
        "text": option.doc,
        "in_jvm_connector": not option.own,
    }


def elsewhere(option: Described) -> str | None:
    """Return the defaults of other clients if they differ from ours, and why."""
    others = (("Java", option.get("java")), ("librdkafka", option.get("librdkafka")))
    said = ", ".join(f"{whose} {value}" for whose, value in others if value)
    return f"{said}. {option['why'] or 'The default here is that of Java.'}" if said else None


def options(
    name: Annotated[
        str | None,
        typer.Argument(metavar="NAME", help="An option's name, as in Kafka or in another client."),
    ] = None,
    client: Annotated[
        ClientKind | None, typer.Option(help="Only options of this kind of client.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Print the meaning of one option, of one client's options, or of all."""
    found = list(every_option())
    if client is not None:
        found = [one for one in found if client in one.get("clients", ())]
    if name is not None:
        found = _named(name, found, client, json=json)
    if json:
        typer.echo(jsonlib.dumps({"options": found}, ensure_ascii=False))
    elif name is not None:
        typer.echo("\n\n".join(map(_block, found)))
    else:
        typer.echo("\n".join(_lines(found)))


def _named(
    given: str, among: list[Described], client: ClientKind | None, *, json: bool
) -> list[Described]:
    """Return the options of that name; end the command if there is none."""
    name = dotted(given.strip().removeprefix("kafka.")).lower()
    meant = ALIASES.get(name, name)
    found = [one for one in among if one["name"].lower() == meant]
    if found:
        return found
    if why := reason(name):
        text = f"{name} is accepted but has no effect: {why}."
        typer.echo(jsonlib.dumps({"options": [], "no_effect": text}) if json else text)
        raise typer.Exit
    whose = f" of the {client}" if client else ""
    cure = CURES.get(name) or REFUSED.get(name)
    known = {one["name"].lower(): one["name"] for one in among} | {name: name for name in ALIASES}
    close = difflib.get_close_matches(name, known, n=1)
    if any(one["name"].lower() == meant for one in every_option()):
        hint = f"; {meant} is an option of another kind of client"
    elif cure:
        hint = f": {cure}"
    else:
        hint = f"; did you mean {known[close[0]]}?" if close else ""
    problem = UsageError(f"unknown option {given!r}{whose}{hint}")
    typer.echo(f"odradek options: {problem}", err=True)
    if json:
        print_error(problem)
    raise typer.Exit(2)


def _lines(found: list[Described]) -> Iterator[str]:
    """Yield a line for each option: name, default and first sentence."""
    group = ""
    for one in found:
        if one["group"] != group:
            yield f"{chr(10) if group else ''}{one['group']}"
            group = one["group"]
        first = one["text"].partition(". ")[0].removesuffix(".")
        yield f"  {one['name']} [{one['default'] or '–'}]  {first}."


def _block(one: Described) -> str:
    """Return the description of one option, a line for each property."""
    default = one["default"] or "none"
    rows = [
        ("group", one["group"]),
        ("clients", ", ".join(one.get("clients", ()))),
        ("queries", ", ".join(one.get("queries", ()))),
        ("type", ": ".join(filter(None, (one.get("type"), one.get("range"))))),
        ("default", default),
        ("elsewhere", elsewhere(one)),
        ("importance", one.get("importance")),
        ("introduced by", one.get("kip")),
        ("other names", ", ".join(one.get("aliases", ()))),
    ]
    text = textwrap.fill(one["text"], WIDTH, initial_indent="  ", subsequent_indent="  ")
    told = [
        textwrap.fill(f"{label + ':':15}{value}", WIDTH, initial_indent="  ",
                      subsequent_indent=" " * 17)
        for label, value in rows
        if value
    ]  # fmt: skip
    return "\n".join((one["name"], text, "", *told))

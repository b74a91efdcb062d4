"""Common flags of commands for a schema registry, and the run of such a command.

In: flags, the environment, a properties file. Out: a registry client and its remaining time. Must
not: connect, or show a credential.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from odradek.cli.console.properties import parse_words, read_properties, refuse
from odradek.cli.frame.commands import CommandRegistry, CommandRun, Timeout, printing
from odradek.cli.frame.results import Result
from odradek.common.errors import ConfigurationError
from odradek.serialization.registry.client import SchemaRegistryClient
from odradek.serialization.registry.settings import (
    NAMES,
    NUMBERS,
    SYNONYMS,
    URL,
    with_secrets,
)

REGISTRY, REGISTRY_CONFIG = "ODRADEK_SCHEMA_REGISTRY", "ODRADEK_SCHEMA_REGISTRY_CONFIG"
"""Environment variables that replace flags."""
PREFIX = "schema.registry."
"""Prefix of registry settings in files that also contain settings of Kafka clients."""
API_TIMEOUT = "default.api.timeout.ms"

Registry = Annotated[
    str | None,
    typer.Option(
        metavar="URL", help=f"The schema registry: http(s) URLs, comma-separated (or {REGISTRY})."
    ),
]
RegistryConfig = Annotated[
    Path | None,
    typer.Option(
        help=f"A Java properties file with settings of a registry client (or {REGISTRY_CONFIG})."
    ),
]
RegistryProperty = Annotated[
    list[str] | None,
    typer.Option(metavar="KEY=VALUE", help="A setting of a registry client; may be repeated."),
]
FLAGS: Mapping[str, tuple[Any, Any]] = {
    "registry": (Registry, None),
    "registry_config": (RegistryConfig, None),
    "registry_property": (RegistryProperty, None),
}


class RegistryRun(CommandRun):
    """One run of a command for a schema registry."""

    waits_for = "the schema registry"

    def __init__(
        self, registry: SchemaRegistryClient, timeout: float, tool: str, **flags: bool
    ) -> None:
        super().__init__(timeout, tool, **flags)
        self.registry = registry


def _run(tool: str, verb: Callable[[RegistryRun], Result], frame: dict[str, Any]) -> None:
    def call() -> Result:
        given = frame["registry"], frame["registry_config"], frame["registry_property"] or ()
        registry, timeout = registry_client(*given, frame["timeout"])
        flags = {flag: bool(frame.get(flag)) for flag in ("dry_run", "yes", "json")}
        with contextlib.closing(RegistryRun(registry, timeout, tool, **flags)) as run:
            run.tell_of_waiting()
            return verb(run)

    printing(tool, call, json=frame["json"])


_REGISTRY = CommandRegistry(lambda _: {**FLAGS, "timeout": (Timeout, None)}, _run)
reads, changes, destroys = _REGISTRY.reads, _REGISTRY.changes, _REGISTRY.destroys


def registry_client(
    url: str | None,
    file: Path | None,
    words: Iterable[str],
    timeout: float | None,
    environment: Mapping[str, str] = os.environ,
) -> tuple[SchemaRegistryClient, float]:
    """Return a client and the timeout of each call in seconds. Raises `UsageError`.

    Flags override the file, which overrides the environment's URL.
    """
    given: dict[str, Any] = {}
    if environment.get(REGISTRY):
        given[URL] = environment[REGISTRY]
    named = environment.get(REGISTRY_CONFIG)
    path = file or (Path(named) if named else None)
    if path is not None:
        given |= _of_file(read_properties(path))
    given |= {SYNONYMS.get(n, n): value for n, value in _own(words).items()}
    if url is not None:
        given[URL] = url
    if not given.get(URL):
        refuse(f"no schema registry is given: use --registry URL, or set {REGISTRY}")
    if timeout is not None:
        given[API_TIMEOUT] = timeout * 1000
    given = dict(with_secrets(given))  # wrap secrets first, because errors may show settings
    try:
        found = SchemaRegistryClient(given)
    except ConfigurationError as error:
        refuse(str(error))
    return found, float(given.get(API_TIMEOUT, NUMBERS[API_TIMEOUT])) / 1000


def _own(words: Iterable[str]) -> Mapping[str, Any]:
    return with_secrets(parse_words(words, "--registry-property"))


def _of_file(lines: Mapping[str, str]) -> dict[str, Any]:
    """Return the registry settings in a file that may also contain other settings."""
    found: dict[str, Any] = {}
    for name, value in lines.items():
        plain = SYNONYMS.get(name, name)
        if plain not in NAMES and name.startswith(PREFIX):
            plain = name.removeprefix(PREFIX)
        if plain in NAMES:
            found[plain] = value
    return dict(with_secrets(found))

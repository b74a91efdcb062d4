"""Combine a command's connection settings: flags, the environment and a profile.

In: flags of the command line, the environment. Out: the settings of a client, and for an admin
client the timeout. Must not: connect.

Flags override the environment, which overrides a profile. A profile that `--profile` names counts
as a flag: the environment's settings are ignored then.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from odradek.cli.console.properties import parse_words, read_client_file, refuse
from odradek.cli.frame.profiles import Profile, profiles_file, read_profile
from odradek.clients.bootstrap_timeout import API_TIMEOUT, FIRST_CONTACT, GOVERNING
from odradek.common.config import ADMIN, Config
from odradek.common.errors import ConfigurationError
from odradek.common.options.option_aliases import ALIASES, dotted, sealed
from odradek.common.options.table import OPTIONS

BOOTSTRAP, COMMAND_CONFIG, PROFILE = (
    *("ODRADEK_BOOTSTRAP_SERVER", "ODRADEK_COMMAND_CONFIG"),
    "ODRADEK_PROFILE",
)
"""Environment variables that replace flags."""
SERVERS = "bootstrap.servers"
PROPERTY = "--command-property"
NOWHERE = (
    "no bootstrap servers are given: use --bootstrap-server host:port, set "
    "ODRADEK_BOOTSTRAP_SERVER, or use --profile with a profile that sets bootstrap.servers"
)


@dataclass(frozen=True, slots=True)
class Flags:
    """Connection settings on the command line."""

    bootstrap_server: str | None = None
    command_config: Path | None = None
    command_property: tuple[str, ...] = ()
    spelling: str = field(default=PROPERTY, kw_only=True)
    """Name of the flag for properties."""
    profile: str | None = None
    timeout: float | None = None


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """Settings of a client, and the profile from which some of them come."""

    given: dict[str, Any]
    profile: Profile

    def checked(self, client: str) -> Config:
        """Return the configuration. Raises `UsageError` with a profile's file and line."""
        try:
            return Config(client, self.given)
        except ConfigurationError as error:
            refuse(_at(str(error), self.given, self.profile))

    @property
    def servers(self) -> str:
        """Bootstrap servers, separated by commas."""
        found = next(value for name, value in self.given.items() if _meaning(name) == SERVERS)
        return ",".join(map(str, found)) if isinstance(found, list | tuple) else str(found)


@dataclass(frozen=True, slots=True)
class AdminSettings:
    """Settings of an admin client, and the timeout of the command in seconds."""

    given: dict[str, Any]
    timeout: float
    warning: str = ""
    servers: str = field(default="", kw_only=True)
    config: Config = field(kw_only=True)


USUAL = MappingProxyType({"client.id": "odradek-cli"})


def settings(
    flags: Flags,
    environment: Mapping[str, str] = os.environ,
    usual: Mapping[str, Any] = USUAL,
) -> AdminSettings:
    """Combine the settings of an admin client; they override the command's defaults.

    Raises `UsageError` with file and line of a profile's setting. Commands pass a timeout to each
    call, so `bootstrap.timeout.ms` has to be set, unless the user has set a timeout.
    """
    found = client_settings(flags, ADMIN, usual, environment=environment)
    own = {_meaning(name) for name, value in found.given.items() if usual.get(name) is not value}
    if flags.timeout is None and own.isdisjoint((FIRST_CONTACT, *GOVERNING[API_TIMEOUT])):
        found.given[FIRST_CONTACT] = OPTIONS[FIRST_CONTACT].default_text
    config = found.checked(ADMIN)
    limit = config[API_TIMEOUT]
    servers = ",".join(map(str, config[SERVERS]))
    timeout = limit if flags.timeout is None else flags.timeout
    return AdminSettings(
        found.given, timeout, found.profile.warning, servers=servers, config=config
    )


def client_settings(
    flags: Flags,
    client: str,
    usual: Mapping[str, Any],
    own: Mapping[str, Any] = MappingProxyType({}),
    *,
    environment: Mapping[str, str] = os.environ,
) -> ClientSettings:
    """Combine the settings of any client: `own` overrides all others, and all override `usual`.

    Raises `UsageError`; the values aren't checked yet.
    """
    for flag, text in (
        ("--bootstrap-server", flags.bootstrap_server),
        ("--profile", flags.profile),
    ):
        if text == "":
            refuse(f"{flag} is empty: leave it out to use the value of the environment")
    named = flags.profile or environment.get(PROFILE)
    path = profiles_file(environment)
    profile = read_profile(path, named, client) if named else Profile()
    words = sealed(parse_words(flags.command_property, flags.spelling))
    layers = [
        profile.settings,
        read_client_file(flags.command_config, client),
        words,
        _start(flags.bootstrap_server),
        own,
    ]
    if not flags.profile:
        file = environment.get(COMMAND_CONFIG)
        layers[1:1] = [
            read_client_file(Path(file) if file else None, client),
            _start(environment.get(BOOTSTRAP)),
        ]
    given = dict(usual)
    for layer in layers:
        given = _over(given, layer)
    if SERVERS not in map(_meaning, given):
        refuse(NOWHERE)
    return ClientSettings(given, profile)


def _start(servers: str | None) -> dict[str, Any]:
    return {SERVERS: servers} if servers else {}


def _over(below: Mapping[str, Any], layer: Mapping[str, Any]) -> dict[str, Any]:
    """Merge settings; `layer` overrides `below`, even if it uses other names of a setting."""
    new = set(map(_meaning, layer))
    return {name: value for name, value in below.items() if _meaning(name) not in new} | {**layer}


def _meaning(name: str) -> str:
    return ALIASES.get(dotted(name), dotted(name))


def _at(problem: str, given: Mapping[str, Any], profile: Profile) -> str:
    """Return the problem, with the line of the profile if a profile's setting causes it."""
    from_profile = [
        name
        for name, value in profile.settings.items()
        if given.get(name) is value and (name in problem or _meaning(name) in problem)
    ]
    if not from_profile:
        return problem
    return f"{profile.places[max(from_profile, key=len)]}: {problem}"

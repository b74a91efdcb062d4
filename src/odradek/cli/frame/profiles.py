"""Read profiles: named settings of a cluster in `~/.config/odradek/config.toml`.

In: the file's text, the name of a profile. Out: settings with Kafka's names, and their lines, for
errors. Must not: check the settings; `common.config` does.

    [profile.prod]
    bootstrap.servers = "kafka-1:9092,kafka-2:9092"
    security.protocol = "SASL_SSL"
"""

from __future__ import annotations

import os
import re
import stat
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from odradek.cli.console.properties import refuse
from odradek.common.options.option_aliases import sealed
from odradek.common.options.properties import idle_names
from odradek.common.secret import Secret
from odradek.runtime.private_files import home_directory

TABLE = "profile"
"""Table of the file that contains the profiles; other tables are reserved."""


@dataclass(frozen=True, slots=True)
class Profile:
    """Settings of a profile, secrets wrapped, and their places, such as "config.toml, line 3"."""

    settings: Mapping[str, Any] = field(default_factory=dict)
    places: Mapping[str, str] = field(default_factory=dict)
    warning: str = ""
    """Warning about unsafe permissions of the file, or an empty text."""


def profiles_file(environment: Mapping[str, str]) -> Path:
    """Return the profiles' path, in XDG_CONFIG_HOME if that is absolute, else in ~/.config."""
    home = environment.get("XDG_CONFIG_HOME", "")
    base = Path(home) if Path(home).is_absolute() else home_directory() / ".config"
    return base / "odradek" / "config.toml"


def read_profile(path: Path, name: str, client: str) -> Profile:
    """Read one profile, without options of other kinds of clients.

    Raises `UsageError`, which names the file and, if possible, the line.
    """
    text, mode = _text(path, name)
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        refuse(f"{path} is not valid TOML (strings need quotes): {error}")
    profiles = document.get(TABLE, {})
    if not isinstance(profiles, dict):
        refuse(f"{path}: {TABLE} must be a table, such as [{TABLE}.{name}]")
    if name not in profiles:
        there = ", ".join(profiles) or f"none yet: add a table [{TABLE}.{name}]"
        refuse(f"{path} has no profile {name!r}; it has {there}")
    lines = {keys: number for number, keys in _keys(text)}
    place = f"{path}, line {lines.get((TABLE, name), 1)}"
    if not isinstance(profiles[name], dict):
        refuse(f"{place}: a profile must be a table, such as [{TABLE}.{name}]")
    found, places = {}, {}
    for keys, value in _flat(profiles[name]):
        setting = ".".join(keys)
        line = lines.get((TABLE, name, *keys))
        places[setting] = f"{path}, line {line}" if line else place
        found[setting] = _plain(places[setting], setting, value)
    settings = sealed(found)
    idle = idle_names(settings, client)
    settings = {setting: value for setting, value in settings.items() if setting not in idle}
    secret = [setting for setting, value in settings.items() if isinstance(value, Secret)]
    return Profile(settings, places, _warning(path, mode, secret))


def _text(path: Path, name: str) -> tuple[str, int]:
    try:
        with path.open("rb") as file:
            return file.read().decode(), os.fstat(file.fileno()).st_mode
    except FileNotFoundError:
        refuse(
            f"{path} doesn't exist; create it with a table [{TABLE}.{name}] for the profile "
            f"{name!r}"
        )
    except OSError as error:
        refuse(f"{path} can't be read: {error.strerror or error}")
    except UnicodeDecodeError as error:
        refuse(f"{path} isn't UTF-8 text: {error.reason} at byte {error.start}")


def _warning(path: Path, mode: int, secrets: list[str]) -> str:
    if not secrets or os.name != "posix" or not mode & (stat.S_IRGRP | stat.S_IROTH):
        return ""
    return (
        f"warning: {path} contains secrets ({', '.join(secrets)}), but users other than its "
        f"owner can read it (mode {stat.S_IMODE(mode):o}): chmod 600 {path}"
    )


def _flat(table: Mapping[str, Any], above: tuple[str, ...] = ()) -> Iterator[tuple[Any, Any]]:
    """Yield the values of a table; `a.b = 1` is a nested table in TOML, but one name in Kafka."""
    for key, value in table.items():
        if isinstance(value, dict):
            yield from _flat(value, (*above, key))
        else:
            yield (*above, key), value


def _plain(place: str, setting: str, value: Any) -> Any:
    if isinstance(value, list) and all(isinstance(one, str) for one in value):
        return ",".join(value)
    if not isinstance(value, str | int | float):
        refuse(
            f"{place}: {setting} must be a string, a number, true or false, or a list of strings"
        )
    return value


_SETTING = re.compile(r"""\s*((?:"[^"]*"|'[^']*'|[^"'#=])+?)\s*=""")


def _keys(text: str) -> Iterator[tuple[int, tuple[str, ...]]]:
    """Yield the keys of each line, because TOML's parser doesn't report lines."""
    table: tuple[str, ...] = ()
    for number, line in enumerate(text.splitlines(), 1):
        named = _SETTING.match(line)
        try:
            if line.lstrip().startswith("["):
                table = _only_keys(tomllib.loads(line))
                yield number, table
            elif named:
                yield number, table + _only_keys(tomllib.loads(f"{named[1]}=0"))
        except tomllib.TOMLDecodeError:  # the line is inside a multi-line string
            continue


def _only_keys(document: Any) -> tuple[str, ...]:
    found = []
    while isinstance(document, dict) and document:
        key, document = next(iter(document.items()))
        found.append(key)
    return tuple(found)

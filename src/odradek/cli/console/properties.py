"""Configurations of the console tools: property files, `key=value` arguments, flags.

In: the path of a file in Java's properties format, arguments of the command line. Out: plain dicts
with Kafka's names, for a client or for a reader or formatter of lines. Must not: validate client
options; `common.config` does.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any, NoReturn

from odradek.common.errors import ConfigurationError
from odradek.common.options.properties import parse_properties
from odradek.runtime import properties

_SPELLINGS = {
    "producer_config": "--producer.config",
    "consumer_config": "--consumer.config",
    "old_property": "--property",
}

LARGEST = 64 << 20
"""Maximum size of a file that a command reads as a whole, in bytes."""


class UsageError(Exception):
    """Wrong use of a command; exit status 2."""


def refuse(message: str) -> NoReturn:
    """Raise `UsageError`, which ends the command with exit status 2."""
    raise UsageError(message)


def read_text(path: Path, place: str = "") -> str:
    """Read a text file of limited size, because a device such as /dev/zero is endless.

    `place` is the beginning of error messages.
    """
    try:
        with path.open("rb") as file:
            data = file.read(LARGEST + 1)
        if len(data) <= LARGEST:
            return data.decode("utf-8-sig").replace("\r\n", "\n").replace("\r", "\n")
    except OSError as error:
        refuse(f"{place}{path} can't be read: {error.strerror or error}")
    except UnicodeDecodeError as error:
        refuse(f"{place}{path} isn't UTF-8 text: {error.reason} at byte {error.start}")
    refuse(f"{place}{path} has more than {LARGEST >> 20} MiB")


def read_properties(path: Path) -> dict[str, str]:
    """Read a property file, without checks of its names."""
    return parse_properties(read_text(path))


def read_client_file(path: Path | None, client: str) -> dict[str, Any]:
    """Read a file with settings of any Kafka client; without a path, return no settings."""
    if path is None:
        return {}
    try:
        return properties.read_properties(path, client)
    except ConfigurationError as error:
        refuse(str(error).partition(" (a str is ")[0])  # drop the hint for Python programs


def parse_words(words: Iterable[str], flag: str) -> dict[str, str]:
    """Parse `key=value` arguments; `key=` and `key` mean an empty value."""
    found = {}
    for word in words:
        key, _, value = word.partition("=")
        if not key.strip():
            refuse(f"{flag}: expected key=value, not {word!r}")
        found[key] = value
    return found


def parse_values(words: Iterable[str], flag: str) -> dict[str, str]:
    """Parse `key=value` arguments that change the cluster: `key` without `=` is an error."""
    every = list(words)
    for word in every:
        if "=" not in word:
            refuse(f"{flag}: expected KEY=VALUE, not {word!r}; for an empty value write {word}=")
    return parse_words(every, flag)


def one_of(params: Mapping[str, Any], new: str, old: str) -> tuple[Any, str]:
    """Return the value and spelling of a flag that also has an older name; reject both."""
    if params.get(new) and params.get(old):
        refuse(f"{_flag(new)} and {_flag(old)} mean the same and can't be given together")
    return (params[old], _flag(old)) if params.get(old) else (params.get(new), _flag(new))


def _flag(name: str) -> str:
    """Return the spelling of a parameter on the command line."""
    return _SPELLINGS.get(name) or f"--{name.replace('_', '-')}"


def line_settings(
    params: Mapping[str, Any], *, new: str, file: str, known: Collection[str]
) -> dict[str, str]:
    """Return settings of the reader or formatter of lines; properties override the file."""
    words, spelling = one_of(params, new, "old_property")
    path = params.get(file)
    settings = read_properties(path) if path is not None else {}
    settings.update(parse_words(words or (), spelling))
    for name in settings:
        if name not in known:
            close = difflib.get_close_matches(name, known, n=1)
            hint = f"; did you mean {close[0]}?" if close else f"; use one of {', '.join(known)}"
            refuse(f"{spelling}: unknown property {name!r}{hint}")
    return settings


def truth(settings: Mapping[str, str], name: str, *, default: bool = False) -> bool:
    """Return a boolean property; values other than "true" are false, as in Kafka's tools."""
    found = settings.get(name)
    return default if found is None else found.strip().lower() == "true"


def refuse_what_is_not_there(params: Mapping[str, Any], reasons: Mapping[str, str]) -> None:
    """Reject flags of Kafka's tool that this release doesn't support, with the reason."""
    for parameter, reason in reasons.items():
        if params.get(parameter):
            refuse(f"{_flag(parameter)} is not supported: {reason}")

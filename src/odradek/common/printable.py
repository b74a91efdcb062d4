r"""Make texts from brokers printable for logs, exceptions and terminals (R-IN-3).

A broker, proxy or token server chooses the texts of its errors and the names of clusters, racks,
hosts, topics and members. Unchanged, these could move a terminal's cursor, reverse its writing
direction, or begin a forged log line.

In: any text. Out: the text, cut to a limit, with control characters (C0, DEL, C1), line ends, marks
that change the writing direction and unpaired surrogates escaped as `\x1b`, `\n`, `\u202e`. Users:
`str()` of this package's errors (`errors`), of addresses and partitions (`types`), events
(`events`), `explain()`, and loggers (`log_filter`). Must not: change a value that the application
receives, such as topics, records and headers.

The module also writes commands of `odradek`, with the client's bootstrap servers, that can be
pasted into a shell; a secured cluster needs credentials in addition.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar, cast

T = TypeVar("T")

Servers = Iterable[object]
"""Bootstrap servers as the user set them: addresses or texts."""
LONGEST = 4096
"""Maximum number of characters of a printable text; longer texts are cut."""
_UNSAFE = (
    r"[\x00-\x1f\x7f-\x9f\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    r"\ud800-\udfff\U000e0000-\U000e007f]"
)
_UNSAFE_IN_LINES = _UNSAFE.replace(r"\x00-\x1f", r"\x00-\x09\x0b-\x1f")
"""Regular expression, compiled on first use, as most clients have no such text."""


def _python_escape(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


_SHELL_SAFE = "_@%+=:,./-"


def sentence(text: object) -> str:
    """Return a text, with a full stop added if it doesn't end like a sentence."""
    said = str(text).rstrip()
    return said if said.endswith((".", "!", "?", "…")) else f"{said}."


def shell_quoted(word: str) -> str:
    """Quote a word for a shell as `shlex.quote` does, without importing `shlex`."""
    if word and word.isascii() and all(c.isalnum() or c in _SHELL_SAFE for c in word):
        return word
    return "'" + word.replace("'", "'\"'\"'") + "'"


def command(words: str, servers: Servers) -> str:
    """Return a command of `odradek` as text, with its bootstrap servers."""
    where = shell_quoted(",".join(map(str, servers)))
    return f"odradek {words} --bootstrap-server {where}"


def cure(topic: str, servers: Servers) -> str:
    """Return the command that creates a topic, as text."""
    return f"Create it with: {command(f'topics create {shell_quoted(topic)}', servers)}"


def looks_at(servers: Servers) -> str:
    """Return the command that checks the connection to a cluster step by step, as text."""
    return f"Check each step from this machine with: {command('doctor', servers)}"


def lists_members(group_id: str, servers: Servers) -> str:
    """Return the command that lists a group's members with their instance ids, as text."""
    found = command(f"groups members {shell_quoted(group_id)}", servers)
    return f"List the members with: {found}"


def uuid_text(octets: bytes) -> str:
    """Return a UUID as text, without importing the module `uuid`."""
    digits = octets.hex()
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


def json_escape(character: str) -> str:
    """Return a character's escape sequence in JSON."""
    from json import dumps  # imported late: most clients don't need it

    return dumps(character)[1:-1] if character != "\x7f" else "\\u007f"


def printable(
    text: str,
    *,
    limit: int | None = LONGEST,
    lines: bool = False,
    style: Callable[[str], str] = _python_escape,
) -> str:
    """Return a text with unprintable characters escaped.

    With `lines`, line breaks are kept, for texts whose parts are already printable.
    """
    if limit is not None and len(text) > limit:
        text = f"{text[:limit]}… ({len(text)} characters)"
    if text.isprintable():
        return text
    unsafe = _UNSAFE_IN_LINES if lines else _UNSAFE
    return re.sub(unsafe, lambda match: style(match[0]), text)


def cleaned(value: T) -> T:
    """Return plain data (dicts, lists, dataclasses …) in which all texts are printable."""
    return cast("T", _cleaned(value))


def _cleaned(value: Any) -> Any:
    if isinstance(value, str):
        return printable(value) if type(value) is str else value
    if isinstance(value, Mapping):
        return {cleaned(key): cleaned(one) for key, one in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*map(cleaned, value))
    if isinstance(value, tuple | list | set | frozenset):
        return type(value)(map(cleaned, value))
    if hasattr(type(value), "__dataclass_fields__"):
        from dataclasses import fields, replace  # imported late: most clients don't need it

        found = {f.name: getattr(value, f.name) for f in fields(value) if f.init}
        clean = {name: cleaned(one) for name, one in found.items()}
        return value if clean == found else replace(value, **clean)
    return value

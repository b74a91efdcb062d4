r"""Parse properties files of Java's clients and librdkafka.

In: the text. Out: a dict with the names as in the file; the names of settings that have no effect
here. Must not: read files (`runtime.properties` does), or check values (`config` does).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from odradek.common.options.ignored_settings import IN_FILES, has_effect
from odradek.common.options.option_aliases import dotted

_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_KEY = re.compile(r"(?:\\.|[^\\=: \t\f])*", re.DOTALL)
_NAME = re.compile(r"[\w.$-]+")
_SEPARATOR = re.compile(r"[ \t\f]*[=:]?[ \t\f]*")


def parse_properties(text: str) -> dict[str, str]:
    r"""Read Java's properties format: `# comment`, `key=value`, `key: value`, `\` at line ends."""
    return {name: value for _, name, value in _settings(text)}


def bad_line(text: str) -> str | None:
    """Return what is wrong with the first line that isn't a setting; None if each is one.

    The caller raises the error, because a traceback with this frame's local variables would show
    the file's passwords.
    """
    for number, name, _ in _settings(text):
        if not _NAME.fullmatch(name):
            return f"line {number}: {_no_line(text)}"
    return None


def _settings(text: str) -> Iterable[tuple[int, str, str]]:
    for number, line in _logical_lines(text):
        key = _KEY.match(line)
        end = key.end() if key else 0
        separator = _SEPARATOR.match(line, end)
        value = line[separator.end() if separator else end :]
        yield number, _unescape(line[:end]), _unescape(value)


def _no_line(text: str) -> str:
    """Return what is wrong with a file, without quoting its text, which may contain secrets."""
    if text.lstrip()[:1] in ("{", "["):
        return "the file is JSON, not properties (name=value): pass json.load(file) to the client"
    return "expected name=value, as in a properties file"


def _logical_lines(text: str) -> Iterable[tuple[int, str]]:
    """Yield each line that isn't empty or a comment, with its number in the file.

    A line that ends with an odd number of backslashes is joined with the next line.
    """
    waiting, first = "", 0
    for number, raw in enumerate(re.split(r"\r\n|\n|\r", text), 1):
        line = raw.lstrip(" \t\f")
        if not waiting and (not line or line[0] in "#!"):
            continue
        first = first if waiting else number
        waiting += line
        if (len(waiting) - len(waiting.rstrip("\\"))) % 2:
            waiting = waiting[:-1]
            continue
        yield first, waiting
        waiting = ""
    if waiting:
        yield first, waiting


def _unescape(text: str) -> str:
    def replace(match: re.Match[str]) -> str:
        code, letter = match.groups()
        return chr(int(code, 16)) if code else _ESCAPES.get(letter, letter)

    return re.sub(r"\\(?:u([0-9a-fA-F]{4})|(.))", replace, text, flags=re.DOTALL)


def idle_names(given: Mapping[str, Any], client: str | None) -> list[str]:
    """Return the names of settings that have no effect on this kind of client, or on any client."""
    names = ((name, dotted(name)) for name in given)
    return [name for name, dots in names if dots in IN_FILES or not has_effect(dots, client)]

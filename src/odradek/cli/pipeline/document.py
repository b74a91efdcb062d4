"""Parse YAML to nodes with line numbers, and replace variables.

In: the path of a SPEC and the environment. Out: a tree of `Node`s, whose scalars are texts exactly
as in the file (`true` remains a text, as Spark's options are texts). All problems are collected
with their lines in `Problems` and raised together as one `SpecError`. Must not: know the keys of a
SPEC (`spec` does), show the value of a variable, which may be secret, or follow aliases, with which
a hundred bytes can expand to a billion texts (R-IN-4).
"""

from __future__ import annotations

import difflib
import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from odradek.cli.console.properties import UsageError, read_text
from odradek.common.errors import ConfigurationError

DEEPEST = 50
"""Maximum depth of nested lists and maps; a SPEC needs six."""
SHOWN = 60
"""Maximum number of characters of a wrong variable in an error."""
_TOKEN = re.compile(r"\$?\$\{|[{}]")
_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(\}|:-)")
_GRAMMAR = "isn't a variable: write ${NAME} or ${NAME:-default}, or $${ for a literal ${"
_UNCLOSED = "the closing brace of a variable is missing; write $${ for a literal ${"


class SpecError(ConfigurationError):
    """A SPEC can't be run; one line of text for each problem, as `file:line: what`.

    Problems of variables also have a column: `file:line:column: what`.
    """

    several_lines = True


class Problems:
    """Problems of one SPEC, by line."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._found: list[tuple[int, int, str]] = []

    def add(self, line: int, text: str, column: int = 0) -> None:
        """Add a problem; `line` and `column` count from 1, column 0 means unknown."""
        self._found.append((line, column, text))

    def check(self) -> None:
        """Raise all problems, in the file's order, if there are any."""
        if self._found:
            texts = dict.fromkeys(
                f"{self.path}:{line}:{f'{column}:' if column else ''} {text}"
                for line, column, text in sorted(self._found)
            )
            raise SpecError("\n".join(texts))


@dataclass(frozen=True, slots=True)
class Node:
    """Text, list or map with its line."""

    line: int
    value: str | list[Node] | dict[str, Node]
    text_line: int = 0
    """For a text: line of its first character (the text of a block begins below its `|`)."""
    key_line: int = 0
    """Line of this value's key; `line` for a value without a key."""

    @property
    def kind(self) -> str:
        """Return the kind of the node, in words."""
        return {str: "a string", list: "a list", dict: "a map"}[type(self.value)]


@dataclass(frozen=True, slots=True)
class Document:
    """A SPEC as it was read."""

    path: Path
    root: Node
    problems: Problems


def read(path: Path, variables: Mapping[str, str]) -> Document:
    """Read a file, with `${NAME}` and `${NAME:-default}` filled in."""
    try:
        text = read_text(path)
    except UsageError as error:
        raise SpecError(str(error)) from error
    return YamlReader(path, variables).document(text)


class YamlReader:
    """Converts the YAML of one file to nodes."""

    def __init__(self, path: Path, variables: Mapping[str, str]) -> None:
        self._variables = variables
        self._problems = Problems(path)
        self._text = ""
        self._lines = [0]
        """Positions at which the lines of the text begin."""

    def document(self, text: str) -> Document:
        """Parse the text; raises only errors that prevent parsing the rest."""
        import yaml

        self._text = text
        self._lines = [0, *_places("\n", text, 1)]
        try:
            self._check_shape(yaml.parse(text, Loader=yaml.SafeLoader))
            composed = yaml.compose(text, Loader=yaml.SafeLoader)
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            self._problems.add(0 if mark is None else mark.line + 1, f"not YAML: {error.problem}")
            self._problems.check()
        except yaml.YAMLError as error:
            raise SpecError(f"{self._problems.path} isn't YAML: {error}") from error
        except SpecError:
            raise
        except (ValueError, ArithmeticError) as error:
            # Raised inside PyYAML by `chr` for an escape, or by `int` for a version's digits.
            text = "it contains an escape or a version number out of range"
            raise SpecError(f"{self._problems.path} isn't YAML: {text}") from error
        if composed is None:
            raise SpecError(f"{self._problems.path} is empty")
        return Document(self._problems.path, self._node(composed, None), self._problems)

    def _check_shape(self, events: Iterable[Any]) -> None:
        """Reject aliases and too deep nesting, before nodes are created."""
        import yaml

        depth = 0
        for event in events:
            if isinstance(event, yaml.AliasEvent):
                text = f"aliases such as *{event.anchor} aren't supported; write the value out"
            elif isinstance(event, yaml.CollectionStartEvent) and depth == DEEPEST:
                text = f"lists and maps are nested more than {DEEPEST} levels deep"
            else:
                depth += isinstance(event, yaml.CollectionStartEvent)
                depth -= isinstance(event, yaml.CollectionEndEvent)
                continue
            self._problems.add(event.start_mark.line + 1, text)
            self._problems.check()

    def _node(self, composed: Any, key_line: int | None) -> Node:
        line = composed.start_mark.line + 1
        key = line if key_line is None else key_line
        if composed.id == "sequence":
            return Node(line, [self._node(item, None) for item in composed.value], line, key)
        if composed.id == "mapping":
            return Node(line, self._entries(composed.value), line, key)
        first = line + 1 if composed.style in ("|", ">") else line
        empty = composed.style is None and composed.tag == "tag:yaml.org,2002:null"
        text = "" if empty else self._filled(composed)
        return Node(line, text, first, key)

    def _entries(self, pairs: Iterable[tuple[Any, Any]]) -> dict[str, Node]:
        found: dict[str, Node] = {}
        for key, value in pairs:
            line = key.start_mark.line + 1
            if key.id != "scalar":
                self._problems.add(line, "a key must be a string")
            elif key.value in found:
                before = found[key.value].key_line
                self._problems.add(line, f"{key.value} is already set on line {before}")
            else:
                found[key.value] = self._node(value, line)
        return found

    def _filled(self, composed: Any) -> str:
        text: str = composed.value
        begin, end = composed.start_mark, composed.end_mark
        # A quoted or folded text differs from the file, but contains the same `${` in the same
        # order.
        here, there = _places("${", text), _places("${", self._text[begin.index : end.index])
        alike = len(here) == len(there)

        def report(at: int, problem: str) -> None:
            index = begin.index + (there[bisect_left(here, at)] if alike else 0)
            line = bisect_right(self._lines, index)
            column = index - self._lines[line - 1] + 1 if alike else 0
            self._problems.add(line, problem, column)

        return Variables(self._variables, report).filled(text)


def _places(word: str, text: str, after: int = 0) -> list[int]:
    """Return the positions of a word in a text; `after` is added to each of them."""
    return [found.start() + after for found in re.finditer(re.escape(word), text)]


class Variables:
    """Replaces `${NAME}` and `${NAME:-default}` in texts.

    A default may contain variables and balanced braces. `$${` means `${`.
    """

    def __init__(self, values: Mapping[str, str], report: Callable[[int, str], None]) -> None:
        """Take the values; `report` is called with the position of a wrong `${` and the problem."""
        self._values, self._report = values, report
        self._last_brace = -1

    def filled(self, text: str) -> str:
        """Replace the variables in a text."""
        self._last_brace = text.rfind("}")
        return self._read(text, 0, 0, used=True)[0]

    def _read(self, text: str, at: int, depth: int, *, used: bool) -> tuple[str, int]:
        """Replace variables from a position on, and return the text and its end position.

        Reads up to the text's end, or in a default up to its closing brace (-1 if it is missing).
        `used`: false in a default that isn't used, whose variables needn't be set.
        """
        parts: list[str] = []
        open_braces = 0
        while (token := _TOKEN.search(text, at)) is not None:
            parts.append(text[at : token.start()])
            at = token.end()
            if token[0] == "${":
                value, at = self._variable(text, token.start(), depth + 1, used=used)
                parts.append(value)
                continue
            if depth and token[0] == "}" and not open_braces:
                return "".join(parts), at
            open_braces += -1 if token[0] == "}" else 1
            parts.append(token[0].removeprefix("$"))
        return "".join(parts) + text[at:], -1 if depth else len(text)

    def _variable(self, text: str, at: int, depth: int, *, used: bool) -> tuple[str, int]:
        """Return a variable's value, and the position after the variable."""
        found = _VARIABLE.match(text, at)
        if found is None:
            end = text.find("}", at, at + SHOWN)
            shown = text[at : at + SHOWN if end < 0 else end + 1]
            closed = at < self._last_brace
            self._report(at, f"{shown!r:.{SHOWN}} {_GRAMMAR}" if closed else _UNCLOSED)
            return "", at + 2
        if depth > DEEPEST:
            self._report(at, f"variables are nested more than {DEEPEST} levels deep")
            return "", len(text)
        name, end, default = found[1], found.end(), None
        value = self._values.get(name)
        if found[2] != "}":
            default, end = self._read(text, end, depth, used=used and not value)
            if end < 0:
                self._report(at, _UNCLOSED)
                return "", len(text)
        if default is not None:
            return value or default, end
        if value is None and used:
            self._report(at, f"environment variable {name} isn't set")
        return value or "", end


def close_to(word: str, known: Iterable[str]) -> str:
    """Return the end of an error message about an unknown word: a suggestion, or the known ones."""
    names = list(known)
    close = difflib.get_close_matches(word, names, n=1)
    if close:
        return f"; did you mean {close[0]}?"
    return f"; use {'' if len(names) == 1 else 'one of '}{', '.join(names)}" if names else ""

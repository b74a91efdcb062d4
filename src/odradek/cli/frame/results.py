"""Print results of commands: tables and lines as text, one JSON document for machines.

In: a `Result`. Out: text on standard output; a line on stderr for each failed item. Must not: print
texts from brokers unchanged: control characters are escaped. Only a `StoredText` remains unchanged,
unless standard output is a terminal.

On a terminal a table is wrapped to its width, with colours unless NO_COLOR is set; otherwise each
row is one line, columns are separated by two spaces, and nothing is truncated.
"""

from __future__ import annotations

import contextlib
import json as jsonlib
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any
from uuid import UUID

import typer
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from odradek.cli.console.properties import UsageError
from odradek.cli.console.terminal import for_terminal
from odradek.cli.console.waiting import perhaps_unread
from odradek.common.errors import KafkaError
from odradek.common.printable import printable

MOST_FOLDED = 5000
"""Maximum number of rows of a table that is wrapped to the terminal's width."""
LEAST_FOLDED = 6
"""Minimum width of a wrapped column that needs it; narrower columns can't be read.

On a terminal too narrow for that, lines aren't wrapped.
"""
GAP = "  "
NONE = "-"


@dataclass(frozen=True, slots=True)
class ResultTable:
    """Table with column heads. A cell is None, a bool, a number, a text or several of these."""

    heads: Sequence[str]
    rows: Sequence[Sequence[Any]]
    empty: str = ""
    """Text that replaces a table without rows."""


@dataclass(frozen=True, slots=True)
class StoredText:
    """Text that a user has stored, such as a schema; written unchanged to a pipe or file."""

    text: str


@dataclass(frozen=True, slots=True)
class Result:
    """Result of a command.

    `document` is the object that `--json` prints; dataclasses, ids and sets are converted to plain
    data. `shown` is the text output: tables, single lines and stored texts. `failed` contains
    errors by item; they are added to the document, too.
    """

    document: Mapping[str, Any]
    shown: Sequence[ResultTable | StoredText | str] = ()
    failed: Mapping[Any, KafkaError] = field(default_factory=dict)


def show(result: Result, tool: str, *, json: bool) -> None:
    """Print a result and its errors."""
    show_found(result, json=json)
    show_failed(result, tool)


def show_found(result: Result, *, json: bool) -> None:
    """Print the result on standard output."""
    if json:
        failed = {str(item): error_document(error) for item, error in result.failed.items()}
        print_json({**result.document, "failed": failed})
    else:
        before: ResultTable | StoredText | str = ""
        for part in result.shown:
            if result.failed and isinstance(part, ResultTable) and not part.rows:
                continue  # with errors, "nothing found" could be wrong
            if isinstance(before, ResultTable) or (before and isinstance(part, ResultTable)):
                typer.echo()
            _show(part)
            before = part
        sys.stdout.flush()


def show_failed(result: Result, tool: str) -> None:
    """Print errors on stderr, one line for each different error."""
    items_by_text: dict[str, list[str]] = {}
    for item, error in result.failed.items():
        items_by_text.setdefault(f"{type(error).__name__}: {error}", []).append(str(item))
    for text, items in items_by_text.items():
        named = ", ".join(printable(item, limit=None) for item in items)
        about = f"{named}: " if len(items) > 1 else ""
        typer.echo(printable(f"{tool}: {about}{text}", limit=None, lines=True), err=True)


def error_document(error: BaseException) -> dict[str, Any]:
    """Return an error for JSON: its class, its text, and Kafka's or a registry's code, if any."""
    return {
        "error": type(error).__name__,
        "code": getattr(error, "error_code", getattr(error, "code", None)),
        "message": str(error),
    }


@contextlib.contextmanager
def as_document(*kinds: type[Exception], json: bool) -> Iterator[None]:
    """With `json`, print an error of this block as the command's JSON document, and re-raise it.

    `kinds`: the classes of these errors; by default errors of clients and usage errors.
    """
    try:
        yield
    except Exception as error:
        if json and isinstance(error, kinds or (KafkaError, UsageError)):
            print_error(error)
        raise


def print_error(error: BaseException) -> None:
    """Print the document of a command that failed as a whole."""
    with perhaps_unread():
        print_json({"failed": {}, "error": error_document(error)})


def print_json(document: Mapping[str, Any]) -> None:
    """Print a JSON document in one line."""
    text = jsonlib.dumps(plain(document))
    typer.echo(text.replace("\x7f", "\\u007f"))  # JSON escapes all other control characters


def plain(value: Any) -> Any:
    """Convert a value for JSON: dataclasses and named tuples to objects, sets to sorted lists."""
    if isinstance(value, BaseException):
        return error_document(value)
    if is_dataclass(value) and not isinstance(value, type):
        return {f.name: plain(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return plain(value._asdict())
    if isinstance(value, Mapping):
        return {str(key): plain(one) for key, one in value.items()}
    if isinstance(value, set | frozenset):
        return sorted(map(plain, value))
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    if isinstance(value, bytes):
        return value.decode(errors="backslashreplace")
    return str(value) if isinstance(value, UUID) else value


def counted(count: int, what: str) -> str:
    """Return a number with its noun, such as "1 topic" and "2 topics"."""
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def cell(value: Any) -> str:
    """Return a value as the text of a table cell."""
    if value is None or value in ("", ()):
        return NONE
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple | list | set | frozenset) and not hasattr(value, "_asdict"):
        several = sorted(value) if isinstance(value, set | frozenset) else value
        return ",".join(map(cell, several)) or NONE
    return printable(str(value), limit=None)


def _show(part: ResultTable | StoredText | str) -> None:
    if isinstance(part, StoredText):
        data = part.text.encode("utf-8", "backslashreplace")  # `echo` would strip escapes of a str
        if _is_terminal():
            data = b"\n".join(map(for_terminal, data.split(b"\n")))
        typer.echo(data)
        return
    if isinstance(part, str):
        typer.echo(printable(part, limit=None))  # also escapes line breaks in names
        return
    if not part.rows:
        if part.empty:
            typer.echo(printable(part.empty, limit=None))
        return
    rows = [[cell(value) for value in row] for row in part.rows]
    numeric = [
        all(isinstance(row[n], int | float | None) for row in part.rows)
        for n in range(len(part.heads))
    ]
    console = Console(highlight=False, soft_wrap=True)
    widths = [
        max(map(cell_len, (head, *(row[n] for row in rows)))) for n, head in enumerate(part.heads)
    ]
    if console.is_terminal and len(rows) <= MOST_FOLDED:
        gaps = len(GAP) * (len(widths) - 1)
        least = sum(min(width, LEAST_FOLDED) for width in widths) + gaps
        if least <= console.width < sum(widths) + gaps:
            _fold(console, part.heads, rows, numeric)
        else:
            lines = _lines([part.heads, *rows], widths, numeric)
            console.print(Text(next(lines), style="bold"))
            for line in lines:
                console.print(Text(line))
        return
    typer.echo("\n".join(_lines([part.heads, *rows], widths, numeric)))


def _is_terminal() -> bool:
    return sys.stdout.isatty()


def _lines(
    rows: Iterable[Sequence[str]], widths: Sequence[int], numeric: Sequence[bool]
) -> Iterator[str]:
    for row in rows:
        padded = []
        for value, width, right in zip(row, widths, numeric, strict=True):
            room = " " * (width - cell_len(value))
            padded.append(room + value if right else value + room)
        yield GAP.join(padded).rstrip()


def _fold(
    console: Console,
    heads: Sequence[str],
    rows: Iterable[Sequence[str]],
    numeric: Sequence[bool],
) -> None:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for head, right in zip(heads, numeric, strict=True):
        table.add_column(Text(head), overflow="fold", justify="right" if right else "left")
    for row in rows:
        table.add_row(*map(Text, row))
    console.print(table, soft_wrap=False)

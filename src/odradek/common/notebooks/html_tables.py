"""Render results as HTML for notebooks: tables of escaped text, of bounded size.

In: dataclasses, dicts and lists of dataclasses; Arrow schemas and batches. Out: HTML tags without
attributes. Must not: interpret a text (the name of a topic or member, an error) as HTML (R-IN-3),
show a field that the repr hides, or put much more than `LONGEST` characters into a notebook, which
stores them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import fields, is_dataclass
from html import escape
from typing import Any

from odradek.common.printable import printable

LONGEST = 100_000
"""Number of characters of HTML after which no further row is added."""
ROWS = 100
"""Maximum number of rows of a table; a table in a cell has a tenth of it."""
CELL = 300
ITEMS = 30
"""Maximum number of items that are shown of a list in a cell."""
DEPTH = 3
"""Maximum depth of tables in tables."""
TAGS = len("<td></td>")
NONE = "–"


def html(value: Any) -> str | None:
    """Return a result as HTML; None if it is empty or a list without dataclasses.

    In these cases, Python's repr is better.
    """
    if isinstance(value, list) and not _names(value):
        return None
    if isinstance(value, dict) and not value:
        return None
    if hasattr(value, "diagnosis") and hasattr(value, "addresses"):
        return _explanation(value)
    return _Page().of(value)


def arrow_html(data: Any) -> str:
    """Return a pyarrow Schema, or the schema and size of a RecordBatch or Table, as HTML.

    To see the values, users can convert it to Polars or pandas.
    """
    schema = getattr(data, "schema", data)
    rows = [(f.name, str(f.type), "yes" if f.nullable else "no") for f in schema]
    size = f"<p>{data.num_rows:,} rows, {data.nbytes:,} bytes</p>" if schema is not data else ""
    return size + _Page().table(("column", "type", "null"), rows)


def _explanation(value: Any) -> str:
    """Return the result of `explain()` as HTML: diagnosis, addresses, and the complete text."""
    heads = (
        "address",
        "role",
        "state",
        "failures",
        "next connection attempt in s",
        "last error",
        "cure",
    )
    rows = [
        (a.address, a.role, a.state, a.failures, a.next_dial_in, a.last_error, a.cure)
        for a in value.addresses
    ]
    page = _Page()
    name = f"{value.client} {value.client_id}, cluster {value.cluster_id or 'unknown'}"
    told = f"<p><b>{page.text(name)}</b><br>{page.text(value.diagnosis, 2000)}</p>"
    whole = escape(printable(str(value), limit=LONGEST // 4, lines=True))
    more = f"<details><summary>all</summary><pre>{whole}</pre></details>"
    return told + page.table(heads, rows) + more


class _Page:
    """Renderer of one result, with the number of characters that it may still write."""

    def __init__(self) -> None:
        self._left = LONGEST

    def of(self, value: Any, depth: int = 0) -> str:
        """Return any value as HTML: a table or an escaped text."""
        if is_dataclass(value) and not isinstance(value, type):
            return self._fields(value, depth)
        if isinstance(value, Mapping):
            return self._mapping(value, depth)
        if isinstance(value, tuple) and hasattr(value, "_fields"):  # such as TopicPartition
            return self.text(value)
        if isinstance(value, list | tuple) and (names := _names(value)):
            return self._objects(names, value, depth)
        if isinstance(value, list | tuple | AbstractSet):
            ordered = value if isinstance(value, list | tuple) else sorted(value, key=str)
            return self._list(list(ordered))
        return self.text(value)

    def text(self, value: Any, limit: int = CELL) -> str:
        """Return a value as escaped text, cut to `limit` characters."""
        if value is None:
            return NONE
        if isinstance(value, float):
            value = f"{value:.2f}"
        found = escape(printable(str(value), limit=limit))
        self._left -= len(found)
        return found

    def table(self, heads: Iterable[str], rows: Iterable[Iterable[Any]], depth: int = 0) -> str:
        """Return a table with these headings, and as many of the rows as fit."""
        most = ROWS if depth == 0 else ROWS // 10
        found = [f"<tr>{''.join(f'<th>{self.text(head)}</th>' for head in heads)}</tr>"]
        for n, row in enumerate(rows):
            if n == most or self._left <= 0:
                found.append("<tr><td>… and more rows</td></tr>")
                break
            cells = [f"<td>{self.of(cell, depth + 1)}</td>" for cell in row]
            self._left -= TAGS * (1 + len(cells))  # count tags, as cells may be empty
            found.append(f"<tr>{''.join(cells)}</tr>")
        return f"<table>{''.join(found)}</table>"

    def _fields(self, value: Any, depth: int) -> str:
        """Return a dataclass instance as a table with a row for each field."""
        if depth >= DEPTH:
            return self.text(value)
        pairs = ((name, getattr(value, name)) for name in _names([value]))
        return self.table((type(value).__name__, ""), pairs, depth)

    def _mapping(self, value: Mapping[Any, Any], depth: int) -> str:
        """Return a table with a row for each key: the key, and the value or the value's fields.

        If the key is also the first field of each value, it is shown once.
        """
        names = _names(value.values())
        if names and all(getattr(one, names[0]) == key for key, one in value.items()):
            return self._objects(names, value.values(), depth)
        if depth >= DEPTH:
            return self._list(list(value))
        rows = ((key, *([getattr(one, n) for n in names] or [one])) for key, one in value.items())
        return self.table(("", *(names or [""])), rows, depth)

    def _objects(self, names: tuple[str, ...], values: Iterable[Any], depth: int) -> str:
        """Return instances of one dataclass as a table, with a row for each instance."""
        if depth >= DEPTH:
            return self._list(list(values))
        return self.table(names, ([getattr(one, n) for n in names] for one in values), depth)

    def _list(self, items: list[Any]) -> str:
        """Return the first items as text, separated by commas."""
        told = [self.text(one) for one in items[:ITEMS]]
        return (
            ", ".join([*told, f"… ({len(items)} in total)"] if len(items) > ITEMS else told) or NONE
        )


def _names(values: Iterable[Any]) -> tuple[str, ...]:
    """Return the names of the shown fields if all values are of one dataclass; otherwise none."""
    kinds = {type(one) for one in values}
    kind = kinds.pop() if len(kinds) == 1 else None
    if kind is None or not is_dataclass(kind):
        return ()
    return tuple(field.name for field in fields(kind) if field.repr)

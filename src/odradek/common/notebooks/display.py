"""Show results as tables in notebooks, and Arrow schemas if the notebook asks for them.

In: results of calls. Out: the same objects, which IPython shows as HTML. Must not: take time
without a notebook: `html_tables` is only imported when a notebook shows a result.
"""

from __future__ import annotations

from typing import Any, TypeVar, cast

T = TypeVar("T")


class Shown:
    """A result that a notebook shows as a table."""

    __slots__ = ()

    def _repr_html_(self) -> str | None:
        from odradek.common.notebooks.html_tables import html

        return html(self)


class ShownDict(dict[Any, Any], Shown):
    """A dict that notebooks show as a table; a copy or pickle of it is a plain dict."""

    __slots__ = ()

    def __reduce__(self) -> Any:
        return dict, (dict(self),)


class ShownList(list[Any], Shown):
    """A list with another repr; a copy or pickle of it is a plain list."""

    __slots__ = ()

    def __reduce__(self) -> Any:
        return list, (list(self),)


def shown(value: T) -> T:
    """Convert a dict or list of objects to a subclass that notebooks show as a table.

    Other results are returned unchanged: a list of names is no table, and safe YAML writers accept
    only plain lists and dicts.
    """
    found: Any = value
    if type(found) is dict:
        found = ShownDict(found)
    elif type(found) is list and found and hasattr(found[0], "__dataclass_fields__"):
        found = ShownList(found)
    return cast("T", found)


def show_arrow(shell: Any) -> None:
    """Let IPython show Arrow schemas and batches as tables, once pyarrow is imported."""
    from odradek.common.notebooks.html_tables import arrow_html

    formatter = shell.display_formatter.formatters["text/html"]
    for name in ("Schema", "RecordBatch", "Table"):
        formatter.for_type_by_name("pyarrow.lib", name, arrow_html)

"""Commands that have commands: their help is plain text, in which nothing is cut.

In: a text. Out: a `typer.Typer`. In Rich's boxes names of options are cut where a terminal has 80
columns, and Click's own lists of commands cut sentences. Must not: import a command.
"""

from __future__ import annotations

from typing import Any

import typer
from typer.core import TyperGroup


class Overview(TyperGroup):
    """A group whose list of commands has the whole first paragraph of each one's help."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # Typer has a Click of its own
        """Write the list."""
        named = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        rows = [
            (name, " ".join((command.help or "").partition("\n\n")[0].split()))
            for name, command in named
            if command is not None and not command.hidden
        ]
        with formatter.section("Commands"):
            formatter.write_dl(rows)


def overview(text: str, name: str | None = None) -> typer.Typer:
    """A command that has commands; `text` is its help."""
    return typer.Typer(
        name=name,
        help=text,
        cls=Overview,
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
    )

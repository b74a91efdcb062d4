"""Commands that have commands: their help is plain text, in which nothing is cut.

In: a text. Out: a `typer.Typer`, which tells users of other tools what a flag is called here. In
Rich's boxes names of options are cut where a terminal has 80 columns, and Click's own lists of
commands cut sentences. Must not: import a command.
"""

from __future__ import annotations

import re
from typing import Any

import typer
from typer.core import TyperGroup

from odradek.cli.frame.foreign_flags import instead, needed_flag

WRONG_USE: Any = typer.BadParameter.__base__
"""Click's `UsageError`; Typer has a Click of its own."""
_EXTRA = re.compile(r"Got unexpected extra arguments?(?:\(s\))? \((.*)\)")


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

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find the command; a verb that there isn't has `--json`'s document, too."""
        try:
            return super().resolve_command(ctx, args)
        except WRONG_USE as error:
            if "--json" in args:
                from odradek.cli.console.properties import UsageError
                from odradek.cli.frame.results import print_error

                print_error(UsageError(error.format_message()))
            raise

    def invoke(self, ctx: Any) -> Any:
        """Run the command; where it was called wrongly, say how it is meant."""
        try:
            return super().invoke(ctx)
        except WRONG_USE as error:
            text = _explained(error) if ctx.parent is None and error.ctx is not None else None
            if text is None:
                raise
            raise WRONG_USE(text, error.ctx) from error


def _explained(error: Any) -> str | None:
    """Return an error of the command line with a hint for users of other tools, if there is one."""
    command, message = error.ctx.command, error.message
    flag, extra = getattr(error, "option_name", None), _EXTRA.fullmatch(message)
    hint = None
    if flag is not None:
        hint = instead(flag, command, error.ctx.command_path.partition(" ")[2])
    elif extra is not None:
        hint = needed_flag(command, extra[1])
    if hint is not None:
        return f"{message}; {hint}"
    pydantics = "Value error, "
    return error.format_message().replace(pydantics, "") if pydantics in message else None


def overview(text: str, name: str | None = None) -> typer.Typer:
    """Return a command with subcommands; `text` is its help.

    The one with a `name` is the whole program: it tells shells how to complete its words.
    """
    return typer.Typer(
        name=name,
        help=text,
        cls=Overview,
        no_args_is_help=True,
        add_completion=name is not None,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
    )

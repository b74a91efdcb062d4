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
WORDS = "odradek.words"
"""Key of the words of the command line in the metadata of Click's context."""
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

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the words of the command line, and remember whether `--json` is one of them."""
        ctx.meta.setdefault(WORDS, list(args))  # Click removes from the list what it has parsed
        try:
            return super().parse_args(ctx, args)
        except WRONG_USE as error:
            if ctx.parent is None:
                _print_document(ctx, error.format_message())
            raise

    def invoke(self, ctx: Any) -> Any:
        """Run the command; explain its wrong use, with `--json` as a document on stdout, too."""
        try:
            return super().invoke(ctx)
        except WRONG_USE as error:
            if ctx.parent is not None:
                raise
            text = _explained(error) if error.ctx is not None else None
            _print_document(ctx, text or error.format_message())
            if text is None:
                raise
            raise WRONG_USE(text, error.ctx) from error


def _print_document(ctx: Any, text: str) -> None:
    """Print a wrong use as a document on stdout if the command line has `--json`."""
    if "--json" in ctx.meta[WORDS]:
        from odradek.cli.console.properties import UsageError
        from odradek.cli.frame.results import print_error

        print_error(UsageError(text))


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

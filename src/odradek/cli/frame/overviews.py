"""Commands with subcommands, whose help is plain text without truncation.

In: a text. Out: a `typer.Typer`, whose errors contain hints for users of other tools. On 80
columns, Rich's boxes truncate names of options, and Click's lists of commands truncate sentences.
Must not: import a command.
"""

from __future__ import annotations

import re
from typing import Any

import typer
from typer.core import TyperGroup

from odradek.cli.frame.foreign_flags import instead, needed_flag

WRONG_USE: Any = typer.BadParameter.__base__
"""Click's `UsageError`, from the copy of Click in Typer."""
WORDS = "odradek.words"
"""Key of the command line's arguments in the metadata of Click's context."""
_EXTRA = re.compile(r"Got unexpected extra arguments?(?:\(s\))? \((.*)\)")


class Overview(TyperGroup):
    """Command group whose list of commands shows the whole first paragraph of their help."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # Typer has its own Click
        """Write the list of commands."""
        named = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        rows = [
            (name, " ".join((command.help or "").partition("\n\n")[0].split()))
            for name, command in named
            if command is not None and not command.hidden
        ]
        with formatter.section("Commands"):
            formatter.write_dl(rows)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments, and remember them for errors with `--json`."""
        ctx.meta.setdefault(WORDS, list(args))  # copied, because Click empties the list
        try:
            return super().parse_args(ctx, args)
        except WRONG_USE as error:
            if ctx.parent is None:
                _print_document(ctx, error.format_message())
            raise

    def invoke(self, ctx: Any) -> Any:
        """Run the command; add hints to usage errors, and print them as JSON with `--json`."""
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
    """Print a usage error as a JSON document if the command line contains `--json`."""
    if "--json" in ctx.meta[WORDS]:
        from odradek.cli.console.properties import UsageError
        from odradek.cli.frame.results import print_error

        print_error(UsageError(text))


def _explained(error: Any) -> str | None:
    """Return a usage error with a hint for users of other tools, if there is a hint."""
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

    With a `name`, the command is the whole program, which supports shell completion.
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

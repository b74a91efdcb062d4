"""Write the pages on commands from the data of `odradek COMMAND --help`.

In: the table of commands and their typer functions. Out: Markdown, a page for each command, with
all its verbs and flags. Must not: add facts that aren't in `--help`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import typer
from tools.website.api_pages import as_markdown, cell, cell_code

from odradek.cli import COMMANDS, build


def command_pages() -> dict[str, str]:
    """Return the page of each command by name, below `cli/`."""
    return {name: "\n".join(page(name)) for name in COMMANDS}


def overview() -> str:
    """Return a table of all commands, with links to their pages and with their purposes."""
    rows = [
        f"| [odradek {name}](cli/{name}.md) | {cell(one.help)} |" for name, one in COMMANDS.items()
    ]
    return "\n".join(["| command | what it does |", "|---|---|", *rows])


def page(name: str) -> Iterator[str]:
    """Yield the page of a command and its verbs."""
    top: Any = typer.main.get_command(build(name))
    command = top.commands[name]
    yield from (f"# odradek {name}", "")
    if hasattr(command, "commands"):
        yield from help_of(command)
        for verb, one in command.commands.items():
            if not one.hidden:
                yield from (f"## odradek {name} {verb}", "")
                yield from details(f"odradek {name} {verb}", one)
    else:
        yield from details(f"odradek {name}", command)


def details(name: str, command: Any) -> Iterator[str]:
    """Yield a command's usage, help, arguments and flags."""
    params = [p for p in command.params if not getattr(p, "hidden", False)]
    words = [argument(p) for p in params if p.param_type_name == "argument"]
    yield from ("```console", " ".join([name, *words, "[FLAGS]"]), "```", "")
    yield from help_of(command)
    rows = [flag(p) for p in params]
    if rows:
        yield from ("| argument or flag | meaning | default |", "|---|---|---|", *rows, "")


def help_of(command: Any) -> Iterator[str]:
    """Yield the help text: an example as a code block, the rest as paragraphs."""
    text = command.help.replace("\b", "") if command.help else ""
    for part in re.split(r"\n\s*\n", text.strip()):
        flat = " ".join(part.split())
        said, example, line = flat.partition("Example: ")
        if said:
            yield from (linked(as_markdown(said.strip())), "")
        if example:
            yield from ("```console", line, "```", "")


def linked(text: str) -> str:
    """Replace a page's path in a help text by a link to the page."""
    return re.sub(r"docs/([a-z-]+)\.md", r"[\1](../docs/\1.md)", text)


def argument(p: Any) -> str:
    """Return an argument as the usage line shows it."""
    word = f"{p.metavar or p.name.upper()}{'' if p.nargs == 1 else '...'}"
    return word if p.required or word.startswith("[") else f"[{word}]"


def flag(p: Any) -> str:
    """Return the row of a flag in the table of flags."""
    value = f" {p.metavar}" if p.metavar and p.param_type_name == "option" else ""
    names = [f"`{one}{value}`" for one in (*p.opts, *p.secondary_opts)]
    if p.param_type_name == "argument":
        names = [f"`{argument(p)}`"]
    said = p.show_default if isinstance(p.show_default, str) else p.default
    plain = isinstance(said, str | int | float) and not isinstance(said, bool) and p.show_default
    default = "required" if p.required else (cell_code(str(said)) if plain and said != "" else "")
    return f"| {', '.join(names)} | {linked(cell(p.help or ''))} | {default} |".replace("  ", " ")

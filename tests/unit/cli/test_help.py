"""Test that `--help` prints all texts unchanged, and that each subcommand has an example."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from rich.text import Text
from typer.testing import CliRunner

from odradek.cli import COMMANDS, build


def texts(command: Any) -> Iterator[str]:
    """Return the help texts of a command, its parameters and its subcommands."""
    yield command.help or ""
    for parameter in command.params:
        yield getattr(parameter, "help", None) or ""
    for one in getattr(command, "commands", {}).values():
        yield from texts(one)


@pytest.mark.parametrize("name", COMMANDS)
def test_help_texts_contain_no_rich_markup(name: str) -> None:
    """Rich removes words in square brackets, so defaults are passed as `show_default`."""
    root: Any = typer.main.get_command(build(name))
    found = list(texts(root.commands[name]))
    assert any(found)
    assert [text for text in found if Text.from_markup(text).plain != text] == []


@pytest.mark.parametrize("name", COMMANDS)
def test_help_is_not_truncated_at_80_columns(name: str) -> None:
    """Neither option names nor sentences of the overviews may be truncated."""
    root: Any = typer.main.get_command(build(name))
    shown = [[], [name], *([name, sub] for sub in getattr(root.commands[name], "commands", {}))]
    for words in shown:
        done = CliRunner().invoke(build(name), [*words, "--help"], env={"COLUMNS": "80"})
        assert done.exit_code == 0
        assert re.search(r"[a-z,]\.\.\.|[a-z]…", done.stdout) is None, done.stdout
        flat = " ".join(done.stdout.split())
        shown_ones = [p for p in _at(root, words).params if not getattr(p, "hidden", False)]
        for option in [o for p in shown_ones for o in p.opts if o.startswith("--")]:
            assert option in flat, option


OF_FRAME = {"command_property", "registry_property"}
"""Parameters that identify a command as one of `cli.frame`."""


def verbs() -> dict[str, Any]:
    """Return Click's commands of all subcommands of `cli.frame` by name, such as "topics list"."""
    found = {}
    for name in COMMANDS:
        root: Any = typer.main.get_command(build(name))
        for verb, command in getattr(root.commands[name], "commands", {}).items():
            if OF_FRAME & {p.name for p in command.params}:
                found[f"{name} {verb}"] = command
    return found


EVERY_VERB = verbs()
ROOT = Path(__file__).resolve().parents[3]


def test_at_least_twenty_subcommands_are_tested() -> None:
    assert len(EVERY_VERB) >= 20


@pytest.mark.parametrize("verb", EVERY_VERB)
def test_the_help_of_each_subcommand_has_a_valid_example(verb: str) -> None:
    command = EVERY_VERB[verb]
    example = " ".join((command.help or "").rpartition("Example: odradek ")[2].split())
    words = shlex.split(example)
    assert words[:2] == verb.split(), "its help needs a paragraph `Example: odradek …`"
    command.make_context(verb, words[2:])  # raises if the example has a wrong flag


def test_each_subcommand_is_mentioned_on_a_page() -> None:
    pages = "".join(page.read_text() for page in (ROOT / "docs").glob("*.md"))
    assert [verb for verb in EVERY_VERB if f"odradek {verb}" not in pages] == []


def _at(root: Any, words: list[str]) -> Any:
    for word in words:
        root = root.commands[word]
    return root

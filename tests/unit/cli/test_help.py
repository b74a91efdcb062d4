"""`--help` of every command: texts come out as they are written."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
import typer
from rich.text import Text
from typer.testing import CliRunner

from odradek.cli import COMMANDS, build


def texts(command: Any) -> Iterator[str]:
    """The help of a command, of its parameters and of the commands below it."""
    yield command.help or ""
    for parameter in command.params:
        yield getattr(parameter, "help", None) or ""
    for one in getattr(command, "commands", {}).values():
        yield from texts(one)


@pytest.mark.parametrize("name", COMMANDS)
def test_no_text_is_taken_for_markup(name: str) -> None:
    """Rich leaves words in square brackets out: a default is given as `show_default`."""
    root: Any = typer.main.get_command(build(name))
    found = list(texts(root.commands[name]))
    assert any(found)
    assert [text for text in found if Text.from_markup(text).plain != text] == []


@pytest.mark.parametrize("name", COMMANDS)
def test_nothing_is_cut_at_80_columns(name: str) -> None:
    """Neither names of options nor the sentences of the overviews."""
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


def _at(root: Any, words: list[str]) -> Any:
    for word in words:
        root = root.commands[word]
    return root

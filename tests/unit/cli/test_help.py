"""`--help` of every command: texts come out as they are written."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import typer
from rich.text import Text

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

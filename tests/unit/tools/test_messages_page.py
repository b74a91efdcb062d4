"""docs/messages.md has every text that a user can see."""

from __future__ import annotations

import ast

import pytest
from tools import messages_page


def texts(source: str, *, commands: bool = False) -> list[tuple[str, str]]:
    visitor = messages_page.Texts(commands)
    visitor.visit(ast.parse(source))
    return visitor.found


@pytest.mark.slow
def test_the_page_is_up_to_date_and_every_area_has_texts() -> None:
    assert messages_page.PAGE.read_text() == messages_page.page(), "run tools/messages_page.py"

    assert set(messages_page.by_area()) == set(messages_page.AREAS)


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ('raise KafkaError(f"no {what!r} " "here")', [("KafkaError", "no {what} here")]),
        ('raise KafkaError("a" + b)', [("KafkaError", "a{b}")]),
        ('logger.warning("%s: %.1f s", name, age)', [("log warning", "{name}: {age} s")]),
        ('logger.info("%s: %s", *(name, age))', [("log info", "{name}: {age}")]),
        ('logger.info("lost %s", "1 row" if one else "the rows of it")',
         [("log info", "lost {'1 row' if one else 'the rows of it'}"), ("", "the rows of it")]),
        ('said = "two words"; key = "one"', [("", "two words")]),
        ('def f():\n    """A docstring of f."""\n    assert x, AssertionError("a bug")', []),
    ],
)  # fmt: skip
def test_texts_of_code(source: str, found: list[tuple[str, str]]) -> None:
    assert texts(source) == found


def test_help_of_commands() -> None:
    source = (
        '@app.command("list")\n'
        'def listing(n: Annotated[int, Option(help="How many.")]) -> None:\n'
        '    """List the topics."""\n'
    )
    assert texts(source) == []
    assert texts(source, commands=True) == [("help", "List the topics."), ("help", "How many.")]

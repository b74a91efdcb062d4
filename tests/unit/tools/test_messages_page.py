"""docs/messages.md lists every text that a user can see."""

from __future__ import annotations

import ast

import pytest
from tools import messages_page


def texts(source: str, path: str = "clients/x.py") -> list[tuple[str, str]]:
    visitor = messages_page.Texts(path)
    visitor.visit(ast.parse(source))
    return visitor.found


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ('raise KafkaError(f"no {what!r} " "here")', [("KafkaError", "no {what} here")]),
        ('raise KafkaError("a" + b)', [("KafkaError", "a{b}")]),
        ('logger.warning("%s: %.1f s", name, age)', [("log warning", "{name}: {age} s")]),
        ('logger.info("%s: %s", *(name, age))', [("log info", "{name}: {age}")]),
        ('logger.info("lost %s", "1 row" if one else "the rows of it")',
         [("log info", "lost [1 row|the rows of it]"), ("part", "the rows of it")]),
        ('raise KafkaError(f"{counted(len(a), \'topic\')}: {\', \'.join(a.names)}{b and c(d._e)}")',
         [("KafkaError", "{n} topics: {names}{b}")]),
        ('raise KafkaError(f"{near(a)} {self.cure(a, b)} {text.strip()} {a - b} s {len(a)}")',
         [("KafkaError", "{a} {cure} {text} {n} s {n}")]),
        ('raise KafkaError(f"a {type(error).__name__} here")', [("KafkaError", "a {class} here")]),
        ('said = "all three words"; key = "two words"', [("part", "all three words")]),
        ('said = "This is whole."', [("", "This is whole.")]),
        ('def f():\n    """A docstring of f."""\n    assert x, AssertionError("a bug")', []),
    ],
)  # fmt: skip
def test_messages_to_users_are_found_in_source_code(
    source: str, found: list[tuple[str, str]]
) -> None:
    assert texts(source) == found


@pytest.mark.parametrize(
    "source",
    [
        'style = "bold red"',
        'xml = f"<rect x={left}/> and more"',
        'columns = "time double, host string"',
        'script = """#!/bin/sh\nexec java now\n"""',
        'file = """these are\nthe lines\nof a file\nwith text"""',
        'if text == "some words here" or text in ("more words", "even more"): pass',
        'known["some words here"] = {"more words here": 1}',
        're.compile("some words here").match(text).get("other words")',
        'match text:\n    case "some words here": pass',
        'raise RuntimeError("a completion was completed twice")',
    ],
)
def test_internal_messages_are_not_listed(source: str) -> None:
    assert texts(source) == []


def test_builtin_errors_are_listed_for_public_modules() -> None:
    source = 'raise RuntimeError("the cluster is already open")'
    assert texts(source, "testing/x.py") == [("RuntimeError", "the cluster is already open")]


def test_help_texts_of_commands_are_listed() -> None:
    source = (
        '@app.command("list")\n'
        'def listing(n: Annotated[int, Option(help="How many.")]) -> None:\n'
        '    """List the topics."""\n'
    )
    assert texts(source) == []
    assert texts(source, "cli/x.py") == [("help", "List the topics."), ("help", "How many.")]

"""Every public class and error is importable from `odradek`, and importing it stays light."""

from __future__ import annotations

import ast
from typing import Any, Literal, get_args, get_origin, get_type_hints

import pytest
from tests.source_trees import PACKAGE as SOURCE
from tests.source_trees import parsed
from tests.unit.tools.loading import load_tool

import odradek
from odradek.common.config import OPTIONS, Config

INSIDE = {
    "AgainError": "a lookup of offsets that is made again",
    "LeftOutError": "an attempt that failed; it stands in another error's list of attempts",
    "EmptyAnswerError": "an attempt that failed; it stands in another error's list of attempts",
    "ForeignAnswerError": "an answer that is dropped",
    "NoAnswerError": "what a registry's client makes its own errors of",
    "SchemaNotAtHandError": "a schema that a thread fetches while an event loop goes on",
    "PollOverdueError": "the reason that a member is told to leave for",
}
"""Errors that no call of a user's raises, each with what it is for."""
ROOMS_OF_THEIR_OWN = ("cli", "compat", "simulation", "testing")
"""Commands print their errors, and the others' are importable from their own rooms."""


def test_every_listed_name_is_there() -> None:
    assert len(set(odradek.__all__)) == len(odradek.__all__) > 200
    assert sorted(odradek.__all__) == dir(odradek)
    for name in odradek.__all__:
        found = getattr(odradek, name)
        assert name == "__version__" or found.__name__ == name
    assert issubclass(odradek.NoSuchOffsetError, odradek.OffsetOutOfRangeError)


def errors_in_the_sources() -> set[str]:
    """All classes that are a `KafkaError`, through others or themselves."""
    bases: dict[str, set[str]] = {}
    for path in SOURCE.rglob("*.py"):
        if path.relative_to(SOURCE).parts[0] in ROOMS_OF_THEIR_OWN:
            continue
        for node in parsed(path).body:
            if isinstance(node, ast.ClassDef):
                bases[node.name] = {b.id for b in node.bases if isinstance(b, ast.Name)}
    found = {"KafkaError"}
    while more := {name for name, above in bases.items() if above & found} - found:
        found |= more
    return {name for name in found if not name.startswith("_")}


@pytest.mark.slow
def test_every_error_is_listed() -> None:
    errors = errors_in_the_sources()
    assert len(errors) > 180
    assert {"KafkaError", "LogTruncationError", "DataLossError", "SinkRowError"} <= errors
    assert errors - set(odradek.__all__) == set(INSIDE)


def test_what_is_not_there_is_an_attribute_error() -> None:
    for name in ("Consumers", "NoSuchThingError"):
        with pytest.raises(AttributeError, match=name):
            getattr(odradek, name)


@pytest.mark.parametrize("tool", ["generate_front", "generate_asyncio"])
def test_generated_modules_are_what_their_tool_writes(tool: str) -> None:
    for path, text in load_tool(tool).files().items():
        assert path.read_text() == text, f"run tools/{tool}.py: {path.name} is old"


def test_the_stub_has_these_names_and_no_others() -> None:
    tree = ast.parse((SOURCE / "__init__.pyi").read_text())
    names = {a.name for n in tree.body if isinstance(n, ast.ImportFrom) for a in n.names}
    assert names | {"__version__"} == set(odradek.__all__)
    assert not [node for node in tree.body if isinstance(node, ast.FunctionDef)]


KINDS = {
    "producer": odradek.ProducerOptions,
    "consumer": odradek.ConsumerOptions,
    "admin": odradek.AdminOptions,
}


@pytest.mark.parametrize("client", KINDS)
def test_the_types_name_every_option_of_a_client(client: str) -> None:
    theirs = {o.name.replace(".", "_") for o in OPTIONS.values() if client in o.clients}
    assert set(get_type_hints(KINDS[client])) == theirs


def fixed_values(kind: Any) -> list[Any]:
    if get_origin(kind) is Literal:
        return list(get_args(kind))
    return [value for part in get_args(kind) for value in fixed_values(part)]


@pytest.mark.parametrize("client", KINDS)
def test_every_value_that_a_type_lists_is_taken(client: str) -> None:
    listed = 0
    for name, kind in get_type_hints(KINDS[client]).items():
        option = OPTIONS[name.replace("_", ".")]
        for value in fixed_values(kind):
            option.parse(option.name, value)
            listed += 1
    assert listed > 20


def test_the_types_take_what_clients_take() -> None:
    options: odradek.ProducerOptions = {"bootstrap_servers": ["h:1", "h:2"], "acks": "all"}
    assert Config("producer", options)["acks"] == -1

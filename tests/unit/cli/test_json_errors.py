"""Test that each command prints usage errors as a JSON document if `--json` is given."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from odradek import cli


@cache
def program(name: str) -> typer.Typer:
    return cli.build(name)


def leaves(command: Any, words: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    for name, one in getattr(command, "commands", {}).items():
        yield from leaves(one, (*words, name))
    if any("--json" in one.opts for one in command.params):
        yield words


def commands() -> Iterator[tuple[str, ...]]:
    for name in cli.COMMANDS:
        root: Any = typer.main.get_command(program(name))
        yield from leaves(root.commands[name], (name,))


def refusal(*words: str) -> str:
    result = CliRunner().invoke(program(words[0]), [*words, "--json"])
    assert result.exit_code == 2, result.stderr
    (line,) = result.stdout.splitlines()
    document = json.loads(line)
    assert document.keys() == {"failed", "error"}
    assert document["error"]["error"] in ("UsageError", "SpecError", "KafkaError")
    return str(document["error"]["message"])


@pytest.mark.parametrize("words", list(commands()), ids=" ".join)
def test_an_unknown_flag_is_reported_as_a_json_document(words: tuple[str, ...]) -> None:
    assert refusal(*words, "--nope").startswith("No such option: --nope")


def test_json_before_the_command_is_reported_as_a_json_document() -> None:
    result = CliRunner().invoke(cli.build("topics"), ["--json", "topics", "list"])
    assert result.exit_code == 2
    assert "No such option: --json" in json.loads(result.stdout)["error"]["message"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("consume", "use --topic or --include"),
        ("produce", "use --topic TOPIC"),
        ("produce --topic a --command-config missing.properties", "can't be read"),
        ("options no.such.option", "unknown option 'no.such.option'"),
        ("pipeline plan missing.yaml", "missing.yaml can't be read"),
        ("pipeline run missing.yaml", "missing.yaml can't be read"),
        ("pipeline resolve", ""),
        ("demo --seed 1", "--seed needs --simulated"),
        ("cluster start --topics a", "--topics needs --simulated"),
        ("cluster start --version 1", "1"),
        ("simulate explore", "use --seconds or --seeds"),
        ("events tables", "use either a folder or --topic"),
        ("produce flights", "a topic needs its flag: --topic flights"),
        ("topics nope", "No such command 'nope'"),
        ("nope", "No such command 'nope'"),
    ],
)
def test_invalid_arguments_are_reported_as_a_json_document(words: str, message: str) -> None:
    assert message in refusal(*words.split())

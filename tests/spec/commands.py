"""Client type and configuration that a command line of the console tools results in."""

from __future__ import annotations

import shlex
from typing import Any

import typer
from typer.main import get_command

from odradek.cli.brokers import broker_api_versions
from odradek.cli.console import consume, produce
from odradek.common.config import ADMIN, CONSUMER, PRODUCER

TOOLS: dict[str, tuple[Any, Any, str]] = {
    "produce": (produce.produce, produce.config_of, PRODUCER),
    "consume": (consume.consume, consume.config_of, CONSUMER),
    "broker-api-versions": (
        broker_api_versions.broker_api_versions,
        lambda params: broker_api_versions.settings_of(params).given,
        ADMIN,
    ),
}


def client_of(command: str) -> dict[str, Any]:
    """Return the `client` and the `config` that a command line of odradek results in."""
    program, tool, *words = shlex.split(command)
    assert program == "odradek", f"not our command: {command}"
    function, config_of, client = TOOLS[tool]
    return {"client": client, "config": config_of(parameters(function, words))}


def parameters(function: Any, words: list[str]) -> dict[str, Any]:
    """Return the parameters of a command's function as parsed from the command line."""
    app = typer.Typer(add_completion=False)
    app.command()(function)
    parsed: dict[str, Any] = get_command(app).make_context("odradek", words).params
    return parsed

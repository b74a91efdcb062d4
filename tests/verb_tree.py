"""List the subcommands of the program's cluster commands."""

from __future__ import annotations

from collections.abc import Iterator

import typer

from odradek.cli import build

COMMANDS = (
    *("topics", "partitions", "configs", "groups", "offsets", "acls", "users", "quotas"),
    *("transactions", "cluster", "logdirs"),
)
OF_LOCAL_CLUSTERS = {"cluster start", "cluster status", "cluster stop"}
"""Subcommands that start brokers on this machine and send no requests to a cluster."""


def verbs() -> dict[str, bool]:
    """Return each subcommand as typed, and whether it changes something."""
    return dict(_each())


def _each() -> Iterator[tuple[str, bool]]:
    for name in COMMANDS:
        top = typer.main.get_command(build(name))
        (found,) = [c for n, c in top.commands.items() if n == name]  # type: ignore[attr-defined]
        for verb, command in found.commands.items():
            if f"{name} {verb}" not in OF_LOCAL_CLUSTERS:
                yield f"{name} {verb}", any(p.name == "dry_run" for p in command.params)

"""`odradek version`: which Odradek, Python and Kafka this is.

In: nothing. Out: one line, or JSON. Must not: fail because a part is missing.
"""

from __future__ import annotations

import importlib.metadata
import json as jsonlib
import platform
from typing import Annotated

import typer

from odradek.testing.jars import DEFAULT_VERSION


def version(
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Print the version of Odradek, and of the Kafka that `odradek cluster` starts by default."""
    found = {
        "odradek": importlib.metadata.version("odradek"),
        "python": platform.python_version(),
        "kafka": DEFAULT_VERSION,
    }
    if json:
        typer.echo(jsonlib.dumps(found))
    else:
        typer.echo(f"odradek {found['odradek']} (Python {found['python']}, Kafka {found['kafka']})")

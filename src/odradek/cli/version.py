"""`odradek version`: versions of Odradek, Python and Kafka, and the record kernel in use.

In: nothing. Out: the output of `version_text`. Must not: fail because a part is missing.
"""

from __future__ import annotations

from typing import Annotated

import typer

from odradek.cli.version_text import print_version


def version(
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Print the version, the record kernel, and the Kafka version of `odradek cluster`."""
    print_version(json=json)

"""`odradek version`: which Odradek, Python and Kafka this is, and what decodes its records.

In: nothing. Out: what `version_text` prints. Must not: fail because a part is missing.
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

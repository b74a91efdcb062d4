"""The command `odradek`, and `python -m odradek`, where its extra is installed."""

from __future__ import annotations

import sys

from odradek.common.errors import MissingExtraError
from odradek.common.imports import loaded


def main() -> None:
    """Run the command line, or say what to install for it (exit status 1)."""
    try:
        loaded("typer", "rich")
    except MissingExtraError as error:
        sys.exit(f"odradek: {error}")
    from odradek.cli import main as run

    run()


if __name__ == "__main__":
    main()

"""The command `odradek`, and `python -m odradek`, where its extra is installed.

The simulated demo and `--version` need none.
"""

from __future__ import annotations

import sys

from odradek.common.errors import MissingExtraError
from odradek.common.extras import require_extra


def main() -> None:
    """Run the command line; without its extra, run `--version` or the simulated demo.

    All other commands print which extra to install (exit status 1).
    """
    try:
        require_extra("typer", "rich")
        from odradek.cli import main as run
    except KeyboardInterrupt:  # interrupted during the import
        sys.exit(130)
    except MissingExtraError as error:
        from odradek.cli.demo import minimal_demo
        from odradek.cli.version_text import SPELLINGS, print_version

        if sys.argv[1:] in SPELLINGS:
            print_version(json="--json" in sys.argv)
            return
        if (given := minimal_demo.asked(sys.argv[1:])) is not None:
            sys.exit(minimal_demo.run(given))
        sys.exit(f"odradek: {error}")
    run()


if __name__ == "__main__":
    main()

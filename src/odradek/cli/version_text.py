"""The text of `odradek version`, which needs neither typer nor rich.

In: nothing. Out: one line, or JSON; a warning on stderr if records are processed in pure Python.
Must not: fail because a part is missing.
"""

from __future__ import annotations

import importlib.metadata
import json as jsonlib
import platform
import sys

from odradek import record
from odradek.testing.jars import DEFAULT_VERSION

SPELLINGS = (["--version"], ["version"], ["version", "--json"])
"""Arguments that print the version."""


def print_version(*, json: bool) -> None:
    """Print the version, the record kernel, and the Kafka version of `odradek cluster`."""
    warning = record.kernel_warning() if record.KERNEL == "python" else None
    if record.KERNEL == "python" and warning is None:
        warning = (
            "ODRADEK_KERNEL=python: records are encoded and decoded in pure Python, many "
            "times slower. Unset it to use the native kernel."
        )
    found = {
        "odradek": importlib.metadata.version("odradek"),
        "python": platform.python_version(),
        "kafka": DEFAULT_VERSION,
        "kernel": record.KERNEL,
    }
    if json:
        print(jsonlib.dumps(found | {"warning": warning}))
        return
    print(
        f"odradek {found['odradek']} (Python {found['python']}, Kafka {found['kafka']}, "
        f"{found['kernel']} record kernel)"
    )
    if warning:
        print(f"warning: {warning}", file=sys.stderr)

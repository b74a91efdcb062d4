"""Check the output in docs/doctor.md; `ODRADEK_WRITE_DOCS=1` rewrites it."""

from __future__ import annotations

import os
import re
import textwrap
from pathlib import Path

from typer.testing import CliRunner

from odradek.cli import build

PAGE = Path(__file__).parents[2] / "docs" / "doctor.md"
WIDTH = 100
BLOCK = "<!-- {name} -->\n```console\n"
LOOPBACK = ("refused", "advertised", "container", "another network", "topic", "nothing")
SECURED = ("no tls", "password", "trust", "permissions")
"""Names of the page's examples that need a real broker; the others are in `LOOPBACK`."""


def example_names() -> list[str]:
    """Return the names of the page's examples in their order."""
    return re.findall(r"<!-- ([\w ]+) -->\n```console", PAGE.read_text())


def check_example(name: str, words: list[str], told: dict[str, str]) -> None:
    """Check an example of the page; `told` maps real values to the values on the page."""
    done = CliRunner().invoke(build("doctor"), ["doctor", *words])
    said = done.stdout.partition("\n step ")[0].rstrip()
    lines = [
        f"$ odradek doctor {' '.join(words)}",
        *said.splitlines(),
        f"exit status {done.exit_code}",
    ]
    text = "\n".join(lines)
    for came, stands in told.items():
        text = text.replace(came, stands)
    made = "\n".join(  # the options of a command are not split at hyphens
        textwrap.fill(line, WIDTH, break_on_hyphens=False) if line else ""
        for line in text.splitlines()
    )
    page = PAGE.read_text()
    head = BLOCK.format(name=name)
    before, _, after = page.partition(head)
    shown, _, rest = after.partition("```\n")
    if os.environ.get("ODRADEK_WRITE_DOCS"):
        PAGE.write_text(f"{before}{head}{made}\n```\n{rest}")
    else:
        assert shown.split() == made.split(), f"{name}: ODRADEK_WRITE_DOCS=1 writes it again"

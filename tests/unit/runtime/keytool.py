"""Run Java's keytool, which creates key stores and trust stores for tests."""

from __future__ import annotations

import subprocess

from tests.time_limits import HANG_S

from odradek.testing.java import java_home


def keytool(*words: str) -> None:
    subprocess.run(
        [java_home() / "bin" / "keytool", *words, "-noprompt"],
        check=True,
        capture_output=True,
        timeout=HANG_S,
    )

"""Run the benchmark driver `aiokafka_driver` with odradek.compat.aiokafka in aiokafka's place."""

from __future__ import annotations

import runpy
from pathlib import Path

from odradek.compat import install

if __name__ == "__main__":
    install("aiokafka")
    runpy.run_path(str(Path(__file__).with_name("aiokafka_driver.py")), run_name="__main__")

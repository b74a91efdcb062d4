"""Run the benchmark driver `confluent_driver` with odradek's module in confluent_kafka's place."""

from __future__ import annotations

import runpy
from pathlib import Path

from odradek.compat import install

if __name__ == "__main__":
    install("confluent_kafka")
    runpy.run_path(str(Path(__file__).with_name("confluent_driver.py")), run_name="__main__")

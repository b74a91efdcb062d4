"""Describe the circumstances of a measurement: machine, versions, settings.

In: the options of a call. Out: plain data for the JSON file.
"""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from odradek.record import KERNEL

ROOT = Path(__file__).resolve().parent.parent


def sitting(options: argparse.Namespace) -> dict[str, Any]:
    """Describe one call of the benchmark, a sitting; ratios are only comparable within a call."""
    now = datetime.now(UTC)
    return {
        "id": now.strftime("%Y-%m-%d %H:%M:%S"),
        "commit": _commit(),
        "kernel": KERNEL,
        "records": options.records,
        "runs": options.runs,
        "cpus": options.cpus,
        "batch_size": options.batch_size,
        "machine": machine(),
        "packages": {name: _version(name) for name in ("odradek", "pyarrow")},
    }


def machine() -> dict[str, Any]:
    """Describe the machine and its load."""
    model = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.is_file():
        names = [x for x in info.read_text().splitlines() if x.startswith("model name")]
        model = names[0].partition(":")[2].strip() if names else model
    return {
        "cpu": model,
        "cores": os.cpu_count(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "load": round(os.getloadavg()[0], 1),
    }


def _commit() -> str:
    """Return the commit's id, with a + if tracked files have changed since that commit."""
    done = subprocess.run(
        ["git", "describe", "--always", "--dirty=+"],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    return done.stdout.strip() or "unknown"


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"

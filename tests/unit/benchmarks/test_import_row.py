"""The import benchmark measures all modules a client needs: creating a client loads no more."""

from __future__ import annotations

import subprocess
import sys

import pytest
from benchmarks.rows import ALL_OF_OURS
from tests.time_limits import HANG_S

MADE = """
import importlib, sys
for module in sys.argv[1:]:
    importlib.import_module(module)
before = set(sys.modules)
from odradek import Consumer, Producer
nowhere = {"bootstrap.servers": "127.0.0.1:1"}
Producer(nowhere).close()
Consumer({**nowhere, "group.id": "g"}).close()
print(*(name for name in set(sys.modules) - before if name.startswith("odradek")))
"""


@pytest.mark.slow
def test_creating_a_client_loads_no_further_modules() -> None:
    done = subprocess.run(
        [sys.executable, "-c", MADE, *ALL_OF_OURS.split()],
        capture_output=True, text=True, check=True, timeout=HANG_S,
    )  # fmt: skip
    assert done.stdout.split() == []

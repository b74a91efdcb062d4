"""Run `odradek demo` itself with a part of the data, with TLS, a password and asyncio's clients.

Without TLS the steps are the same, except for the cluster's start. The asyncio consumer has to read
all rows in addition to Spark.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tests.time_limits import HANG_S

pytestmark = pytest.mark.spark

ROWS = 6000


@pytest.mark.long  # shorter tests: unit/cli/test_demo.py, test_outages.py
@pytest.mark.timeout(600)
def test_a_small_demo_succeeds(tmp_path: Path) -> None:
    output = tmp_path / "demo"
    command = [str(Path(sys.executable).with_name("odradek")), "demo", "--json"]
    command += [
        "--secure",
        "--asyncio",
        "--rows",
        str(ROWS),
        "--seconds",
        "14",
        "--output",
        str(output),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=HANG_S)
    assert done.returncode == 0, done.stderr[-4000:]
    result = json.loads(done.stdout.splitlines()[-1])
    assert result == json.loads((output / "result.json").read_text())
    assert (result["rows_sent"], result["rows_landed"]) == (ROWS, ROWS)
    assert (result["lost"], result["duplicated"]) == (0, 0)
    assert result["matches_reference"] is True
    assert result["rebootstraps"] >= 1
    assert "they speak SASL_SSL" in done.stderr
    assert "demo-producer and demo-consumer run in one event loop" in done.stderr
    for name in ("outage_s", "producer_recovery_s", "source_recovery_s"):
        assert result[name] >= 0, name
    assert "</svg>" in (output / "demo.svg").read_text()

"""Run the programs of `examples` that end by themselves; they print what their READMEs show."""

from __future__ import annotations

import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from odradek.testing import FakeCluster

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
PATIENCE = 60.0


def shown(example: str) -> str:
    """Return the output that the README shows."""
    text = (EXAMPLES / example / "README.md").read_text()
    [block] = re.findall(r"```text\n(.*?)```", text, re.DOTALL)
    return str(block)


def printed(fake: FakeCluster, example: str, program: str, **more: str) -> str:
    done = subprocess.run(
        [sys.executable, program],
        cwd=EXAMPLES / example,
        env={**os.environ, "KAFKA": fake.bootstrap_servers, **more},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


@pytest.mark.parametrize(
    ("example", "program"), [("polars", "delays.py"), ("duckdb", "flights.py")]
)
def test_the_data_frame_examples_read_flights_and_write_delays(example: str, program: str) -> None:
    with FakeCluster(brokers=1, topics={f"{example}-flights": 2, f"{example}-delays": 1}) as fake:
        assert printed(fake, example, program) == shown(example)
        values = [row[4] or b"" for row in fake.records(f"{example}-delays")]
    assert len(values) == 3
    assert b'"airline":"AA","flights":2,"mean":8.0}' in values[0]


def test_the_compose_example_prints_what_its_readme_shows() -> None:
    with FakeCluster(brokers=3) as fake:
        assert printed(fake, "compose", "clock.py", TICKS="3") == shown("compose")
        assert sum(len(fake.records("clock", n)) for n in range(3)) == 3


@pytest.mark.parametrize("example", ["msk", "event_hubs"])
def test_a_cloud_vendors_example_prints_what_its_readme_shows(
    example: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with FakeCluster(brokers=1, topics={"orders": 2}) as fake:
        program = runpy.run_path(str(EXAMPLES / example / "orders.py"))
        here = {"bootstrap.servers": fake.bootstrap_servers}
        monkeypatch.setitem(program["main"].__globals__, "settings", lambda _: here)
        for _ in range(2):  # the second run skips the older records
            program["main"]()
            assert capsys.readouterr().out == shown(example)

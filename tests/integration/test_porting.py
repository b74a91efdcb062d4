"""Run programs for other clients and their ports on one cluster; both print the same."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.time_limits import HANG_S

from odradek.testing import LocalCluster

PROGRAMS = Path(__file__).parents[2] / "examples" / "porting"


def output(program: str, *arguments: str) -> Any:
    """Return the output of a program."""
    done = subprocess.run(
        [sys.executable, str(PROGRAMS / f"{program}.py"), *arguments],
        capture_output=True,
        text=True,
        timeout=HANG_S,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize(
    ("before", "after", "topics", "expected"),
    [
        (
            "confluent_kafka_orders",
            "odradek_orders",
            ["orders"],
            {"written": 300, "assigned": 3, "cents": 25 * 299 * 150},
        ),
        ("kafka_python_clicks", "odradek_clicks", ["clicks"], {f"/{n}": 100 for n in range(5)}),
        (
            "aiokafka_payments",
            "odradek_payments",
            ["payments", "receipts"],
            {"receipts": 120, "cents": 119 * 60},
        ),
    ],
)
def test_a_port_prints_the_same_as_the_original(
    cluster: LocalCluster, before: str, after: str, topics: list[str], expected: Any
) -> None:
    for program in (before, after):
        own = [f"{program}-{topic}" for topic in topics]
        for topic in own:
            cluster.create_topic(topic, partitions=3)
        assert output(program, cluster.bootstrap_servers, *own) == expected

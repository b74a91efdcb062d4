"""The README's Spark snippet runs as printed, but for the address, in a program of its own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import odradek.spark

if TYPE_CHECKING:
    from tests.spark.conftest import Topics

    from odradek.testing import LocalCluster

README = Path(__file__).parents[2] / "README.md"


def test_the_spark_snippet_in_a_venv_that_is_not_activated(
    cluster: LocalCluster, topics: Topics
) -> None:
    """As `.venv/bin/python script.py`: only the snippet says which Python workers run."""
    topics.create(partitions=2, name="flights")
    topics.fill("flights", [(b"N%d" % n, b"JFK") for n in range(30)])
    pattern = r"<!-- snippet: spark -->\n```python\n(.*?)```"
    found = re.search(pattern, README.read_text(), re.DOTALL)
    assert found is not None
    text = found[1].replace("localhost:9092", cluster.bootstrap_servers)
    ours = {"PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "VIRTUAL_ENV", "PYTHONPATH"}
    environment = {name: value for name, value in os.environ.items() if name not in ours}
    here = str(Path(sys.executable).parent)
    path = [p for p in environment["PATH"].split(os.pathsep) if p != here]
    environment["PATH"] = os.pathsep.join(path)
    done = subprocess.run(
        [sys.executable, "-c", text], env=environment, capture_output=True, text=True, timeout=180
    )
    assert done.returncode == 0, done.stderr[-3000:]
    table = re.findall(r"\|\s+(\d)\|\s+(\d+)\|", done.stdout)
    assert dict(table) == {"0": "15", "1": "15"}


def test_the_class_that_the_snippet_names_is_there() -> None:
    assert "spark.dataSource.register(odradek.spark.KafkaDataSource)" in README.read_text()
    assert "KafkaDataSource" in dir(odradek.spark)
    assert odradek.spark.KafkaDataSource.name() == "odradek"

"""The README's Spark snippet runs as printed, but for the address, in the session that runs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from tests.spark.conftest import Topics

    from odradek.testing import LocalCluster

README = Path(__file__).parents[2] / "README.md"


def test_the_spark_snippet(
    spark: SparkSession,
    cluster: LocalCluster,
    topics: Topics,
    capsys: pytest.CaptureFixture[str],
) -> None:
    topics.create(partitions=2, name="flights")
    topics.fill("flights", [(b"N%d" % n, b"JFK") for n in range(30)])
    pattern = r"<!-- snippet: spark -->\n```python\n(.*?)```"
    found = re.search(pattern, README.read_text(), re.DOTALL)
    assert found is not None
    text = found[1].replace("localhost:9092", cluster.bootstrap_servers)
    exec(compile(text, "README.md", "exec"), {})  # noqa: S102 - our own text
    table = re.findall(r"\|\s+(\d)\|\s+(\d+)\|", capsys.readouterr().out)
    assert dict(table) == {"0": "15", "1": "15"}
    spark.catalog.dropTempView("seen")

"""Run the query of `examples/spark_kubernetes/copy_orders.py` twice, without Kubernetes."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.interop.other_client import read_all

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from tests.spark.conftest import Topics

    from odradek.testing import LocalCluster

PROGRAM = Path(__file__).parents[2] / "examples/spark_kubernetes/copy_orders.py"


def test_large_orders_are_copied_once(
    spark: SparkSession,
    cluster: LocalCluster,
    topics: Topics,
    options: dict[str, str],
    tmp_path: Path,
) -> None:
    program: dict[str, Any] = runpy.run_path(str(PROGRAM))
    orders, large = topics.create(partitions=2), topics.create(partitions=1)
    strange = [
        b"tea",
        b"",
        b"\xff",
        None,
    ]  # a value that fails the query would fail the next run too
    topics.fill(orders, [(None, value) for value in strange])
    for start in (90, 190):  # the second run resumes from the first run's checkpoint
        topics.fill(orders, [(None, b"%d" % cents) for cents in range(start, start + 20)])
        rows = program["large_orders"](spark, options, orders)
        query = program["write"](rows, options, large, str(tmp_path / "state"), availableNow=True)
        assert query.awaitTermination(60)
    found = read_all(cluster.librdkafka_config(), large, 1)
    values = sorted(int(row.value or b"") for rows in found.values() for row in rows)
    assert values == [*range(100, 110), *range(190, 210)]

"""Check that filters select the same rows whether or not Spark pushes them down.

Spark 4.2 and 4.3 keep one plan for all queries over a frame, so with them the number of tasks
doesn't change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSourceReader

from odradek.spark.driver.pushdown import LIMITS

from .conftest import Topics, numbered

SETTING = "spark.sql.python.filterPushdown.enabled"


@pytest.fixture(params=["true", "false"])
def pushed(request: pytest.FixtureRequest, spark: SparkSession) -> Iterator[bool]:
    spark.conf.set(SETTING, request.param)
    yield request.param == "true"
    spark.conf.unset(SETTING)


@pytest.mark.timeout(600)
def test_filters_return_the_same_rows_with_and_without_pushdown(
    topics: Topics, read: Callable[..., DataFrame], pushed: bool
) -> None:
    topic = topics.create(3, retention_ms="-1")
    for second in (1000, 2000):
        topics.fill(topic, numbered(second, second + 99), 3, timestamp=second * 1000)

    def found(where: str) -> list[int]:
        rows = read(topic, "value binary, topic string, partition int, offset bigint").where(where)
        assert rows.rdd.getNumPartitions() == (
            1 if pushed and hasattr(DataSourceReader, LIMITS) else 3
        )
        return sorted(int(row.value) for row in rows.collect())

    first = [n for n in range(1000, 1099) if (n - 1000) % 3 == 1]
    where = f"topic = '{topic}' AND partition IN (1) AND offset BETWEEN 10 AND 12"
    assert found(where) == first[10:13]
    assert found(where + f" AND value = '{first[11]}'") == [
        first[11]
    ]  # the last filter is applied by Spark
    young = read(topic).where("timestamp >= '1970-01-01 00:33:20'")  # 2,000 s after 1970
    assert sorted(int(row.value) for row in young.collect()) == list(range(2000, 2099))

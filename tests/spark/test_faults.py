"""A pipeline whose driver and executors die: the short form of `make soak-spark`.

Topic → exactly-once topic → exactly-once Parquet, on executors that are processes of their own.
At the end every record is counted, by confluent-kafka and by plain Spark. Moves of the cluster:
`test_demo` and `test_pipelines`.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.soak.spark_soak import SparkPlan, SparkSoak
from tests.spark.class_archives import java_options

from odradek.testing import LocalCluster

pytestmark = pytest.mark.timeout(900)  # 60 s on a quiet machine


def test_every_record_is_there_exactly_once_whatever_dies(tmp_path: Path) -> None:
    plan = SparkPlan(
        faults=2,
        folder=tmp_path,
        seed=12,
        kinds=("executor", "driver"),  # test_sink has tasks, test_outages has brokers
        master="local-cluster[1,2,1024]",
        settings={"spark.executor.extraJavaOptions": java_options()},
        partitions=2,
        every="500 milliseconds",
        quiet=(0.1, 0.5),
        away=(0.2, 1.0),
        hurry=0.4,
    )
    with LocalCluster(brokers=3) as cluster:
        report = SparkSoak(cluster, plan, print).run()
    assert report.failures == []
    assert report.faults == dict.fromkeys(plan.kinds, 1)
    counts = set(report.records.values())
    assert len(counts) == 1, report.records
    assert counts.pop() > 500

"""Test a pipeline whose executor dies: a short version of `make soak-spark`.

Topic → exactly-once topic → exactly-once Parquet, with executors as separate processes. At the end
confluent-kafka and plain Spark count every record. Drivers die in `test_outages`, tasks in
`test_sink`, which are part of `make test`; clusters move in `test_demo` and `test_pipelines`.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.soak.spark_soak import SparkPlan, SparkSoak
from tests.spark.class_archives import java_options

from odradek.testing import LocalCluster

pytestmark = [pytest.mark.timeout(900), pytest.mark.long]  # 30 s on an idle machine


def test_every_record_is_written_exactly_once_if_an_executor_dies(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    plan = SparkPlan(
        faults=1,
        folder=tmp_path,
        seed=12,
        kinds=("executor",),
        master="local-cluster[1,2,1024]",
        settings={"spark.executor.extraJavaOptions": java_options()},
        partitions=2,
        every="500 milliseconds",
        quiet=(0.1, 0.5),
    )
    report = SparkSoak(cluster, plan, print).run()
    assert report.failures == []
    assert report.faults == dict.fromkeys(plan.kinds, 1)
    counts = set(report.records.values())
    assert len(counts) == 1, report.records
    assert counts.pop() > 500

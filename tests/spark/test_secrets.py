"""What Spark writes and shows of a query holds no secret: plans, errors, events, partitions.

The UI and the history server show what the event log holds.
"""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from tests.planted_secrets import plant
from tests.spark.conftest import Topics, numbered, spark_options

from odradek.spark.driver.source import KafkaDataSource
from odradek.spark.tasks.task import KafkaInputPartition
from odradek.testing import LocalCluster

PASSWORD, IN_JAAS = "xyzzy-plugh-17", "xyzzy-plover-19"
JAAS = "org.apache.kafka.common.security.scram.ScramLoginModule required"
pytestmark = pytest.mark.timeout(600)  # the first test of a run starts Spark and the cluster
SECRETS = {
    "kafka.sasl.password": PASSWORD,
    "kafka.sasl.jaas.config": f'{JAAS} username="alice" password="{IN_JAAS}";',
    "kafka.ssl.keystore.password": PASSWORD,
}


def nothing_in(text: str) -> None:
    assert "xyzzy" not in text, text[max(0, text.find("xyzzy") - 300) :][:400]


@pytest.fixture(autouse=True)
def planted() -> None:
    plant(PASSWORD)
    plant(IN_JAAS)


@pytest.fixture
def load(spark: SparkSession, cluster: LocalCluster) -> Callable[..., DataFrame]:
    def read(topic: str, **more: str) -> DataFrame:
        options = {**spark_options(cluster.client_config()), **SECRETS, "subscribe": topic, **more}
        return spark.read.format("odradek").options(**options).load()

    return read


def plans_of(frame: DataFrame, session: Any) -> str:
    """What `explain` prints, in all its modes."""
    explain = session._jvm.PythonSQLUtils.explainString
    execution: Any = frame._jdf.queryExecution()
    modes = ("simple", "extended", "codegen", "cost", "formatted")
    return "\n".join(explain(execution, mode) for mode in modes)


def test_a_query(
    spark: SparkSession, topics: Topics, load: Callable[..., DataFrame], event_log: Path
) -> None:
    topic = topics.create()
    topics.fill(topic, numbered(0, 20))
    frame = load(topic)
    job = f"twenty rows of {topic}"  # by which it is known in the log, which others write to, too
    spark.sparkContext.setJobDescription(job)
    try:
        assert frame.count() == 20
    finally:
        spark.sparkContext.setLocalProperty("spark.job.description", None)  # type: ignore[arg-type]
    nothing_in(plans_of(frame, spark))
    nothing_in(f"{frame!r} {frame.schema}")
    with pytest.raises(PySparkException) as caught:
        load(topic, startingOffsets='{"nonsense": 1}').count()
    nothing_in(str(caught.value))
    written = ""
    end = time.monotonic() + 20
    while "SparkListenerJobEnd" not in written.partition(job)[2] and time.monotonic() < end:
        time.sleep(0.2)
        written = "".join(p.read_text() for p in event_log.iterdir() if p.is_file())
    assert "SparkListenerJobEnd" in written.partition(job)[2]
    nothing_in(written)


def test_partitions_on_their_way(cluster: LocalCluster, topics: Topics) -> None:
    """The reader carries the credentials to its tasks, because they need them; partitions don't."""
    topic = topics.create()
    topics.fill(topic, numbered(0, 4))
    options = {**spark_options(cluster.client_config()), **SECRETS, "subscribe": topic}
    source = KafkaDataSource(options)
    nothing_in(f"{source!r} {source.options!r} {vars(source)!r}")
    reader = source.reader(source.schema())
    nothing_in(f"{reader!r} {vars(reader)!r}")
    partitions = list(reader.partitions())
    assert all(isinstance(p, KafkaInputPartition) for p in partitions)
    nothing_in(repr([pickle.dumps(p) for p in partitions]))
    assert b"xyzzy" in pickle.dumps(reader)

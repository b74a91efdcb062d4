"""Options of the source in real queries: patterns, times, split tasks, bytes, groups."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions
from confluent_kafka.admin import AdminClient
from pyspark.sql import DataFrame, SparkSession
from tests.spark.conftest import Query, Topics, numbered, spark_options

from odradek.testing import LocalCluster

pytestmark = pytest.mark.timeout(600)

EPOCH = 1_700_000_000_000


def test_a_batch_over_a_pattern_between_times_in_small_tasks(
    spark: SparkSession, cluster: LocalCluster, topics: Topics
) -> None:
    names = [topics.create(name=f"timed-{n}") for n in "ab"]
    for name in names:
        for second in range(10):
            rows = numbered(10 * second, 10 * second + 10)
            topics.fill(name, rows, timestamp=EPOCH + second * 1000)

    def load(**options: str) -> DataFrame:
        reader = spark.read.format("odradek").options(**spark_options(cluster.client_config()))
        return reader.option("subscribePattern", r"^timed-\p{Lower}$").options(**options).load()

    frame = load(
        startingTimestamp=str(EPOCH + 1500), endingTimestamp=str(EPOCH + 4000), minPartitions="7"
    )
    assert frame.rdd.getNumPartitions() == 8  # four partitions of 10 offsets, each in two
    found = frame.selectExpr("topic", "CAST(CAST(value AS STRING) AS INT) AS n").collect()
    assert sorted((r.topic, r.n) for r in found) == [(t, n) for t in names for n in range(20, 40)]
    by_partition = {t: {"0": EPOCH + 9000, "1": EPOCH + 9999} for t in names}
    tail = load(
        startingOffsetsByTimestamp=json.dumps(by_partition),
        startingOffsetsByTimestampStrategy="latest",
        maxRecordsPerPartition="3",
    )
    assert (tail.count(), tail.rdd.getNumPartitions()) == (10, 4)
    with pytest.raises(Exception, match=r"startingOffsetsByTimestamp: timed-a-1 has no record"):
        load(startingOffsetsByTimestamp=json.dumps(by_partition)).collect()


def test_a_stream_in_bytes_with_a_group_goes_on_from_other_offsets(
    stream: Callable[[str], Query], topics: Topics, cluster: LocalCluster, tmp_path: Path
) -> None:
    topic = topics.create()
    topics.fill(topic, [(None, f"{n:0100d}".encode()) for n in range(1000)])
    job = stream(topic)
    options: dict[str, Any] = {
        "maxBytesPerTrigger": "25k",
        "minOffsetsPerTrigger": "900",
        "commitOffsets": "group",
        "kafka.group.id": f"lag-of-{topic}",
        "groupIdPrefix": "etl",
    }
    query = job.run(startingOffsets="earliest", **options)
    sizes = [p["numInputRows"] for p in query.recentProgress if p["numInputRows"]]
    assert sizes == [256, 256, 256, 232]  # 25 KB of 100 bytes each, by what the driver weighed
    assert job.values() == list(range(1000))

    # The journal as the JVM connector writes it, under a checkpoint that goes on with our source.
    newest = max((tmp_path / "checkpoint" / "offsets").glob("[0-9]*"), key=lambda p: int(p.name))
    *head, own = newest.read_text().splitlines()
    newest.write_text("\n".join([*head, json.dumps(json.loads(own)["o"])]))
    newest.with_name(f".{newest.name}.crc").unlink(missing_ok=True)
    topics.fill(topic, [(None, f"{n:0100d}".encode()) for n in range(1000, 1100)])
    job.run(**options)
    assert job.values() == list(range(1100))
    assert job.offsets()[-1]["cluster"] == cluster.cluster_id
    job.run(**options)  # the start of a run is told to the group as well: now it has caught up

    admin = AdminClient(dict(cluster.librdkafka_config()))
    asked = [ConsumerGroupTopicPartitions(f"lag-of-{topic}")]
    (found,) = (f.result(30) for f in admin.list_consumer_group_offsets(asked).values())
    committed: Any = {(p.topic, p.partition): p.offset for p in found.topic_partitions}
    assert committed == {(topic, 0): 550, (topic, 1): 550}

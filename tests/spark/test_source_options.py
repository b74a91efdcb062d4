"""Test the source in real queries: rows, columns, patterns, times, split tasks, bytes, groups.

`test_parity` compares the JVM connector's features with it, query by query.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions
from confluent_kafka.admin import AdminClient
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from tests.spark.conftest import Query, Topics, numbered

from odradek.testing import LocalCluster

pytestmark = pytest.mark.timeout(600)

Read = Callable[..., DataFrame]
Stream = Callable[[str], Query]
EPOCH = 1_700_000_000_000


def test_all_fields_of_records_are_read(read: Read, topics: Topics) -> None:
    topic = topics.create()
    stamp = EPOCH + 123
    sent = [(b"k", b"v0"), (None, b"v1"), (b"", None), (b"\xff", b"")]
    topics.fill(topic, sent, timestamp=stamp, headers=[("h", b"1"), ("h", None)])
    topics.fill(topic, [(b"plain", b"no headers")], timestamp=stamp)
    rows = read(topic, includeHeaders="true").orderBy("partition", "offset").collect()
    headers = [("h", b"1"), ("h", None)]
    found = [
        (r.partition, r.offset, r.key, r.value, r.headers and [tuple(h) for h in r.headers])
        for r in rows
    ]
    assert found == [
        (0, 0, b"k", b"v0", headers),
        (0, 1, b"", None, headers),
        (0, 2, b"plain", b"no headers", None),
        (1, 0, None, b"v1", headers),
        (1, 1, b"\xff", b"", headers),
    ]
    assert {(r.topic, r.timestampType) for r in rows} == {(topic, 0)}
    when = datetime.datetime.fromtimestamp(stamp / 1000, tz=datetime.UTC).replace(tzinfo=None)
    stamps = read(topic).selectExpr("date_format(timestamp, 'yyyy-MM-dd HH:mm:ss.SSS') AS t")
    assert {r.t for r in stamps.collect()} == {when.isoformat(" ", "milliseconds")}


def test_the_columns_of_a_users_schema_are_read(read: Read, topics: Topics) -> None:
    topic = topics.create()
    topics.fill(topic, numbered(0, 5000))
    frame = read(topic, schema="offset bigint, value binary")
    assert frame.columns == ["offset", "value"]
    found = frame.selectExpr("count(*) n", "sum(cast(cast(value AS string) AS int)) s").collect()
    assert (found[0].n, found[0].s) == (5000, sum(range(5000)))


def test_a_batch_reads_topics_of_a_pattern_between_two_times_in_small_tasks(
    spark: SparkSession, options: dict[str, str], topics: Topics
) -> None:
    names = [topics.create(name=f"timed-{n}") for n in "ab"]
    for name in names:
        for second in range(10):
            rows = numbered(10 * second, 10 * second + 10)
            topics.fill(name, rows, timestamp=EPOCH + second * 1000)

    def load(**more: str) -> DataFrame:
        reader = spark.read.format("odradek").options(**options)
        return reader.option("subscribePattern", r"^timed-\p{Lower}$").options(**more).load()

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


def test_a_stream_limited_by_bytes_with_a_group_resumes_from_the_jvm_connectors_offsets(
    stream: Stream, topics: Topics, cluster: LocalCluster, tmp_path: Path
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
    assert sizes == [256, 256, 256, 232]  # 25 KB of 100 bytes each, as the driver estimates
    assert job.values() == list(range(1000))

    # The log as the JVM connector writes it, in a checkpoint that our source continues.
    newest = max((tmp_path / "checkpoint" / "offsets").glob("[0-9]*"), key=lambda p: int(p.name))
    *head, own = newest.read_text().splitlines()
    newest.write_text("\n".join([*head, json.dumps(json.loads(own)["o"])]))
    newest.with_name(f".{newest.name}.crc").unlink(missing_ok=True)
    topics.fill(topic, [(None, f"{n:0100d}".encode()) for n in range(1000, 1100)])
    job.run(**options)
    assert job.values() == list(range(1100))
    assert job.offsets()[-1]["cluster"] == cluster.cluster_id
    job.run(**options)  # this run commits its start offsets, the log's ends, to the group

    admin = AdminClient(dict(cluster.librdkafka_config()))
    asked = [ConsumerGroupTopicPartitions(f"lag-of-{topic}")]
    (found,) = (f.result(30) for f in admin.list_consumer_group_offsets(asked).values())
    committed: Any = {(p.topic, p.partition): p.offset for p in found.topic_partitions}
    assert committed == {(topic, 0): 550, (topic, 1): 550}


def test_tasks_send_no_metadata_requests(stream: Stream, topics: Topics, tmp_path: Path) -> None:
    topic = topics.create()
    topics.fill(topic, numbered(0, 90))
    events = tmp_path / "events"
    job = stream(topic)
    job.run(startingOffsets="earliest", maxOffsetsPerTrigger="30", eventsDir=str(events))
    assert job.values() == list(range(90))
    kinds = [
        {json.loads(line)["kind"] for line in file.read_text().splitlines()}
        for file in events.iterdir()
    ]
    tasks = [found for found in kinds if "first_record" in found]
    assert tasks
    assert not any("metadata_request" in found for found in tasks)
    assert sum("metadata_request" in found for found in kinds) == 1  # sent by the driver


def test_a_recreated_topic_fails_with_both_ids_or_is_read_from_its_start(
    stream: Stream, topics: Topics
) -> None:
    topic = topics.create()
    topics.fill(topic, numbered(0, 20))
    job = stream(topic)
    job.run(startingOffsets="earliest")
    before = job.offsets()[-1]["id"][topic]
    topics.delete(topic)
    topics.create(name=topic)
    topics.wait_for_one_id(topic)
    topics.fill(
        topic, numbered(20, 90)
    )  # more records than before, so that offsets don't reveal the change
    with pytest.raises(StreamingQueryException) as caught:
        job.run()
    assert before in str(caught.value)
    assert f"topic {topic} was deleted and recreated" in str(caught.value)
    job.run(failOnDataLoss="false")
    assert job.values() == list(range(90))
    assert job.offsets()[-1]["id"][topic] != before
    assert job.offsets()[-1]["id"][topic] in str(caught.value)
